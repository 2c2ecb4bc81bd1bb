"""The whole queue: a few statements, each a transaction of its own. Made to be copied.

Every function takes a connection in autocommit mode, so that no transaction stays open while work
is done. `enqueue` is the exception: call it inside the transaction that changes the business data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib import resources
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.rows import TupleRow, class_row
from psycopg.types.json import Jsonb

from table_queue_exporter.demo.timings import Timings

MAX_ERROR = 300
"""Characters of an error that are kept."""

Connection = AsyncConnection[TupleRow]

ENQUEUE = """
INSERT INTO payment (task_type, payload, next_attempt_at)
VALUES (%(task_type)s, %(payload)s, now() + %(delay)s)
RETURNING id
"""

# Locked rows are skipped, so workers neither wait for each other nor take the same row.
# The subquery is materialised: a plain `id IN (SELECT ... LIMIT n)` may be planned as the inside of
# a nested loop, run again and again, and claim more rows than asked for.
# There is no upper bound on attempts here: a task that kills its worker is claimed for ever.
# The growing `attempts` of a live task is how that shows.
CLAIM = """
WITH claimable AS MATERIALIZED (
    SELECT id
    FROM payment
    WHERE (status = 'NEW' AND next_attempt_at <= now())
       OR (status = 'PROCESSING' AND claimed_until < now())
    ORDER BY created_at
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
)
UPDATE payment AS task
SET status = 'PROCESSING',
    attempts = attempts + 1,
    claimed_until = now() + %(lease)s,
    started_at = now()
FROM claimable
WHERE task.id = claimable.id
RETURNING task.id, task.task_type, task.payload, task.attempts, task.claimed_until,
          task.idempotency_key
"""

# The fence of all that follows: `attempts` grows at each claim, so (id, attempts) names one claim.
# A worker that lost its lease to another one matches no row and changes nothing.
FINISH = """
UPDATE payment
SET status = 'DONE', finished_at = now(), claimed_until = NULL, last_error = NULL
WHERE id = %(id)s AND status = 'PROCESSING' AND attempts = %(attempts)s
"""

FAIL = """
UPDATE payment
SET status = CASE WHEN attempts < %(max_attempts)s THEN 'NEW' ELSE 'FAILED' END,
    next_attempt_at =
        CASE WHEN attempts < %(max_attempts)s THEN now() + %(backoff)s ELSE next_attempt_at END,
    finished_at = CASE WHEN attempts < %(max_attempts)s THEN NULL ELSE now() END,
    claimed_until = NULL,
    last_error = %(error)s
WHERE id = %(id)s AND status = 'PROCESSING' AND attempts = %(attempts)s
"""

# next_attempt_at stays: the task is due at once. attempts stays too, as the fence needs it to grow.
RELEASE = """
UPDATE payment
SET status = 'NEW', claimed_until = NULL
WHERE id = %(id)s AND status = 'PROCESSING' AND attempts = %(attempts)s
"""

HEARTBEAT = """
UPDATE payment
SET claimed_until = now() + %(lease)s
WHERE id = %(id)s AND status = 'PROCESSING' AND attempts = %(attempts)s
"""


@dataclass(frozen=True)
class Task:
    """One claim of one task."""

    id: int
    task_type: str
    payload: dict[str, Any] | None
    attempts: int
    claimed_until: datetime
    idempotency_key: UUID


def schema() -> str:
    """Return the statements that create the queue's tables."""
    return resources.files(__package__).joinpath("schema.sql").read_text(encoding="utf-8")


async def enqueue(
    connection: Connection,
    task_type: str,
    payload: Mapping[str, Any] | None = None,
    *,
    delay: float = 0.0,
) -> int:
    """Add a task, due after `delay` seconds, and return its id."""
    values = {
        "task_type": task_type,
        "payload": None if payload is None else Jsonb(payload),
        "delay": timedelta(seconds=delay),
    }
    row = await (await connection.execute(ENQUEUE, values)).fetchone()
    assert row is not None  # INSERT … RETURNING
    return int(row[0])


async def claim(connection: Connection, limit: int, lease: float) -> list[Task]:
    """Take up to `limit` due or abandoned tasks, oldest first, for `lease` seconds."""
    async with connection.cursor(row_factory=class_row(Task)) as cursor:
        await cursor.execute(CLAIM, {"limit": limit, "lease": timedelta(seconds=lease)})
        # RETURNING promises no order.
        return sorted(await cursor.fetchall(), key=lambda task: task.id)


async def finish(connection: Connection, task: Task) -> bool:
    """Close the task as DONE. False: the claim was lost meanwhile, nothing was changed."""
    return await _change(connection, FINISH, task)


async def fail(connection: Connection, task: Task, error: str, timings: Timings) -> bool:
    """Put the task back with a delay, or close it as FAILED after its last attempt.

    False: the claim was lost meanwhile, nothing was changed.
    """
    return await _change(
        connection,
        FAIL,
        task,
        max_attempts=timings.max_attempts,
        backoff=timedelta(seconds=timings.backoff(task.attempts)),
        error=_storable(error),
    )


async def release(connection: Connection, task: Task) -> bool:
    """Give the task back undone, due at once. False: the claim was lost meanwhile."""
    return await _change(connection, RELEASE, task)


async def heartbeat(connection: Connection, task: Task, lease: float) -> bool:
    """Let the lease end `lease` seconds from now. False: the claim was lost: stop the work."""
    return await _change(connection, HEARTBEAT, task, lease=timedelta(seconds=lease))


async def _change(connection: Connection, statement: str, task: Task, **values: object) -> bool:
    cursor = await connection.execute(
        statement, {"id": task.id, "attempts": task.attempts, **values}
    )
    return cursor.rowcount == 1


def _storable(error: str) -> str:
    # PostgreSQL's text holds neither NUL nor half a surrogate pair, and errors may carry both.
    return error.replace("\0", "").encode(errors="replace").decode()[:MAX_ERROR]
