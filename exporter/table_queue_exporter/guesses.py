"""Tables that look like a queue of no known kind. Reads the catalog only, no row of any table."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .access import Select
from .discovery import USER_TABLES
from .errors import PollError, Reason
from .postgres import Connection, Session
from .reading import Row
from .sqltext import TableName, names_in, quote_literal, quote_name

_STATUS = re.compile(r"(.*_)?(status|state)")
_ATTEMPTS = re.compile(
    r"attempts?|tries|retries|(attempt|retry|try|execution|error)s?_count|.*_attempts"
)
_LEASE_END = re.compile(
    r"(claim|claimed|lock|locked|lease|leased|reserved|invisible)_(until|expires_at)|lease"
)
_CLAIM = re.compile(r"(claimed|locked|leased|reserved|picked|taken)_(at|on)")
_DUE = re.compile(
    r"(next_(attempt|retry|run|try)|run|scheduled|due|available|visible|execute|process|not_before)"
    r"(_(at|after|on|for|from|time))?|run_after|execute_after|not_before"
)
_ENQUEUED = (
    "enqueued_at", "queued_at", "created_at", "inserted_at", "created_on", "enqueued", "created",
    "inserted", "create_time", "created_time", "creation_date", "date_created", "added_at",
    "submitted_at", "requested_at", "timestamp",
)  # fmt: skip
_STARTED = ("started_at", "attempted_at", "started_on", "started", "performed_at", "start_time")
_FINISHED = (
    "finished_at", "completed_at", "processed_at", "finalized_at", "completed_on", "finished_on",
    "finished", "completed", "ended_at", "end_time",
)  # fmt: skip
_TYPE = ("task_type", "job_type", "kind", "task_name", "job_name", "job_class", "type", "handler")
_ID = ("id", "task_id", "job_id", "uuid")

_STATUSES: Mapping[str, tuple[str, ...]] = {
    "waiting": (
        "new", "pending", "queued", "ready", "todo", "available", "waiting", "created", "open",
        "scheduled", "enqueued", "submitted",
    ),
    "processing": (
        "processing", "running", "in_progress", "inprogress", "claimed", "active", "executing",
        "doing", "locked", "started", "working", "picked",
    ),
    "done": (
        "done", "completed", "complete", "succeeded", "success", "successful", "finished",
        "processed", "sent",
    ),
    "failed": ("failed", "error", "dead", "discarded", "failure", "rejected", "errored"),
    "cancelled": ("cancelled", "canceled", "aborted"),
}  # fmt: skip
_TIMES = ("timestamp without time zone", "timestamp with time zone")
_TEXTS = ("text", "character varying", "character", "name", "citext")
_NUMBERS = ("smallint", "integer", "bigint", "numeric")


@dataclass(frozen=True)
class Guess:
    """A table that looks like a queue: why, and what its configuration might be.

    ``assumed`` are the expressions that no column and no list of statuses proves. Without
    ``expressions`` no configuration can be made, and ``reason`` says why.
    """

    table: TableName
    reason: str
    expressions: Mapping[str, str]
    assumed: tuple[str, ...] = ()


async def find_guesses(
    connection: Connection, session: Session, known: Iterable[TableName]
) -> list[Guess]:
    """Tables with a status beside an attempt, lease or schedule column. Raises PollError.

    Extensions' own tables and those that a preset describes are left out.
    """
    try:
        (rows,) = await connection.run([_columns(checks=True)], session)
    except PollError as error:
        # A constraint's text is the one thing in the catalog that wants a lock on the table.
        if error.reason is not Reason.LOCK_TIMEOUT:
            raise
        (rows,) = await connection.run([_columns(checks=False)], session)
    passed_over = set(known)
    tables: dict[TableName, list[Row]] = {}
    for row in rows:
        table = TableName(str(row["schema"]), str(row["name"]))
        if table not in passed_over:
            tables.setdefault(table, []).append(row)
    guesses = (_guess(table, columns) for table, columns in tables.items())
    return [guess for guess in guesses if guess is not None]


def _columns(*, checks: bool) -> Select:
    constraints = (
        "(SELECT string_agg(pg_get_constraintdef(k.oid), ' ') FROM pg_constraint k\n"
        "   WHERE k.conrelid = c.oid AND k.contype = 'c' AND a.attnum = ANY (k.conkey))"
    )
    sql = f"""
