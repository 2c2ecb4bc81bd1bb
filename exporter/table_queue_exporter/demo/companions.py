"""Prometheus and Alertmanager beside the demo, with the alert rules, where they are installed."""

from __future__ import annotations

import shutil
from pathlib import Path

import yaml

from table_queue_exporter.demo.beside import Program
from table_queue_exporter.demo.server import free_port

_RULES = "table-queue.rules.yaml"
_HERE = Path(__file__).parent


def rules_file() -> Path | None:
    """The alert rules: beside the demo in an installed package, in `alerts/` of a checkout."""
    for path in (_HERE / _RULES, _HERE.parents[2] / "alerts" / _RULES):
        if path.is_file():
            return path
    return None


def companions(directory: Path, exporter_port: int) -> list[Program]:
    """Return the programs to start after the exporter; none where they are not installed.

    Args:
        directory: for their files; deleted when the demo ends.
        exporter_port: where to scrape, on the loopback address.
    """
    prometheus = shutil.which("prometheus")
    alertmanager = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
    if prometheus is None:
        return []
    programs = []
    alert_port = None
    if alertmanager is not None:
        alert_port = free_port()
        programs.append(_alertmanager(alertmanager, directory, alert_port))
    programs.insert(0, _prometheus(prometheus, directory, exporter_port, alert_port))
    return programs


def _prometheus(path: str, directory: Path, exporter_port: int, alert_port: int | None) -> Program:
    port = free_port()
    rules = rules_file()
    config: dict[str, object] = {
        "global": {"scrape_interval": "5s", "evaluation_interval": "5s"},
        "rule_files": [] if rules is None else [str(rules)],
        "scrape_configs": [
            {
                "job_name": "table-queue",
                "static_configs": [{"targets": [f"127.0.0.1:{exporter_port}"]}],
            }
        ],
    }
    if alert_port is not None:
        managers = {"static_configs": [{"targets": [f"127.0.0.1:{alert_port}"]}]}
        config["alerting"] = {"alertmanagers": [managers]}
    file = directory / "prometheus.yml"
    file.write_text(yaml.safe_dump(config, sort_keys=False))
    command = [
        path,
        f"--config.file={file}",
        f"--storage.tsdb.path={directory / 'prometheus'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    return Program("prometheus", command, f"http://127.0.0.1:{port}/alerts", port)


def _alertmanager(path: str, directory: Path, port: int) -> Program:
    file = directory / "alertmanager.yml"
    # Nobody is told: the page shows what would arrive.
    labels = ["cluster", "namespace", "job", "database", "queue"]
    config = {
        "route": {"receiver": "nobody", "group_by": labels},
        "receivers": [{"name": "nobody"}],
    }
    file.write_text(yaml.safe_dump(config, sort_keys=False))
    command = [
        path,
        f"--config.file={file}",
        f"--storage.path={directory / 'alertmanager'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    ]
    return Program("alertmanager", command, f"http://127.0.0.1:{port}/", port)
