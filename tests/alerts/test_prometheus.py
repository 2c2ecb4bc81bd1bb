"""A real Prometheus evaluates every rule, whatever a queue lacks, without an error."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from alerts import generate
from tests.alerts.alertmanager import PATIENCE, until
from tests.alerts.programs import program

# A healthy queue with all there is; a table of two queues; and queues that lack, in turn: all
# but a count, an objective, finished times (done tasks deleted), a lease and attempts.
PAGE = """
table_queue_exporter_build_info{version="1"} 1
table_queue_exporter_config_last_reload_successful 1
table_queue_exporter_state_write_errors_total 0
table_queue_database_up{database="main"} 1
table_queue_xmin_horizon_age_transactions{database="main",holder="session"} 10
table_queue_xmin_horizon_age_seconds{database="main",holder="session"} 1
table_queue_xmin_horizon_age_transactions{database="main",holder="slot"} 10
table_queue_dead_rows{database="main",table="public.full"} 99999
table_queue_live_rows{database="main",table="public.full"} 999999
table_queue_rows_deleted_total{database="main",table="public.full"} 7
table_queue_dead_rows{database="main",table="public.shared"} 5
table_queue_live_rows{database="main",table="public.shared"} 5
table_queue_last_autovacuum_timestamp_seconds{database="main",table="public.shared"} 5
"""
FULL = """
table_queue_info{Q,table="public.full",preset="lease"} 1
table_queue_up{Q} 1
table_queue_objective_seconds{Q} 60
table_queue_lease_seconds{Q} 300
table_queue_attempts_limit{Q} 8
table_queue_max_runtime_seconds{Q} 600
table_queue_max_silence_seconds{Q} 1e10
table_queue_failed_tolerated{Q} 1
table_queue_last_enqueued_timestamp_seconds{Q} 1
table_queue_tasks{Q,T,status="ready"} 3
table_queue_tasks{Q,T,status="delayed"} 2
table_queue_tasks{Q,T,status="processing"} 1
table_queue_tasks{Q,T,status="expired"} 0
table_queue_count_limited{Q,T,status="ready"} 0
table_queue_count_limited{Q,T,status="failed"} 0
table_queue_recently_failed_tasks{Q,T} 0
table_queue_oldest_ready_age_seconds{Q,T} 1
table_queue_oldest_expired_age_seconds{Q,T} 0
table_queue_oldest_processing_age_seconds{Q,T} 2
table_queue_retrying_tasks{Q,T} 1
table_queue_attempts_max{Q,T} 2
table_queue_finished_total{Q,T,outcome="done"} 100
table_queue_finished_total{Q,T,outcome="failed"} 1
table_queue_finished_total{Q,T,outcome="cancelled"} 1
table_queue_retries_total{Q,T} 3
table_queue_lease_reclaims_total{Q,T} 1
table_queue_processing_seconds_bucket{Q,T,outcome="done",le="1.0"} 99
table_queue_processing_seconds_bucket{Q,T,outcome="done",le="+Inf"} 100
table_queue_processing_seconds_count{Q,T,outcome="done"} 100
"""
LACKING = """
table_queue_up{Q} 1
table_queue_info{Q,table="public.shared",preset="custom"} 1
table_queue_tasks{Q,status="ready"} 100000
table_queue_oldest_task_age_seconds{Q} 100000
table_queue_finished_total{Q,outcome="failed"} 1
"""


def _page() -> str:
    parts = [PAGE]
    for task_type in ("a", "b"):
        text = FULL.replace("Q", 'database="main",queue="full"')
        text = text.replace(",T", f',task_type="{task_type}"')
        parts.append("\n".join(x for x in text.splitlines() if x not in parts[-1]))
    parts += [
        LACKING.replace("Q", f'database="main",queue="{queue}"')
        for queue in ("shared/one", "shared/two words")
    ]
    # Every family in one piece, as the format asks.
    lines = [line for part in parts for line in part.splitlines() if line]
    return "\n".join(sorted(set(lines), key=lambda line: line.partition("{")[0])) + "\n"


@contextlib.contextmanager
def _exporter(page: str) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        """Serves the page."""

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.wfile.write(page.encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Stay quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _rules(url: str) -> list[dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"{url}/api/v1/rules", timeout=10) as answer:
            groups = json.load(answer)["data"]["groups"]
    except (urllib.error.URLError, ConnectionError):
        return []
    return [rule for group in groups for rule in group["rules"]]


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[str]:
    path = program("prometheus")
    generate.main(["--scale=40", f"--output={tmp_path / 'rules.yaml'}"])
    with _exporter(_page()) as target, (tmp_path / "log").open("w") as log:
        (tmp_path / "prometheus.yaml").write_text(
            "global: {scrape_interval: 250ms, scrape_timeout: 250ms}\n"
            f"rule_files: [{tmp_path / 'rules.yaml'}]\n"
            "scrape_configs:\n"
            "- job_name: tqx\n"
            "  static_configs:\n"
            f"  - {{targets: ['{target}'], labels: {{instance: a}}}}\n"
            f"  - {{targets: ['{target}'], labels: {{instance: b}}}}\n"
        )
        port = _free_port()
        process = subprocess.Popen(
            [
                path,
                f"--config.file={tmp_path / 'prometheus.yaml'}",
                f"--storage.tsdb.path={tmp_path / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
            env={**os.environ, "TZ": "UTC"},
        )
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(timeout=PATIENCE)


def test_no_rule_fails_and_nothing_fires(prometheus: str) -> None:
    """Eleven minutes have passed, in a fortieth of the time.

    Much faster is not possible: Prometheus takes five seconds until it scrapes at all.
    """
    seen: dict[str, str] = {}

    def evaluated_often() -> bool:
        rules = _rules(prometheus)
        for rule in rules:
            if rule.get("lastError"):
                seen[rule["name"]] = rule["lastError"]
            if rule.get("state") == "firing":
                seen[rule["name"]] = "fires"
        url = f"{prometheus}/api/v1/query?query=count(queue:table_queue_tasks:sum%20offset%2017s)"
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            with urllib.request.urlopen(url, timeout=10) as answer:
                old = bool(json.load(answer)["data"]["result"])
            return old and all(rule["health"] == "ok" for rule in rules)
        return False

    until(evaluated_often, "some seconds of evaluations", patience=90)
    assert seen == {}
    assert len(_rules(prometheus)) > 50
