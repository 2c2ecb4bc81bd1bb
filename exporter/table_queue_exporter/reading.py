"""What one step of a poll found: plain frozen data.

A *group* is what a table is split by: (value of the queue column, task type), each None where the
model has no such expression, and NULL_VALUE where the row holds NULL.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from . import metrics
from .metrics import Metric

NULL_VALUE = "_none"
"""The label of rows whose task type or queue is NULL."""

Group = tuple[str | None, str | None]
GaugeKey = tuple[Metric, str | None]
"""A gauge family and, for families that have it, the value of the label ``status``."""
Row = Mapping[str, object]


class Status(StrEnum):
    """The label ``status``: the five of live tasks, which do not overlap, and failed."""

    READY = "ready"
    DELAYED = "delayed"
    BLOCKED = "blocked"
    PROCESSING = "processing"
    EXPIRED = "expired"
    FAILED = "failed"


@dataclass(frozen=True)
class Grouped:
    """One gauge's values by group.

    ``unknown`` groups were met but their value was not proven: they are absent. A group that is in
    neither is 0 when the read was ``complete``, and absent when its bound cut it short.
    """

    values: Mapping[Group, float]
    unknown: frozenset[Group] = frozenset()
    complete: bool = True


@dataclass(frozen=True)
class Step:
    """The gauges of one message of a poll (ages, or counts)."""

    name: str
    gauges: Mapping[GaugeKey, Grouped] = field(default_factory=dict)
    newest: Mapping[tuple[Metric, str | None], float] = field(default_factory=dict)
    """(family, value of the queue column) → unix time."""
    clamped: int = 0

    def groups(self) -> list[Group]:
        """Every group that was met, in the order in which it was met."""
        met: dict[Group, None] = {}
        for grouped in self.gauges.values():
            met |= dict.fromkeys(grouped.values)
            met |= dict.fromkeys(grouped.unknown)
        return list(met)


@dataclass(frozen=True)
class TableReading:
    """The table's own figures; a family that the server cannot tell is not among the values."""

    table: str
    values: Mapping[Metric, float]
    row_counts: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Rows inserted and deleted by leaf partition; empty on a standby."""


@dataclass(frozen=True)
class DatabaseReading:
    """The database's own figures, by the holder of the xmin horizon where they have one."""

    in_recovery: bool
    horizon: Mapping[tuple[Metric, str], float]


class GaugeTable:
    """Collects the gauges of one step while rows are read."""

    def __init__(self) -> None:
        self._values: dict[GaugeKey, dict[Group, float]] = {}
        self._unknown: dict[GaugeKey, set[Group]] = {}
        self._partial: set[GaugeKey] = set()

    def declare(self, metric: Metric, status: Status | None = None, *, complete: bool) -> None:
        """Says that the gauge exists, so that groups without rows read 0 (when complete)."""
        self._values.setdefault((metric, status), {})
        if not complete:
            self._partial.add((metric, status))

    def put(
        self, metric: Metric, group: Group, value: object, status: Status | None = None
    ) -> None:
        """A group's value; None says that it could not be proven."""
        key = (metric, status)
        values = self._values.setdefault(key, {})
        if value is None:
            self._unknown.setdefault(key, set()).add(group)
        elif group not in values:
            values[group] = number(value)
        else:  # long task types that differ only past their cut are one group
            merge = sum if metric.merge == "sum" else max
            values[group] = merge((values[group], number(value)))

    def gauges(self) -> dict[GaugeKey, Grouped]:
        """The frozen result."""
        return {
            key: Grouped(
                values, frozenset(self._unknown.get(key, ())), complete=key not in self._partial
            )
            for key, values in self._values.items()
        }


def number(value: object) -> float:
    """A number as the server returned it: int, float or Decimal."""
    return float(value)  # type: ignore[arg-type]  # the statements return numbers only


def group_of(row: Row, *, has_queue: bool, has_type: bool) -> Group:
    """The group of a result row; NULL gets a label value of its own."""

    def label(key: str, present: bool) -> str | None:
        if not present:
            return None
        value = row[key]
        return NULL_VALUE if value is None else str(value)

    return label("queue", has_queue), label("task_type", has_type)


CLOCK_TOLERANCE = 1.0
"""Seconds that a time may lie in the future before it counts as clamped."""
PROOF_TOLERANCE = 1.0
"""Seconds within which a bounded read may prove an age: no alert tells them apart."""


COUNTED = frozenset(("waiting_counts", "waiting_counts_listed"))
"""The SELECTs over waiting tasks that count: those walked by an index, and the rest."""


def waiting_rows(results: Mapping[str, list[Row]], what: str) -> list[Row]:
    """The rows of both SELECTs over waiting tasks; a group may be in either, or in both."""
    return [*results.get(f"waiting_{what}", []), *results.get(f"waiting_{what}_listed", [])]


def read_waiting_ages(table: GaugeTable, rows: Iterable[tuple[Group, Row]]) -> None:
    """Oldest waiting and longest-overdue ready task of each group.

    ``candidate`` is the highest overdue age among the rows read, ``horizon`` the highest that an
    unread row could have (None: all were read). The candidate is the answer when no unread row can
    beat it; otherwise the group's ready age is not known.
    """
    rows = list(rows)
    complete = all(row["all_groups"] for _, row in rows)
    table.declare(metrics.OLDEST_TASK_AGE, complete=complete)
    table.declare(metrics.OLDEST_READY_AGE, complete=complete)
    for group, row in rows:
        table.put(metrics.OLDEST_TASK_AGE, group, row["oldest"])
        candidate, horizon = row["candidate"], row["horizon"]
        if horizon is None:
            proven: object = 0 if candidate is None else candidate
        elif candidate is not None and number(candidate) >= number(horizon) - PROOF_TOLERANCE:
            proven = candidate
        else:
            proven = None
        table.put(metrics.OLDEST_READY_AGE, group, proven)


