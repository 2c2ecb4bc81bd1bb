"""What a table really has: which parts of the model fit it, and which accesses its indexes make
cheap.

Nothing is deduced from the text of index definitions. The planner is asked instead: it knows which
predicate implies which, through quoted names, casts, enums and partitions.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

from .access import WALKS, Access, Select, Shape
from .errors import PollError, Reason
from .model import REQUIRED, QueueModel
from .postgres import Connection, Session
from .reading import Row
from .sqltext import names_in, quote_literal, quote_name
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
    used = [sql for name, sql in model.expressions.items() if name in USED]
    return [*used, *model.relations.values(), *model.finishes.values()]


async def inspect(connection: Connection, model: QueueModel, session: Session) -> Inspection:
    """Reads the catalog and asks the planner; no row of the table is read.

    Raises PollError when the table, a required expression or an explicit one does not fit.
    """
    columns = await _columns(connection, model, session)
    await _check_row_security(connection, model, session)
    missing = await _missing(connection, model, session)
    fitting = model.without(frozenset(missing))
    accesses = set()
    walks: list[set[Access]] = [set() for _ in fitting.waiting_arms]
    for access, statements in probes(fitting):
        bounded = access.name.lower() in fitting.bounded
        cheap = [
            await _is_cheap(connection, access, alternatives, session, bounded=bounded)
            for alternatives in statements
        ]
        if all(cheap):
            accesses.add(access)
        if access in WALKS:
            for walk, fits in zip(walks, cheap, strict=True):
                walk |= {access} if fits else set()
    nullable = {
        key
        for key in ("queue", "task_type", "index_key", "due_at")
        if not columns.get(fitting.expressions.get(key, ""), False)
    }
    used = set().union(*(names_in(sql) for sql in used_expressions(fitting)))
    return Inspection(
        fitting,
        Shape(frozenset(accesses), frozenset(nullable), tuple(map(frozenset, walks))),
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


async def _check_row_security(connection: Connection, model: QueueModel, session: Session) -> None:
    """Raises PollError(permission) where row-level security hides every row from this role.

    Such a table reads as an empty one, without an error: all its numbers would be false.
    """
    tables = ", ".join(f"({quote_literal(t.sql)})" for t in (model.table, *model.related))
    sql = (
        f"SELECT name, current_user AS role FROM (VALUES {tables}) AS t (name)\n"
        f"WHERE row_security_active(to_regclass(name)) AND NOT EXISTS (\n"
        f"  SELECT 1 FROM pg_policy WHERE polrelid = to_regclass(name) AND polcmd IN ('r', '*')\n"
        f"  AND EXISTS (SELECT 1 FROM unnest(polroles) AS r (role)\n"
        f"    WHERE role = 0 OR pg_has_role(role, 'MEMBER')))"
    )
    (rows,) = await connection.run([Select("row_security", sql)], session)
    for row in rows:
        role, name = quote_name(str(row["role"])), row["name"]
        policy = f"CREATE POLICY {role} ON {name} FOR SELECT TO {role} USING (true)"
        raise PollError(
            Reason.PERMISSION,
            f"row-level security hides every row of {name} from {role}; {policy} shows them",
        )


async def _missing(connection: Connection, model: QueueModel, session: Session) -> dict[str, str]:
    """The optional expressions of the preset that this table cannot evaluate, and why.

    All are tried at once; only when that fails, each by itself.
    """
    names = [name for name in USED if name in model.expressions]
    missing = {}
    if "finished_rows" in model.relations:
        missing = await _missing_finished(connection, model, session)
        names = [name for name in names if name not in _FINISHED]
    try:
        await connection.run([_evaluation(model, names)], session)
    except PollError as error:
        if error.reason not in _MISFITS:
            raise
    else:
        return missing
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


_FINISHED = ("finished_at", "done", "failed", "cancelled")


async def _missing_finished(
    connection: Connection, model: QueueModel, session: Session
) -> dict[str, str]:
    """What tells finished tasks apart stands or falls together, where they have their own rows.

    Whatever else is read of a finished task must be there as well.
    """
    names = [name for name in _OF_FINISHED if name in model.expressions]
    try:
        await connection.run([_evaluation(model, names, model.finished_rows)], session)
    except PollError as error:
        if error.reason not in _MISFITS or "finished_rows" in model.explicit:
            raise
        return {name: str(error) for name in names if name in _FINISHED}
    return {}


_OF_FINISHED = (
    *("id", "queue", "task_type", "enqueued_at", "due_at", "started_at", "attempts"),
    *_FINISHED,
)


def _evaluation(model: QueueModel, names: list[str], rows: str | None = None) -> Select:
    parts = [
        f"{model[name]} IS TRUE" if name in _PREDICATES else f"{model[name]}" for name in names
    ]
    sql = f"SELECT {', '.join(parts)} FROM {rows or model.rows} WHERE false"
    return Select("evaluation", sql)


Probes = list[list[str]]
"""For each part of an access the statements of which one must be cheap."""


def probes(model: QueueModel) -> Iterator[tuple[Access, Probes]]:
    """The statements whose plans tell whether an access is cheap, for each access that applies."""
    arms = [f"({arm})" for arm in model.waiting_arms]
    keys = [model[key] for key in ("queue", "task_type", "index_key") if model.get(key)]
    due, by_age = model.get("due_at"), model.enqueue_order

    def ordered(where: str, order: str, keys: list[str], rows: str = model.rows) -> str:
        conditions = [where, *(f"{key} = (SELECT {key} FROM {rows} LIMIT 1)" for key in keys)]
        return f"SELECT 1 FROM {rows} WHERE {' AND '.join(conditions)} ORDER BY {order} LIMIT 1"

    def walked(where: str, order: str) -> list[str]:
        # Asked for in both ways: while no task waits, the planner may answer the first through any
        # small index; and the second asks for the keys' own order, which not every index has.
        return [ordered(where, order, keys), ordered(where, ", ".join((*keys, order)), [])]

    yield Access.WALK_BY_AGE, [walked(arm, by_age) for arm in arms]
    yield Access.WAITING_BY_AGE, [[ordered(model["waiting"], by_age, [])]]
    if due is not None:
        yield Access.WALK_BY_DUE, [walked(f"{arm} AND {due} <= now()", due) for arm in arms]
        yield Access.WAITING_BY_DUE, [[ordered(model["waiting"], due, [])]]
    if model.get("processing"):
        claimed = f"SELECT 1 FROM {model.rows} WHERE {model['processing']} LIMIT 1"
        yield Access.PROCESSING, [[claimed]]
    if model.get("processing") and model.lease_until:
        yield Access.PROCESSING_BY_LEASE, [[ordered(model["processing"], model.lease_until, [])]]
    queue = [model["queue"]] if model.get("queue") else []
    if "last_enqueued_timestamp_seconds" not in model.absent:
        newest = ordered(f"{by_age} IS NOT NULL", f"{by_age} DESC", queue)
        yield Access.NEWEST_ENQUEUED, [[newest]]
    if "enqueued_total" not in model.absent:
        enqueued = model["enqueued_at"]
        recent = f"{enqueued} >= now() - interval '1 minute'"
        yield Access.ENQUEUED_BY_TIME, [[ordered(recent, enqueued, [])]]
    yield from _finished_probes(model, ordered, queue)
    if model.get("id"):
        identity = model["id"]
        anyone = f"SELECT {identity} FROM {model.rows} LIMIT 1"
        yield (
            Access.TASK_BY_ID,
            [[f"SELECT 1 FROM {model.rows} WHERE {identity} = ({anyone})"]],
        )


def _finished_probes(
    model: QueueModel, ordered: Callable[..., str], queue: list[str]
) -> Iterator[tuple[Access, Probes]]:
    finished, rows = model.get("finished_at"), model.finished_rows
    if finished is None:
        return
    if model.get("failed"):
        failed = model.finish_of("failed")
        recent = f"{model['failed']} AND {failed} > now() - interval '1 hour'"
        yield Access.FAILED_BY_FINISH, [[ordered(recent, f"{failed} DESC", [], rows)]]
    if "last_finished_timestamp_seconds" not in model.absent:
        newest = ordered(f"{finished} IS NOT NULL", f"{finished} DESC", queue, rows)
        yield Access.NEWEST_FINISHED, [[newest]]
    if "finished_total" not in model.absent:
        recent = f"{finished} >= now() - interval '1 minute'"
        yield Access.FINISHED_BY_TIME, [[ordered(recent, finished, [], rows)]]
        outcomes = {name: model.finish_of(name) for name in _FINISHED[1:] if model.get(name)}
        recents = {
            f"{model[name]} AND {stamp} >= now() - interval '1 minute'": stamp
            for name, stamp in outcomes.items()
        }
        if outcomes:
            parts = [[ordered(where, stamp, [], rows)] for where, stamp in recents.items()]
            yield Access.FINISHED_BY_OUTCOME, parts


async def _is_cheap(
    connection: Connection, access: Access, alternatives: list[str], session: Session, *,
    bounded: bool,
) -> bool:  # fmt: skip
    """Whether one of the statements is cheap."""
    for probe in alternatives:
        if await _probe(connection, access, probe, session, bounded=bounded):
            return True
    return False


async def _probe(
    connection: Connection, access: Access, probe: str, session: Session, *, bounded: bool
) -> bool:
    """Whether the planner can answer in index order without reading rows that it throws away."""
    by_order = access is not Access.PROCESSING
    settings = _PROBE_SETTINGS if by_order else ()
    select = Select("probe", f"EXPLAIN (FORMAT JSON) {probe}", settings)
    (rows,) = await connection.run([select], session)
    (plan,) = cast(list[dict[str, object]], rows[0]["QUERY PLAN"])
    nodes = list(_nodes(cast(Row, plan["Plan"])))
    if not by_order:
        return bounded or all("Filter" not in n or _CONDITIONS & n.keys() for n in nodes)
    return all(
        node["Node Type"] in _ORDERED_NODES and (bounded or "Filter" not in node) for node in nodes
    )


_CONDITIONS = frozenset(("Index Cond", "Recheck Cond"))
"""What an index finds: it may hold more than is asked for, but not the whole table."""
_ORDERED_NODES = frozenset(
    ("Limit", "Append", "Merge Append", "Index Scan", "Index Only Scan", "Result", "Subquery Scan")
)


def _nodes(node: Row) -> Iterator[Row]:
    """A plan's nodes, without those of subqueries that are evaluated beside it."""
    yield node
    for child in cast(list[Row], node.get("Plans", [])):
        if child["Parent Relationship"] not in ("InitPlan", "SubPlan"):
            yield from _nodes(child)
