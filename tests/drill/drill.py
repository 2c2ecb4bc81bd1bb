"""One drill: writers, an exporter that is killed and started again, a scraper that forgives
nothing, and at the end the table's own account."""

import asyncio
import random
import signal
import tempfile
import time
import urllib.error
from collections import Counter
from dataclasses import dataclass, field

from table_queue_exporter.demo.server import LocalServer
from tests.support.pages import Metrics
from tests.support.processes import ExporterProcess
from tests.support.prometheus import Prometheus
from tests.support.queues import PAYMENT, REFERENCE_SCHEMA, configuration, execute, query

from .writers import LEASE, Writers

POLL = 0.5
HOLD = 8.0
SERVER_SETTINGS = {"max_prepared_transactions": "50", "max_wal_size": "4GB"}
QUEUE = f"{PAYMENT}\ninterval: 500ms\nlease: {LEASE:.0f}s\nnew_series_hold: 8s\nbudget: 1"
LATE_TYPE = "comes later"

Series = tuple[str, tuple[tuple[str, str], ...]]


@dataclass
class Watch:
    """Scrapes without pause and remembers the highest value of each counter ever seen."""

    seen: dict[Series, float] = field(default_factory=dict)
    backwards: list[str] = field(default_factory=list)
    scrapes: int = 0
    memory: list[float] = field(default_factory=list)

    def take(self, page: Metrics) -> None:
        """One scrape."""
        self.scrapes += 1
        for name, samples in page.samples.items():
            if name == "process_resident_memory_bytes":
                self.memory.append(samples[0][1])
            if not name.endswith(("_total", "_count", "_sum", "_bucket")):
                continue
            if not name.startswith("table_queue_") or "poll" in name:
                continue  # the watcher's own counters begin anew with each process
            for labels, value in samples:
                series = (name, tuple(sorted(labels.items())))
                before = self.seen.get(series, 0.0)
                if value < before:
                    self.backwards.append(f"{series}: {before} → {value}")
                self.seen[series] = max(value, before)


@dataclass
class Report:
    """What came out."""

    dsn: str
    page: Metrics
    writers: Writers
    watch: Watch
    kills: int
    increase: dict[str, float]

    def check(self) -> None:
        """Fails with what differs between the page and the truth."""
        differences = self.differences()
        assert not differences, "\n".join(differences)
        assert self.watch.backwards == []
        assert self.page.value("events_exact") == 1
        quarter = len(self.watch.memory) // 4
        first, last = self.watch.memory[:quarter], self.watch.memory[-quarter:]
        assert max(last) < 1.3 * max(first), "memory grows with what was counted"

    def differences(self) -> list[str]:
        """Every number of the page that is not the table's or the writers'."""
        page, found = self.page, []

        def compare(what: str, told: dict[tuple[str, ...], float], truth: object) -> None:
            assert isinstance(truth, dict)
            clean = {key: value for key, value in told.items() if value}
            expected = {key: value for key, value in truth.items() if value}
            if clean != expected:
                odd = {
                    key: (clean.get(key), expected.get(key))
                    for key in clean.keys() | expected.keys()
                    if clean.get(key) != expected.get(key)
                }
                found.append(f"{what} (told, true): {odd}")

        def by_type(name: str) -> dict[tuple[str, ...], float]:
            return {(have["task_type"],): value for have, value in page.all(name)}

        def by_outcome(name: str) -> dict[tuple[str, ...], float]:
            return {(have["task_type"], have["outcome"]): value for have, value in page.all(name)}

        rows = query(
            self.dsn,
            "SELECT task_type, lower(status), count(*)::float8, "
            "sum((extract(epoch FROM finished_at - started_at) * 1000000)::bigint)::float8, "
            "sum((extract(epoch FROM started_at - greatest(created_at, next_attempt_at))"
            " * 1000000)::bigint)::float8, "
            "count(*) FILTER (WHERE finished_at - started_at <= interval '0.25 s')::float8 "
            "FROM payment WHERE finished_at IS NOT NULL GROUP BY 1, 2",
        )
        table: dict[tuple[str, ...], list[float]] = {
            (str(row[0]), str(row[1])): [float(str(v)) for v in row[2:]] for row in rows
        }
        finished = {key: values[0] for key, values in table.items()}
        compare("finished_total", by_outcome("finished_total"), finished)
        compare("processing_seconds_count", by_outcome("processing_seconds_count"), finished)
        told = {k: round(v * 1e6) for k, v in by_outcome("processing_seconds_sum").items()}
        compare("processing_seconds_sum", dict(told), {k: v[1] for k, v in table.items()})
        quick: dict[tuple[str, ...], float] = {
            (have["task_type"], have["outcome"]): value
            for have, value in page.all("processing_seconds_bucket", le="0.25")
        }
        compare("processing_seconds_bucket", quick, {k: v[3] for k, v in table.items()})
        waits: Counter[tuple[str, ...]] = Counter()
        counts: Counter[tuple[str, ...]] = Counter()
        for (task_type, _), values in table.items():
            counts[(task_type,)] += int(values[0])
            waits[(task_type,)] += int(values[2])
        compare("wait_seconds_count", by_type("wait_seconds_count"), dict(counts))
        told = {k: round(v * 1e6) for k, v in by_type("wait_seconds_sum").items()}
        compare("wait_seconds_sum", dict(told), dict(waits))
        sums = query(
            self.dsn,
            "SELECT task_type, count(*)::float8, sum(attempts)::float8 FROM payment GROUP BY 1",
        )
        compare("enqueued_total", by_type("enqueued_total"), {(str(r[0]),): r[1] for r in sums})
        compare("attempts_total", by_type("attempts_total"), {(str(r[0]),): r[2] for r in sums})
        truth = self.writers.truth
        for name, written in (
            ("lease_reclaims_total", truth.reclaims),
            ("retries_total", truth.retries),
        ):
            compare(name, by_type(name), {(k,): float(v) for k, v in written.items()})
        return found


