"""QueueModel → SQL. Shaped by the indexes that exist; see Access.

Rules that every statement here keeps, and why:

- What is read is bounded by LIMIT whatever the table's size, and read in an index's order, so that
  the bound cuts at a known place.
- Task types are walked one by one (a loose index scan), so that one type's backlog hides no other.
- Columns are compared bare: a cast or coalesce() around a column loses its index.
- Rows that are finished are never counted over the whole table.
- ``now()`` is the start of the message: one time for everything in it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from .model import QueueModel

USED = (
    "queue",
    "task_type",
    "enqueued_at",
    "due_at",
    "lease_until",
    "started_at",
    "finished_at",
    "attempts",
    "waiting",
    "blocked",
    "processing",
    "failed",
)
"""The expressions that a poll evaluates: it needs the privilege to read no other column."""
MAX_GROUPS = 1000
"""Groups walked in one statement; further ones are summed into nothing and said so."""
PROOF_ROWS = 8
"""Rows in due order that prove the longest-overdue one, where enqueue and due times disagree."""
AGE_ROWS = 1000
"""Rows per group read for an age where no index gives it at once."""
LABEL_BYTES = 128
SETTINGS_WALK = ("enable_bitmapscan=off", "enable_sort=off")
"""A bitmap or a sort would read the whole group before LIMIT could cut it."""
SETTINGS_FREE = ("enable_bitmapscan=on", "enable_sort=on")


class Access(StrEnum):
    """What the table's indexes make cheap. Each name is one probe of the planner."""

    WALK_BY_DUE = "waiting tasks of each type in due order"
    WALK_BY_AGE = "waiting tasks of each type in enqueue order"
    WAITING_BY_AGE = "waiting tasks in enqueue order"
    WAITING_BY_DUE = "waiting tasks in due order"
    PROCESSING_BY_LEASE = "claimed tasks in the order in which their leases end"
    FAILED_BY_FINISH = "failed tasks by finish time"
    NEWEST_ENQUEUED = "the newest task of each queue"
    NEWEST_FINISHED = "the newest finished task of each queue"


@dataclass(frozen=True)
class Shape:
    """What is known of a table beyond its model: cheap accesses, and keys that may be NULL."""

    accesses: frozenset[Access]
    nullable: frozenset[str] = frozenset(("queue", "task_type", "due_at"))


@dataclass(frozen=True)
class Select:
    """One SELECT of a message, with the planner settings that it needs."""

    name: str
    sql: str
    settings: tuple[str, ...] = SETTINGS_FREE


@dataclass(frozen=True)
class QueueStatements:
    """The messages of one poll of one queue, in order: ages first, so that they survive."""

    ages: tuple[Select, ...]
    counts: tuple[Select, ...]


def build_statements(
    model: QueueModel, shape: Shape, *, count_limit: int, failed_window: float
) -> QueueStatements:
    """Every SELECT of one poll. ``failed_window`` in seconds."""
    builder = _Builder(model, shape, count_limit)
    ages = [builder.waiting_ages()]
    counts = [builder.waiting_counts()]
    if model.get("processing"):
        in_flight = builder.in_flight()
        ages.append(in_flight)
        counts.append(in_flight)
    if Access.FAILED_BY_FINISH in shape.accesses:
        counts.append(builder.recently_failed(failed_window))
    for access, column in (
        (Access.NEWEST_ENQUEUED, "enqueued_at"),
        (Access.NEWEST_FINISHED, "finished_at"),
    ):
        if access in shape.accesses:
            counts.append(builder.newest(access.name.lower(), column))
    return QueueStatements(tuple(ages), tuple(counts))


def epoch(time: str) -> str:
    """A time as unix seconds; a `timestamp` without zone is read in the session's zone."""
    return f"extract(epoch FROM ({time})::timestamptz)::float8"


def age(time: str) -> str:
    """Seconds since a time. Never subtracts timestamps: that fails for infinite ones."""
    return f"(extract(epoch FROM now())::float8 - {epoch(time)})"


@dataclass(frozen=True)
class _Arm:
    """One way into the groups: the CTEs that walk them, and how a row belongs to a group."""

    ctes: tuple[str, ...]
    source: str
    match: Callable[[str], str]
    labels: dict[str, str]
    limited: tuple[str, ...] = ()


