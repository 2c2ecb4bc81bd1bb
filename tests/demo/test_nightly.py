from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import date

import psycopg
import pytest

from table_queue_exporter.demo import nightly, queue
from table_queue_exporter.demo.queue import Connection

Variant = Callable[[str, str, date, nightly.Job], Awaitable[bool]]
DAY = date(2024, 2, 29)

both = pytest.mark.parametrize("variant", [nightly.run_under_lock, nightly.run_by_row])


async def _settle(connection: Connection) -> None:
    # Long enough for the others to try while it runs.
    await connection.execute("SELECT pg_sleep(0.3)")
    await queue.enqueue(connection, "settlement")


async def _settlements(connection: Connection) -> int:
    row = await (await connection.execute("SELECT count(*) FROM payment")).fetchone()
    assert row is not None
    return int(row[0])


@both
async def test_three_schedulers_run_it_once(
    dsn: str, connection: Connection, variant: Variant
) -> None:
    async def scheduler(clock_error: float) -> list[bool]:
        await asyncio.sleep(clock_error)
        # Each tries again after the run is over, as after a restart.
        return [await variant(dsn, "settlement", DAY, _settle) for _ in range(2)]

    ran = await asyncio.gather(scheduler(0.0), scheduler(0.0), scheduler(0.1))
    assert sum(map(sum, ran)) == 1
    late = await variant(dsn, "settlement", DAY, _settle)
    assert not late
    assert await _settlements(connection) == 1
    assert await variant(dsn, "settlement", date(2024, 3, 1), _settle)
    assert await variant(dsn, "other", DAY, _settle)
    assert await _settlements(connection) == 3


async def _die(connection: Connection) -> None:
    await connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")


async def test_after_a_crash_the_lock_lets_another_one_run(dsn: str) -> None:
    with pytest.raises(psycopg.OperationalError):
        await nightly.run_under_lock(dsn, "settlement", DAY, _die)
    assert await nightly.run_under_lock(dsn, "settlement", DAY, _settle)


async def test_after_a_crash_the_row_lets_nobody_run(dsn: str, connection: Connection) -> None:
    with pytest.raises(psycopg.OperationalError):
        await nightly.run_by_row(dsn, "settlement", DAY, _die)
    assert not await nightly.run_by_row(dsn, "settlement", DAY, _settle)
    row = await (await connection.execute("SELECT finished_at FROM nightly_run")).fetchone()
    assert row == (None,)
