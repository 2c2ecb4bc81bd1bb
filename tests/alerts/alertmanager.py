"""A real Alertmanager with the example's configuration, and a receiver for what it sends."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.alerts.programs import ALERTS, program

PATIENCE = 30.0


def until(condition: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
    """Wait for a condition, not for a time."""
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited in vain for {what}")
        time.sleep(0.02)


@dataclass
class Receiver:
    """Takes what Alertmanager sends to the pager and to the channel."""

    url: str = ""
    pages: list[dict[str, Any]] = field(default_factory=list)
    posts: list[dict[str, Any]] = field(default_factory=list)


@contextlib.contextmanager
def receiver() -> Iterator[Receiver]:
    """Listen on loopback as PagerDuty and as Slack."""
    received = Receiver()

    class Handler(BaseHTTPRequestHandler):
        """Remembers every request."""

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            (received.pages if self.path == "/pager" else received.posts).append(body)
            # No body: Alertmanager closes the connection when it has seen the status.
            self.send_response(202 if self.path == "/pager" else 200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Stay quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        received.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield received
        finally:
            server.shutdown()
            thread.join()


def example_copy(directory: Path, url: str) -> Path:
    """Copy the example with other addresses, files and waits, and nothing else changed."""
    text = (ALERTS / "alertmanager.example.yaml").read_text()
    (directory / "slack-url").write_text(f"{url}/channel")
    (directory / "pagerduty-key").write_text("k" * 32)
    for old, new in (
        ("https://events.pagerduty.com/v2/enqueue", f"{url}/pager"),
        ("/etc/alertmanager/secrets/", f"{directory}/"),
        ("/etc/alertmanager/table-queue.tmpl", str(ALERTS / "table-queue.tmpl")),
        ("group_wait: 30s", "group_wait: 1s"),
        ("group_interval: 5m", "group_interval: 1s"),
    ):
        assert text.count(old) >= 1, old
        text = text.replace(old, new)
    path = directory / "alertmanager.yaml"
    path.write_text(text)
    return path


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(frozen=True)
class Alertmanager:
    """A running Alertmanager."""

    url: str

    def post(self, *labels: dict[str, str], ended: bool = False, **annotations: str) -> None:
        """Send alerts that fire, or have ended, as Prometheus does."""
        end = {"endsAt": datetime.now(UTC).isoformat()} if ended else {}
        body = [{"labels": one, "annotations": annotations, **end} for one in labels]
        request = urllib.request.Request(
            f"{self.url}/api/v2/alerts",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=10):
            pass

    def inhibited(self, label: str) -> set[str]:
        """Return the values of a label of all alerts that others hold back now."""
        with urllib.request.urlopen(f"{self.url}/api/v2/alerts", timeout=10) as answer:
            alerts = json.load(answer)
        return {alert["labels"][label] for alert in alerts if alert["status"]["inhibitedBy"]}

    def ready(self) -> bool:
        """Tell whether it answers."""
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=10) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError):
            return False


@contextlib.contextmanager
def alertmanager(
    directory: Path, url: str, change: Callable[[Path], None] = lambda path: None
) -> Iterator[Alertmanager]:
    """Run an Alertmanager on loopback that sends to a receiver.

    `change` may alter the copy of the example's configuration before it is read.
    """
    path = program("prometheus-alertmanager", "alertmanager")
    port = _free_port()
    log = directory / "alertmanager.log"
    config = example_copy(directory, url)
    change(config)
    with log.open("w") as output:
        process = subprocess.Popen(
            [
                path,
                f"--config.file={config}",
                f"--storage.path={directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--cluster.listen-address=",
            ],
            stdout=output,
            stderr=output,
            env={**os.environ, "TZ": "UTC"},
        )
    running = Alertmanager(f"http://127.0.0.1:{port}")
    try:
        until(lambda: running.ready() or process.poll() is not None, "Alertmanager")
        assert process.poll() is None, log.read_text()
        yield running
    finally:
        process.terminate()
        process.wait(timeout=PATIENCE)
