"""SELECTs over waiting tasks: their ages and their counts."""

from .access import SETTINGS_FREE, SETTINGS_WALK, Access, Select, Shape
from .group_walk import Arm, GroupWalk, age, label
from .model import QueueModel

PROOF_ROWS = 8
"""Rows in due order that prove the longest-overdue one, where enqueue and due times disagree."""
AGE_ROWS = 1000
"""Rows per group read for an age where no index gives it at once."""


class WaitingStatements:
    """Builds the SELECTs over the waiting tasks of one table."""

    def __init__(self, model: QueueModel, shape: Shape, walk: GroupWalk, count_limit: int) -> None:
        self._model = model
        self._shape = shape
        self._walk = walk
        self._count_limit = count_limit
        self._table = walk.table
        self._due = model.get("due_at")
        arms = enumerate(model.waiting_arms)
        self._walked = {part: f"({arm})" for part, arm in arms if shape.walks_of(part)}
        self._rest = " OR ".join(
            f"({arm})" for part, arm in enumerate(model.waiting_arms) if part not in self._walked
        )

    def _blocked(self, part: int | None = None) -> str:
        """Whether a task is held back. In a part that is all or none of them it is a constant."""
        blocked, parts = self._model.expressions.get("blocked"), self._model.waiting_arms
        if blocked is None:
            return "false"
        if part is not None and f"({blocked})" in parts:
            return str(parts[part] == f"({blocked})").lower()
        return f"coalesce(({blocked}), false)"

    def _is_due(self) -> str:
        return "true" if self._due is None else f"({self._due} IS NULL OR {self._due} <= now())"

    def _due_time(self) -> str:
        """When a ready task became due: greatest() passes over NULL."""
        enqueued = self._model["enqueued_at"]
        if self._due is None:
            return enqueued
        return f"greatest({enqueued}::timestamptz, {self._due}::timestamptz)"

    def _has(self, access: Access) -> bool:
        return access in self._shape.accesses

    def ages(self) -> list[Select]:
        """Oldest waiting and longest-overdue ready task by group; see read_waiting_ages."""
        selects = []
        if self._walked:
            sql = self._walk.walked(self._walked, self._walk.walk_keys, self._walked_ages)
            selects.append(Select("waiting_ages", sql, SETTINGS_WALK))
        if self._rest:
            order = self._list_order()
            settings = SETTINGS_WALK if order else SETTINGS_FREE
            selects.append(Select("waiting_ages_listed", self._listed_ages(order), settings))
        return selects

    def _list_order(self) -> str | None:
        """The order in which a list of all waiting tasks can be read: enqueue time, due, none."""
        if not self._walked and self._has(Access.WAITING_BY_AGE):
            return "e"
        if not self._walked and self._has(Access.WAITING_BY_DUE):
            return "d"
        return None

    def _in_walk_order(self, column: str) -> str:
        """The order of the index that walks the groups.

        The keys are fixed where a group is read, and yet named: the planner does not take IS NULL
        for a fixed key, and would look for another index in the order of the column alone.
        """
        return ", ".join((*(self._model[key] for key in self._walk.walk_keys), column))

    def _walked_ages(self, arm: Arm) -> str:
        enqueued, match = self._model["enqueued_at"], arm.match("g")
        walks = self._shape.walks_of(arm.part)
        due_order = self._due is not None and Access.WALK_BY_DUE in walks
        blocked = self._blocked(arm.part)
        reads, oldest = [], "NULL::float8"
        candidates, horizons = [], []
        if self._due is not None and due_order:
            rows = PROOF_ROWS if blocked in ("true", "false") else AGE_ROWS
            reads.append(
                f"CROSS JOIN LATERAL (\n  SELECT count(*) AS n, "
                f"min(c) FILTER (WHERE NOT blocked) AS c, "
                f"CASE WHEN count(*) = {rows} THEN max(d) END AS h\n  FROM ("
                f"SELECT {self._due_time()} AS c, {self._due}::timestamptz AS d, "
                f"{blocked} AS blocked\n    FROM {self._table} "
                f"WHERE {match} AND {self._due} <= now()\n"
                f"    ORDER BY {self._in_walk_order(self._due)} LIMIT {rows}) r\n) AS by_due"
            )
            candidates.append("by_due.c")
            horizons.append("by_due.h")
        if Access.WALK_BY_AGE in walks:
            proves = not due_order or "due_at" in self._shape.nullable
            held_back = self._due is not None or blocked not in ("true", "false")
            rows = AGE_ROWS if proves and held_back else 1
            reads.append(
                f"CROSS JOIN LATERAL (\n  SELECT count(*) AS n, min(e) AS oldest, "
                f"min(c) FILTER (WHERE due AND NOT blocked) AS c, "
                f"CASE WHEN count(*) = {rows} THEN max(e) END AS h\n  FROM ("
                f"SELECT {enqueued}::timestamptz AS e, {self._due_time()} AS c, "
                f"{self._is_due()} AS due, {blocked} AS blocked\n"
                f"    FROM {self._table} WHERE {match}\n"
                f"    ORDER BY {self._in_walk_order(self._model.enqueue_order)} "
                f"LIMIT {rows}) r\n) AS by_age"
            )
            oldest = age("by_age.oldest")
            if proves:
                candidates.append("by_age.c")
                horizons.append("by_age.h")
        else:
            # No index gives the oldest: it is known where all tasks of the group can be read.
            reads.append(
                f"CROSS JOIN LATERAL (\n  SELECT count(*) AS n, "
                f"CASE WHEN count(*) <= {AGE_ROWS} THEN min(e) END AS oldest,\n    "
                f"min(c) FILTER (WHERE due AND NOT blocked) AS c,\n    "
                f"CASE WHEN count(*) > {AGE_ROWS} THEN '-infinity'::timestamptz END AS h\n  FROM ("
                f"SELECT {enqueued}::timestamptz AS e, {self._due_time()} AS c, "
                f"{self._is_due()} AS due, {blocked} AS blocked\n"
                f"    FROM {self._table} WHERE {match} LIMIT {AGE_ROWS + 1}) r\n) AS by_all"
            )
            oldest = age("by_all.oldest")
            if "due_at" in self._shape.nullable:  # due at once, and in no due order
                candidates.append("by_all.c")
                horizons.append("by_all.h")
        some = "by_age.n > 0" if Access.WALK_BY_AGE in walks else "by_all.n > 0"
        return (
            f"SELECT {self._walk.labels(arm.labels)},\n  {oldest} AS oldest,\n  "
            f"{age(_least(candidates))} AS candidate,\n  "
            f"{age(_least(horizons))} AS horizon,\n  {self._walk.all_groups(arm)}\n"
            f"FROM {arm.source}\n" + "\n".join(reads) + f"\nWHERE {some}"
        )

    def _listed_ages(self, order: str | None) -> str:
        limit = AGE_ROWS * 10
        column = {"e": self._model.enqueue_order, "d": self._due, None: None}[order]
        due = self._due or "NULL"
        listed = self._walk.listed(
            f"{self._model['enqueued_at']}::timestamptz AS e, {due}::timestamptz AS d, "
            f"{self._due_time()} AS c, {self._is_due()} AND NOT {self._blocked()} AS ready",
            f"({self._rest})",
            f" ORDER BY {column}" if column else "",
            limit,
        )
        # Without an order an unread row can be older than any: '-infinity' proves nothing.
        unread = f"max({order})" if order else "'-infinity'::timestamptz"
        oldest = "min(e)" if order == "e" else "CASE WHEN NOT cut.cut THEN min(e) END"
        return (
            f"WITH r AS MATERIALIZED (\n  {listed}\n),\n"
            f"cut AS (SELECT count(*) > {limit} AS cut, {unread} AS h FROM r)\n"
            f"SELECT {label('queue')} AS queue, {label('task_type')} AS task_type,\n  "
            f"{age(oldest)} AS oldest, {age('min(c) FILTER (WHERE ready)')} AS candidate, "
            f"CASE WHEN cut.cut THEN {age('cut.h')} END AS horizon, NOT cut.cut AS all_groups\n"
            f"FROM r CROSS JOIN cut GROUP BY r.queue, r.task_type, cut.cut, cut.h"
        )

    def counts(self) -> list[Select]:
        """Ready, delayed and blocked tasks by group; see read_waiting_counts."""
        selects = []
        if self._walked:
            sql = self._walk.walked(self._walked, self._walk.walk_keys, self._walked_counts)
            selects.append(Select("waiting_counts", sql, SETTINGS_WALK))
        if self._rest:
            order = {"e": self._model.enqueue_order, "d": self._due}.get(self._list_order() or "")
            sql = self._listed_counts(f" ORDER BY {order}" if order else "")
            settings = SETTINGS_WALK if order else SETTINGS_FREE
            selects.append(Select("waiting_counts_listed", sql, settings))
        return selects

    def _counted_columns(self, part: int | None = None) -> str:
        attempts = self._model.get("attempts") or "0"
        blocked = self._blocked(part)
        return f"{self._is_due()} AS due, {blocked} AS blocked, {attempts} AS attempts"

    def _walked_counts(self, arm: Arm) -> str:
        """Each group's share of the bound, read in due order: ready tasks come first.

        So a read that was cut knows the ready tasks exactly once it has met a delayed one. NULL
        (due at once) sorts last and is a range of its own.
        """
        match = arm.match("g")
        share = str(self._count_limit)
        if arm.limited:
            share = (
                f"(SELECT ceil({self._count_limit}.0 / greatest(count(*), 1))::bigint "
                f"FROM {arm.limited[-1]})"
            )
        ranges = [("", self._model.enqueue_order)]
        ready_cut = "r0.cut"
        if self._due is not None and Access.WALK_BY_DUE in self._shape.walks_of(arm.part):
            ranges = [("", self._due)]
            ready_cut = "r0.cut AND r0.delayed = 0"
            if "due_at" in self._shape.nullable:
                ranges = [
                    (f" AND {self._due} IS NOT NULL", self._due),
                    (f" AND {self._due} IS NULL", self._due),
                ]
                ready_cut = f"({ready_cut}) OR r1.cut"
        reads = [
            f"CROSS JOIN LATERAL (\n  SELECT {_COUNTED},\n    count(*) > {share} AS cut\n"
            f"  FROM (SELECT {self._counted_columns(arm.part)}\n"
            f"    FROM {self._table} WHERE {match}{condition}\n"
            f"    ORDER BY {self._in_walk_order(order)} LIMIT {share} + 1) r\n) AS r{index}"
            for index, (condition, order) in enumerate(ranges)
        ]

        def total(column: str) -> str:
            return " + ".join(f"r{i}.{column}" for i in range(len(ranges)))

        highest = ", ".join(f"r{i}.attempts_max" for i in range(len(ranges)))
        return (
            f"SELECT {self._walk.labels(arm.labels)},\n  {total('ready')} AS ready, "
            f"{total('delayed')} AS delayed, {total('blocked')} AS blocked, "
            f"{total('retrying')} AS retrying, greatest({highest}) AS attempts_max,\n  "
            f"{total('attempts_sum')} AS attempts_sum, {total('extra_sum')} AS extra_sum,\n  "
            f"({ready_cut}) AS ready_cut, r0.cut AS delayed_cut, "
            f"{self._walk.all_groups(arm)}\nFROM {arm.source}\n"
            + "\n".join(reads)
            + f"\nWHERE {total('n')} > 0"
        )

    def _listed_counts(self, order: str) -> str:
        listed = self._walk.listed(
            self._counted_columns(), f"({self._rest})", order, self._count_limit
        )
        return (
            f"WITH r AS MATERIALIZED (\n  {listed}\n),\n"
            f"cut AS (SELECT count(*) > {self._count_limit} AS cut FROM r)\n"
            f"SELECT {label('queue')} AS queue, {label('task_type')} AS task_type, {_COUNTED}, "
            f"cut.cut AS ready_cut, cut.cut AS delayed_cut, NOT cut.cut AS all_groups\n"
            f"FROM r CROSS JOIN cut GROUP BY r.queue, r.task_type, cut.cut"
        )


_COUNTED = (
    "count(*) AS n, count(*) FILTER (WHERE due AND NOT blocked) AS ready,\n    "
    "count(*) FILTER (WHERE NOT due) AS delayed, "
    "count(*) FILTER (WHERE due AND blocked) AS blocked,\n    "
    "count(*) FILTER (WHERE attempts > 0) AS retrying, max(attempts) AS attempts_max,\n    "
    "coalesce(sum(attempts), 0) AS attempts_sum, "
    "coalesce(sum(greatest(attempts - 1, 0)), 0) AS extra_sum"
)


def _least(times: list[str]) -> str:
    return f"least({', '.join(times)})" if times else "NULL::timestamptz"
