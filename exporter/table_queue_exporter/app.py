"""The running exporter: one poller per database, a page, and reloading."""

import asyncio
import time
from collections.abc import Callable

import structlog

from .config import Config, DatabaseConfig, QueueConfig
from .errors import ConfigError
from .exposition import Page
from .logs import redact
from .poller import DISCOVERY_INTERVAL, DatabasePoller
from .publisher import Publisher
from .state import StateDirectory
from .state_writer import StateWriter
from .store import DatabaseState, QueueState, new_queue_state

log = structlog.get_logger()

UNHEALTHY_INTERVALS = 10
"""Unhealthy when no attempt to poll a queue has ended for this many of its intervals."""
_HEALTH_GRACE = 10.0
_DATABASE_STALE = 45.0


class _Database:
    """One database's poller and what it reads."""

    def __init__(
        self, name: str, config: DatabaseConfig, publisher: Publisher, writer: StateWriter
    ) -> None:
        self.config = config
        self._writer = writer
        self.state = DatabaseState(name, _DATABASE_STALE)
        self.queues: list[QueueState] = []
        self.searched = False
        self.poller: DatabasePoller
        self.task: asyncio.Task[None] | None = None
        self._publisher = publisher

    def start(self, queues: list[QueueState], *, search: bool, search_interval: float) -> None:
        found = self._found if search else None
        self.searched = not search
        self.poller = DatabasePoller(
            self.state, self.config, self._publisher.publish, self._writer, found, search_interval
        )
        self._publisher.publish(self.state)
        self._add(queues)
        self.task = asyncio.create_task(self.poller.run(), name=f"poll {self.state.name}")

    def _add(self, queues: list[QueueState]) -> None:
        self.queues += queues
        for queue in queues:
            self._publisher.publish(queue)
        self.poller.add(queues)

    def _found(self, queues: list[QueueConfig]) -> None:
        known = {state.config.table for state in self.queues}
        new = [queue for queue in queues if queue.table not in known]
        if new or not self.searched:
            names = ", ".join(f"{queue.name} ({queue.preset})" for queue in new)
            log.info("queues found", database=self.state.name, queues=names or "none")
        self.searched = True
        self._add([self._writer.restored(new_queue_state(queue)) for queue in new])

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait([self.task])


class Exporter:
    """Runs what a configuration says. ``load`` reads it, at start and at each reload.

    With ``search``, the databases are searched for known queues, every so many seconds.
    """

    def __init__(
        self,
        load: Callable[[], Config],
        *,
        search: bool = False,
        search_interval: float = DISCOVERY_INTERVAL,
        state_directory: StateDirectory | None = None,
    ) -> None:
        self._load = load
        self._search = search
        self._search_interval = search_interval
        self._config = load()
        self._databases: dict[str, _Database] = {}
        self._started = time.monotonic()
        self._reloaded = time.time()
        self.page = Page(self._config.max_series)
        self._publisher = Publisher(self.page)
        self._reload_ok = True
        self._writer = StateWriter(state_directory, self._publish_self)
        self._reloading = asyncio.Lock()

    def start(self) -> None:
        """Starts polling. Needs a running event loop."""
        self._publish_self()
        for name in self._config.databases:
            self._start(name, {})

    async def stop(self) -> None:
        """Ends every poll, and every session on the servers."""
        await asyncio.gather(*(database.stop() for database in self._databases.values()))

    async def reload(self) -> None:
        """Reads the configuration again; databases whose part did not change go on undisturbed.

        Raises ConfigError, and then goes on with the last good one.
        """
        async with self._reloading:
            await self._reload()

    async def _reload(self) -> None:
        try:
            config = self._load()
        except ConfigError as error:
            self._reload_ok = False
            self._publish_self()
            log.error("configuration not reloaded; the last good one stays", error=str(error))
            raise
        old, self._config = self._config, config
        self.page.max_series = config.max_series
        for name in list(self._databases):
            unchanged = config.databases.get(name) == old.databases[name]
            if not unchanged or config.queues_of(name) != old.queues_of(name):
                await self._restart(name, keep=name in config.databases)
        for name in config.databases.keys() - self._databases.keys():
            self._start(name, {})
        self._reload_ok, self._reloaded = True, time.time()
        self._publish_self()
        log.info("configuration reloaded")

    def _publish_self(self) -> None:
        self._publisher.publish_exporter(
            reload_ok=self._reload_ok, reloaded=self._reloaded, write_errors=self._writer.errors
        )

    async def _restart(self, name: str, *, keep: bool) -> None:
        database = self._databases.pop(name)
        await database.stop()
        self._publisher.retire(database.state)
        for queue in database.queues:
            self._publisher.retire(queue)
        if keep:
            self._start(name, {queue.config.name: queue for queue in database.queues})

    def _start(self, name: str, former: dict[str, QueueState]) -> None:
        database = _Database(name, self._config.databases[name], self._publisher, self._writer)
        self._databases[name] = database
        queues = []
        for config in self._config.queues_of(name):
            queue = new_queue_state(config)
            if config.name in former:
                queue.take_over(former[config.name])
            else:
                self._writer.restored(queue)
            queues.append(queue)
        database.start(queues, search=self._search, search_interval=self._search_interval)

    @property
    def queues(self) -> list[QueueState]:
        """Every queue, in the configuration's order."""
        return [queue for database in self._databases.values() for queue in database.queues]

    @property
    def databases(self) -> list[DatabaseState]:
        """Every database, in the configuration's order."""
        return [database.state for database in self._databases.values()]

    def is_ready(self) -> bool:
        """Whether every queue was tried once, whatever came out.

        A database that is down must not block a rollout.
        """
        searched = all(
            database.searched or database.state.error for database in self._databases.values()
        )
        return searched and all(queue.last_end is not None for queue in self.queues)

    def unhealthy(self) -> list[str]:
        """The queues for which no attempt has ended for too long."""
        now = time.monotonic()
        return [
            queue.config.name
            for queue in self.queues
            if now - (queue.last_end or self._started)
            > UNHEALTHY_INTERVALS * queue.pace + _HEALTH_GRACE
        ]

    def error_of(self, queue: QueueState) -> str:
        """A queue's last error, fit to be shown."""
        return redact(queue.last_error)
