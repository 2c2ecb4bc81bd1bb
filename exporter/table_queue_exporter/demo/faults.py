"""What can go wrong with a queue, by name, each switched on for a while and undone afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg import AsyncConnection

from table_queue_exporter.demo.neighbour import Mode

if TYPE_CHECKING:
    from table_queue_exporter.demo.stage import Demo

Switch = Callable[["Demo"], AbstractAsyncContextManager[None]]


@dataclass(frozen=True)
class Fault:
    """One thing that can go wrong. `switch(demo)` is on inside its `async with`."""

    name: str
    description: str
    switch: Switch


FAULTS: dict[str, Fault] = {}
"""Every fault by name."""


def _fault(
    name: str, description: str
) -> Callable[[Callable[[Demo], AsyncIterator[None]]], Switch]:
    def register(generator: Callable[[Demo], AsyncIterator[None]]) -> Switch:
        switch = contextlib.asynccontextmanager(generator)
        FAULTS[name] = Fault(name, description, switch)
        return switch

    return register


@contextlib.asynccontextmanager
async def _meanwhile(action: Callable[[], Awaitable[object]], every: float) -> AsyncIterator[None]:
    """Repeat an action while inside, with a pause of `every` seconds. The first is done at once."""
    await action()

    async def repeat() -> None:
        while True:
            await asyncio.sleep(every)
            await action()

    # A task group would not do: it may not be left open across a generator's yield.
    task = asyncio.create_task(repeat())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled() and task.exception() is not None:
            await task


async def _busy(demo: Demo, timeout: float = 10.0) -> list[int]:
    """Wait until workers hold tasks, and return those workers' process ids."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        # A call that waits for its answer belongs to a claimed task.
        pids = [pid for pid in demo.supervisor.pids if demo.neighbour.in_flight[str(pid)] > 0]
        if pids:
            return pids
        await asyncio.sleep(0.01)
    return []


@_fault("poison", "a task that fails on every attempt, until it is FAILED")
async def _poison(demo: Demo) -> AsyncIterator[None]:
    await demo.enqueue("poison")
    try:
        yield
    finally:
        await demo.cancel("poison")


@_fault("killer", "a task that kills its worker on every attempt, and never becomes FAILED")
async def _killer(demo: Demo) -> AsyncIterator[None]:
    await demo.enqueue("killer")
    try:
        yield
    finally:
        await demo.cancel("killer")


@_fault("crash", "some workers are killed while they hold tasks, again and again; others live")
async def _crash(demo: Demo) -> AsyncIterator[None]:
    async def kill_some() -> None:
        victims = await _busy(demo)
        random.shuffle(victims)
        # Half of them, one at least; but one stays, to take over what the others held.
        running = len(demo.supervisor.pids)
        demo.supervisor.kill(victims[: min(max(1, running // 2), max(0, running - 1))])

    # Not faster than new workers start.
    async with _meanwhile(kill_some, every=max(2.0, demo.timings.lease / 8)):
        yield


@_fault("crash-all", "all workers are killed while they hold tasks, and none is started again")
async def _crash_all(demo: Demo) -> AsyncIterator[None]:
    await _busy(demo)
    await demo.supervisor.crash_all()
    try:
        yield
    finally:
        demo.supervisor.resume()


@_fault("outage", "the service that the tasks call refuses connections")
async def _outage(demo: Demo) -> AsyncIterator[None]:
    await demo.neighbour.set_mode(Mode.DOWN)
    try:
        yield
    finally:
        await demo.neighbour.set_mode(Mode.NORMAL)


@_fault("slow", "calls take longer than the lease, and their time-out was raised beyond it too")
async def _slow(demo: Demo) -> AsyncIterator[None]:
    # A slow service alone only runs into the calls' time-out. It takes the second mistake, a
    # time-out beyond the lease, for tasks to be taken away from workers that are still at them.
    lease = demo.timings.lease
    await demo.neighbour.set_mode(Mode.SLOW, slow_for=1.5 * lease)
    await demo.supervisor.pause()
    demo.supervisor.resume(dataclasses.replace(demo.timings, call_timeout=3 * lease))
    try:
        yield
    finally:
        await demo.neighbour.set_mode(Mode.NORMAL)
        await demo.supervisor.pause()
        demo.supervisor.resume(demo.timings)


@_fault("idle", "no workers: they were stopped in order and hold nothing")
async def _idle(demo: Demo) -> AsyncIterator[None]:
    await demo.supervisor.pause()
    try:
        yield
    finally:
        demo.supervisor.resume()


@_fault("held-snapshot", "a forgotten transaction keeps its snapshot, so vacuum removes nothing")
async def _held_snapshot(demo: Demo) -> AsyncIterator[None]:
    async with await AsyncConnection.connect(
        demo.dsn, application_name="forgotten session"
    ) as connection:
        # Only this isolation level keeps its snapshot between statements.
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await connection.execute("SELECT count(*) FROM (SELECT 1 FROM payment LIMIT 1) AS one")
        yield
