"""A queue library at work in processes of its own, and an exporter that watches its table."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from table_queue_exporter.app import Exporter
from table_queue_exporter.config import parse_config
from table_queue_exporter.exposition import Format
from tests.support.pages import Metrics
from tests.support.queues import configuration, until_ready

from .install import HERE, NotInstalledError, command

PATIENCE = 45.0
"""Seconds within which a library has done what a test waits for."""


class Library:
    """One library's app, on one database."""

    def __init__(self, name: str, dsn: str) -> None:
        self.name = name
        try:
            self._command = command(name)
        except NotInstalledError as error:
            reason = f"{name} cannot be installed here: {error}"
            if os.environ.get("CI") == "true":
                pytest.fail(reason)
            pytest.skip(reason)
        self._environment = {**os.environ, "DSN": dsn, "NODE_NO_WARNINGS": "1"}
        self._environment.pop("PYTHONPATH", None)
        self._run("install")

    def _run(self, *arguments: str) -> None:
        done = subprocess.run(
            [*self._command, *arguments],
            cwd=HERE / self.name,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, f"{self.name} {arguments}:\n{done.stdout}{done.stderr}"

    def push(self, **jobs: int) -> None:
        """Enqueues so many jobs of each kind, as the library does it."""
        self._run("push", json.dumps(jobs))

    @contextmanager
    def worker(self, log: Path) -> Iterator[None]:
        """The library's own worker, killed at the end: it has no time to give anything back."""
        with log.open("ab") as output:
            process = subprocess.Popen(
                [*self._command, "work"],
                cwd=HERE / self.name,
                env=self._environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            try:
                yield
                assert process.poll() is None, f"the worker ended:\n{log.read_text()}"
            finally:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


class Watch:
    """A running exporter's page."""

    def __init__(self, exporter: Exporter) -> None:
        self._exporter = exporter

    def page(self) -> Metrics:
        """The page as it is now."""
        return Metrics(self._exporter.page.body(Format.TEXT).decode())

    async def until(self, check: Callable[[Metrics], bool], what: str) -> Metrics:
        """A page for which ``check`` holds, all of it read after that held for the first time."""
        try:
            async with asyncio.timeout(PATIENCE):
                polls: float | None = None
                while True:
                    page = self.page()
                    now = highest(page, "polls_total") or 0
                    polls = None if not check(page) else now if polls is None else polls
                    if polls is not None and now >= polls + 2:
                        return page
                    await asyncio.sleep(0.05)
        except TimeoutError:
            pytest.fail(f"{what} did not come; the page is:\n{self.page().text}")


@asynccontextmanager
async def watching(dsn: str, queue: str) -> AsyncIterator[Watch]:
    """Polls a queue several times a second."""
    settings = "interval: 200ms\nnew_series_hold: 0s\nbudget: 1"
    config = parse_config(configuration(dsn, f"{queue.strip()}\n{settings}"), environment={})
    exporter = Exporter(lambda: config)
    exporter.start()
    try:
        await until_ready(exporter)
        yield Watch(exporter)
    finally:
        await exporter.stop()


def total(page: Metrics, name: str, **labels: str) -> float | None:
    """A metric summed over its other labels; None where it is absent."""
    found = page.all(name, **labels)
    return sum(value for _, value in found) if found else None


def highest(page: Metrics, name: str, **labels: str) -> float | None:
    """A metric's highest value over its other labels; None where it is absent."""
    found = page.all(name, **labels)
    return max(value for _, value in found) if found else None


def statuses(page: Metrics) -> dict[str, float]:
    """Tasks by status, those that are not 0."""
    sums: dict[str, float] = {}
    for labels, value in page.all("tasks"):
        sums[labels["status"]] = sums.get(labels["status"], 0) + value
    return {status: value for status, value in sums.items() if value}