def read_in_flight_ages(
    table: GaugeTable, rows: Iterable[tuple[Group, Row]], *, has_lease: bool, has_start: bool
) -> None:
    """Oldest running attempt and oldest expired lease of each group.

    Rows are read in the order in which leases end, so that a read that was cut short still knows
    the oldest expired lease of each group it met, but not the oldest running attempt.
    """
    rows = list(rows)
    complete = not any(row["cut"] for _, row in rows)
    if has_start:
        table.declare(metrics.OLDEST_PROCESSING_AGE, complete=complete)
    if has_lease:
        table.declare(metrics.OLDEST_EXPIRED_AGE, complete=complete)
    for group, row in rows:
        if has_start:
            processing = 0 if not row["processing"] else row["oldest_processing"]
            table.put(metrics.OLDEST_PROCESSING_AGE, group, None if row["cut"] else processing)
        if has_lease:
            known = complete or (row["by_lease"] and row["expired"])
            expired = 0 if not row["expired"] else row["oldest_expired"]
            table.put(metrics.OLDEST_EXPIRED_AGE, group, expired if known else None)


def read_waiting_counts(
    table: GaugeTable, rows: Iterable[tuple[Group, Row]], *, has_attempts: bool
) -> None:
    """Ready, delayed and blocked tasks of each group, each marked where it is a lower bound."""
    rows = list(rows)
    complete = all(row["all_groups"] for _, row in rows)
    for status in (Status.READY, Status.DELAYED, Status.BLOCKED):
        table.declare(metrics.TASKS, status, complete=complete)
        table.declare(metrics.COUNT_LIMITED, status, complete=complete)
    if has_attempts:
        table.declare(metrics.RETRYING_TASKS, complete=complete)
    for group, row in rows:
        limited = {
            Status.READY: row["ready_cut"],
            Status.DELAYED: row["delayed_cut"],
            Status.BLOCKED: row["ready_cut"],
        }
        for status, cut in limited.items():
            table.put(metrics.TASKS, group, row[status], status)
            table.put(metrics.COUNT_LIMITED, group, cut, status)
        if has_attempts:
            whole = not (row["ready_cut"] or row["delayed_cut"])
            table.put(metrics.RETRYING_TASKS, group, row["retrying"] if whole else None)


def read_in_flight_counts(
    table: GaugeTable, rows: Iterable[tuple[Group, Row]], *, has_lease: bool
) -> None:
    """Processing and expired tasks of each group."""
    rows = list(rows)
    complete = not any(row["cut"] for _, row in rows)
    for status in (Status.PROCESSING, *([Status.EXPIRED] if has_lease else [])):
        table.declare(metrics.TASKS, status, complete=complete)
        table.declare(metrics.COUNT_LIMITED, status, complete=complete)
        for group, row in rows:
            table.put(metrics.TASKS, group, row[status], status)
            table.put(metrics.COUNT_LIMITED, group, row["cut"], status)


def read_attempts_max(
    table: GaugeTable,
    waiting: Iterable[tuple[Group, Row]],
    in_flight: Iterable[tuple[Group, Row]],
) -> None:
    """Highest attempt count among the waiting and the in-flight tasks of each group."""
    highest: dict[Group, float] = {}
    unknown: set[Group] = set()
    complete = True
    for group, row in waiting:
        complete = complete and bool(row["all_groups"])
        if row["ready_cut"] or row["delayed_cut"]:
            unknown.add(group)
        highest[group] = max(highest.get(group, 0), number(row["attempts_max"] or 0))
    for group, row in in_flight:
        complete = complete and not row["cut"]
        if row["cut"]:
            unknown.add(group)
        highest[group] = max(highest.get(group, 0), number(row["attempts_max"] or 0))
    table.declare(metrics.ATTEMPTS_MAX, complete=complete)
    for group, value in highest.items():
        table.put(metrics.ATTEMPTS_MAX, group, None if group in unknown else value)


def read_recently_failed(table: GaugeTable, rows: Iterable[tuple[Group, Row]]) -> None:
    """Tasks of each group that failed within the window."""
    rows = list(rows)
    complete = not any(row["cut"] for _, row in rows)
    table.declare(metrics.RECENTLY_FAILED_TASKS, complete=complete)
    table.declare(metrics.COUNT_LIMITED, Status.FAILED, complete=complete)
    for group, row in rows:
        table.put(metrics.RECENTLY_FAILED_TASKS, group, row["failed"])
        table.put(metrics.COUNT_LIMITED, group, row["cut"], Status.FAILED)


def read_newest(
    metric: Metric, rows: Iterable[tuple[Group, Row]]
) -> tuple[dict[tuple[Metric, str | None], float], int]:
    """Unix time of each queue's newest row, and how many lay in the future and were put to now."""
    newest: dict[tuple[Metric, str | None], float] = {}
    clamped = 0
    for (queue, _), row in rows:
        value, now = number(row["newest"]), number(row["now"])
        clamped += value > now + CLOCK_TOLERANCE
        newest[metric, queue] = min(max(value, 0.0), now)
    return newest, clamped