async def run_drill(*, seconds: float, kills: int, rate: float, longest: float) -> Report:
    """Runs writers for so long, with that many SIGKILLs of the exporter at random moments."""
    chance = random.Random(7)
    with (
        LocalServer(settings=SERVER_SETTINGS) as server,
        tempfile.TemporaryDirectory(prefix="tqe-drill-") as state,
    ):
        dsn = server.create_database("drill")
        execute(dsn, REFERENCE_SCHEMA)
        exporter = ExporterProcess(
            configuration(dsn, QUEUE), f"--state.dir={state}", "--log.level=warn"
        )
        watch = Watch()
        with exporter, Prometheus([f"127.0.0.1:{exporter.port}"]) as prometheus:
            await asyncio.to_thread(
                exporter.wait_for, lambda p: p.value("enqueued_total") == 0, "counting"
            )
            begun = time.time()
            writers = Writers(dsn, POLL, rate, longest)
            scraping = asyncio.create_task(_scrape(exporter, watch))
            working = asyncio.create_task(writers.run())
            moments = sorted(chance.uniform(2, seconds - 2) for _ in range(kills))
            rewritten = False
            for moment in moments:
                await asyncio.sleep(max(begun + moment - time.time(), 0))
                exporter.process.send_signal(signal.SIGKILL)
                await asyncio.to_thread(exporter.process.wait)
                await asyncio.to_thread(exporter.start)
                if moment > seconds / 2 and not rewritten:
                    rewritten = True
                    writers.task_types.append(LATE_TYPE)
                    await writers.rewrite_table()
            await asyncio.sleep(max(begun + seconds - time.time(), 0))
            writers.stopping.set()
            await working
            await writers.drain()
            await asyncio.sleep(HOLD + 1)
            await asyncio.to_thread(_settled, exporter, dsn)
            await asyncio.sleep(2)  # two more scrapes of Prometheus
            window = round(time.time() - begun) + 30
            increase = {
                labels["task_type"]: value
                for labels, value in prometheus.query(
                    f"sum by (task_type) (increase(table_queue_finished_total[{window}s]))"
                )
            }
            page = exporter.metrics()
            watch.take(page)
            scraping.cancel()
            report = Report(dsn, page, writers, watch, kills, increase)
            report.check()
            return report


def _settled(exporter: ExporterProcess, dsn: str) -> None:
    ((count,),) = query(dsn, "SELECT count(*) FROM payment WHERE finished_at IS NOT NULL")

    def all_counted(page: Metrics) -> bool:
        return sum(value for _, value in page.all("finished_total")) == count

    try:
        exporter.wait_for(all_counted, "every finish to be counted")
    except AssertionError:
        return  # the comparison that follows says what is missing


async def _scrape(exporter: ExporterProcess, watch: Watch) -> None:
    while True:
        try:
            page = await asyncio.to_thread(exporter.metrics)
        except (urllib.error.URLError, ConnectionError, ValueError, OSError):
            page = None  # it is being killed, or not yet up
        if page is not None:
            watch.take(page)
        await asyncio.sleep(0.15)
