from __future__ import annotations

import asyncio
from datetime import timedelta

import psycopg
import pytest
from psycopg import AsyncConnection
from psycopg.rows import dict_row

from table_queue_exporter.demo import queue
from table_queue_exporter.demo.queue import Connection
from table_queue_exporter.demo.stage import DemoError, create_schema
from tests.demo.support import FAST


async def _row(connection: Connection, task_id: int) -> dict[str, object]:
    async with connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute("SELECT *, now() AS now FROM payment WHERE id = %s", (task_id,))
        row = await cursor.fetchone()
        assert row is not None
        return row


async def _claim_one(connection: Connection, lease: float = 60.0) -> queue.Task:
    [task] = await queue.claim(connection, 1, lease)
    return task


async def test_no_task_is_claimed_twice(dsn: str, connection: Connection) -> None:
    await connection.execute(
        "INSERT INTO payment (task_type) SELECT 'receipt' FROM generate_series(1, 300)"
    )

    async def drain() -> list[int]:
        mine: list[int] = []
        async with await AsyncConnection.connect(dsn, autocommit=True) as own:
            while tasks := await queue.claim(own, 7, 60.0):
                assert len(tasks) <= 7
                mine += [task.id for task in tasks]
        return mine

    taken = [
        task_id for ids in await asyncio.gather(*(drain() for _ in range(6))) for task_id in ids
    ]
    assert len(taken) == len(set(taken)) == 300


async def test_oldest_first_and_nothing_before_its_time(connection: Connection) -> None:
    later = await queue.enqueue(connection, "receipt", delay=3600)
    first = await queue.enqueue(connection, "receipt", {"amount": 5})
    second = await queue.enqueue(connection, "transfer")
    tasks = await queue.claim(connection, 10, 60.0)
    assert [task.id for task in tasks] == [first, second]
    assert tasks[0].payload == {"amount": 5}
    assert (await _row(connection, later))["status"] == "NEW"


async def test_a_claim_takes_no_more_than_asked_whatever_the_plan(connection: Connection) -> None:
    for _ in range(20):
        await queue.enqueue(connection, "receipt")
    for setting in ("enable_hashjoin", "enable_mergejoin", "enable_hashagg", "enable_sort"):
        await connection.execute(f"SET {setting} = off".encode())
        assert len(await queue.claim(connection, 2, 60.0)) == 2


async def test_a_claim_reads_live_rows_only(connection: Connection) -> None:
    await connection.execute(
        "INSERT INTO payment (task_type, status, finished_at)"
        " SELECT 'receipt', 'DONE', now() FROM generate_series(1, 20000)"
    )
    await connection.execute(
        "INSERT INTO payment (task_type) SELECT 'receipt' FROM generate_series(1, 500)"
    )
    await connection.execute("ANALYZE payment")
    values = {"limit": 10, "lease": timedelta(seconds=60)}
    plan = await (await connection.execute("EXPLAIN " + queue.CLAIM, values)).fetchall()
    text = "\n".join(line for (line,) in plan)
    assert "payment_claim" in text
    assert "Seq Scan" not in text


async def test_an_expired_lease_is_taken_over_and_a_running_one_is_not(
    connection: Connection,
) -> None:
    abandoned = await queue.enqueue(connection, "receipt")
    await _claim_one(connection, lease=0.0)
    held = await queue.enqueue(connection, "receipt")
    again = await queue.claim(connection, 10, 60.0)
    assert {task.id for task in again} == {abandoned, held}
    assert {task.id: task.attempts for task in again} == {abandoned: 2, held: 1}
    assert await queue.claim(connection, 10, 60.0) == []


async def test_a_worker_that_lost_its_lease_changes_nothing(connection: Connection) -> None:
    task_id = await queue.enqueue(connection, "receipt")
    stale = await _claim_one(connection, lease=0.0)
    current = await _claim_one(connection)
    before = await _row(connection, task_id)
    assert not await queue.finish(connection, stale)
    assert not await queue.fail(connection, stale, "late", FAST)
    assert not await queue.release(connection, stale)
    assert not await queue.heartbeat(connection, stale, 3600.0)
    after = await _row(connection, task_id)
    assert before | {"now": None} == after | {"now": None}
    assert await queue.finish(connection, current)
    assert not await queue.finish(connection, current)
    done = await _row(connection, task_id)
    assert done["status"] == "DONE"
    assert done["finished_at"] is not None
    assert done["claimed_until"] is None


async def test_a_late_worker_whose_task_nobody_took_may_still_finish(
    connection: Connection,
) -> None:
    await queue.enqueue(connection, "receipt")
    late = await _claim_one(connection, lease=0.0)
    assert await queue.finish(connection, late)


async def test_failures_are_retried_later_and_later_and_then_given_up(
    connection: Connection,
) -> None:
    task_id = await queue.enqueue(connection, "receipt")
    key = (await _row(connection, task_id))["idempotency_key"]
    for attempt in range(1, FAST.max_attempts + 1):
        await connection.execute("UPDATE payment SET next_attempt_at = now()")
        task = await _claim_one(connection)
        assert task.attempts == attempt
        assert task.idempotency_key == key
        assert await queue.fail(connection, task, "x" * 5000, FAST)
        row = await _row(connection, task_id)
        if attempt < FAST.max_attempts:
            cursor = await connection.execute(
                "SELECT extract(epoch FROM next_attempt_at - %s)::float8 FROM payment",
                (row["now"],),
            )
            found = await cursor.fetchone()
            assert found is not None
            base = FAST.backoff_base * 2 ** (attempt - 1)
            assert base - 1 < found[0] <= base * 1.5
            assert (row["status"], row["finished_at"]) == ("NEW", None)
    assert row["status"] == "FAILED"
    assert row["finished_at"] is not None
    assert row["last_error"] == "x" * queue.MAX_ERROR
    await connection.execute("UPDATE payment SET next_attempt_at = now()")
    assert await queue.claim(connection, 10, 60.0) == []


async def test_any_error_text_can_be_kept(connection: Connection) -> None:
    task_id = await queue.enqueue(connection, "receipt")
    assert await queue.fail(connection, await _claim_one(connection), "a\0b\ud800c", FAST)
    assert (await _row(connection, task_id))["last_error"] == "ab?c"


async def test_a_released_task_is_due_at_once(connection: Connection) -> None:
    await queue.enqueue(connection, "receipt")
    first = await _claim_one(connection)
    assert await queue.release(connection, first)
    assert (await _claim_one(connection)).id == first.id


async def test_a_heartbeat_keeps_the_lease(connection: Connection) -> None:
    await queue.enqueue(connection, "receipt")
    task = await _claim_one(connection, lease=0.0)
    assert await queue.heartbeat(connection, task, 60.0)
    assert await queue.claim(connection, 1, 60.0) == []


async def test_the_table_refuses_an_unknown_status(connection: Connection) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        await connection.execute("INSERT INTO payment (task_type, status) VALUES ('a', 'new')")


async def test_somebody_elses_table_is_left_alone(empty_dsn: str) -> None:
    async with await AsyncConnection.connect(empty_dsn, autocommit=True) as connection:
        await connection.execute("CREATE TABLE payment (id int)")
    with pytest.raises(DemoError, match="already has a table payment"):
        await create_schema(empty_dsn)


async def test_creating_the_schema_twice_is_fine(dsn: str) -> None:
    await create_schema(dsn)
