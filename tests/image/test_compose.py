"""compose.yaml: valid, consistent, and its parts wired together on loopback, without an engine."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from table_queue_exporter.config import load_config
from table_queue_exporter.demo.server import LocalServer
from table_queue_exporter.demo.timings import Timings
from tests.alerts.programs import program, run
from tests.support.processes import ExporterProcess, wait_until
from tests.support.prometheus import Prometheus
from tests.support.queues import execute

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]


def test_keeps_to_the_compose_specification() -> None:
    """The schema of compose-spec, as check-jsonschema carries it."""
    package = resources.files("check_jsonschema.builtin_schemas.vendor")
    schema = json.loads(package.joinpath("compose-spec.json").read_text("utf-8"))
    jsonschema.validate(COMPOSE, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"services": {"a": {"imagee": "b"}}}, schema)


def _binds() -> list[tuple[str, str, str]]:
    """(service, file of ours, place in the container) of every mount that is no volume."""
    return [
        (name, *mount.removesuffix(":ro").split(":"))
        for name, service in SERVICES.items()
        for mount in service.get("volumes", [])
        if mount.startswith(".")
    ]


def test_what_it_names_is_there() -> None:
    for _, source, _ in _binds():
        assert (ROOT / source).exists(), source
    for name, service in SERVICES.items():
        assert set(service.get("depends_on", [])) <= SERVICES.keys(), name
        assert set(service.get("secrets", [])) <= COMPOSE["secrets"].keys(), name
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            assert source.startswith(".") or source in COMPOSE["volumes"], mount
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), "for this machine only"
    for secret in COMPOSE["secrets"].values():
        assert (ROOT / secret["file"]).is_file()
    # Nothing has to be set before `docker compose up`.
    variables = re.findall(r"\$\{(\w+)([^}]*)\}", (ROOT / "compose.yaml").read_text())
    assert variables
    assert all(rest.startswith(":-") for _, rest in variables)


def test_images_are_pinned_and_ours_are_hardened() -> None:
    for name, service in SERVICES.items():
        if "build" in service:
            assert service["read_only"] is True, name
            assert service["cap_drop"] == ["ALL"], name
        else:
            assert re.search(r":v?\d", service["image"]), name


def test_grafana_reads_what_is_mounted() -> None:
    places = {place: source for name, source, place in _binds() if name == "grafana"}
    provider = yaml.safe_load(
        (ROOT / places["/etc/grafana/provisioning/dashboards"] / "table-queue.yaml").read_text()
    )["providers"][0]
    path = provider["options"]["path"]
    committed = {file.name for file in (ROOT / "dashboards").glob("*.json")}
    mounted = {place for place in places if place.startswith(f"{path}/")}
    assert mounted == {f"{path}/{name}" for name in committed}
    environment = SERVICES["grafana"]["environment"]
    assert environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] in mounted
    source = yaml.safe_load(
        (ROOT / places["/etc/grafana/provisioning/datasources"] / "prometheus.yaml").read_text()
    )["datasources"][0]
    assert source["url"] == "${PROMETHEUS_URL}"
    assert environment["PROMETHEUS_URL"] == "http://prometheus:9090"


def _localised(text: str) -> str:
    """A configuration with files of this machine in place of mounted ones."""
    for _, source, place in _binds():
        text = text.replace(place, str(ROOT / source))
    return text.replace("/etc/prometheus/rules/*.yaml", str(ROOT / "alerts/table-queue.rules.yaml"))


def test_promtool_and_amtool_take_the_configurations(tmp_path: Path) -> None:
    prometheus = tmp_path / "prometheus.yaml"
    prometheus.write_text(_localised((ROOT / "compose/prometheus.yaml").read_text()))
    checked = run(program("promtool"), "check", "config", prometheus)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "rules found" in checked.stdout
    checked = run(program("amtool"), "check-config", ROOT / "compose/alertmanager.yaml")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_addresses_are_the_names_of_services_with_their_ports() -> None:
    config = yaml.safe_load((ROOT / "compose/prometheus.yaml").read_text())
    jobs = [*config["scrape_configs"], *config["alerting"]["alertmanagers"]]
    targets = [t for job in jobs for static in job["static_configs"] for t in static["targets"]]
    known = {"exporter:9947", "prometheus:9090", "alertmanager:9093", "localhost:9090"}
    assert set(targets) <= known
    for name, service in SERVICES.items():
        for port in service.get("ports", []):
            _, outside, inside = port.split(":")
            assert outside == inside, name


@contextmanager
def _workers(dsn: str, log: Path) -> Iterator[None]:
    words = [word.replace("${FAULT:-}", "") for word in SERVICES["workers"]["command"]]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "table_queue_exporter", *words],
            env=os.environ | {"DEMO_DSN": dsn},
            stdout=output,
            stderr=output,
        )
    try:
        yield
        assert process.poll() is None, log.read_text()
    finally:
        process.terminate()
        assert process.wait(timeout=30) == 0, log.read_text()


def test_workers_exporter_and_prometheus_work_together(tmp_path: Path) -> None:
    """With the roles, commands and files of compose.yaml; only addresses differ."""
    config = (ROOT / "compose/exporter/exporter.yaml").read_text()
    secret = tmp_path / "monitor_password"
    secret.write_text((ROOT / COMPOSE["secrets"]["monitor_password"]["file"]).read_text())
    with LocalServer() as server:
        server.create_database("app")
        execute(server.dsn("app"), (ROOT / "compose/roles.sql").read_text())
        address = server.dsn("app", "monitor").rpartition("/")[0].rpartition("@")[2]
        config = config.replace("@postgres/", f"@{address}/")
        config = config.replace("/run/secrets/monitor_password", str(secret))
        with (
            _workers(server.dsn("app", "app"), tmp_path / "workers"),
            ExporterProcess(config, f"--state.dir={tmp_path / 'state'}") as exporter,
            Prometheus(
                [f"127.0.0.1:{exporter.port}"],
                rule_files=[ROOT / "alerts/table-queue.rules.yaml"],
            ) as prometheus,
        ):
            wait_until(
                lambda: prometheus.value('sum(table_queue_finished_total{outcome="done"})'),
                "finished tasks to be counted",
                seconds=60,
            )
            assert prometheus.value('table_queue_up{database="demo",queue="payment"}') == 1
            # What the monitor may see: the tasks, the statistics, other sessions' transactions.
            assert prometheus.query("table_queue_xmin_horizon_age_transactions")
            refused = 'table_queue_poll_errors_total{reason="permission"}'
            assert prometheus.value(refused) == 0


def test_the_lease_told_is_the_workers() -> None:
    secret = "/run/secrets/monitor_password"
    config = load_config(ROOT / "compose/exporter/exporter.yaml", files=False)
    assert str(config.databases["demo"].password_file) == secret
    (queue,) = config.queues
    assert queue.lease == Timings.demo().lease
