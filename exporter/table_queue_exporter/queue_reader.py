"""Reads one queue: inspects its table when needed, sends the messages, turns rows into readings."""

import time
from collections.abc import AsyncIterator, Sequence

from . import metrics
from .access import Select
from .config import DatabaseConfig
from .errors import PollError, Reason
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
)
from .server_stats import read_table, table_statement
from .statements import QueueStatements, build_statements
from .store import QueueState

INSPECTION_AGE = 300.0
"""Seconds after which a table is inspected again: indexes come and go."""

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
        return self._inspection

    async def statements(self, connection: Connection) -> QueueStatements:
        """The SELECTs of one poll, as the table's indexes shape them. Raises PollError."""
        await self.inspection(connection)
        assert self._statements is not None
        return self._statements

    async def read(self, connection: Connection) -> AsyncIterator[Step | TableReading]:
        """One poll: ages, then counts, then the table. Raises PollError between any of them.

        The ages come in a message of their own: when dead rows make counting slow, the figure that
        pages stays.
        """
        try:
            statements = await self.statements(connection)
            ages = await self._run(connection, statements.ages)
            yield self._ages(ages)
            counts = await self._run(connection, statements.counts)
            yield self._counts(counts, ages.get("in_flight", []))
            rows = await self._run(connection, [table_statement(self._model)])
            yield read_table(self._model, rows["table"][0])
        except PollError as error:
            if error.reason in (Reason.UNDEFINED_OBJECT, Reason.PERMISSION, Reason.DATA):
                self.forget()
            raise

    async def _run(self, connection: Connection, selects: Sequence[Select]) -> dict[str, list[Row]]:
        """Rows by the SELECT's name. A standby's conflict with replay is tried once more."""
        try:
            results = await connection.run(selects, self._session)
        except PollError as error:
            if error.reason is not Reason.CONFLICT:
                raise
            results = await connection.run(selects, self._session)
        return {select.name: rows for select, rows in zip(selects, results, strict=True)}

    def _grouped(self, rows: list[Row]) -> Groups:
        state = self.state
        return [
            (group_of(row, has_queue=state.has_queue, has_type=state.has_type), row) for row in rows
        ]

    def _ages(self, results: dict[str, list[Row]]) -> Step:
        model, table = self.state.model, GaugeTable()
        read_waiting_ages(table, self._grouped(results["waiting_ages"]))
        if "in_flight" in results:
            in_flight = self._grouped(results["in_flight"])
            has_lease = model.lease_until is not None
            has_start = model.started_at is not None
            read_in_flight_ages(table, in_flight, has_lease=has_lease, has_start=has_start)
            read_in_flight_counts(table, in_flight, has_lease=has_lease)
        return Step("ages", table.gauges())

    def _counts(self, results: dict[str, list[Row]], in_flight: list[Row]) -> Step:
        model, table = self.state.model, GaugeTable()
        has_attempts = model.get("attempts") is not None
        waiting = self._grouped(results["waiting_counts"])
        read_waiting_counts(table, waiting, has_attempts=has_attempts)
        if has_attempts:
            read_attempts_max(table, waiting, self._grouped(in_flight))
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
