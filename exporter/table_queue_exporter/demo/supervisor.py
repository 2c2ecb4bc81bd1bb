"""Keeps a number of worker processes running, as an orchestrator would."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from table_queue_exporter.demo.timings import Timings
from table_queue_exporter.demo.worker import DSN_VARIABLE

_LOOK_EVERY = 0.05
_PAUSE_AFTER_ERROR = 1.0
_KILL_AFTER = 5.0


async def ended(processes: list[subprocess.Popen[bytes]], timeout: float) -> bool:
    """Wait up to `timeout` seconds until all have ended; tell whether they have."""
    deadline = time.monotonic() + timeout
    while any(process.poll() is None for process in processes):
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(_LOOK_EVERY)
    return True


async def end(processes: list[subprocess.Popen[bytes]], timeout: float) -> None:
    """SIGTERM to all, and SIGKILL to those that are still there `timeout` seconds later."""
    for process in processes:
        process.terminate()
    if not await ended(processes, timeout):
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def tail(file: Path, lines: int = 20) -> str:
    """Return the last lines of a text file; "" when there is none."""
    with contextlib.suppress(FileNotFoundError):
        return "\n".join(file.read_text(errors="replace").splitlines()[-lines:])
    return ""


class Supervisor:
    """Starts workers and starts them again when they die.

    Args:
        count: how many worker processes.
        dsn: the queue's database.
        neighbour: URL of the service that the workers call.
        timings: for the workers.
        log_file: where the workers' output goes.
    """

    def __init__(
        self, count: int, dsn: str, neighbour: str, timings: Timings, log_file: Path
    ) -> None:
        self._count = count
        self._dsn = dsn
        self._neighbour = neighbour
        self._timings = timings
        self._log_file = log_file
        self._processes: list[subprocess.Popen[bytes]] = []
        self._not_before = 0.0
        self._paused = False
        self._watch: asyncio.Task[None] | None = None
        self.deaths = 0
        """Workers that ended without having been told to."""
        self.failures = 0
        """Of those, the ones that gave up by themselves; `output` says why."""

    async def __aenter__(self) -> Self:
        self._fill()
        self._watch = asyncio.create_task(self._keep_filled())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait({self._watch})
        await self.pause()

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers that run now."""
        return [process.pid for process in self._processes if process.poll() is None]

    @property
    def output(self) -> str:
        """The last lines that the workers wrote."""
        return tail(self._log_file)

    def kill(self, pids: list[int]) -> None:
        """SIGKILL to these workers. They are replaced, unless the supervisor is paused."""
        for process in self._processes:
            if process.pid in pids:
                process.kill()

    async def crash_all(self) -> None:
        """SIGKILL to all workers at once; none is started again before `resume`."""
        self._paused = True
        self.kill(self.pids)
        self.deaths += len(self._processes)
        await self._empty()

    async def pause(self) -> None:
        """Stop all workers in order; none is started again before `resume`."""
        self._paused = True
        await self._empty()

    def resume(self, timings: Timings | None = None) -> None:
        """Start workers again, with other timings if given."""
        self._timings = timings or self._timings
        self._paused = False
        self._fill()

    async def _empty(self) -> None:
        try:
            await end(self._processes, self._timings.shutdown_grace + _KILL_AFTER)
        finally:
            for process in self._processes:
                process.kill()  # does nothing to one that has ended
                process.wait()
                self._close(process)
            self._processes.clear()

    async def _keep_filled(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            if self._paused:
                continue
            for process in list(self._processes):
                if process.poll() is not None:
                    self._processes.remove(process)
                    self._close(process)
                    self.deaths += 1
                    if process.returncode > 0:  # it could not work: do not turn in circles
                        self.failures += 1
                        self._not_before = time.monotonic() + _PAUSE_AFTER_ERROR
            self._fill()

    def _fill(self) -> None:
        if time.monotonic() < self._not_before:
            return
        while len(self._processes) < self._count:
            self._processes.append(self._launch())

    def _launch(self) -> subprocess.Popen[bytes]:
        with self._log_file.open("ab") as log:
            return subprocess.Popen(
                [
                    *(sys.executable, "-m", "table_queue_exporter.demo.worker"),
                    *("--neighbour", self._neighbour, "--timings", self._timings.to_json()),
                    "--stop-with-parent",
                ],
                env={**os.environ, DSN_VARIABLE: self._dsn},
                stdin=subprocess.PIPE,  # closes when we end, however we end
                stdout=log,
                stderr=log,
                start_new_session=True,  # the terminal's Ctrl-C is for us, who stop it in order
            )

    @staticmethod
    def _close(process: subprocess.Popen[bytes]) -> None:
        if process.stdin is not None:
            process.stdin.close()


def describe(process: subprocess.Popen[bytes]) -> str:
    """Say how a process ended."""
    code = process.returncode
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"
