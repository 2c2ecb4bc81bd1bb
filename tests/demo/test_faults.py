"""Each fault does what its name says, seen from the table, and is undone afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest_asyncio

from table_queue_exporter.demo.faults import FAULTS
from table_queue_exporter.demo.stage import Demo
from tests.demo.support import FAST, eventually

LIVE = "status IN ('NEW', 'PROCESSING')"


@pytest_asyncio.fixture
async def demo(empty_dsn: str) -> AsyncIterator[Demo]:
    async with Demo(dsn=empty_dsn, workers=2, rate=25, timings=FAST, day=None) as running:
        await _works(running)
        yield running


async def _holds(demo: Demo, condition: str, timeout: float = 20.0) -> None:
    """Wait until some row meets the condition."""
    statement = f"SELECT 1 FROM payment WHERE {condition} LIMIT 1"
    await eventually(lambda: demo.query(statement), condition, timeout)


async def _works(demo: Demo) -> None:
    """Wait until a task that was enqueued from now on is done."""
    [(last,)] = await demo.query("SELECT coalesce(max(id), 0) FROM payment")
    await _holds(demo, f"status = 'DONE' AND id > {last}")


async def _number(demo: Demo, condition: str) -> int:
    [(number,)] = await demo.query(f"SELECT count(*) FROM payment WHERE {condition}")
    return int(number)


def test_every_fault_of_the_issue_is_there() -> None:
    names = "poison killer crash crash-all outage slow idle held-snapshot"
    assert list(FAULTS) == names.split()
    assert all(fault.description for fault in FAULTS.values())


async def test_poison(demo: Demo) -> None:
    async with demo.fault("poison"):
        await _holds(demo, "task_type = 'poison' AND status = 'FAILED'")
        rows = await demo.query(
            "SELECT attempts, last_error FROM payment"
            " WHERE task_type = 'poison' AND status = 'FAILED'"
        )
        assert rows[0][0] == FAST.max_attempts
        assert "HTTP 422" in rows[0][1]
        await _works(demo)
    assert await _number(demo, f"task_type = 'poison' AND {LIVE}") == 0
    assert await _number(demo, "task_type <> 'poison' AND status = 'FAILED'") == 0


async def test_killer(demo: Demo) -> None:
    async with demo.fault("killer"):
        await _holds(demo, f"task_type = 'killer' AND attempts > {FAST.max_attempts}")
        assert demo.supervisor.deaths >= FAST.max_attempts
        assert await _number(demo, "status = 'FAILED'") == 0
        await _works(demo)
    assert await _number(demo, "task_type = 'killer' AND status = 'CANCELLED'") == 1
    await _works(demo)


async def test_crash(demo: Demo) -> None:
    async with demo.fault("crash"):
        # Those that live take an expired lease within half a second: that it was taken is seen.
        await _holds(demo, "status = 'DONE' AND attempts > 1")

        async def again() -> bool:
            return demo.supervisor.deaths >= 2

        await eventually(again, "a second crash")
        await _works(demo)
    deaths = demo.supervisor.deaths
    await _works(demo)
    # What the dead held comes back.
    [(last,)] = await demo.query("SELECT max(id) FROM payment")
    await eventually(
        lambda: demo.query(
            f"SELECT 1 HAVING 0 = (SELECT count(*) FROM payment WHERE {LIVE} AND id <= {last})"
        ),
        "all tasks closed",
    )
    assert demo.supervisor.deaths <= deaths + 2  # killed just before the end, noticed after it
    assert await _number(demo, "status = 'FAILED'") == 0
    assert demo.neighbour.charged == len(demo.neighbour.charges)


async def test_crash_all(demo: Demo) -> None:
    async with demo.fault("crash-all"):
        done = await _number(demo, "status = 'DONE'")
        held = await _number(demo, "status = 'PROCESSING'")
        assert held > 0
        [(waiting,)] = await demo.query("SELECT count(*) FROM payment WHERE status = 'NEW'")
        await _holds(demo, "status = 'PROCESSING' AND claimed_until < now()")
        assert demo.supervisor.pids == []
        assert await _number(demo, "status = 'PROCESSING'") == held
        assert await _number(demo, "status = 'DONE'") == done
        assert await _number(demo, "status = 'NEW'") > waiting
    await _works(demo)
    await _holds(demo, "status = 'DONE' AND attempts > 1")


async def test_outage(demo: Demo) -> None:
    async with demo.fault("outage"):
        await _holds(demo, "status = 'NEW' AND attempts > 0 AND next_attempt_at > now()")
        await _holds(demo, "status = 'FAILED' AND last_error LIKE '%Cannot connect%'")
        assert demo.supervisor.deaths == 0
    await _works(demo)


async def test_slow(demo: Demo) -> None:
    async with demo.fault("slow"):
        await _holds(demo, "attempts > 1")  # taken from a worker that was still at it
        assert demo.supervisor.deaths == 0
        assert any(charge.calls > 1 for charge in demo.neighbour.charges.values())
        assert await _number(demo, "last_error IS NOT NULL") == 0
    await _works(demo)
    assert demo.neighbour.charged == len(demo.neighbour.charges)


async def test_idle(demo: Demo) -> None:
    async with demo.fault("idle"):
        assert demo.supervisor.pids == []
        assert await _number(demo, "status = 'PROCESSING'") == 0
        waiting = await _number(demo, "status = 'NEW'")
        await eventually(
            lambda: demo.query(
                f"SELECT 1 FROM payment WHERE status = 'NEW' HAVING count(*) > {waiting} + 5"
            ),
            "the queue grows",
        )
    await _works(demo)


async def test_held_snapshot(demo: Demo) -> None:
    holders = (
        "SELECT state FROM pg_stat_activity WHERE backend_xmin IS NOT NULL"
        " AND datname = current_database() AND state = 'idle in transaction'"
    )
    assert await demo.query(holders) == []
    async with demo.fault("held-snapshot"):
        assert await demo.query(holders) == [("idle in transaction",)]
        await _works(demo)
        # A version that died after the snapshot was taken cannot be removed.
        await demo.query("UPDATE payment SET last_error = 'x' WHERE id = 1 RETURNING id")
        [(dead,)] = await demo.query(
            "SELECT backend_xmin::text::bigint < txid_current() FROM pg_stat_activity"
            " WHERE application_name = 'forgotten session'"
        )
        assert dead
    await eventually(
        lambda: demo.query(f"SELECT 1 WHERE NOT EXISTS ({holders})"), "the session is gone"
    )


async def test_the_nightly_jobs_run_once_a_day(empty_dsn: str) -> None:
    timings = replace(FAST, poll_interval=0.2)
    async with Demo(dsn=empty_dsn, workers=1, rate=0, timings=timings, day=1.0) as demo:
        await eventually(
            lambda: demo.query(
                "SELECT 1 FROM nightly_run WHERE finished_at IS NOT NULL HAVING count(*) >= 6"
            ),
            "three days",
        )
    # The demo is over: the schedulers stand still, perhaps within a run.
    async with Demo(dsn=empty_dsn, workers=1, rate=0, timings=timings, day=None) as after:
        rows = await after.query(
            "SELECT job, count(*), (SELECT count(*) FROM payment WHERE task_type = job)"
            " FROM nightly_run GROUP BY job"
        )
    assert {job for job, _, _ in rows} == {"settlement", "statement"}
    for job, days, enqueued in rows:
        assert days - 1 <= enqueued <= days, job
