"""The service that the tasks call: a payment provider that can be slow, down or wrong."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import random
from collections import Counter
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from aiohttp import web

KEY_HEADER = "Idempotency-Key"
WORKER_HEADER = "X-Worker"
_HOST = "127.0.0.1"
_REMEMBERED = 100_000


class Mode(enum.Enum):
    """How the provider behaves."""

    NORMAL = "normal"
    SLOW = "slow"
    DOWN = "down"
    WRONG = "wrong"


@dataclass
class Charge:
    """One charge, and how many calls asked for it."""

    number: int
    task_type: str
    calls: int = 0


class Neighbour:
    """An HTTP server on the loopback address, in this event loop.

    `POST /charge/<task type>` with an `Idempotency-Key` charges once for each key; a repetition
    gets the first answer. Tasks of type `poison` are refused (422) in every mode.

    Args:
        latency: shortest and longest time of a normal answer, in seconds.
    """

    def __init__(self, latency: tuple[float, float] = (0.05, 0.3)) -> None:
        self._latency = latency
        self._slow_for = 0.0
        self._mode = Mode.NORMAL
        self._changed = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self._site: web.TCPSite | None = None
        self.port = 0
        self.charges: dict[str, Charge] = {}
        self.charged = 0
        self.in_flight: Counter[str] = Counter()
        """Calls that wait for their answer, by the worker that made them."""

    @property
    def url(self) -> str:
        """Where to call, without a slash at the end."""
        return f"http://{_HOST}:{self.port}"

    @property
    def mode(self) -> Mode:
        """How it behaves now."""
        return self._mode

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/charge/{task_type}", self._charge)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await self._listen()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._wake()
        if self._runner is not None:
            await self._runner.cleanup()

    async def set_mode(self, mode: Mode, *, slow_for: float = 0.0) -> None:
        """Behave so from now on; calls that wait are answered in the new way.

        Args:
            mode: DOWN refuses connections; WRONG answers 422 to everything.
            slow_for: seconds that an answer takes in mode SLOW.
        """
        self._mode, self._slow_for = mode, slow_for
        self._wake()
        if mode is Mode.DOWN:
            if self._site is not None:
                await self._site.stop()
                self._site = None
        else:
            await self._listen()

    async def _listen(self) -> None:
        if self._site is None and self._runner is not None:
            site = web.TCPSite(self._runner, _HOST, self.port, reuse_address=True)
            await site.start()
            self._site = site
            self.port = self._runner.addresses[0][1]

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _charge(self, request: web.Request) -> web.Response:
        worker = request.headers.get(WORKER_HEADER, "")
        self.in_flight[worker] += 1
        try:
            return await self._answer(request)
        finally:
            self.in_flight[worker] -= 1

    async def _answer(self, request: web.Request) -> web.Response:
        task_type = request.match_info["task_type"]
        key = request.headers.get(KEY_HEADER)
        if key is None:
            return web.json_response({"error": f"no {KEY_HEADER}"}, status=400)
        if self._mode is Mode.DOWN:
            answer = web.json_response({"error": "out of service"}, status=503)
            answer.force_close()  # a connection from before the outage does not outlive it
            return answer
        if self._mode is Mode.WRONG or task_type == "poison":
            return web.json_response({"error": f"cannot process {task_type}"}, status=422)
        # Charged first, answered later: a caller that gives up waiting has still been charged.
        charge = self._charge_once(key, task_type)
        slow = self._mode is Mode.SLOW
        await self._pause(self._slow_for if slow else random.uniform(*self._latency))
        return web.json_response({"charge": charge.number})

    def _charge_once(self, key: str, task_type: str) -> Charge:
        if key not in self.charges:
            self.charged += 1
            self.charges[key] = Charge(self.charged, task_type)
            if len(self.charges) > _REMEMBERED:
                del self.charges[next(iter(self.charges))]
        self.charges[key].calls += 1
        return self.charges[key]

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
