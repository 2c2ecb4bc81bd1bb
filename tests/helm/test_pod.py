"""Rendered pods, run as they stand against a real PostgreSQL."""

import base64
import ssl
import subprocess
import urllib.request
from pathlib import Path

import bcrypt
import pytest
import trustme

from table_queue_exporter.demo.server import LocalServer
from tests.helm.charts import Manifest, Values, manifests
from tests.helm.kubelet import Pod, Secrets
from tests.support.bare_root import need_namespaces
from tests.support.pages import Metrics
from tests.support.processes import free_port, page_of, wait_until
from tests.support.queues import REFERENCE_SCHEMA, execute

pytestmark = pytest.mark.usefixtures("_namespaces")


@pytest.fixture(scope="module")
def _namespaces() -> None:
    need_namespaces()


@pytest.fixture(scope="module")
def dsn(newest_server: LocalServer) -> str:
    found = newest_server.create_database("charted")
    execute(found, REFERENCE_SCHEMA, "INSERT INTO payment (task_type) VALUES ('receipt')")
    return found


def ports() -> Values:
    """No two pods share this machine's loopback."""
    port = free_port()
    return {"containerPort": port, "service": {"port": port}}


def _page(pod: Pod) -> Metrics:
    return Metrics(page_of(pod.port, "/metrics") or "")


def _wait_for_queue(pod: Pod, queue: str) -> None:
    wait_until(lambda: _page(pod).value("up", queue=queue) == 1, f"{queue} to be read")


def test_defaults_find_the_queues_of_the_database_in_the_secret(dsn: str, tmp_path: Path) -> None:
    secrets = {"queues-table-queue-exporter-database": {"dsn": dsn}}
    with Pod(tmp_path, manifests(ports()), secrets) as pod:
        _wait_for_queue(pod, "payment")
        assert _page(pod).value("tasks", task_type="receipt", status="ready") == 1
        assert pod.probe("liveness")
        assert pod.probe("startup")
        wait_until(lambda: list(pod.file("/var/lib/table-queue-exporter").glob("*.json")), "state")
        refused = pod.run(["touch", "/etc/table-queue-exporter/x"])
        assert "Read-only file system" in refused.stderr


def _configured(dsn: str) -> Values:
    return ports() | {
        "config": {
            "databases": {"main": {}},
            "defaults": {"interval": "500ms"},
            "queues": [{"name": "payment", "database": "main", "table": "public.payment"}],
        },
        "databaseSecrets": {"main": {"existingSecret": "main-monitor", "dsnKey": "uri"}},
    }


def test_a_deployment_reads_its_configuration_again_when_it_changes(
    dsn: str, tmp_path: Path
) -> None:
    values = _configured(dsn) | {"state": {"persistence": {"enabled": False}}}
    secrets = {"main-monitor": {"uri": dsn}}
    with Pod(tmp_path, manifests(values), secrets, kind="Deployment") as pod:
        _wait_for_queue(pod, "payment")
        file = pod.file("/etc/table-queue-exporter/config/config.yaml")
        file.write_text(file.read_text().replace("name: payment", "name: renamed"))
        _wait_for_queue(pod, "renamed")


def test_a_secret_that_rotates_is_read_again(dsn: str, tmp_path: Path) -> None:
    """No restart: the next connection takes the new address."""
    secrets = {"main-monitor": {"uri": "host=127.0.0.1 port=1"}}
    with Pod(tmp_path, manifests(_configured(dsn)), secrets) as pod:
        assert _page(pod).value("database_up") == 0
        assert pod.probe("liveness"), "a database that is down is no reason to start anew"
        pod.file("/etc/table-queue-exporter/databases/main/uri").write_text(dsn)
        _wait_for_queue(pod, "payment")


def test_pods_of_a_stateful_set_read_their_shard(dsn: str, tmp_path: Path) -> None:
    """Pod 4 of 3 shards is a second replica of shard 1."""
    names = [f"copy{number}" for number in range(6)]
    values: Values = {
        "shards": 3,
        "replicaCount": 2,
        "config": {"databases": {name: {"dsn": dsn} for name in names}},
    }
    read = []
    for ordinal in (0, 1, 2, 4):
        directory = tmp_path / str(ordinal)
        directory.mkdir()
        with Pod(directory, manifests(values | ports()), {}, ordinal=ordinal) as pod:
            page = _page(pod)
            read.append({labels["database"] for labels, _ in page.all("database_up")})
    assert sorted(name for part in read[:3] for name in part) == names
    assert read[3] == read[1]


def test_probes_test_and_scrapes_pass_where_a_password_is_asked_for(
    dsn: str, tmp_path: Path
) -> None:
    certificate = trustme.CA().issue_cert("exporter.example.org")
    hashed = bcrypt.hashpw(b"geheim", bcrypt.gensalt(4)).decode()
    secrets = {
        "main-monitor": {"uri": dsn},
        "web": {
            "web.yml": f"basic_auth_users: {{prober: {hashed}}}\n"
            "tls_server_config: {cert_file: tls.crt, key_file: tls.key}\n",
            "tls.crt": certificate.cert_chain_pems[0].bytes().decode(),
            "tls.key": certificate.private_key_pem.bytes().decode(),
        },
        "login": {"username": "prober", "password": "geheim"},
    }
    web: Values = {
        "webConfig": {
            "existingSecret": "web",
            "tls": True,
            "basicAuth": {"existingSecret": "login"},
        }
    }
    objects = manifests(_configured(dsn) | web)
    with Pod(tmp_path, objects, secrets) as pod:
        assert page_of(pod.port, "/metrics") is None, "plain HTTP"
        for name in ("startup", "liveness", "readiness"):
            assert pod.probe(name)
        request = urllib.request.Request(f"https://127.0.0.1:{pod.port}/metrics")
        request.add_header("Authorization", "Basic " + base64.b64encode(b"prober:geheim").decode())
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with urllib.request.urlopen(request, context=context, timeout=10) as response:
            assert b"table_queue_up" in response.read()
        assert _test_pod(tmp_path, objects, secrets).returncode == 0
        wrong = secrets | {"login": {"username": "prober", "password": "falsch"}}
        assert "status 401" in _test_pod(tmp_path, objects, wrong, "wrong").stderr


def test_helm_test_scrapes_and_fails_without_an_answer(dsn: str, tmp_path: Path) -> None:
    objects = manifests(_configured(dsn))
    with Pod(tmp_path, objects, {"main-monitor": {"uri": dsn}}):
        passed = _test_pod(tmp_path, objects, {})
        assert passed.returncode == 0, passed.stderr
    failed = _test_pod(tmp_path, objects, {}, "after")
    assert failed.returncode == 1
    assert "Connection refused" in failed.stderr


def _test_pod(
    tmp_path: Path, objects: list[Manifest], secrets: Secrets, name: str = "hook"
) -> subprocess.CompletedProcess[str]:
    directory = tmp_path / name
    directory.mkdir()
    pod = Pod(directory, objects, secrets, kind="Pod")
    return pod.run(pod.command())
