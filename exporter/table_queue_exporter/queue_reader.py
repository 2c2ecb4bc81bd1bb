"""Reads one queue: inspects its table when needed, sends the messages, turns rows into readings."""

import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from . import metrics
from .access import Select
from .config import DatabaseConfig
from .errors import PollError, Reason
from .event_reader import EventPlan, EventReader
from .event_statements import EventStatements
from .events import EventState, RowCounters
from .inspection import Inspection, inspect
from .metrics import Metric
from .postgres import Connection, Session
from .reading import (
    GaugeTable,
    Group,
    Row,
    Step,
    TableReading,
    group_of,
    read_attempts_max,
    read_in_flight_ages,
    read_in_flight_counts,
    read_newest,
    read_recently_failed,
    read_waiting_ages,
    read_waiting_counts,
    waiting_rows,
)
from .server_stats import read_table, table_statement
from .statements import QueueStatements, build_statements
from .store import QueueState

PATIENCE = 30.0
"""Seconds that a statement may take which reads rows of one stamp: see needs_patience."""
INSPECTION_AGE = 300.0
"""Seconds after which a table is inspected again: indexes come and go."""

Found = Step | TableReading | EventState
"""What a poll yields, piece by piece."""
Groups = list[tuple[Group, Row]]


class QueueReader:
    """One queue's way from its configuration to readings. Uses a connection, owns none."""

    def __init__(self, state: QueueState, database: DatabaseConfig) -> None:
        self.state = state
        self._model = state.model
        self._session = Session.of(database, state.config.timezone, state.model.table.schema)
        self._inspection: Inspection | None = None
        self._statements: QueueStatements | None = None
        self._inspected = 0.0
        self._events: EventReader
        self._events_read = time.monotonic()

    def forget(self) -> None:
        """Inspects the table again before the next poll."""
        self._inspection = None

    async def inspection(self, connection: Connection) -> Inspection:
        """What the table has; read again after a while. Raises PollError."""
        if self._inspection is None or time.monotonic() - self._inspected > INSPECTION_AGE:
            self._inspection = await inspect(connection, self._model, self._session)
            self._inspected = time.monotonic()
            self._statements = build_statements(
                self._inspection.model,
                self._inspection.shape,
                count_limit=self.state.config.count_limit,
                failed_window=self.state.config.failed_window,
            )
            self.state.model = self._inspection.model
            self._events = self._event_reader(self._inspection)
        return self._inspection

    def _event_reader(self, inspection: Inspection) -> EventReader:
        config = self.state.config
        statements = EventStatements(
            inspection.model, inspection.shape, self.state.layout, exemplars=config.exemplars
        )
        self.state.sees_reclaims = statements.sees_reclaims
        return EventReader(
            statements,
            self.state.layout,
            self.state.labels,
            interval=config.interval,
            hold=max(2 * config.interval, config.new_series_hold),
            lookback=config.lookback,
        )

    async def notes(self, connection: Connection) -> dict[str, str]:
        """Metrics that the table does not allow, and why: for the log. Raises PollError."""
        inspection = await self.inspection(connection)
        config = self.state.config
        missing = {f"column of {name}": reason for name, reason in inspection.missing.items()}
        return missing | self._events.notes(config.lease, config.interval)

    async def statements(self, connection: Connection) -> QueueStatements:
        """The SELECTs of one poll, as the table's indexes shape them. Raises PollError."""
        await self.inspection(connection)
        assert self._statements is not None
        return self._statements

    async def selects(self, connection: Connection) -> list[Select]:
        """Every SELECT of a poll that would come now, each once. Raises PollError."""
        statements = await self.statements(connection)
        plan = await self._plan(connection, catch_up=False)
        every = [*statements.ages, *statements.counts, *(plan.selects if plan else ())]
        return [*{select.name: select for select in every}.values(), table_statement(self._model)]

    async def read(self, connection: Connection) -> AsyncIterator[Found]:
        """One poll: ages, then counts and events, then the table. Raises PollError between them.

        The ages come in a message of their own: when dead rows make counting slow, the figure that
        pages stays. Whoever takes an EventState saves it and puts it into the queue's state before
        asking for more.
        """
        begun = time.monotonic()
        try:
            statements = await self.statements(connection)
            yield self._ages(await self._run(connection, statements.ages))
            patient = self._events.needs_patience
            plan = None if patient else await self._plan(connection, catch_up=False)
            results = await self._counts_and_events(connection, statements.counts, plan)
            yield self._counts(results)
            if patient:
                plan = await self._plan(connection, catch_up=False)
                results = await self._counts_and_events(connection, (), plan)
            if plan is not None:
                events = self._updated(plan, results)
                yield events
                async for more in self._caught_up(connection, events, begun):
                    yield more
            rows = await self._run(connection, [table_statement(self._model)])
            table = read_table(self._model, rows["table"][0])
            yield table
            if table.row_counts:
                counters = self.state.events.rows or RowCounters()
                yield replace(self.state.events, rows=counters.advanced(table.row_counts))
        except PollError as error:
            if error.reason in (Reason.UNDEFINED_OBJECT, Reason.PERMISSION, Reason.DATA):
                self.forget()
            raise

    async def _plan(self, connection: Connection, *, catch_up: bool) -> EventPlan | None:
        """The event SELECTs to send now; the horizon is read in a message of its own, before."""
        if not self._events.counts_anything:
            return None
        rows = await self._run(connection, [self._events.horizon])
        return self._events.plan(self.state.events, rows["horizon"], catch_up=catch_up)

    async def _counts_and_events(
        self, connection: Connection, counts: Sequence[Select], plan: EventPlan | None
    ) -> dict[str, list[Row]]:
        selects = [*counts, *(plan.selects if plan else ())]
        session = self._session
        if plan is not None and self._events.needs_patience:
            session = replace(session, statement_timeout=PATIENCE)
        try:
            results = await self._run(connection, selects, session, one_snapshot=plan is not None)
        except PollError as error:
            if plan is not None and error.reason is Reason.TIMEOUT:
                self._events.timed_out()
            raise
        if plan is not None:
            self._events.succeeded()
        return results

    def _updated(self, plan: EventPlan, results: dict[str, list[Row]]) -> EventState:
        now = time.monotonic()
        elapsed, self._events_read = now - self._events_read, now
        self.state.exemplars |= self._events.exemplars(results.get("finished", []))
        return self._events.update(plan, results, elapsed)

    async def _caught_up(
        self, connection: Connection, events: EventState, begun: float
    ) -> AsyncIterator[EventState]:
        """After a pause there is more to count than one message may read: chunks, in the budget."""
        until = begun + self.state.config.budget * self.state.pace
        # A state that could not be saved was not taken over: reading on would be in vain.
        while events.behind and self.state.events is events and time.monotonic() < until:
            plan = await self._plan(connection, catch_up=True)
            if plan is None:
                return
            results = await self._counts_and_events(connection, (), plan)
            events = self._updated(plan, results)
            yield events

    async def _run(
        self,
        connection: Connection,
        selects: Sequence[Select],
        session: Session | None = None,
        *,
        one_snapshot: bool = False,
    ) -> dict[str, list[Row]]:
        """Rows by the SELECT's name. A standby's conflict with replay is tried once more."""
        session = session or self._session
        try:
            results = await connection.run(selects, session, one_snapshot=one_snapshot)
        except PollError as error:
            if error.reason is not Reason.CONFLICT:
                raise
            results = await connection.run(selects, session, one_snapshot=one_snapshot)
        return {select.name: rows for select, rows in zip(selects, results, strict=True)}

    def _grouped(self, rows: list[Row]) -> Groups:
        state = self.state
        return [
            (group_of(row, has_queue=state.has_queue, has_type=state.has_type), row) for row in rows
        ]

    def _ages(self, results: dict[str, list[Row]]) -> Step:
        model, table = self.state.model, GaugeTable()
        read_waiting_ages(table, self._grouped(waiting_rows(results, "ages")))
        if "in_flight" in results:
            in_flight = self._grouped(results["in_flight"])
            never = "oldest_expired_age_seconds" in model.absent  # such a task is ready again
            has_lease = model.lease_until is not None and not never
            has_start = model.started_at is not None
            read_in_flight_ages(table, in_flight, has_lease=has_lease, has_start=has_start)
            read_in_flight_counts(table, in_flight, has_lease=has_lease)
        return Step("ages", table.gauges())

    def _counts(self, results: dict[str, list[Row]]) -> Step:
        model, table = self.state.model, GaugeTable()
        has_attempts = model.get("attempts") is not None
        waiting = self._grouped(waiting_rows(results, "counts"))
        read_waiting_counts(table, waiting, has_attempts=has_attempts)
        if has_attempts:
            read_attempts_max(table, waiting, self._grouped(results.get("in_flight", [])))
        if "recently_failed" in results:
            read_recently_failed(table, self._grouped(results["recently_failed"]))
        newest: dict[tuple[Metric, str | None], float] = {}
        clamped = 0
        for name, metric in (
            ("newest_enqueued", metrics.LAST_ENQUEUED),
            ("newest_finished", metrics.LAST_FINISHED),
        ):
            values, ahead = read_newest(metric, self._grouped(results.get(name, [])))
            newest |= values
            clamped += ahead
        return Step("counts", table.gauges(), newest, clamped)
