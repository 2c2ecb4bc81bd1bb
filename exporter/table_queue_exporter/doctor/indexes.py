"""Indexes: those that a model's reads want, those that a table lacks, and those that are broken."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..access import Access, Select
from ..model import QueueModel
from ..postgres import Connection, Session
from ..reading import number
from ..sqltext import quote_literal, quote_name
from .catalog import Catalog
from .findings import Finding, Severity, format_bytes
from .index_sql import Index, create_statements, estimate, existing_indexes
from .indexable import functions_in, is_column, is_indexable
from .subject import Subject

_WAITING = ("waiting_ages", "waiting_ages_listed", "waiting_counts", "waiting_counts_listed")
_HELPS = {
    Access.WALK_BY_DUE: _WAITING,
    Access.WALK_BY_AGE: _WAITING,
    Access.PROCESSING_BY_LEASE: ("in_flight", "lease_watch"),
    Access.FAILED_BY_FINISH: ("recently_failed",),
    Access.TASK_BY_ID: ("lookup",),
}
"""The statements whose cost an access brings down."""

_GAINS = {
    Access.WALK_BY_DUE: "oldest_ready_age_seconds becomes exact behind delayed tasks, and counts "
    "are read per task type",
    Access.WALK_BY_AGE: "oldest_task_age_seconds is there, for each task type",
    Access.PROCESSING_BY_LEASE: "expired leases are read first, and lease_reclaims_total is there",
    Access.FAILED_BY_FINISH: "recently_failed_tasks is there",
    Access.NEWEST_ENQUEUED: "last_enqueued_timestamp_seconds is there",
    Access.NEWEST_FINISHED: "last_finished_timestamp_seconds is there",
    Access.ENQUEUED_BY_TIME: "enqueued_total is there",
    Access.FINISHED_BY_TIME: "finished_total, attempts_total, processing_seconds and wait_seconds "
    "are there",
    Access.TASK_BY_ID: "lease_reclaims_total is there",
}


@dataclass(frozen=True)
class Wanted:
    """An index that a model's reads want, and the accesses that it makes cheap."""

    index: Index
    serves: tuple[Access, ...]

    @property
    def helps(self) -> set[str]:
        """The names of the statements whose cost it brings down."""
        return {name for access in self.serves for name in _HELPS.get(access, ())}


def wanted_indexes(model: QueueModel, columns: Iterable[str]) -> list[Wanted]:
    """Every index that this model's reads want, the most important first."""
    known = set(columns)
    sql = model.expressions
    keys = tuple(sql[key] for key in ("queue", "task_type") if key in sql)
    queue = tuple(sql[key] for key in ("queue",) if key in sql)
    enqueued, due, finished = sql["enqueued_at"], sql.get("due_at"), sql.get("finished_at")
    lease = sql.get("lease_until")

    def carried(*names: str) -> tuple[str, ...]:
        """What the read wants beside the keys: only columns can be included."""
        return tuple(sql[name] for name in names if name in sql and is_column(sql[name], known))

    def served(*accesses: Access) -> tuple[Access, ...]:
        return accesses[:1] if keys else accesses

    wanted = []
    if due is not None:
        index = Index("waiting_by_due", (*keys, due), carried("attempts"), sql["waiting"])
        wanted.append(Wanted(index, served(Access.WALK_BY_DUE, Access.WAITING_BY_DUE)))
    index = Index("waiting_by_age", (*keys, enqueued), (), sql["waiting"])
    wanted.append(Wanted(index, served(Access.WALK_BY_AGE, Access.WAITING_BY_AGE)))
    if lease is not None and "processing" in sql:
        beside = carried("queue", "task_type", "started_at", "attempts")
        index = Index("processing", (lease,), beside, sql["processing"])
        wanted.append(Wanted(index, (Access.PROCESSING_BY_LEASE,)))
        if model.attempts_counted_at == "claim" and {"id", "attempts"} <= sql.keys():
            wanted.append(Wanted(Index("by_id", (sql["id"],), (), None), (Access.TASK_BY_ID,)))
    if finished is not None and "failed" in sql:
        beside = carried("queue", "task_type")
        index = Index("failed", (finished,), beside, sql["failed"])
        wanted.append(Wanted(index, (Access.FAILED_BY_FINISH,)))
    if finished is not None:
        there = f"{finished} IS NOT NULL" if is_column(finished, known) else None
        wanted += _by_time("finished", finished, queue, there, Access.FINISHED_BY_TIME)
    wanted += _by_time("enqueued", enqueued, queue, None, Access.ENQUEUED_BY_TIME)
    return wanted


