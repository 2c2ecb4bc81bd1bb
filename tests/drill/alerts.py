"""``make drill-alerts``: every fault of the demo, a few at a time."""

import asyncio
import sys

from .faults import DRILLS, run

SIDE_BY_SIDE = 3
"""Demos that run at once: two cores carry no more without making workers slow."""


def main() -> None:
    """Plays every drill and prints what arrived, and after how long."""
    for first in range(0, len(DRILLS), SIDE_BY_SIDE):
        batch = DRILLS[first : first + SIDE_BY_SIDE]
        asyncio.run(run(batch, quiet=45, exporter_drill=first == 0, tell=_tell))


def _tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
