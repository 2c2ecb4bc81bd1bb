"""``make drill``: ten minutes, and what ten minutes do not show."""

import asyncio
import os
import sys

from .drill import run_drill
from .pause import catch_up


def main() -> None:
    """Runs the long drill and prints what it saw; fails when a number differs."""
    seconds = float(os.environ.get("SECONDS_OF_DRILL", "600"))
    kills = max(round(seconds / 25), 2)
    report = asyncio.run(run_drill(seconds=seconds, kills=kills, rate=2000, longest=10))
    sys.stdout.write(catch_up(3_000_000))
    memory = report.watch.memory
    finished = sum(value for _, value in report.page.all("finished_total"))
    sys.stdout.write(
        f"{seconds:.0f} s, {report.kills} kills, {report.watch.scrapes} scrapes, "
        f"{finished:.0f} finishes ({finished / seconds:.0f}/s): every counter exact, "
        f"none stepped back; memory of the exporter {min(memory) / 1e6:.0f} to "
        f"{max(memory) / 1e6:.0f} MB\n"
    )


if __name__ == "__main__":
    main()