class _Builder:
    def __init__(self, model: QueueModel, shape: Shape, count_limit: int) -> None:
        self._model = model
        self._shape = shape
        self._count_limit = count_limit
        self._table = model.table.sql
        self._due = model.get("due_at")
        self._keys = [key for key in ("queue", "task_type") if model.get(key)]

    # --- groups -----------------------------------------------------------------------------

    def arms(self, where: str, keys: list[str]) -> list[_Arm]:
        """Walks the distinct values of the keys, one index probe each; NULLs in arms of their own.

        A recursive loose index scan: the first value, then again and again the next one above it.
        """
        arms = [_Arm((), "(SELECT 1) AS g", lambda alias: where, {})]
        for key in keys:
            arms = [new for arm in arms for new in self._split(arm, key)]
        return arms

    def _split(self, arm: _Arm, key: str) -> list[_Arm]:
        column = self._model[key]
        walk = f"walk_{key}_{'_'.join(arm.labels) or 'all'}_{len(arm.ctes)}"
        prior = "".join(f"{{alias}}.{name}, " for name in arm.labels if arm.labels[name] != "NULL")

        def first(alias: str, above: str) -> str:
            return (
                f"SELECT {column} AS {key} FROM {self._table}\n"
                f"      WHERE {arm.match(alias)} AND {column} {above}\n"
                f"      ORDER BY {column} LIMIT 1"
            )

        cte = (
            f"{walk} AS (\n"
            f"  SELECT {prior.format(alias='g')}f.{key} FROM {arm.source}\n"
            f"    CROSS JOIN LATERAL ({first('g', 'IS NOT NULL')}) f\n"
            f"  UNION ALL\n"
            f"  SELECT {prior.format(alias='w')}n.{key} FROM {walk} w\n"
            f"    CROSS JOIN LATERAL ({first('w', f'> w.{key}')}) n\n"
            f")"
        )
        groups = f"groups_{walk} AS MATERIALIZED (SELECT * FROM {walk} LIMIT {MAX_GROUPS + 1})"
        value = _Arm(
            (*arm.ctes, cte, groups),
            f"groups_{walk} AS g",
            lambda alias: f"{arm.match(alias)} AND {column} = {alias}.{key}",
            {**arm.labels, key: f"g.{key}"},
            (*arm.limited, f"groups_{walk}"),
        )
        if key not in self._shape.nullable:
            return [value]
        null = _Arm(
            arm.ctes,
            arm.source,
            lambda alias: f"{arm.match(alias)} AND {column} IS NULL",
            {**arm.labels, key: "NULL"},
            arm.limited,
        )
        return [value, null]

    def _walked(self, where: str, keys: list[str], body: Callable[[_Arm], str]) -> str:
        """A statement that evaluates ``body`` for each group of each arm."""
        arms = self.arms(where, keys)
        ctes = list(dict.fromkeys(cte for arm in arms for cte in arm.ctes))
        head = "WITH RECURSIVE " + ",\n".join(ctes) + "\n" if ctes else ""
        return head + "\nUNION ALL\n".join(body(arm) for arm in arms)

    def _labels(self, arm_labels: dict[str, str]) -> str:
        return ", ".join(
            f"{_label(arm_labels[key]) if key in arm_labels else 'NULL::text'} AS {key}"
            for key in ("queue", "task_type")
        )

    @staticmethod
    def _all_groups(arm: _Arm) -> str:
        if not arm.limited:
            return "true AS all_groups"
        counts = " AND ".join(
            f"(SELECT count(*) <= {MAX_GROUPS} FROM {name})" for name in arm.limited
        )
        return f"{counts} AS all_groups"

    def _listed(self, columns: str, where: str, order: str, limit: int) -> str:
        """A bounded read of rows with their groups, for where no index walks the groups."""
        labels = ", ".join(
            f"{self._model[key] if key in self._keys else 'NULL::text'} AS {key}"
            for key in ("queue", "task_type")
        )
        return (
            f"SELECT {labels}, {columns}\n  FROM {self._table}\n"
            f"  WHERE {where}{order}\n  LIMIT {limit + 1}"
        )

    # --- waiting tasks ----------------------------------------------------------------------

    def _blocked(self) -> str:
        blocked = self._model.get("blocked")
        return "false" if blocked is None else f"coalesce({blocked}, false)"

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

    def waiting_ages(self) -> Select:
        """Oldest waiting and longest-overdue ready task by group; see read_waiting_ages."""
        if self._has(Access.WALK_BY_DUE) or self._has(Access.WALK_BY_AGE):
            sql = self._walked(self._model["waiting"], self._keys, self._walked_ages)
            return Select("waiting_ages", sql, SETTINGS_WALK)
        if self._has(Access.WAITING_BY_AGE):
            return Select("waiting_ages", self._listed_ages("e"), SETTINGS_WALK)
        if self._has(Access.WAITING_BY_DUE):
            return Select("waiting_ages", self._listed_ages("d"), SETTINGS_WALK)
        return Select("waiting_ages", self._listed_ages(None))

    def _walked_ages(self, arm: _Arm) -> str:
        enqueued, match = self._model["enqueued_at"], arm.match("g")
        due_order = self._due is not None and self._has(Access.WALK_BY_DUE)
        reads, oldest = [], "NULL::float8"
        candidates, horizons = [], []
        if due_order:
            rows = PROOF_ROWS if self._model.get("blocked") is None else AGE_ROWS
            reads.append(
                f"CROSS JOIN LATERAL (\n  SELECT count(*) AS n, "
                f"min(c) FILTER (WHERE NOT blocked) AS c, "
                f"CASE WHEN count(*) = {rows} THEN max(d) END AS h\n  FROM ("
                f"SELECT {self._due_time()} AS c, {self._due}::timestamptz AS d, "
                f"{self._blocked()} AS blocked\n    FROM {self._table} "
                f"WHERE {match} AND {self._due} <= now()\n"
                f"    ORDER BY {self._due} LIMIT {rows}) r\n) AS by_due"
            )
            candidates.append("by_due.c")
            horizons.append("by_due.h")
        if self._has(Access.WALK_BY_AGE):
            proves = not due_order or "due_at" in self._shape.nullable
            rows = AGE_ROWS if proves and self._due is not None else 1
            reads.append(
                f"CROSS JOIN LATERAL (\n  SELECT count(*) AS n, min(e) AS oldest, "
                f"min(c) FILTER (WHERE due AND NOT blocked) AS c, "
                f"CASE WHEN count(*) = {rows} THEN max(e) END AS h\n  FROM ("
                f"SELECT {enqueued}::timestamptz AS e, {self._due_time()} AS c, "
                f"{self._is_due()} AS due, {self._blocked()} AS blocked\n"
                f"    FROM {self._table} WHERE {match}\n"
                f"    ORDER BY {enqueued} LIMIT {rows}) r\n) AS by_age"
            )
            oldest = age("by_age.oldest")
            if proves:
                candidates.append("by_age.c")
                horizons.append("by_age.h")
        some = "by_age.n > 0" if self._has(Access.WALK_BY_AGE) else "true"
        return (
            f"SELECT {self._labels(arm.labels)},\n  {oldest} AS oldest,\n  "
            f"{age(_least(candidates))} AS candidate,\n  "
            f"{age(_least(horizons))} AS horizon,\n  {self._all_groups(arm)}\nFROM {arm.source}\n"
            + "\n".join(reads)
            + f"\nWHERE {some}"
        )

    def _listed_ages(self, order: str | None) -> str:
        limit = AGE_ROWS * 10
        column = {"e": self._model["enqueued_at"], "d": self._due, None: None}[order]
        due = self._due or "NULL"
        listed = self._listed(
            f"{self._model['enqueued_at']}::timestamptz AS e, {due}::timestamptz AS d, "
            f"{self._due_time()} AS c, {self._is_due()} AND NOT {self._blocked()} AS ready",
            self._model["waiting"],
            f" ORDER BY {column}" if column else "",
            limit,
        )
        # Without an order an unread row can be older than any: '-infinity' proves nothing.
        unread = f"max({order})" if order else "'-infinity'::timestamptz"
        oldest = "min(e)" if order == "e" else "CASE WHEN NOT cut.cut THEN min(e) END"
        return (
            f"WITH r AS MATERIALIZED (\n  {listed}\n),\n"
            f"cut AS (SELECT count(*) > {limit} AS cut, {unread} AS h FROM r)\n"
            f"SELECT {_label('queue')} AS queue, {_label('task_type')} AS task_type,\n  "
            f"{age(oldest)} AS oldest, {age('min(c) FILTER (WHERE ready)')} AS candidate, "
            f"CASE WHEN cut.cut THEN {age('cut.h')} END AS horizon, NOT cut.cut AS all_groups\n"
            f"FROM r CROSS JOIN cut GROUP BY r.queue, r.task_type, cut.cut, cut.h"
        )

    def waiting_counts(self) -> Select:
        """Ready, delayed and blocked tasks by group; see read_waiting_counts."""
        if self._has(Access.WALK_BY_DUE) or self._has(Access.WALK_BY_AGE):
            sql = self._walked(self._model["waiting"], self._keys, self._walked_counts)
            return Select("waiting_counts", sql, SETTINGS_WALK)
        if self._has(Access.WAITING_BY_AGE):
            order = f" ORDER BY {self._model['enqueued_at']}"
        elif self._has(Access.WAITING_BY_DUE):
            order = f" ORDER BY {self._due}"
        else:
            order = ""
        return Select(
            "waiting_counts",
            self._listed_counts(order),
            SETTINGS_WALK if order else SETTINGS_FREE,
        )

    def _counted_columns(self) -> str:
        attempts = self._model.get("attempts") or "0"
        return f"{self._is_due()} AS due, {self._blocked()} AS blocked, {attempts} AS attempts"

    def _walked_counts(self, arm: _Arm) -> str:
        """By due order the ready and the delayed tasks are two ranges, each with its own bound."""
        match = arm.match("g")
        share = str(self._count_limit)
        if arm.limited:
            share = (
                f"(SELECT ceil({self._count_limit}.0 / greatest(count(*), 1))::bigint "
                f"FROM {arm.limited[-1]})"
            )
        if self._due is not None and self._has(Access.WALK_BY_DUE):
            ranges = [(f" AND {self._due} <= now()", "ready", self._due)]
            if "due_at" in self._shape.nullable:
                ranges.append((f" AND {self._due} IS NULL", "ready", ""))
            ranges.append((f" AND {self._due} > now()", "delayed", self._due))
        else:
            ranges = [("", "all", self._model["enqueued_at"])]
        reads = [
            f"CROSS JOIN LATERAL (\n  SELECT {_COUNTED},\n    count(*) > {share} AS cut\n"
            f"  FROM (SELECT {self._counted_columns()}\n"
            f"    FROM {self._table} WHERE {match}{condition}\n"
            f"   {f' ORDER BY {order}' if order else ''} LIMIT {share} + 1) r\n) AS r{index}"
            for index, (condition, _, order) in enumerate(ranges)
        ]

        def cut(kind: str) -> str:
            names = [f"r{i}.cut" for i, (_, k, _) in enumerate(ranges) if k in (kind, "all")]
            return " OR ".join(names)

        def total(column: str) -> str:
            return " + ".join(f"r{i}.{column}" for i in range(len(ranges)))

        highest = ", ".join(f"r{i}.attempts_max" for i in range(len(ranges)))
        return (
            f"SELECT {self._labels(arm.labels)},\n  {total('ready')} AS ready, "
            f"{total('delayed')} AS delayed, {total('blocked')} AS blocked, "
            f"{total('retrying')} AS retrying, greatest({highest}) AS attempts_max,\n  "
            f"({cut('ready')}) AS ready_cut, ({cut('delayed')}) AS delayed_cut, "
            f"{self._all_groups(arm)}\nFROM {arm.source}\n"
            + "\n".join(reads)
            + f"\nWHERE {total('n')} > 0"
        )

    def _listed_counts(self, order: str) -> str:
        listed = self._listed(
            self._counted_columns(), self._model["waiting"], order, self._count_limit
        )
        return (
            f"WITH r AS MATERIALIZED (\n  {listed}\n),\n"
            f"cut AS (SELECT count(*) > {self._count_limit} AS cut FROM r)\n"
            f"SELECT {_label('queue')} AS queue, {_label('task_type')} AS task_type, {_COUNTED}, "
            f"cut.cut AS ready_cut, cut.cut AS delayed_cut, NOT cut.cut AS all_groups\n"
            f"FROM r CROSS JOIN cut GROUP BY r.queue, r.task_type, cut.cut"
        )

    # --- claimed and finished tasks -----------------------------------------------------------

    def in_flight(self) -> Select:
        """Claimed tasks by group: one bounded read in the order in which their leases end."""
        limit = max(self._count_limit // 10, 100)
        lease, started = self._model.lease_until, self._model.started_at
        by_lease = self._has(Access.PROCESSING_BY_LEASE)
        columns = (
            f"coalesce({lease or 'NULL::timestamptz'} < now(), false) AS expired,\n  "
            f"{lease or 'NULL'}::timestamptz AS lease, "
            f"{started or 'NULL'}::timestamptz AS started, "
            f"{self._model.get('attempts') or '0'} AS attempts"
        )
        listed = self._listed(
            columns,
            self._model["processing"],
            f" ORDER BY {lease}" if by_lease else "",
            limit,
        )
        sql = (
            f"WITH r AS MATERIALIZED (\n  {listed}\n),\n"
            f"cut AS (SELECT count(*) > {limit} AS cut FROM r)\n"
            f"SELECT {_label('queue')} AS queue, {_label('task_type')} AS task_type,\n  "
            f"count(*) FILTER (WHERE NOT expired) AS processing,\n  "
            f"count(*) FILTER (WHERE expired) AS expired,\n  "
            f"{age('min(started) FILTER (WHERE NOT expired)')} AS oldest_processing,\n  "
            f"{age('min(lease) FILTER (WHERE expired)')} AS oldest_expired,\n  "
            f"max(attempts) AS attempts_max, cut.cut AS cut, {str(by_lease).lower()} AS by_lease\n"
            f"FROM r CROSS JOIN cut GROUP BY r.queue, r.task_type, cut.cut"
        )
        return Select("in_flight", sql, SETTINGS_WALK if by_lease else SETTINGS_FREE)

    def recently_failed(self, window: float) -> Select:
        """Tasks that failed within the window, newest first."""
        finished = self._model["finished_at"]
        listed = self._listed(
            "1 AS one",
            f"{self._model['failed']} AND {finished} > now() - interval '{window} seconds'",
            f" ORDER BY {finished} DESC",
            self._count_limit,
        )
        sql = (
            f"WITH r AS MATERIALIZED (\n  {listed}\n),\n"
            f"cut AS (SELECT count(*) > {self._count_limit} AS cut FROM r)\n"
            f"SELECT {_label('queue')} AS queue, {_label('task_type')} AS task_type,\n  "
            f"count(*) AS failed, cut.cut AS cut\n"
            f"FROM r CROSS JOIN cut GROUP BY r.queue, r.task_type, cut.cut"
        )
        return Select("recently_failed", sql, SETTINGS_WALK)

    def newest(self, name: str, key: str) -> Select:
        """Unix time of the newest row of each queue by one time column."""
        column = self._model[key]
        keys = [name for name in ("queue",) if self._model.get(name)]

        def body(arm: _Arm) -> str:
            return (
                f"SELECT {self._labels(arm.labels)}, {epoch('f.newest')} AS newest, "
                f"{epoch('now()')} AS now\n"
                f"FROM {arm.source}\nCROSS JOIN LATERAL (\n  SELECT {column} AS newest "
                f"FROM {self._table}\n  WHERE {arm.match('g')} AND {column} IS NOT NULL "
                f"ORDER BY {column} DESC LIMIT 1\n) f"
            )

        return Select(name, self._walked("true", keys, body), SETTINGS_WALK)


_COUNTED = (
    "count(*) AS n, count(*) FILTER (WHERE due AND NOT blocked) AS ready,\n    "
    "count(*) FILTER (WHERE NOT due) AS delayed, "
    "count(*) FILTER (WHERE due AND blocked) AS blocked,\n    "
    "count(*) FILTER (WHERE attempts > 0) AS retrying, max(attempts) AS attempts_max"
)


def _label(value: str) -> str:
    """A label's value: text, and no longer than a label may be (10 kB task types exist)."""
    return f"left(({value})::text, {LABEL_BYTES + 1})"


def _least(times: list[str]) -> str:
    return f"least({', '.join(times)})" if times else "NULL::timestamptz"
