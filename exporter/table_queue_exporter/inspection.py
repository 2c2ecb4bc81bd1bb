"""What a table really has: which parts of the model fit it, and which accesses its indexes make
cheap.

Nothing is deduced from the text of index definitions. The planner is asked instead: it knows which
predicate implies which, through quoted names, casts, enums and partitions.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from .access import Access, Select, Shape
from .errors import PollError, Reason
from .model import REQUIRED, QueueModel
from .postgres import Connection, Session
from .reading import Row
from .sqltext import names_in, quote_literal
from .statements import USED

_PROBE_SETTINGS = (
    "enable_bitmapscan=off",
    "enable_sort=off",
    "enable_incremental_sort=off",
)
_PREDICATES = ("waiting", "blocked", "processing", "done", "failed", "cancelled")
_MISFITS = (Reason.UNDEFINED_OBJECT, Reason.DATA)


@dataclass(frozen=True)
class Inspection:
    """A model cut down to what the table holds, with its shape and the columns that it reads.

    ``missing`` maps each expression of the preset that does not fit to what the server said.
    """

    model: QueueModel
    shape: Shape
    columns: tuple[str, ...]
    missing: dict[str, str]


def used_expressions(model: QueueModel) -> list[str]:
    """The SQL of every expression that a poll of this model evaluates."""
    return [sql for name, sql in model.expressions.items() if name in USED]


async def inspect(connection: Connection, model: QueueModel, session: Session) -> Inspection:
    """Reads the catalog and asks the planner; no row of the table is read.

    Raises PollError when the table, a required expression or an explicit one does not fit.
    """
    columns = await _columns(connection, model, session)
    missing = await _missing(connection, model, session)
    fitting = model.without(frozenset(missing))
    accesses = set()
    for access, probe in _probes(fitting):
        if access not in accesses and await _is_cheap(connection, probe, session):
            accesses.add(access)
    nullable = {
        key
        for key in ("queue", "task_type", "due_at")
        if not columns.get(fitting.expressions.get(key, ""), False)
    }
    used = set().union(*(names_in(sql) for sql in used_expressions(fitting)))
    return Inspection(
        fitting,
        Shape(frozenset(accesses), frozenset(nullable)),
        tuple(name for name in columns if name in used),
        missing,
    )


async def _columns(connection: Connection, model: QueueModel, session: Session) -> dict[str, bool]:
    """Column name → whether it is NOT NULL. An unknown table is an error with its name."""
    sql = (
        "SELECT attname AS name, attnotnull AS not_null FROM pg_attribute "
        f"WHERE attrelid = {quote_literal(model.table.sql)}::regclass "
        "AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
    )
    (rows,) = await connection.run([Select("columns", sql)], session)
    return {str(row["name"]): bool(row["not_null"]) for row in rows}


async def _missing(connection: Connection, model: QueueModel, session: Session) -> dict[str, str]:
    """The optional expressions of the preset that this table cannot evaluate, and why.

    All are tried at once; only when that fails, each by itself.
    """
    names = [name for name in USED if name in model.expressions]
    try:
        await connection.run([_evaluation(model, names)], session)
    except PollError as error:
        if error.reason not in _MISFITS:
            raise
    else:
        return {}
    missing = {}
    for name in names:
        try:
            await connection.run([_evaluation(model, [name])], session)
        except PollError as error:
            if error.reason not in _MISFITS:
                raise
            if name in REQUIRED or name in model.explicit:
                raise PollError(error.reason, f"{name}: {error}") from error
            missing[name] = str(error)
    return missing


def _evaluation(model: QueueModel, names: list[str]) -> Select:
    parts = [
        f"{model[name]} IS TRUE" if name in _PREDICATES else f"{model[name]}" for name in names
    ]
    return Select("evaluation", f"SELECT {', '.join(parts)} FROM {model.table.sql} WHERE false")


def _probes(model: QueueModel) -> Iterator[tuple[Access, str]]:
    """The statement whose plan tells whether an access is cheap, for each access that applies."""
    table, waiting = model.table.sql, model["waiting"]
    keys = [model[key] for key in ("queue", "task_type") if model.get(key)]
    enqueued, due = model["enqueued_at"], model.get("due_at")

    def ordered(where: str, order: str, keys: list[str]) -> str:
        conditions = [where, *(f"{key} = (SELECT {key} FROM {table} LIMIT 1)" for key in keys)]
        return f"SELECT 1 FROM {table} WHERE {' AND '.join(conditions)} ORDER BY {order} LIMIT 1"

    # Asked for in both ways: while no task waits, the planner may answer the first through any
    # small index; and the second asks for the keys' own order, which not every index has.
    yield Access.WALK_BY_AGE, ordered(waiting, enqueued, keys)
    yield Access.WALK_BY_AGE, ordered(waiting, ", ".join((*keys, enqueued)), [])
    yield Access.WAITING_BY_AGE, ordered(waiting, enqueued, [])
    if due is not None:
        yield Access.WALK_BY_DUE, ordered(f"{waiting} AND {due} <= now()", due, keys)
        yield Access.WALK_BY_DUE, ordered(waiting, ", ".join((*keys, due)), [])
        yield Access.WAITING_BY_DUE, ordered(waiting, due, [])
    if model.get("processing") and model.lease_until:
        yield Access.PROCESSING_BY_LEASE, ordered(model["processing"], model.lease_until, [])
    finished = model.get("finished_at")
    if finished and model.get("failed"):
        recent = f"{model['failed']} AND {finished} > now() - interval '1 hour'"
        yield Access.FAILED_BY_FINISH, ordered(recent, f"{finished} DESC", [])
    queue = [model["queue"]] if model.get("queue") else []
    for access, column in ((Access.NEWEST_ENQUEUED, enqueued), (Access.NEWEST_FINISHED, finished)):
        if column is not None:
            yield access, ordered(f"{column} IS NOT NULL", f"{column} DESC", queue)
    for access, column in (
        (Access.ENQUEUED_BY_TIME, enqueued),
        (Access.FINISHED_BY_TIME, finished),
    ):
        if column is not None:
            yield access, ordered(f"{column} >= now() - interval '1 minute'", column, [])
    if model.get("id"):
        yield (
            Access.TASK_BY_ID,
            f"SELECT 1 FROM {table} "
            f"WHERE {model['id']} = (SELECT {model['id']} FROM {table} LIMIT 1)",
        )


async def _is_cheap(connection: Connection, probe: str, session: Session) -> bool:
    """Whether the planner can answer in index order without reading rows that it throws away."""
    select = Select("probe", f"EXPLAIN (FORMAT JSON) {probe}", _PROBE_SETTINGS)
    (rows,) = await connection.run([select], session)
    (plan,) = cast(list[dict[str, object]], rows[0]["QUERY PLAN"])
    return _cheap_node(cast(Row, plan["Plan"]))


_ORDERED_NODES = frozenset(
    ("Limit", "Append", "Merge Append", "Index Scan", "Index Only Scan", "Result")
)


def _cheap_node(node: Row) -> bool:
    if node["Node Type"] not in _ORDERED_NODES or "Filter" in node:
        return False
    children = cast(list[Row], node.get("Plans", []))
    return all(
        _cheap_node(child) for child in children if child["Parent Relationship"] != "InitPlan"
    )
