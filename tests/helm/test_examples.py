"""The CronJob that runs exactly once a day: valid, hardened, and true to its word."""

import os
import subprocess

import kubernetes_validate
import pytest
import yaml
from psycopg.conninfo import conninfo_to_dict

from table_queue_exporter.demo.server import LocalServer
from tests.helm.charts import CHART, Manifest
from tests.support.queues import REFERENCE_SCHEMA, execute, query

JOB: Manifest = yaml.safe_load((CHART / "examples/cronjob-exactly-once.yaml").read_text())
POD = JOB["spec"]["jobTemplate"]["spec"]["template"]["spec"]


@pytest.mark.parametrize("version", ["1.25", kubernetes_validate.latest_version()])
def test_is_valid(version: str) -> None:
    kubernetes_validate.validate(JOB, version, strict=True)


def test_never_overlaps_and_makes_up_for_a_missed_start() -> None:
    assert JOB["spec"]["concurrencyPolicy"] == "Forbid"
    assert JOB["spec"]["startingDeadlineSeconds"] >= 3600
    assert JOB["spec"]["timeZone"] == "Etc/UTC", "a change of the clocks runs nothing twice"
    (container,) = POD["containers"]
    assert POD["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_its_command_started_many_times_enqueues_once(newest_server: LocalServer) -> None:
    """Several at the same time, and again afterwards."""
    dsn = newest_server.create_database("nightly")
    execute(dsn, REFERENCE_SCHEMA)
    (container,) = POD["containers"]
    program, *options = container["command"] + container["args"]
    address = {f"PG{key.upper()}": str(value) for key, value in conninfo_to_dict(dsn).items()}
    address["PGDATABASE"] = address.pop("PGDBNAME")
    command = [str(newest_server.bin_dir / program), *options]
    runs = [
        subprocess.Popen(command, env=os.environ | address, stdout=subprocess.PIPE)
        for _ in range(6)
    ]
    for run in runs:
        run.communicate(timeout=60)
    again = subprocess.run(command, env=os.environ | address, capture_output=True, check=False)
    assert [run.returncode for run in runs] + [again.returncode] == [0] * 7
    assert query(dsn, "SELECT task_type, count(*)::int FROM payment GROUP BY 1") == [
        ("settlement", 1)
    ]
