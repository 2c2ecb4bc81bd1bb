"""A real Prometheus that scrapes on loopback, and its HTTP API."""

import json
import subprocess
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import yaml

from tests.conftest import program

from .processes import free_port, wait_until


class Prometheus:
    """Scrapes targets every second (or as told); a context manager."""

    def __init__(
        self,
        targets: Sequence[str],
        *,
        interval: str = "1s",
        rule_files: Sequence[Path] = (),
        alertmanager: str | None = None,
        labels: dict[str, str] | None = None,
    ) -> None:
        self.port = free_port()
        self._program = program("prometheus")
        self._directory = tempfile.TemporaryDirectory(prefix="tqe-prometheus-")
        config: dict[str, object] = {
            "global": {"scrape_interval": interval, "evaluation_interval": interval},
            "rule_files": [str(path) for path in rule_files],
            "scrape_configs": [
                {
                    "job_name": "table-queue",
                    "static_configs": [{"targets": list(targets), "labels": labels or {}}],
                }
            ],
        }
        if alertmanager is not None:
            config["alerting"] = {
                "alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]
            }
        self._path = Path(self._directory.name)
        (self._path / "prometheus.yml").write_text(yaml.safe_dump(config))
        self._process: subprocess.Popen[bytes]

    def __enter__(self) -> "Prometheus":
        with (self._path / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    self._program,
                    f"--config.file={self._path / 'prometheus.yml'}",
                    f"--storage.tsdb.path={self._path / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                ],
                stdout=log,
                stderr=log,
            )
        wait_until(self._ready, "Prometheus to be ready")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.wait()
        self._directory.cleanup()

    def _ready(self) -> bool:
        assert self._process.poll() is None, (self._path / "log").read_text()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=5):
                return True
        except (urllib.error.URLError, ConnectionError):
            return False

    def api(self, path: str, **parameters: str) -> object:
        """``data`` of one call of the HTTP API, such as ``api("rules")``."""
        query = urllib.parse.urlencode(parameters)
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{query}"
        with urllib.request.urlopen(url, timeout=30) as response:
            answer = json.loads(response.read())
        assert answer["status"] == "success", answer
        data: object = answer["data"]
        return data

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """The instant vector of an expression: labels and value of each series."""
        data = self.api("query", query=expression)
        assert isinstance(data, dict)
        assert data["resultType"] == "vector"
        return [(sample["metric"], float(sample["value"][1])) for sample in data["result"]]

    def value(self, expression: str) -> float | None:
        """The value of an expression that yields one series, None when it yields nothing."""
        found = self.query(expression)
        assert len(found) <= 1, f"{expression} is not one series: {found}"
        return found[0][1] if found else None
