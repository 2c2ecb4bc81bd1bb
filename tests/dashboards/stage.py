"""The demo with each fault in turn, under a real exporter and two real Prometheus servers."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from alerts import generate
from table_queue_exporter.demo.faults import FAULTS
from table_queue_exporter.demo.stage import TASK_TYPES, Demo
from table_queue_exporter.demo.timings import Timings
from tests.support.processes import ExporterProcess
from tests.support.prometheus import Prometheus
from tests.support.queues import configuration, execute

SCALE = 60
"""The alerts run this many times as fast."""
TIMINGS = Timings.demo().scaled(0.25)
SETTINGS = f"""
interval: 500ms
objective: 1s
lease: {TIMINGS.lease:.0f}s
max_runtime: 30s
attempts_limit: {TIMINGS.max_attempts}
failed_tolerated: 2
new_series_hold: 1s
budget: 1
"""
PLAYED_FOR = {"poison": 9.0, "killer": 12.0, "crash": 8.0, "crash-all": 13.0, "slow": 10.0}
"""Seconds for which a fault is on; what is not named needs no time to show."""
LABELS = {"cluster": "eu", "namespace": "shop"}


@dataclass
class Played:
    """What was played, and the servers that saw it."""

    replicas: Prometheus
    """Scrapes the exporter twice, as if there were two; its series have no cluster."""
    labelled: Prometheus
    """Scrapes it once, and adds `LABELS`."""
    began: float = 0.0
    ended: float = 0.0
    """When all was still again; `truth` was read then."""
    spans: dict[str, tuple[float, float]] = field(default_factory=dict)
    """From when to when each fault was on."""
    truth: dict[str, int] = field(default_factory=dict)

    def most(self, fault: str, expr: str) -> float:
        """The largest value of an expression while a fault was on, and shortly after it."""
        start, end = self.spans[fault]
        return max(self.values(expr, start, end + 3), default=float("nan"))

    def values(self, expr: str, start: float, end: float) -> list[float]:
        """Every value of every series of an expression between two times, NaN left out."""
        found = ask(self.replicas, expr, start, end)
        return [value for _, values in found for value in values]


Series = tuple[dict[str, str], list[float]]


def ask(server: Prometheus, expr: str, start: float, end: float) -> list[Series]:
    """Labels and values of each series that has any; one moment where start is end."""
    if start == end:
        data = server.api("query", query=expr, time=str(end))
    else:
        data = server.api("query_range", query=expr, start=str(start), end=str(end), step="1")
    assert isinstance(data, dict)
    found = []
    for series in data["result"]:
        values = [float(value) for _, value in series.get("values") or [series["value"]]]
        numbers = [value for value in values if value == value]
        if numbers:
            found.append((series["metric"], numbers))
    return found


async def _produce(demo: Demo) -> None:
    types, weights = list(TASK_TYPES), list(TASK_TYPES.values())
    while True:
        await demo.enqueue(random.choices(types, weights)[0], 2)
        await asyncio.sleep(0.3)


PREPARED = (
    # A second queue, without tasks.
    "CREATE TABLE quiet (LIKE payment INCLUDING ALL)",
    # An autovacuum that comes within seconds.
    "ALTER TABLE payment SET (autovacuum_vacuum_threshold = 5, autovacuum_vacuum_scale_factor = 0)",
    "ALTER SYSTEM SET autovacuum_naptime = '1s'",
    "SELECT pg_reload_conf()",
)
MOVING = """
SELECT count(*) FROM payment
WHERE (status = 'PROCESSING' AND claimed_until > now())
  OR (status = 'NEW' AND next_attempt_at > now())
"""
"""Tasks that time alone will move to another status."""


async def _play(demo: Demo, played: Played) -> None:
    producer = asyncio.create_task(_produce(demo))
    try:
        # Prometheus scrapes for the first time some seconds after its start.
        async with asyncio.timeout(60):
            for server in (played.replicas, played.labelled):
                while not server.query("table_queue_up"):  # noqa: ASYNC110  # the server is asked
                    await asyncio.sleep(0.2)
        for name in FAULTS:
            start = time.time()
            async with demo.fault(name):
                await asyncio.sleep(PLAYED_FOR.get(name, 5.0))
                played.spans[name] = (start, time.time())
    finally:
        producer.cancel()
        await asyncio.wait({producer})
    # Nobody works any more: some tasks stay ready, nothing moves, both servers see the same.
    async with demo.fault("idle"):
        for task_type in TASK_TYPES:
            await demo.enqueue(task_type, 3)
        moving = (
            "SELECT count(*) FROM payment WHERE status = 'PROCESSING' OR next_attempt_at > now()"
        )
        async with asyncio.timeout(60):
            while (await demo.query(moving))[0][0]:  # noqa: ASYNC110  # the table is asked
                await asyncio.sleep(0.2)
        # A poll and a scrape later both servers know it.
        await asyncio.sleep(4)
        played.truth = dict(
            await demo.query(
                "SELECT 'ready', count(*)::int FROM payment WHERE status = 'NEW'"
                " UNION ALL SELECT 'failed', count(*)::int FROM payment WHERE status = 'FAILED'"
            )
        )
        played.ended = time.time()


@contextlib.contextmanager
def stage(directory: Path) -> Iterator[Played]:
    """Play everything once; the servers answer until the end."""
    rules = directory / "rules.yaml"
    generate.main([f"--scale={SCALE}", f"--output={rules}"])
    with contextlib.ExitStack() as stack:

        async def run() -> Played:
            async with Demo(rate=0, day=None, timings=TIMINGS) as demo:
                await asyncio.to_thread(execute, demo.dsn, *PREPARED)
                queues = [
                    f"name: {name}\ntable: public.{name}{SETTINGS.rstrip()}"
                    for name in ("payment", "quiet", "missing")
                ]
                exporter = stack.enter_context(ExporterProcess(configuration(demo.dsn, *queues)))
                twice = [f"{host}:{exporter.port}" for host in ("127.0.0.1", "localhost")]
                played = Played(
                    stack.enter_context(Prometheus(twice, rule_files=[rules])),
                    stack.enter_context(Prometheus(twice[:1], labels=LABELS)),
                    began=time.time(),
                )
                await _play(demo, played)
                return played

        yield asyncio.run(run())
