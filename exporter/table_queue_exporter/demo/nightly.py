"""A job that runs once a day, exactly once, although several schedulers try.

Two ways, to choose between:

* `run_under_lock`: a session's advisory lock is held for the whole run. When the scheduler dies, so
  does its session, and another scheduler runs the job again: at least once, never two at a time.
  The lock belongs to the session: it does not work through a pooler in transaction mode.
* `run_by_row`: whoever inserts the day's row runs. When the scheduler dies, the row stays and
  nobody runs the job again: at most once, and a row without `finished_at` is what to alert on.

(The third way is a Kubernetes CronJob with `concurrencyPolicy: Forbid`.)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import date

from psycopg import AsyncConnection

from table_queue_exporter.demo.queue import Connection

Job = Callable[[Connection], Awaitable[None]]
"""The job itself; it gets a connection in autocommit mode."""

_LOCK = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"
_DONE = "SELECT 1 FROM nightly_run WHERE job = %s AND day = %s AND finished_at IS NOT NULL"
_BEGIN_AGAIN = """
INSERT INTO nightly_run (job, day) VALUES (%s, %s)
ON CONFLICT (job, day) DO UPDATE SET started_at = now()
"""
_BEGIN_ONCE = """
INSERT INTO nightly_run (job, day) VALUES (%s, %s) ON CONFLICT (job, day) DO NOTHING RETURNING job
"""
_END = "UPDATE nightly_run SET finished_at = now() WHERE job = %s AND day = %s"


async def run_under_lock(dsn: str, name: str, day: date, job: Job) -> bool:
    """Run the job unless it has run or runs somewhere else; tell whether it ran here."""
    async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
        if not await _one(connection, _LOCK, name):
            return False
        # The lock keeps others away while we run, not after: a scheduler whose clock is late finds
        # it free again. So the day's row is looked at too, under the lock.
        if await _one(connection, _DONE, name, day):
            return False
        await connection.execute(_BEGIN_AGAIN, (name, day))
        await job(connection)
        await connection.execute(_END, (name, day))
        return True  # the end of the session frees the lock


async def run_by_row(dsn: str, name: str, day: date, job: Job) -> bool:
    """Run the job if nobody has begun it for this day; tell whether it ran here."""
    async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
        if not await _one(connection, _BEGIN_ONCE, name, day):
            return False
        await job(connection)
        await connection.execute(_END, (name, day))
        return True


async def _one(connection: Connection, statement: str, *values: object) -> bool:
    row = await (await connection.execute(statement, values)).fetchone()
    return row is not None and bool(row[0])
