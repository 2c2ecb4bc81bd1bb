"""Fault drills: a real fault in the demo, the real rules in a real Prometheus, a real Alertmanager,
and what reaches the person on call.

All time in the rules runs 30 times as fast, from the same source; leases, back-off and objective of
the demo's queue are as short. Each drill has a database of its own, and so its own group.
"""

import asyncio
import contextlib
import json
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import yaml

from alerts.generate import rule_file
from alerts.thresholds import Settings
from table_queue_exporter.demo.stage import Demo
from table_queue_exporter.demo.timings import Timings
from tests.alerts.alertmanager import Alertmanager, alertmanager
from tests.support.processes import ExporterProcess
from tests.support.prometheus import Prometheus

SCALE = 30
TIMINGS = Timings(
    lease=300 / SCALE,
    poll_interval=0.3,
    backoff_base=60 / SCALE,
    backoff_max=3840 / SCALE,
    max_attempts=8,
    call_timeout=3.0,
    batch_size=20,
    concurrency=20,
    shutdown_grace=0.5,
)
OBJECTIVE = "2s"


@dataclass(frozen=True)
class Notice:
    """One alert as it reached a receiver."""

    receiver: str
    group: str
    alert: str
    severity: str
    database: str
    status: str


@dataclass
class Inbox:
    """Everything that reached the pager and the channel."""

    notices: list[Notice] = field(default_factory=list)
    url: str = ""

    def of(self, database: str, status: str = "firing") -> set[tuple[str, str]]:
        """(alert, severity) of all that arrived for one database."""
        return {
            (notice.alert, notice.severity)
            for notice in self.notices
            if notice.database == database and notice.status == status
        }

    def pages(self, database: str) -> set[str]:
        """Groups of the pages for one database: what rings is a group, not an alert."""
        return {
            notice.group
            for notice in self.notices
            if notice.database == database and notice.receiver == "pager"
        }


@contextmanager
def inbox() -> Iterator[Inbox]:
    """A webhook receiver on loopback."""
    received = Inbox()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            for alert in body["alerts"]:
                labels = alert["labels"]
                received.notices.append(
                    Notice(
                        self.path.strip("/"),
                        body["groupKey"],
                        labels["alertname"],
                        labels["severity"],
                        labels.get("database", ""),
                        alert["status"],
                    )
                )
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        received.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield received
        finally:
            server.shutdown()
            thread.join()


def with_webhooks(path: Path, url: str) -> None:
    """The example's configuration, its receivers replaced by webhooks and nothing else."""
    config = yaml.safe_load(path.read_text())
    for receiver in config["receivers"]:
        if receiver["name"] in ("pager", "channel"):
            name = receiver["name"]
            receiver.clear()
            receiver["name"] = name
            receiver["webhook_configs"] = [{"url": f"{url}/{name}", "send_resolved": True}]
    path.write_text(yaml.safe_dump(config, sort_keys=False))


@dataclass
class Scene:
    """One demo with its exporter, watched by the Prometheus of the drill."""

    database: str
    demo: Demo
    exporter: ExporterProcess


Act = Callable[[Scene], contextlib.AbstractAsyncContextManager[None]]


@dataclass(frozen=True)
class Drill:
    """A fault and what must arrive while it is on.

    ``expected`` holds alternatives: one of them must arrive. Every other alert that arrives must be
    among ``allowed`` warnings. ``critical`` says whether a page is right.
    """

    name: str
    act: Act
    expected: frozenset[str]
    allowed: frozenset[str] = frozenset()
    critical: bool = False
    rate: float = 8.0
    workers: int = 3
    patience: float = 150.0


def fault(name: str) -> Act:
    """A fault of the demo."""
    return lambda scene: scene.demo.fault(name)


@asynccontextmanager
async def server_stopped(scene: Scene) -> AsyncIterator[None]:
    """The database server is shut down."""
    assert scene.demo.server is not None
    await asyncio.to_thread(scene.demo.server.stop)
    try:
        yield
    finally:
        await asyncio.to_thread(scene.demo.server.start)


