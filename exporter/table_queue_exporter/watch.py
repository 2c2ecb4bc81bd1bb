"""Reloads when the configuration file changes: ``--config.auto-reload``."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

INTERVAL = 2.0
"""Seconds between two looks at the file."""


async def watch(file: Path, changed: Callable[[], Awaitable[None]]) -> None:
    """Calls ``changed`` after each change of a file, until cancelled.

    By polling: a mounted ConfigMap changes by a symbolic link two directories up, which inotify
    tells differently on every volume driver.
    """
    seen = _stamp(file)
    while True:
        await asyncio.sleep(INTERVAL)
        stamp = _stamp(file)
        # Gone is a moment between two versions: the next look finds the new one.
        if stamp is not None and stamp != seen:
            seen = stamp
            await changed()


def _stamp(file: Path) -> object:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
