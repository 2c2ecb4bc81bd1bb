"""What the operating system says about processes, without a library."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")


def children_of(pid: int) -> list[int]:
    """Return the process ids of a process's direct children."""
    return [child for child, parent, _ in _processes() if parent == pid]


def alive(pid: int) -> bool:
    """Tell whether a process runs; one that ended and waits to be collected does not."""
    return any(found == pid and not state.startswith("Z") for found, _, state in _processes())


def _processes() -> Iterator[tuple[int, int, str]]:
    """Yield (pid, parent's pid, state) of every process."""
    if (_PROC / "self" / "stat").exists():
        for entry in _PROC.iterdir():
            if entry.name.isdigit():
                # It may end while we look: then it is not listed.
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    # The name stands in parentheses and may hold anything, parentheses too.
                    after_name = (entry / "stat").read_text().rpartition(")")[2].split()
                    yield int(entry.name), int(after_name[1]), after_name[0]
        return
    listing = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,stat="], capture_output=True, text=True, check=True
    )
    for line in listing.stdout.splitlines():
        pid, parent, state = line.split()
        yield int(pid), int(parent), state