@asynccontextmanager
async def exporter_stopped(scene: Scene) -> AsyncIterator[None]:
    """The exporter is shut down."""
    await asyncio.to_thread(scene.exporter.stop)
    try:
        yield
    finally:
        await asyncio.to_thread(scene.exporter.start)


WORKERS_GONE = frozenset({"TableQueueStalled", "TableQueueTasksLate"})
SIDE_EFFECTS = frozenset(
    {
        "TableQueueBacklogGrowing",
        "TableQueueLeasesNotReclaimed",
        "TableQueueWorkersNotReturning",
        "TableQueueLeaseReclaims",
        "TableQueueNoArrivals",
    }
)
DRILLS = (
    Drill("poison", fault("poison"), frozenset({"TableQueuePoisonTask"})),
    Drill(
        "killer",
        fault("killer"),
        frozenset({"TableQueuePoisonTask"}),
        frozenset({"TableQueueLeaseReclaims"}),
    ),
    Drill("crash", fault("crash"), frozenset({"TableQueueLeaseReclaims"})),
    Drill("crash-all", fault("crash-all"), WORKERS_GONE, SIDE_EFFECTS, critical=True),
    Drill("idle", fault("idle"), WORKERS_GONE, SIDE_EFFECTS, critical=True),
    Drill(
        "outage",
        fault("outage"),
        frozenset({"TableQueueAttemptsFailing"}),
        frozenset({"TableQueueRetryStorm"}),
        critical=True,
    ),
    Drill(
        "slow",
        fault("slow"),
        frozenset({"TableQueueLeaseReclaims"}),
        frozenset(
            {
                "TableQueuePoisonTask",
                "TableQueueLeaseTooShort",
                "TableQueueWorkersNotReturning",
            }
        ),
        rate=0.4,
        workers=4,
    ),
    Drill("held-snapshot", fault("held-snapshot"), frozenset({"TableQueueVacuumBlocked"})),
    Drill(
        "server stopped",
        server_stopped,
        frozenset({"TableQueueDatabaseDown"}),
        critical=True,
    ),
)


@dataclass
class Stage:
    """The Prometheus and Alertmanager of a run, and who listens."""

    inbox: Inbox
    prometheus: Prometheus
    alertmanager: Alertmanager

    async def play(self, scene: Scene, drill: Drill) -> str:
        """Switches a fault on until its alert arrives, and off until it has resolved."""
        begun = time.monotonic()
        async with drill.act(scene):
            await self._until(
                lambda: any(a in drill.expected for a, _ in self.inbox.of(scene.database)),
                f"{drill.name}: one of {sorted(drill.expected)}",
                drill.patience,
            )
            arrived = time.monotonic() - begun
            await asyncio.sleep(5)  # what comes with it
        firing = self.inbox.of(scene.database)
        for alert, severity in firing:
            assert alert in drill.expected | drill.allowed, f"{drill.name}: {alert} arrived as well"
            assert severity != "critical" or drill.critical, f"{drill.name}: {alert} paged"
        if drill.critical:
            assert len(self.inbox.pages(scene.database)) == 1, "one page for one queue"
        else:
            assert self.inbox.pages(scene.database) == set()
        await self._until(
            lambda: self.inbox.of(scene.database) <= self.inbox.of(scene.database, "resolved"),
            f"{drill.name}: {sorted(firing)} to resolve",
            240,
        )
        names = ", ".join(sorted(alert for alert, _ in firing))
        return f"{drill.name:<16} {names} after {arrived:.0f} s"

    async def _until(self, condition: Callable[[], bool], what: str, patience: float) -> None:
        try:
            async with asyncio.timeout(patience):
                while not condition():  # noqa: ASYNC110  # what a webhook has brought
                    await asyncio.sleep(0.1)
        except TimeoutError:
            rules = json.dumps(self.prometheus.api("alerts"))[:4000]
            raise AssertionError(
                f"waited in vain for {what}; {self.inbox.notices}; {rules}"
            ) from None


