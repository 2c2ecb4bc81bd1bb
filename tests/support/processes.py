"""The exporter as its users run it: a process with a port and a log."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from .pages import Metrics


def wait_until(condition: Callable[[], object], what: str, *, seconds: float = 30) -> None:
    """Returns when the condition holds; fails the test, saying what for, when it never does."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s in vain for: {what}"
        time.sleep(0.02)


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class ExporterProcess:
    """``table-queue-exporter serve`` in a process of its own."""

    def __init__(
        self,
        config: str | None,
        *arguments: str,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.port = free_port()
        self._directory = tempfile.TemporaryDirectory(prefix="tqe-test-")
        self.config_file = Path(self._directory.name) / "config.yaml"
        self.log_file = Path(self._directory.name) / "log"
        self._command = [
            sys.executable,
            "-m",
            "table_queue_exporter",
            "serve",
            f"--web.listen-address=127.0.0.1:{self.port}",
            *arguments,
        ]
        if config is not None:
            self.config_file.write_text(config)
            self._command.append(f"--config.file={self.config_file}")
        self._environment = {**os.environ, **(environment or {})}
        self.process: subprocess.Popen[bytes]

    def __enter__(self) -> "ExporterProcess":
        self.start()
        return self

    def start(self) -> None:
        """Starts it, also after it was killed: on the same port, with the same log."""
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, stdout=log, stderr=log, env=self._environment
            )
        wait_until(self._answers, f"the exporter to listen; log: {self.log()}")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._directory.cleanup()

    def _answers(self) -> bool:
        assert self.process.poll() is None, f"the exporter ended: {self.log()}"
        try:
            self.get("/-/healthy")
        except (urllib.error.URLError, ConnectionError):
            return False
        return True

    def log(self) -> str:
        """What it wrote so far."""
        return self.log_file.read_text() if self.log_file.exists() else ""

    def get(self, path: str, **headers: str) -> str:
        """The body of a page; raises urllib's HTTPError for an error status."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", headers=headers)
        with urllib.request.urlopen(request, timeout=10) as response:
            body: bytes = response.read()
        return body.decode()

    def status(self, path: str, method: str = "GET") -> int:
        """The status of a page."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method)
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code

    def metrics(self) -> Metrics:
        """The page now."""
        return Metrics(self.get("/metrics"))

    def wait_for(self, condition: Callable[[Metrics], object], what: str) -> Metrics:
        """The first page on which a condition holds."""
        page: list[Metrics] = []

        def holds() -> object:
            page[:] = [self.metrics()]
            return condition(page[0])

        try:
            wait_until(holds, what)
        except AssertionError as error:
            ours = "\n".join(line for line in page[0].text.splitlines() if "table_queue" in line)
            raise AssertionError(f"{error}\n{ours}\n{self.log()}") from None
        return page[0]

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Sends a signal and returns the exit code."""
        self.process.send_signal(number)
        return self.process.wait(timeout=30)
