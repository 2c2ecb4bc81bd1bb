"""``make bench-scaling``: what one process carries. The figures of docs/scaling.md.

``SIZES=100,300 make bench-scaling`` for other numbers of queues. Every figure is told by the
exporter's own page, at the beginning and the end of a window.
"""

import os
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from table_queue_exporter.demo.server import LocalServer
from tests.support.pages import Metrics
from tests.support.plans import load
from tests.support.processes import ExporterProcess
from tests.support.queues import REFERENCE_SCHEMA, execute

DATABASES = 10
QUEUES = 10
"""Of each database, where it goes as fast as it can."""
WINDOW = 45.0
FINISHED, WAITING, PROCESSING = 2000, 200, 20


def main() -> None:
    """Prints a table of sizes, and how many polls a second are possible."""
    sizes = [int(size) for size in os.environ.get("SIZES", "10,100,300,1000").split(",")]
    with LocalServer(settings={"shared_buffers": "512MB", "fsync": "off"}) as server:
        names = [f"bench_{number}" for number in range(DATABASES)]
        addresses = {name: server.create_database(name) for name in names}
        schemas = max(*sizes, QUEUES * DATABASES) // DATABASES
        _say(f"making {schemas * DATABASES} tables in {DATABASES} databases ...")
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda dsn: _fill(dsn, schemas), addresses.values()))
        _say(
            f"{'queues':>7}{'series':>9}{'page KiB':>10}{'scrape ms':>11}{'RSS MiB':>9}"
            f"{'CPU %':>7}{'polls/s':>9}{'median poll ms':>16}{'state KiB':>11}"
        )
        for size in sizes:
            _measure(addresses, size // DATABASES)
        _say("as fast as it can, interval 10ms, budget 1:")
        for count in (1, DATABASES):
            few = dict(list(addresses.items())[:count])
            _fastest(few, "without a state")
            with tempfile.TemporaryDirectory() as directory:
                _fastest(few, "with a state", f"--state.dir={directory}")


def _fill(dsn: str, schemas: int) -> None:
    for number in range(schemas):
        path = f"SET search_path = q{number}"
        rows = load(FINISHED, waiting=WAITING, processing=PROCESSING)
        execute(dsn, f"CREATE SCHEMA q{number}", f"{path}; {REFERENCE_SCHEMA}")
        execute(dsn, *(f"{path}; {step}" for step in rows if not step.startswith("VACUUM")))
    execute(dsn, "VACUUM ANALYZE")


def _config(addresses: dict[str, str], queues: int, defaults: str) -> str:
    text = "databases:\n" + "".join(f"  {name}: {{dsn: {d}}}\n" for name, d in addresses.items())
    text += "max_series: 1000000\n"
    text += f"defaults: {{{defaults}, objective: 60s, lease: 5m}}\nqueues:\n"
    for name in addresses:
        for number in range(queues):
            text += f"  - {{name: q{number}, database: {name}, table: q{number}.payment}}\n"
    return text


def _total(page: Metrics, name: str) -> float:
    return sum(value for _, value in page.all(name))


def _own(page: Metrics, name: str) -> float:
    ((_, value),) = page.samples[f"process_{name}"]
    return value


def _measure(addresses: dict[str, str], queues: int) -> None:
    config = _config(addresses, queues, "interval: 15s")
    with (
        tempfile.TemporaryDirectory() as directory,
        ExporterProcess(config, f"--state.dir={directory}") as exporter,
    ):
        while exporter.status("/-/ready") != 200:
            time.sleep(1)
        time.sleep(20)  # the first polls, which read everything at once, are over
        while _total(exporter.metrics(), "up") < queues * len(addresses):
            time.sleep(5)
        before, begun = exporter.metrics(), time.monotonic()
        while time.monotonic() - begun < WINDOW:  # as a Prometheus does, every 15 s
            time.sleep(15)
            scraped = time.perf_counter()
            text = exporter.get("/metrics")
            scrape = time.perf_counter() - scraped
        after, seconds = exporter.metrics(), time.monotonic() - begun
        series = sum(len(found) for name, found in after.samples.items() if "table_queue" in name)
        cpu = (_own(after, "cpu_seconds_total") - _own(before, "cpu_seconds_total")) / seconds
        polls = (_total(after, "polls_total") - _total(before, "polls_total")) / seconds
        durations = [value for _, value in after.all("poll_duration_seconds")]
        state = sum(file.stat().st_size for file in Path(directory).iterdir())
        _say(
            f"{queues * len(addresses):>7}{series:>9,}{len(text) / 1024:>10,.0f}"
            f"{scrape * 1000:>11.0f}{_own(after, 'resident_memory_bytes') / 2**20:>9.0f}"
            f"{cpu * 100:>7.1f}{polls:>9.1f}"
            f"{statistics.median(durations) * 1000:>16.1f}{state / 1024:>11,.0f}"
        )


def _fastest(addresses: dict[str, str], what: str, *arguments: str) -> None:
    config = _config(addresses, QUEUES, "interval: 10ms, budget: 1")
    with ExporterProcess(config, *arguments) as exporter:
        time.sleep(5)
        before, begun = exporter.metrics(), time.monotonic()
        time.sleep(15)
        after, seconds = exporter.metrics(), time.monotonic() - begun
        assert _total(after, "poll_errors_total") == 0, exporter.log()
        polls = (_total(after, "polls_total") - _total(before, "polls_total")) / seconds
        cpu = (_own(after, "cpu_seconds_total") - _own(before, "cpu_seconds_total")) / seconds
        _say(f"{len(addresses)} database(s), {what}: {polls:.0f} polls/s, CPU {cpu * 100:.0f} %")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