def exporter_config(database: str, dsn: str) -> str:
    """The queue's configuration, its times as short as the rules'."""
    return yaml.safe_dump(
        {
            "databases": {database: {"dsn": dsn}},
            "queues": [
                {
                    "name": "payment",
                    "database": database,
                    "table": "payment",
                    "interval": "500ms",
                    "budget": 1.0,
                    "objective": OBJECTIVE,
                    "lease": f"{TIMINGS.lease:.0f}s",
                    "attempts_limit": TIMINGS.max_attempts,
                    "failed_window": f"{3600 // SCALE}s",
                    "new_series_hold": "2s",
                }
            ],
        }
    )


@asynccontextmanager
async def scene_of(drill: Drill, state: Path) -> AsyncIterator[Scene]:
    """A demo at work and an exporter that reads it."""
    database = drill.name.replace(" ", "-")
    async with Demo(workers=drill.workers, rate=drill.rate, timings=TIMINGS, day=None) as demo:
        exporter = ExporterProcess(
            exporter_config(database, demo.dsn), f"--state.dir={state / database}"
        )
        await asyncio.to_thread(exporter.start)
        try:
            yield Scene(database, demo, exporter)
        finally:
            exporter.__exit__(None, None, None)


async def run(
    drills: tuple[Drill, ...], *, quiet: float, exporter_drill: bool, tell: Callable[[str], None]
) -> None:
    """Plays drills side by side under one Prometheus and one Alertmanager.

    First nothing is wrong for ``quiet`` seconds, while exporters and workers are restarted: nothing
    may arrive. Then each fault. At last, with ``exporter_drill``, the exporters are stopped.
    """
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tqe-alerts-")))
        rules = directory / "rules.yaml"
        rules.write_text(rule_file(Settings().scaled(SCALE)))
        scenes = await asyncio.gather(
            *(stack.enter_async_context(scene_of(drill, directory)) for drill in drills)
        )
        received = stack.enter_context(inbox())
        manager = stack.enter_context(
            alertmanager(directory, received.url, lambda path: with_webhooks(path, received.url))
        )
        prometheus = stack.enter_context(
            Prometheus(
                [f"127.0.0.1:{scene.exporter.port}" for scene in scenes],
                rule_files=[rules],
                alertmanager=manager.url.removeprefix("http://"),
            )
        )
        stage = Stage(received, prometheus, manager)
        await _nothing(scenes, quiet)
        assert received.notices == [], "nothing is wrong, and yet something arrived"
        tell(f"{'none':<16} nothing in {quiet:.0f} s of work and restarts")
        for line in await asyncio.gather(
            *(stage.play(scene, drill) for scene, drill in zip(scenes, drills, strict=True))
        ):
            tell(line)
        if exporter_drill:
            await _exporters_stopped(stage, scenes)
            tell(f"{'exporter stopped':<16} TableQueueExporterDown")


async def _nothing(scenes: list[Scene], seconds: float) -> None:
    until = time.monotonic() + seconds
    for scene in scenes:
        await asyncio.sleep(max((until - time.monotonic()) / (2 * len(scenes)), 0))
        await asyncio.to_thread(scene.exporter.stop)
        await asyncio.to_thread(scene.exporter.start)
        await scene.demo.supervisor.pause()
        scene.demo.supervisor.resume()
    await asyncio.sleep(max(until - time.monotonic(), 0))


async def _exporters_stopped(stage: Stage, scenes: list[Scene]) -> None:
    before = len(stage.inbox.notices)

    def told(status: str) -> set[tuple[str, str]]:
        return {(n.alert, n.receiver) for n in stage.inbox.notices[before:] if n.status == status}

    async with AsyncExitStack() as stack:
        for scene in scenes:
            await stack.enter_async_context(exporter_stopped(scene))
        down = ("TableQueueExporterDown", "pager")
        await stage._until(lambda: down in told("firing"), "ExporterDown", 90)
        assert told("firing") == {down}
    await stage._until(lambda: down in told("resolved"), "ExporterDown to resolve", 90)
