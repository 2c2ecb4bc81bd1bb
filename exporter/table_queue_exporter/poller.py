"""When to read: one task and one connection per database, its queues one after another."""

import asyncio
import functools
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from .config import DatabaseConfig, QueueConfig
from .discovery import discover
from .errors import PollError, Reason
from .events import EventState
from .postgres import Connection, Session
from .queue_reader import QueueReader
from .reading import Step
from .server_stats import DATABASE_STATEMENT, read_database
from .state_writer import StateWriter
from .store import STALE_INTERVALS, DatabaseState, Publish, QueueState, Timed

log = structlog.get_logger()

MAX_BACK_OFF = 30.0
"""Seconds between two attempts to connect, at most."""
DISCOVERY_INTERVAL = 300.0
"""Seconds between two searches for queues."""
_DEFAULT_INTERVAL = 15.0
_FIRST = 0.0
"""Due before anything else."""


@dataclass
class _Job:
    """Something that is done regularly. ``run`` returns the seconds until it is due again.

    ``due`` by the monotonic clock; ``phase`` is the share of the first interval that is waited, so
    that the jobs of a database spread over it.
    """

    run: Callable[[], Awaitable[float]]
    due: float
    phase: float = 1.0


class DatabasePoller:
    """Reads the queues of one database for ever. Only cancelling ends it.

    One queue's failure touches that queue only: it is counted, logged when it begins and when it
    ends, and the next queue is read. With ``found``, the database is searched for known queues,
    and ``found`` is told of all of them each time; it may call ``add``.
    """

    def __init__(
        self,
        database: DatabaseState,
        config: DatabaseConfig,
        publish: Publish,
        writer: StateWriter,
        found: Callable[[list[QueueConfig]], None] | None = None,
    ) -> None:
        self._writer = writer
        self._state = database
        self._config = config
        self._publish = publish
        self._found = found
        self._connection = Connection(config)
        self._session = Session.of(config)
        self._readers: list[QueueReader] = []
        self._jobs: list[_Job] = []
        self._failing: dict[tuple[str, str], Reason] = {}
        self._notes: dict[tuple[str, str], dict[str, str]] = {}
        self._unreachable = False
        self._back_off = 0.0
        self._retry_at = 0.0
        self._log = log.bind(database=database.name)

    def add(self, queues: list[QueueState]) -> None:
        """Reads these queues too, at once and then spread over the interval."""
        now = time.monotonic()
        for index, queue in enumerate(queues):
            reader = QueueReader(queue, self._config)
            self._readers.append(reader)
            phase = (index + 1) / len(queues)
            self._jobs.append(_Job(functools.partial(self._poll_queue, reader), now, phase))

    async def run(self) -> None:
        """Polls until cancelled, then ends the session on the server."""
        self._jobs.append(_Job(self._poll_database, _FIRST))
        if self._found is not None:
            self._jobs.append(_Job(functools.partial(self._discover, self._found), _FIRST))
        try:
            while True:
                job = min(self._jobs, key=lambda job: job.due)
                await asyncio.sleep(max(job.due - time.monotonic(), 0))
                begun = time.monotonic()
                try:
                    pace = await job.run()
                except Exception:  # a defect of ours must not stop the other jobs
                    self._log.exception("a job failed unexpectedly")
                    pace = _DEFAULT_INTERVAL
                job.due = max(begun + pace * job.phase, time.monotonic())
                job.phase = 1.0
        finally:
            await self._connection.close()

    async def _poll_queue(self, reader: QueueReader) -> float:
        state = reader.state
        state.begin_poll()
        error: tuple[Reason, str] | None = None
        begun: float | None = None
        try:
            await self._ready()
            begun = time.monotonic()
            async for result in reader.read(self._connection):
                now = time.monotonic()
                if isinstance(result, Step):
                    state.put_step(result, now)
                elif isinstance(result, EventState):
                    self._tell_server(state, result)
                    await self._writer.keep(state, result)
                else:
                    state.table = Timed(result, now)
            await self._tell_notes(reader)
        except PollError as failure:
            error = (failure.reason, str(failure))
        except Exception as failure:  # a defect of ours must not stop the other queues
            self._log.exception("poll failed unexpectedly", queue=state.config.name)
            error = (Reason.OTHER, f"unexpected: {type(failure).__name__}")
        state.end_poll(None if begun is None else time.monotonic() - begun, error)
        self._tell(state, error)
        self._publish(state)
        return state.pace

    async def _poll_database(self) -> float:
        pace = min((r.state.config.interval for r in self._readers), default=_DEFAULT_INTERVAL)
        self._state.stale_after = STALE_INTERVALS * pace
        try:
            await self._ready()
            (rows,) = await self._connection.run([DATABASE_STATEMENT], self._session)
        except PollError as failure:
            if failure.reason is Reason.CONNECTION:
                self._lost(str(failure))
            else:
                self._log.warning(
                    "database figures not read", reason=failure.reason, error=str(failure)
                )
            return pace
        self._state.reading = Timed(read_database(rows[0]), time.monotonic())
        self._publish(self._state)
        return pace

    async def _discover(self, found: Callable[[list[QueueConfig]], None]) -> float:
        """Looks for known queues. A failure is told by the jobs that read them."""
        try:
            await self._ready()
            queues = await discover(self._connection, self._state.name, self._session)
        except PollError as failure:
            if failure.reason is not Reason.CONNECTION:
                self._log.warning("queues not searched for", error=str(failure))
            return _DEFAULT_INTERVAL
        found(queues)
        return DISCOVERY_INTERVAL

    async def _ready(self) -> None:
        """Connects when there is no connection, not more often than the back-off allows."""
        if self._connection.connected:
            return
        if time.monotonic() < self._retry_at:
            raise PollError(Reason.CONNECTION, self._state.error)
        try:
            await self._connection.connect()
        except PollError as failure:
            self._back_off = min(max(self._back_off * 2, 0.5), MAX_BACK_OFF)
            delay = self._back_off * random.uniform(0.5, 1.0)
            self._retry_at = time.monotonic() + delay
            self._lost(str(failure))
            raise
        self._back_off = 0.0
        for reader in self._readers:
            reader.forget()
        self._state.up, self._state.error = True, ""
        if self._unreachable:
            self._log.info("database answers again")
            self._unreachable = False
        self._publish(self._state)

    def _lost(self, error: str) -> None:
        if not self._unreachable:
            self._log.error("database does not answer; trying again", error=error)
        self._unreachable = True
        self._state.up, self._state.error = False, error
        self._publish(self._state)

    def _tell(self, state: QueueState, error: tuple[Reason, str] | None) -> None:
        """One line when a queue's failure begins or changes, one when it ends."""
        if error is not None and error[0] is Reason.CONNECTION:
            self._lost(error[1])  # the database's own line says it for all its queues
            return
        failing = self._failing.get(state.key)
        if error is None:
            if failing is not None:
                del self._failing[state.key]
                self._log.info("queue is read again", queue=state.config.name)
        elif failing is not error[0]:
            self._failing[state.key] = error[0]
            self._log.error(
                "queue cannot be read", queue=state.config.name, reason=error[0], error=error[1]
            )

    async def _tell_notes(self, reader: QueueReader) -> None:
        """What the table does not allow to be measured, once and when it changes."""
        notes = await reader.notes(self._connection)
        state = reader.state
        if notes != self._notes.get(state.key, {}):
            self._notes[state.key] = notes
            self._log.warning(
                "not everything can be measured of this table",
                queue=state.config.name,
                **{key.replace(" ", "_"): reason for key, reason in notes.items()},
            )

    def _tell_server(self, state: QueueState, now: EventState) -> None:
        """Another server answers: a failover, or another database altogether."""
        was = state.events.server
        if was is None or now.server is None or was == now.server:
            return
        if was.system != now.server.system:
            self._log.warning(
                "another database system answers; the event counters start at 0",
                queue=state.config.name,
            )
            return
        self._log.warning(
            "failover: the event counters go on; what the new primary lacks stays counted",
            queue=state.config.name,
            timeline=now.server.timeline,
        )
