"""Helpers of the demo's tests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from table_queue_exporter.demo.timings import Timings

FAST = Timings(
    lease=1.5,
    poll_interval=0.05,
    backoff_base=0.1,
    backoff_max=0.4,
    max_attempts=3,
    call_timeout=1.0,
    batch_size=5,
    concurrency=5,
    shutdown_grace=0.2,
)


async def eventually(
    check: Callable[[], Awaitable[object]], what: str, timeout: float = 20.0
) -> None:
    """Wait until the check holds; fail with what was waited for."""
    deadline = time.monotonic() + timeout
    while not await check():
        assert time.monotonic() < deadline, f"not within {timeout} s: {what}"
        await asyncio.sleep(0.1)
