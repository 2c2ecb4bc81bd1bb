"""SELECTs that count events. What they mean and why they are exact: slices.py."""

from collections.abc import Sequence
from dataclasses import dataclass

from .access import SETTINGS_FREE, SETTINGS_WALK, Access, Select, Shape
from .event_layout import OUTCOMES, Layout
from .group_walk import GroupWalk, label
from .model import QueueModel
from .slices import Marks
from .sqltext import quote_literal

CHUNK_ROWS = 20_000
"""Rows that one message aggregates at most; halved after a time-out."""
WATCH_ROWS = 2_000
"""Claimed tasks whose lease is about to end that are watched at most."""
MAX_MICROSECONDS = 10 * 365 * 86400 * 1_000_000
"""A longer duration is a sentinel and is put to this."""


@dataclass(frozen=True)
class _Column:
    """A time column whose rows are counted: its name, and what is read beside it.

    ``parts`` are pairs of a stamp and a predicate: one where an index on the stamp alone serves,
    one for each outcome where the outcome stands before the stamp in the index.
    """

    name: str
    parts: tuple[tuple[str, str], ...]
    columns: str
    extra: str
    table: str


class EventStatements:
    """The event SELECTs of one table, built anew for each poll's split points."""

    def __init__(
        self, model: QueueModel, shape: Shape, layout: Layout, *, exemplars: bool = False
    ) -> None:
        self._exemplars = exemplars and model.get("id") is not None
        self._model = model
        self._walk = GroupWalk(model, shape)
        self._accesses = shape.accesses
        self._layout = layout
        self.outcomes = tuple(name for name in OUTCOMES if model.get(name))

    @property
    def keys(self) -> list[str]:
        """What a row is labelled by: queue, task_type, both or neither."""
        return self._walk.keys

    @property
    def counts_finished(self) -> bool:
        """Whether finished tasks can be counted."""
        served = {Access.FINISHED_BY_TIME, Access.FINISHED_BY_OUTCOME} & self._accesses
        return bool(served and self.outcomes)

    @property
    def counts_enqueued(self) -> bool:
        """Whether enqueued tasks can be counted."""
        return Access.ENQUEUED_BY_TIME in self._accesses

    @property
    def counts_attempts(self) -> bool:
        """Whether sums of attempts tell how many began: finished ones and live ones."""
        return (
            self.counts_finished
            and self._model.get("attempts") is not None
            and self._model.attempts_counted_at == "claim"
        )

    @property
    def lease_is_due(self) -> bool:
        """Whether one column is both: a task whose lease ran out is simply due again."""
        expressions = self._model.expressions
        return expressions.get("lease_until") == expressions.get("due_at")

    @property
    def sees_reclaims(self) -> bool:
        """Whether a task that was claimed again over an expired lease can be told."""
        model = self._model
        return (
            model.attempts_counted_at == "claim"
            and "lease_reclaims_total" not in model.absent
            and all(model.get(name) for name in ("id", "attempts", "processing", "lease_until"))
            and Access.TASK_BY_ID in self._accesses
            and bool({Access.PROCESSING, Access.PROCESSING_BY_LEASE} & self._accesses)
        )

    def absent(self) -> dict[str, str]:
        """The event counters that this table does not allow, and what each lacks."""
        model, absent = self._model, {}
        if not self.counts_finished:
            if model.get("finished_at") is None or not self.outcomes:
                absent["finished_total"] = "no finished_at, or no predicate for an outcome"
            else:
                absent["finished_total"] = "no index begins with finished_at"
        if not self.counts_enqueued:
            absent["enqueued_total"] = "no index begins with enqueued_at"
        if not self.counts_attempts:
            absent["attempts_total"] = "no finished_total, or no attempts counted at claim"
        if not self.sees_reclaims:
            absent["lease_reclaims_total"] = (
                "no id, lease or attempts counted at claim, or no index on the first two"
            )
        return absent

    def finished(self, start: int, now: Marks, rows: int) -> Select:
        """Finished tasks stamped at or after ``start``, by outcome."""
        model = self._model
        duration = _microseconds(model.get("finished_at"), model.get("started_at"))
        due = model["enqueued_at"]
        if model.get("due_at"):
            due = f"greatest({due}::timestamptz, {model['due_at']}::timestamptz)"
        waited = _microseconds(model.get("started_at"), due)
        outcome = " ".join(f"WHEN {model[name]} THEN '{name}'" for name in self.outcomes)
        attempts = model.get("attempts") or "0"
        columns = (
            f"CASE {outcome} END AS outcome, {attempts} AS attempts, {duration} AS p, {waited} AS w"
        )
        examples = "NULL::text[]"
        if self._exemplars:
            columns += f", {model['id']}::text AS id"
            examples = f"ARRAY[{', '.join(_examples(self._layout))}]"
        numbers = ", ".join(
            [
                "count(*)",
                "coalesce(sum(attempts), 0)",
                "coalesce(sum(greatest(attempts - 1, 0)), 0)",
                f"count(*) FILTER (WHERE {_absurd('p')}) + count(*) FILTER (WHERE {_absurd('w')})",
                *_observations("p", self._layout.processing),
                *_observations("w", self._layout.wait),
            ]
        )
        parts = [(model.finish_of(name), model[name]) for name in self.outcomes]
        if Access.FINISHED_BY_TIME in self._accesses:
            parts = [(model["finished_at"], f"({' OR '.join(where for _, where in parts)})")]
        return self._slice(
            _Column("finished", tuple(parts), columns, ", outcome", model.finished_rows),
            numbers, examples, start, now, rows,
        )  # fmt: skip

    def enqueued(self, start: int, now: Marks, rows: int) -> Select:
        """Tasks enqueued at or after ``start``."""
        parts = ((self._model["enqueued_at"], "true"),)
        return self._slice(
            _Column("enqueued", parts, "1 AS one", "", self._model.rows),
            "count(*)", "NULL::text[]", start, now, rows,
        )  # fmt: skip

    def _slice(
        self,
        column: "_Column",
        numbers: str,
        examples: str,
        start: int,
        now: Marks,
        rows: int,
    ) -> Select:
        since, extra = _timestamp(start), column.extra
        labels = ", ".join(
            f"{self._model[key] if key in self._walk.keys else 'NULL::text'} AS {key}"
            for key in ("queue", "task_type")
        )
        listed = "\n  UNION ALL\n  ".join(
            f"SELECT {labels}, {column.columns}, CASE WHEN {stamp} < {_timestamp(now.safe)} THEN 0 "
            f"WHEN {stamp} < {_timestamp(now.young_safe)} THEN 1 ELSE 2 END AS part\n"
            f"  FROM {column.table}\n"
            f"  WHERE {stamp} >= {since}\n"
            f"    AND {stamp} < coalesce((SELECT stamp FROM upper), 'infinity'::timestamptz)\n"
            f"    AND {where}"
            for stamp, where in column.parts
        )
        # The bound: the stamp of the first row beyond it. Rows of one stamp are never split, so a
        # single stamp may exceed it, and then the read goes just past that stamp.
        sql = (
            f"WITH upper AS MATERIALIZED (\n"
            f"  SELECT (SELECT greatest(b.stamp::timestamptz, {since} + interval '1 us')\n"
            f"    FROM (\n    {_bound(column, since, rows)}) AS b) AS stamp\n"
            f"),\n"
            f"r AS (\n  {listed}\n)\n"
            f"SELECT {label('queue')} AS queue, {label('task_type')} AS task_type{extra}, part,\n"
            f"  ARRAY[{numbers}]::bigint[] AS numbers, {examples} AS examples,\n"
            f"  NULL::bigint AS upper\n"
            f"FROM r GROUP BY r.queue, r.task_type{extra}, part\n"
            f"UNION ALL\n"
            f"SELECT NULL, NULL{', NULL' if extra else ''}, NULL, NULL, NULL,\n"
            f"  (extract(epoch FROM stamp) * 1000000)::bigint FROM upper"
        )
        return Select(column.name, sql, SETTINGS_WALK)

    def lease_watch(self, seconds: float) -> Select:
        """Claimed tasks whose lease ends within so many seconds, the soonest first."""
        model = self._model
        lease = model["lease_until"]
        sql = (
            f"SELECT {self._watched()} FROM {self._walk.table}\n"
            f"WHERE {model['processing']} AND {lease} < now() + interval '{seconds} seconds'\n"
            f"ORDER BY {lease} LIMIT {WATCH_ROWS}"
        )
        by_lease = Access.PROCESSING_BY_LEASE in self._accesses
        return Select("lease_watch", sql, SETTINGS_WALK if by_lease else SETTINGS_FREE)

    def lookup(self, ids: Sequence[str]) -> Select:
        """Tasks by their ids, as they are now."""
        listed = ", ".join(quote_literal(task_id) for task_id in ids)
        sql = (
            f"SELECT {self._watched()} FROM {self._walk.table}\n"
            f"WHERE {self._model['id']} IN ({listed})"
        )
        return Select("lookup", sql, SETTINGS_FREE)

    def _watched(self) -> str:
        model = self._model
        labels = ", ".join(
            f"{label(model[key]) if key in self._walk.keys else 'NULL::text'} AS {key}"
            for key in ("queue", "task_type")
        )
        due = (None if self.lease_is_due else model.get("due_at")) or "NULL"
        return (
            f"{model['id']}::text AS id, {labels}, {model['attempts']} AS attempts, "
            f"coalesce({model['waiting']}, false) AS waiting, "
            f"{_epoch(f'{due}::timestamptz')} AS due, {_epoch(model['lease_until'])} AS lease, "
            f"{_epoch('clock_timestamp()')} AS now"
        )


