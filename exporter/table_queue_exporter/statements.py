"""QueueModel → SQL. Shaped by the indexes that exist; see Access.

Rules that every statement here keeps, and why:

- What is read is bounded by LIMIT whatever the table's size, and read in an index's order, so that
  the bound cuts at a known place.
- Task types are walked one by one (a loose index scan), so that one type's backlog hides no other.
- Columns are compared bare: a cast or coalesce() around a column loses its index.
- Rows that are finished are never counted over the whole table.
- ``now()`` is the start of the message: one time for everything in it.
"""

from dataclasses import dataclass

from .access import SETTINGS_FREE, SETTINGS_WALK, Access, Select, Shape
from .group_walk import Arm, GroupWalk, age, epoch, label
from .model import QueueModel
from .waiting_statements import WaitingStatements

USED = (
    "id",
    "queue",
    "task_type",
    "index_key",
    "enqueued_at",
    "enqueue_order",
    "due_at",
    "lease_until",
    "started_at",
    "finished_at",
    "attempts",
    "waiting",
    "blocked",
    "processing",
    "done",
    "failed",
    "cancelled",
)
"""The expressions that a poll evaluates: it needs the privilege to read no other column."""


@dataclass(frozen=True)
class QueueStatements:
    """The messages of one poll of one queue, in order: ages first, so that they survive."""

    ages: tuple[Select, ...]
    counts: tuple[Select, ...]


def build_statements(
    model: QueueModel, shape: Shape, *, count_limit: int, failed_window: float
) -> QueueStatements:
    """Every SELECT of one poll. ``failed_window`` in seconds."""
    walk = GroupWalk(model, shape)
    waiting = WaitingStatements(model, shape, walk, count_limit)
    builder = _Builder(model, shape, walk, count_limit)
    ages = waiting.ages()
    counts = waiting.counts()
    if model.get("processing"):
        # Twice, as they are few: their ages must not wait for the counts, and sums of attempts
        # must come from one snapshot.
        in_flight = builder.in_flight()
        ages.append(in_flight)
        counts.append(in_flight)
    if Access.FAILED_BY_FINISH in shape.accesses:
        counts.append(builder.recently_failed(failed_window))
    if Access.NEWEST_ENQUEUED in shape.accesses:
        counts.append(
            builder.newest("newest_enqueued", model["enqueued_at"], model.enqueue_order, model.rows)
        )
    if Access.NEWEST_FINISHED in shape.accesses:
        finished = model["finished_at"]
        counts.append(builder.newest("newest_finished", finished, finished, model.finished_rows))
    return QueueStatements(tuple(ages), tuple(counts))


class _Builder:
    """The SELECTs over claimed and finished tasks, and the newest ones."""

    def __init__(self, model: QueueModel, shape: Shape, walk: GroupWalk, count_limit: int) -> None:
        self._model = model
        self._shape = shape
        self._walk = walk
        self._count_limit = count_limit

    def _has(self, access: Access) -> bool:
        return access in self._shape.accesses

    def in_flight(self) -> Select:
        """Claimed tasks by group: one bounded read in the order in which their leases end."""
        limit = max(self._count_limit // 10, 100)
        lease, started = self._model.lease_until, self._model.started_at
        by_lease = self._has(Access.PROCESSING_BY_LEASE)
        claimed = self._model["processing"]
        values = {
            "expired": f"coalesce({lease or 'NULL::timestamptz'} < now(), false)",
            "lease": f"{lease or 'NULL'}::timestamptz",
            "started": f"{started or 'NULL'}::timestamptz",
            "attempts": self._model.get("attempts") or "0",
        }
        columns = ", ".join(f"{value} AS {name}" for name, value in values.items())
        order = f" ORDER BY {lease}" if by_lease else ""
        having = ""
        if by_lease or self._has(Access.PROCESSING):
            listed = self._walk.listed(columns, claimed, order, limit)
        else:
            # No index finds them: so many rows of whatever kind are looked at, and not all.
            limit = self._count_limit
            columns = ", ".join(
                f"CASE WHEN {claimed} THEN {value} END AS {name}" for name, value in values.items()
            )
            listed = self._walk.listed(f"{columns}, {claimed} AS claimed", "true", "", limit)
            having = " HAVING cut.cut OR bool_or(claimed)"
        sql = (
            f"WITH r AS MATERIALIZED (\n  {listed}\n),\n"
            f"cut AS (SELECT count(*) > {limit} AS cut FROM r)\n"
            f"SELECT {label('queue')} AS queue, {label('task_type')} AS task_type,\n  "
            f"count(*) FILTER (WHERE NOT expired) AS processing,\n  "
            f"count(*) FILTER (WHERE expired) AS expired,\n  "
            f"{age('min(started) FILTER (WHERE NOT expired)')} AS oldest_processing,\n  "
            f"{age('min(lease) FILTER (WHERE expired)')} AS oldest_expired,\n  "
            f"max(attempts) AS attempts_max, coalesce(sum(attempts), 0) AS attempts_sum,\n  "
            f"coalesce(sum(greatest(attempts - 1, 0)), 0) AS extra_sum, cut.cut AS cut,\n  "
            f"{str(by_lease).lower()} AS by_lease\n"
            f"FROM r CROSS JOIN cut GROUP BY r.queue, r.task_type, cut.cut{having}"
        )
        return Select("in_flight", sql, SETTINGS_WALK if by_lease else SETTINGS_FREE)

    def recently_failed(self, window: float) -> Select:
        """Tasks that failed within the window, newest first."""
        finished = self._model.finish_of("failed")
        listed = self._walk.listed(
            "1 AS one",
            f"{self._model['failed']} AND {finished} > now() - interval '{window} seconds'",
            f" ORDER BY {finished} DESC",
            self._count_limit,
            self._model.finished_rows,
        )
        sql = (
            f"WITH r AS MATERIALIZED (\n  {listed}\n),\n"
            f"cut AS (SELECT count(*) > {self._count_limit} AS cut FROM r)\n"
            f"SELECT {label('queue')} AS queue, {label('task_type')} AS task_type,\n  "
            f"count(*) AS failed, cut.cut AS cut\n"
            f"FROM r CROSS JOIN cut GROUP BY r.queue, r.task_type, cut.cut"
        )
        return Select("recently_failed", sql, SETTINGS_WALK)

    def newest(self, name: str, time: str, order: str, rows: str) -> Select:
        """Unix time of the newest row of each queue, by what sorts as that time does."""
        keys = [name for name in ("queue",) if self._model.get(name)]
        walk = self._walk.over(rows)

        def body(arm: Arm) -> str:
            return (
                f"SELECT {walk.labels(arm.labels)}, {epoch('f.newest')} AS newest, "
                f"{epoch('now()')} AS now\n"
                f"FROM {arm.source}\nCROSS JOIN LATERAL (\n  SELECT {time} AS newest "
                f"FROM {rows}\n  WHERE {arm.match('g')} AND {order} IS NOT NULL "
                f"ORDER BY {order} DESC LIMIT 1\n) f"
            )

        return Select(name, walk.walked({0: "true"}, keys, body), SETTINGS_WALK)
