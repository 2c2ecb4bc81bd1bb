from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import aiohttp
import pytest
import pytest_asyncio

from table_queue_exporter.demo.neighbour import KEY_HEADER, Mode, Neighbour
from table_queue_exporter.demo.processes import alive
from table_queue_exporter.demo.stage import Demo
from tests.demo.support import FAST, eventually


@pytest_asyncio.fixture
async def demo(empty_dsn: str) -> AsyncIterator[Demo]:
    """One worker, and only the tasks that the test enqueues."""
    async with Demo(dsn=empty_dsn, workers=1, rate=0, timings=FAST, day=None) as running:
        yield running


async def test_the_key_is_the_same_on_every_attempt_and_charges_once(demo: Demo) -> None:
    # Charged, but the answer takes longer than the call may: the worker sees a failure.
    await demo.neighbour.set_mode(Mode.SLOW, slow_for=60.0)
    await demo.enqueue("transfer")
    await eventually(
        lambda: demo.query("SELECT 1 FROM payment WHERE attempts = 2"), "a second attempt"
    )
    await demo.neighbour.set_mode(Mode.NORMAL)
    await eventually(lambda: demo.query("SELECT 1 FROM payment WHERE status = 'DONE'"), "DONE")
    [(key, attempts)] = await demo.query("SELECT idempotency_key::text, attempts FROM payment")
    assert list(demo.neighbour.charges) == [key]
    assert demo.neighbour.charges[key].calls == attempts == 2
    assert demo.neighbour.charged == 1


async def test_a_time_out_is_told(demo: Demo) -> None:
    await demo.neighbour.set_mode(Mode.SLOW, slow_for=60.0)
    await demo.enqueue("transfer")
    await eventually(
        lambda: demo.query("SELECT 1 FROM payment WHERE last_error LIKE 'TimeoutError%'"), "error"
    )


async def test_a_stop_in_order_releases_what_is_not_finished(demo: Demo) -> None:
    await demo.neighbour.set_mode(Mode.SLOW, slow_for=60.0)
    await demo.enqueue("transfer", count=FAST.concurrency)
    [pid] = demo.supervisor.pids

    async def all_called() -> bool:
        return demo.neighbour.in_flight[str(pid)] == FAST.concurrency

    await eventually(all_called, "all tasks at work")
    await demo.supervisor.pause()
    assert not alive(pid)
    assert await demo.query("SELECT DISTINCT status, claimed_until FROM payment") == [("NEW", None)]
    assert demo.supervisor.output == ""


async def test_a_worker_takes_no_more_than_it_can_work_on(demo: Demo) -> None:
    await demo.neighbour.set_mode(Mode.SLOW, slow_for=60.0)
    await demo.enqueue("transfer", count=3 * FAST.concurrency)
    await eventually(lambda: demo.query("SELECT 1 FROM payment WHERE attempts = 2"), "a retry")
    [(most,)] = await demo.query("SELECT count(*) FROM payment WHERE status = 'PROCESSING'")
    assert most <= FAST.concurrency


async def test_a_worker_that_loses_the_database_is_replaced(demo: Demo) -> None:
    async def connected() -> bool:
        rows = await demo.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'"
        )
        return bool(rows)

    await eventually(connected, "the worker's session")
    await demo.enqueue("transfer")
    await eventually(lambda: demo.query("SELECT 1 FROM payment WHERE status = 'DONE'"), "DONE")
    assert demo.supervisor.deaths >= 1


async def test_a_worker_ends_with_its_parent(demo: Demo) -> None:
    [pid] = demo.supervisor.pids
    # What the kernel does when the parent is killed.
    for process in demo.supervisor._processes:
        assert process.stdin is not None
        process.stdin.close()

    async def gone() -> bool:
        return pid not in demo.supervisor.pids

    await eventually(gone, "the worker ends")


async def test_the_neighbour_answers_a_repeated_key_with_the_first_result() -> None:
    async with Neighbour((0.0, 0.0)) as neighbour, aiohttp.ClientSession() as session:

        async def charge(key: str) -> object:
            url = f"{neighbour.url}/charge/transfer"
            async with session.post(url, headers={KEY_HEADER: key}) as answer:
                return answer.status, await answer.json()

        answers = await asyncio.gather(charge("a"), charge("a"), charge("b"))
        assert answers[0] == answers[1] == (200, {"charge": 1})
        assert answers[2] == (200, {"charge": 2})
        await neighbour.set_mode(Mode.WRONG)
        assert await charge("c") == (422, {"error": "cannot process transfer"})
        await neighbour.set_mode(Mode.DOWN)
        assert await charge("d") == (503, {"error": "out of service"})  # an open connection
        async with aiohttp.ClientSession() as fresh:
            with pytest.raises(aiohttp.ClientConnectorError):
                await fresh.post(f"{neighbour.url}/charge/transfer")
        await neighbour.set_mode(Mode.NORMAL)
        assert await charge("a") == answers[0]


async def test_a_demo_survives_the_crash_of_its_server() -> None:
    timings = replace(FAST, call_timeout=0.5)
    async with Demo(workers=1, rate=20, timings=timings, day=None) as demo:
        await eventually(lambda: demo.query("SELECT 1 FROM payment WHERE status = 'DONE'"), "work")
        assert demo.server is not None
        demo.server.kill()
        demo.server.start()
        [(last,)] = await demo.query("SELECT max(id) FROM payment")
        await eventually(
            lambda: demo.query("SELECT 1 FROM payment WHERE status = 'DONE' AND id > %s", last + 5),
            "work after the crash",
        )
        root = demo.server.root
    assert not root.exists()
    assert not demo.directory.exists()