def _bound(column: _Column, since: str, rows: int) -> str:
    """The stamp of the first row beyond the bound; NULL where there are fewer."""
    if len(column.parts) == 1:
        ((stamp, _),) = column.parts
        return (
            f"SELECT {stamp} AS stamp FROM {column.table} WHERE {stamp} >= {since}\n"
            f"    ORDER BY {stamp} OFFSET {rows} LIMIT 1"
        )
    reads = "\n    UNION ALL\n    ".join(
        f"(SELECT {stamp} AS stamp FROM {column.table} WHERE {where} AND {stamp} >= {since}\n"
        f"    ORDER BY {stamp} LIMIT {rows + 1})"
        for stamp, where in column.parts
    )
    return f"SELECT stamp FROM (\n    {reads}) u ORDER BY stamp OFFSET {rows} LIMIT 1"


def _epoch(time: str) -> str:
    return (
        f"CASE WHEN isfinite({time}) "
        f"THEN (extract(epoch FROM ({time})::timestamptz) * 1000000)::bigint END"
    )


def _timestamp(microseconds: int) -> str:
    """A literal that keeps every microsecond."""
    seconds, rest = divmod(microseconds, 1_000_000)
    return f"(to_timestamp({seconds}) + interval '{rest} us')"


def _microseconds(end: str | None, begin: str | None) -> str:
    """A duration as whole microseconds; NULL where a time is missing or infinite."""
    if end is None or begin is None:
        return "NULL::bigint"
    return (
        f"CASE WHEN isfinite({end}) AND isfinite({begin}) THEN "
        f"round(extract(epoch FROM ({end})::timestamptz - ({begin})::timestamptz) * 1000000)"
        f"::bigint END"
    )


def _absurd(column: str) -> str:
    return f"{column} < 0 OR {column} > {MAX_MICROSECONDS}"


def _observations(column: str, edges: tuple[int, ...]) -> list[str]:
    """Count, sum and cumulative buckets of a duration; edges belong to the bucket below them."""
    return [
        f"count({column})",
        f"coalesce(sum(least(greatest({column}, 0), {MAX_MICROSECONDS})), 0)",
        *(f"count(*) FILTER (WHERE {column} <= {edge})" for edge in edges),
    ]


def _examples(layout: Layout) -> list[str]:
    """For each bucket the longest observation in it and its task: ``microseconds id``."""
    texts = []
    for column, edges in (("p", layout.processing), ("w", layout.wait)):
        for below, edge in zip((None, *edges), (*edges, None), strict=True):
            above = "" if below is None else f"{column} > {below}"
            upto = "" if edge is None else f"{column} <= {edge}"
            within = " AND ".join(part for part in (above, upto) if part)
            example = f"lpad(greatest({column}, 0)::text, 18, '0') || ' ' || id"
            texts.append(f"max({example}) FILTER (WHERE {within})")
    return texts