def _by_time(
    name: str, column: str, queue: tuple[str, ...], where: str | None, by_time: Access
) -> list[Wanted]:
    newest = {
        Access.FINISHED_BY_TIME: Access.NEWEST_FINISHED,
        Access.ENQUEUED_BY_TIME: Access.NEWEST_ENQUEUED,
    }[by_time]
    if not queue:
        return [Wanted(Index(name, (column,), (), where), (by_time, newest))]
    return [
        Wanted(Index(name, (column,), (), where), (by_time,)),
        Wanted(Index(f"{name}_by_queue", (*queue, column), (), where), (newest,)),
    ]


async def missing_indexes(subject: Subject) -> list[Wanted]:
    """The wanted indexes that the table lacks and PostgreSQL would take. Raises PollError."""
    if not subject.catalog.is_table:
        return []
    columns, immutable = subject.catalog.columns, await _immutable(subject)
    existing = await existing_indexes(subject.connection, subject.catalog, subject.session)
    return [
        wanted
        for wanted in wanted_indexes(subject.model, columns)
        if set(wanted.serves) - subject.shape.accesses
        # While no such row is there, the planner may prefer another index to the very one.
        and not any(found.serves(wanted.index) for found in existing)
        and all(is_indexable(text, columns, immutable) for text in wanted.index.texts)
    ]


async def index_findings(subject: Subject, missing: Sequence[Wanted]) -> list[Finding]:
    """Each missing index as a statement, and the broken ones. Raises PollError."""
    if not subject.catalog.is_table:
        return []
    return [*await _invalid(subject), *[await _missing(subject, wanted) for wanted in missing]]


async def _missing(subject: Subject, wanted: Wanted) -> Finding:
    size = await estimate(subject.connection, subject.catalog, wanted.index, subject.session)
    statements = await create_statements(
        subject.connection, subject.catalog, wanted.index, subject.session
    )
    lacking = [access for access in wanted.serves if access not in subject.shape.accesses]
    now = [str(cost) for cost in subject.statements if cost.name in wanted.helps]
    gains = "; ".join(dict.fromkeys(_GAINS[access] for access in lacking if access in _GAINS))
    why = f"with it {gains}. " if gains else ""
    why += f"Now {'; '.join(now)}. " if now else ""
    return subject.finding(
        Severity.WARNING,
        "missing_index",
        f"no index of {subject.catalog.table.label} gives {' and '.join(lacking)}",
        f"{why}Its size would be about {format_bytes(size)}",
        sql=statements,
    )


async def _immutable(subject: Subject) -> frozenset[str]:
    """Those functions of the model that an index may hold: whatever they are given, immutable."""
    names = sorted(set().union(*(functions_in(sql) for sql in subject.model.expressions.values())))
    if not names:
        return frozenset()
    listed = ", ".join(quote_literal(name) for name in names)
    sql = (
        f"SELECT proname AS name FROM pg_proc WHERE proname IN ({listed})\n"
        "GROUP BY proname HAVING bool_and(provolatile = 'i')"
    )
    (rows,) = await subject.connection.run([Select("functions", sql)], subject.session)
    return frozenset(str(row["name"]) for row in rows)


async def _invalid(subject: Subject) -> list[Finding]:
    rows = await _invalid_indexes(subject.connection, subject.catalog, subject.session)
    found = []
    for schema, name, size in rows:
        index = f"{quote_name(schema)}.{quote_name(name)}"
        leftover = name.rstrip("0123456789").endswith(("_ccnew", "_ccold"))
        verb = "DROP" if leftover else "REINDEX"
        found.append(
            subject.finding(
                Severity.WARNING,
                "invalid_index",
                f"the index {schema}.{name} ({format_bytes(size)}) is invalid",
                "a CREATE or REINDEX INDEX CONCURRENTLY failed half-way: no query uses it, and "
                "every write still pays for it",
                sql=[f"{verb} INDEX CONCURRENTLY {index}"],
            )
        )
    return found


async def _invalid_indexes(
    connection: Connection, catalog: Catalog, session: Session
) -> list[tuple[str, str, int]]:
    sql = f"""
SELECT n.nspname AS schema, c.relname AS name, pg_relation_size(c.oid) AS bytes
FROM pg_index i
JOIN pg_class c ON c.oid = i.indexrelid AND c.relkind = 'i'
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE NOT (i.indisvalid AND i.indisready)
  AND (i.indrelid = {catalog.oid}
    OR i.indrelid IN (SELECT relid FROM pg_partition_tree({catalog.oid})))
  AND NOT EXISTS (SELECT FROM pg_stat_progress_create_index p WHERE p.index_relid = c.oid)
ORDER BY 1, 2"""
    (rows,) = await connection.run([Select("invalid", sql.strip())], session)
    return [(str(r["schema"]), str(r["name"]), int(number(r["bytes"]))) for r in rows]