SELECT n.nspname AS schema, c.relname AS name, a.attname AS column_name,
  format_type(t.oid, NULL) AS type, t.typtype AS kind,
  (SELECT array_agg(e.enumlabel::text ORDER BY e.enumsortorder) FROM pg_enum e
   WHERE e.enumtypid = t.oid) AS labels,
  (SELECT s.most_common_vals::text::text[] FROM pg_stats s
   WHERE s.schemaname = n.nspname AND s.tablename = c.relname AND s.attname = a.attname
     AND a.attname ~* '(status|state)$' AND t.typcategory = 'S'
   ORDER BY s.inherited DESC LIMIT 1) AS common,
  {constraints if checks else "NULL"} AS checks
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_type t ON t.oid = a.atttypid
WHERE {USER_TABLES}
  AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass
    AND d.objid = c.oid AND d.deptype = 'e')
  AND EXISTS (SELECT FROM pg_attribute s WHERE s.attrelid = c.oid AND NOT s.attisdropped
    AND s.attname ~* '(status|state)$')
ORDER BY 1, 2, a.attnum"""
    return Select("columns", sql.strip())


def _guess(table: TableName, rows: Sequence[Row]) -> Guess | None:
    types = {str(row["column_name"]): str(row["type"]) for row in rows}
    times = [name for name, kind in types.items() if kind in _TIMES]
    status = next((row for row in rows if _is_status(row)), None)
    attempts = _first_like(_ATTEMPTS, [n for n, kind in types.items() if kind in _NUMBERS])
    lease, claim, due = (_first_like(like, times) for like in (_LEASE_END, _CLAIM, _DUE))
    beside = [name for name in (attempts, lease, claim, due) if name is not None]
    if status is None or not beside:
        return None
    column = str(status["column_name"])
    reason = f"{column} stands beside {', '.join(beside)}"
    enqueued = _first_of(_ENQUEUED, times) or due
    if enqueued is None:
        return Guess(table, f"{reason}, but no column tells when a task was enqueued", {})
    columns = {
        "id": _first_of(_ID, types),
        "task_type": _first_of(_TYPE, types),
        "enqueued_at": enqueued,
        "due_at": due,
        "lease_until": lease,
        "started_at": _first_of(_STARTED, times) or claim,
        "finished_at": _first_of(_FINISHED, times),
        "attempts": attempts,
    }
    expressions = {key: quote_if_needed(name) for key, name in columns.items() if name is not None}
    predicates, assumed = _predicates(status)
    return Guess(table, reason, expressions | predicates, assumed)


def _is_status(row: Row) -> bool:
    fits = row["kind"] == "e" or row["type"] in (*_TEXTS, *_NUMBERS)
    return fits and _STATUS.fullmatch(str(row["column_name"]).lower()) is not None


def _first_like(pattern: re.Pattern[str], names: Iterable[str]) -> str | None:
    return next((name for name in names if pattern.fullmatch(name.lower())), None)


def _first_of(wanted: Iterable[str], names: Iterable[str]) -> str | None:
    by_name = {name.lower(): name for name in reversed(list(names))}
    return next((by_name[name] for name in wanted if name in by_name), None)


def _predicates(status: Row) -> tuple[dict[str, str], tuple[str, ...]]:
    """A predicate per status, and which of them are mere assumptions."""
    column = quote_if_needed(str(status["column_name"]))
    if status["type"] in _NUMBERS:
        return {"waiting": f"{column} = 0"}, ("waiting",)
    values = _values(status)
    found = {}
    for key, words in _STATUSES.items():
        matching = [value for value in values if value.lower().replace("-", "_") in words]
        if matching:
            listed = " OR ".join(f"{column} = {quote_literal(value)}" for value in matching)
            found[key] = listed
    if "waiting" in found:
        return found, ()
    first = values[0] if values else "NEW"
    return {"waiting": f"{column} = {quote_literal(first)}"} | found, ("waiting",)


def _values(status: Row) -> list[str]:
    """The statuses that the catalog knows: an enum's, a CHECK's, or the commonest ones."""
    if isinstance(status["labels"], list):
        return [str(value) for value in status["labels"]]
    checked = re.findall(r"'((?:[^']|'')*)'", str(status["checks"] or ""))
    common = status["common"] if isinstance(status["common"], list) else []
    return list(dict.fromkeys([*(v.replace("''", "'") for v in checked), *map(str, common)]))


def quote_if_needed(name: str) -> str:
    """A name as SQL, bare where PostgreSQL reads it as it is and it is no reserved word."""
    bare = re.fullmatch(r"[a-z_][a-z0-9_]*", name) is not None and names_in(name) == {name}
    return name if bare else quote_name(name)
