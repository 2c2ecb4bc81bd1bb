"""One worker process: claims tasks, works on them outside any transaction, closes them.

    DEMO_DSN=postgresql://… python -m table_queue_exporter.demo.worker --neighbour http://…

SIGTERM stops it in order: nothing new is claimed, running tasks get a grace, the rest is released.
A lost database connection ends it with exit code 1: whoever supervises it starts it again, and what
it held comes back when the leases run out.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys

import aiohttp
import psycopg

from table_queue_exporter.demo import queue
from table_queue_exporter.demo.neighbour import KEY_HEADER, WORKER_HEADER
from table_queue_exporter.demo.timings import Timings

DSN_VARIABLE = "DEMO_DSN"
"""Environment variable with the database's URI; arguments are for all to see in `ps`."""


class RefusedError(Exception):
    """The neighbour answered, but not with success."""


class Worker:
    """Works on at most `timings.concurrency` tasks at once.

    Args:
        connection: in autocommit mode; all statements of this worker go through it, one by one.
        session: for the calls to the neighbour.
        neighbour: the URL of the neighbour.
        timings: lease, pauses and bounds.
    """

    def __init__(
        self,
        connection: queue.Connection,
        session: aiohttp.ClientSession,
        neighbour: str,
        timings: Timings,
    ) -> None:
        self._connection = connection
        self._session = session
        self._neighbour = neighbour
        self._timings = timings
        self._slots = asyncio.Semaphore(timings.concurrency)
        self._stopping = asyncio.Event()
        self._working: set[asyncio.Task[None]] = set()

    def stop(self) -> None:
        """Claim nothing more; `run` returns when the running tasks are closed or released."""
        self._stopping.set()
        self._slots.release()  # wakes a loop that waits for a slot

    async def run(self) -> None:
        """Work until `stop` is called.

        Raises:
            ExceptionGroup: of psycopg.OperationalError when the database is lost.
        """
        async with asyncio.TaskGroup() as group:
            while not self._stopping.is_set():
                wanted = await self._take_slots()
                if self._stopping.is_set():
                    break
                tasks = await queue.claim(self._connection, wanted, self._timings.lease)
                for task in tasks:
                    group.create_task(self._handle(task))
                for _ in range(wanted - len(tasks)):
                    self._slots.release()
                if len(tasks) < wanted:  # nothing more is due
                    await _wait(self._stopping, self._timings.poll_interval)
            await self._end_running()

    async def _take_slots(self) -> int:
        # Only what can start now is claimed: a task that waits in the process uses up its lease.
        await self._slots.acquire()
        taken = 1
        while taken < self._timings.batch_size and not self._slots.locked():
            await self._slots.acquire()
            taken += 1
        return taken

    async def _end_running(self) -> None:
        await asyncio.sleep(0)  # tasks claimed just now begin, or they could not release
        if self._working:
            await asyncio.wait(self._working, timeout=self._timings.shutdown_grace)
        # Only tasks at work are here; one that writes its result is left to do so.
        for running in list(self._working):
            running.cancel()

    async def _handle(self, task: queue.Task) -> None:
        try:
            error = await self._attempt(task)
            # False from these means: the lease was lost, the task is somebody else's by now.
            if error is None:
                await queue.finish(self._connection, task)
            else:
                await queue.fail(self._connection, task, error, self._timings)
        except asyncio.CancelledError:
            await queue.release(self._connection, task)
            raise
        finally:
            self._slots.release()

    async def _attempt(self, task: queue.Task) -> str | None:
        """Do the work, outside any transaction; return what went wrong, if anything did."""
        current = asyncio.current_task()
        assert current is not None
        self._working.add(current)
        try:
            async with asyncio.timeout(self._timings.call_timeout):
                await self._work(task)
        except Exception as error:  # whatever fails in a task is that task's failure, not ours
            return f"{type(error).__name__}: {error}"
        else:
            return None
        finally:
            self._working.discard(current)

    async def _work(self, task: queue.Task) -> None:
        if task.task_type == "killer":  # as if the kernel had run out of memory
            os.kill(os.getpid(), signal.SIGKILL)
        headers = {KEY_HEADER: str(task.idempotency_key), WORKER_HEADER: str(os.getpid())}
        url = f"{self._neighbour}/charge/{task.task_type}"
        async with self._session.post(url, json=task.payload, headers=headers) as answer:
            if answer.status != 200:
                raise RefusedError(f"HTTP {answer.status}: {await answer.text()}")


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass


async def work(dsn: str, neighbour: str, timings: Timings, *, stop_with_parent: bool) -> None:
    """Run one worker until SIGTERM or SIGINT; see the module's text."""
    loop = asyncio.get_running_loop()
    async with (
        await psycopg.AsyncConnection.connect(dsn, autocommit=True, connect_timeout=10) as database,
        aiohttp.ClientSession() as session,
    ):
        worker = Worker(database, session, neighbour, timings)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, worker.stop)
        if stop_with_parent:
            _at_end_of_input(loop, worker)
        await worker.run()


def _at_end_of_input(loop: asyncio.AbstractEventLoop, worker: Worker) -> None:
    # The parent holds the other end of the pipe: it closes even when the parent is killed.
    def look() -> None:
        if not os.read(sys.stdin.fileno(), 1024):
            loop.remove_reader(sys.stdin.fileno())
            worker.stop()

    loop.add_reader(sys.stdin.fileno(), look)


def main() -> int:
    """Run as a program; return the exit code."""
    parser = argparse.ArgumentParser(description="One worker of the demo queue.")
    parser.add_argument("--neighbour", required=True, help="URL of the payment provider")
    parser.add_argument("--timings", default="{}", help="fields of Timings as JSON")
    parser.add_argument("--stop-with-parent", action="store_true", help="stop when stdin ends")
    options = parser.parse_args()
    dsn = os.environ.get(DSN_VARIABLE)
    if dsn is None:
        parser.error(f"{DSN_VARIABLE} is not set")
    timings = Timings.from_json(options.timings)
    code = 0
    try:
        asyncio.run(
            work(dsn, options.neighbour, timings, stop_with_parent=options.stop_with_parent)
        )
    except* psycopg.OperationalError as lost:
        sys.stderr.write(f"worker {os.getpid()}: {lost.exceptions[0]}\n")
        code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
