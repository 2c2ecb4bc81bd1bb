"""An exporter that runs in the test's own process, poll by poll."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from table_queue_exporter.app import Exporter
from table_queue_exporter.config import parse_config
from table_queue_exporter.exposition import Format
from table_queue_exporter.state import StateDirectory

from .pages import Metrics
from .queues import PAYMENT

FAST = f"{PAYMENT}\ninterval: 200ms\nnew_series_hold: 1ms\nbudget: 1"
"""The payment queue, polled in quick succession."""
HELD = 4
"""Polls after which a new label is no longer shown at 0: two intervals, and some."""


class Running:
    """An exporter in this process; a context manager."""

    def __init__(self, text: str, state: Path | None = None, *, warm: bool = True) -> None:
        self._warm = warm
        config = parse_config(text, environment={})
        directory = None if state is None else StateDirectory(state)
        self.exporter = Exporter(lambda: config, state_directory=directory)

    async def __aenter__(self) -> "Running":
        self.exporter.start()
        if self._warm:
            await self.polls(HELD)  # counting has begun; known labels are no longer held at 0
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.exporter.stop()

    async def polls(self, number: int) -> None:
        """Returns when so many more polls have ended."""
        queue = self.exporter.queues[0]
        wanted = queue.polls + number
        async with asyncio.timeout(60):
            while queue.polls <= wanted:  # noqa: ASYNC110  # polls are what is waited for
                await asyncio.sleep(0.01)

    def page(self, form: Format = Format.TEXT) -> Metrics:
        """The page now."""
        end = "# EOF\n" if form is Format.OPENMETRICS else ""
        text = self.exporter.page.body(form).decode() + end
        return Metrics(text, openmetrics=form is Format.OPENMETRICS)

    async def until(self, condition: Callable[[Metrics], object], what: str) -> Metrics:
        """The first page on which a condition holds."""
        try:
            async with asyncio.timeout(60):
                while not condition(self.page()):  # noqa: ASYNC110  # the page is what is waited for
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"waited in vain for {what}:\n{self.page().text}") from None
        return self.page()
