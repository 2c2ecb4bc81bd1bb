"""The examples as their readers run them: a real PostgreSQL, real workers, the exporter beside."""

import os
import re
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from table_queue_exporter.config import parse_config
from table_queue_exporter.demo.server import LocalServer
from tests.support.processes import ExporterProcess
from tests.support.queues import execute, query

ROOT = Path(__file__).parents[1]
CELERY = ROOT / "examples" / "celery"
CACHE = ROOT / ".cache" / "examples-celery"


@pytest.fixture(scope="session")
def python() -> Path:
    """A Python with the example's own requirements, kept between runs."""
    interpreter = CACHE / "bin" / "python"
    wanted = (CELERY / "requirements.txt").read_text()
    stamp = CACHE / "installed"
    if not stamp.exists() or stamp.read_text() != wanted:
        venv.create(CACHE, with_pip=True, clear=True)
        install = [
            str(interpreter),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ]
        subprocess.run([*install, "-r", str(CELERY / "requirements.txt")], check=True)
        stamp.write_text(wanted)
    return interpreter


@pytest.fixture(scope="session")
def server() -> Iterator[LocalServer]:
    with LocalServer() as server:
        yield server


class Payments:
    """The example's processes on one database."""

    def __init__(self, python: Path, dsn: str, directory: Path, stack: ExitStack) -> None:
        self._python, self._directory, self._stack = python, directory, stack
        self._environment = {
            **os.environ,
            "DATABASE_DSN": dsn,
            "BROKER_DIR": str(directory / "broker"),
            "CLAIM_EVERY": "1",
            "LEASE": "6",
            "BATCH": "4",
            "MAX_ATTEMPTS": "2",
            "FIRST_BACKOFF": "1",
        }

    def run(self, *arguments: str) -> None:
        subprocess.run(
            [self._python, "-m", "payments", *arguments],
            cwd=CELERY, env=self._environment, check=True,
        )  # fmt: skip

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        log = self._stack.enter_context((self._directory / arguments[0]).open("ab"))
        process = subprocess.Popen(
            [self._python, "-m", "celery", "-A", "payments", *arguments],
            cwd=CELERY, env=self._environment, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        self._stack.callback(self.kill, process)
        return process

    def worker(self) -> subprocess.Popen[bytes]:
        return self.start("worker", "--concurrency=4", "--loglevel=INFO", "--without-mingle")

    @staticmethod
    def kill(process: subprocess.Popen[bytes]) -> None:
        """Worker and children at once, as by the kernel when memory runs out."""
        if process.poll() is None:
            os.killpg(process.pid, 9)
            process.wait()


def test_the_celery_example(python: Path, server: LocalServer, tmp_path: Path) -> None:
    dsn = server.create_database("celery")
    config = (CELERY / "exporter.yaml").read_text()
    quick = config.replace(
        "lease: 5m", "lease: 6s\n    interval: 300ms\n    budget: 1\n    new_series_hold: 1s"
    )
    with ExitStack() as stack:
        payments = Payments(python, dsn, tmp_path, stack)
        payments.run("create")
        doctor = subprocess.run(
            [sys.executable, "-m", "table_queue_exporter", "doctor",
             f"--config.file={CELERY / 'exporter.yaml'}"],
            env={**os.environ, "DATABASE_DSN": dsn},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert doctor.returncode == 0, doctor.stdout
        exporter = stack.enter_context(ExporterProcess(quick, environment={"DATABASE_DSN": dsn}))
        exporter.wait_for(lambda page: page.value("up") == 1, "the first poll")

        payments.run("enqueue", "limits_check", "20")
        payments.run("enqueue", "receipt", "3", '{"fails": true}')
        page = exporter.wait_for(
            lambda page: (
                page.by("task_type", "tasks", status="ready") == {"limits_check": 20, "receipt": 3}
            ),
            "all tasks to wait",
        )
        assert (page.value("oldest_task_age_seconds", task_type="limits_check") or 0) > 0

        payments.start("beat", "--loglevel=INFO")
        worker = payments.worker()
        page = exporter.wait_for(
            lambda page: (
                page.value("finished_total", task_type="limits_check", outcome="done") == 20
                and page.value("finished_total", task_type="receipt", outcome="failed") == 3
            ),
            "the workers to end them",
        )
        assert page.value("recently_failed_tasks", task_type="receipt") == 3
        assert page.value("enqueued_total", task_type="limits_check") == 20
        page = exporter.wait_for(
            lambda page: (
                page.value("retries_total", task_type="receipt") == 3
                and page.value("attempts_total", task_type="receipt") == 6
            ),
            "their attempts to be counted",
        )
        assert page.value("oldest_task_age_seconds", task_type="limits_check") == 0
        count = page.value("processing_seconds_count", task_type="limits_check", outcome="done")
        assert count == 20

        payments.run("enqueue", "limits_check", "2", '{"seconds": 2}')
        exporter.wait_for(
            lambda page: page.value("tasks", task_type="limits_check", status="processing") == 2,
            "the workers to be busy",
        )
        payments.kill(worker)
        exporter.wait_for(
            lambda page: page.value("tasks", task_type="limits_check", status="expired") == 2,
            "the dead worker's leases to end",
        )
        payments.worker()
        page = exporter.wait_for(
            lambda page: (
                page.value("finished_total", task_type="limits_check", outcome="done") == 22
            ),
            "another worker to take them over",
        )
        assert page.value("lease_reclaims_total", task_type="limits_check") == 2
    attempts = "SELECT attempts, count(*) FROM payment WHERE status = 'DONE' GROUP BY 1 ORDER BY 1"
    assert query(dsn, attempts) == [(1, 20), (2, 2)]


def test_the_statements_of_the_spring_page_fit_the_table(
    python: Path, server: LocalServer, tmp_path: Path
) -> None:
    text = (ROOT / "examples" / "spring.md").read_text()
    dsn = server.create_database("spring")
    with ExitStack() as stack:
        Payments(python, dsn, tmp_path, stack).run("create")
    values = {":batch": "5", ":lease": "300.0", ":id": "1", ":attempts": "1"}
    execute(dsn, "INSERT INTO payment (task_type) VALUES ('a')")
    statements = re.findall(r'"""\n(.*?)"""', text, re.DOTALL)
    assert len(statements) == 2
    for statement in statements:
        execute(dsn, re.sub(r":(?:batch|lease|id|attempts)\b", lambda m: values[m[0]], statement))
    assert query(dsn, "SELECT status, attempts FROM payment") == [("DONE", 1)]
    (block,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert parse_config(block, environment={}).queues[0].lease == 300
