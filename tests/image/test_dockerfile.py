"""The image, built and run without an engine: its own steps in bare directories."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from table_queue_exporter import __version__
from table_queue_exporter.demo.server import LocalServer
from tests.image.dockerfile import Stage, build, context, instructions
from tests.support.bare_root import cannot, need_namespaces
from tests.support.pages import Metrics
from tests.support.processes import free_port, page_of, wait_until
from tests.support.queues import REFERENCE_SCHEMA, execute


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """The last stage, after every step of the Dockerfile."""
    need_namespaces()
    if not _base_has_pip():
        cannot("the interpreter of these tests has no pip of its own")
    return build(tmp_path_factory.mktemp("image"))[""]


def _base_has_pip() -> bool:
    base = os.path.realpath(sys.executable)
    return subprocess.run([base, "-m", "pip", "--version"], capture_output=True).returncode == 0


def test_is_built_in_two_stages_upon_a_base_that_can_be_pinned() -> None:
    steps = instructions()
    assert steps[0][0] == "ARG"
    assert steps[0][1].startswith("BASE=docker.io/library/python:3.")
    assert [value for name, value in steps if name == "FROM"] == ["${BASE} AS build", "${BASE}"]
    last = steps[[index for index, (name, _) in enumerate(steps) if name == "FROM"][-1] :]
    assert not [value for name, value in last if name == "RUN"], "nothing is installed there"
    assert all(value.startswith("--from=build ") for name, value in last if name == "COPY")


def test_the_context_holds_what_the_image_needs_and_nothing_else() -> None:
    assert context() == ["alerts", "exporter", "pyproject.toml", "README.md", "LICENSE"]


def test_says_what_it_is(image: Stage) -> None:
    assert image.labels["org.opencontainers.image.title"] == "table-queue-exporter"
    assert image.labels["org.opencontainers.image.version"] == __version__
    assert image.labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert "org.opencontainers.image.revision" in image.labels
    user, _, group = image.user.partition(":")
    assert int(user) == int(group) == 65532


def test_holds_no_installer_no_compiler_and_nothing_that_lifts_privileges(image: Stage) -> None:
    files = [path for path in (image.root.path / "app").rglob("*") if not path.is_symlink()]
    assert len(files) > 500
    names = {path.name for path in files}
    assert not names & {"pip", "gcc", "cc", "ld", "make", "initdb", "postgres"}
    for path in files:
        mode = path.stat().st_mode
        assert not mode & (stat.S_ISUID | stat.S_ISGID), path
        assert mode & stat.S_IROTH, f"the user of the image cannot read {path}"
    size = sum(path.stat().st_size for path in files if path.is_file())
    assert size < 120 * 2**20, f"{size / 2**20:.0f} MiB"


def test_serves_metrics_as_its_user_from_a_read_only_tree(
    image: Stage, newest_server: LocalServer, tmp_path: Path
) -> None:
    dsn = newest_server.create_database("image")
    execute(dsn, REFERENCE_SCHEMA)
    port = free_port()
    environment = image.environment | {
        "TABLE_QUEUE_EXPORTER_DATABASE_DSN": dsn,
        "TABLE_QUEUE_EXPORTER_WEB_LISTEN_ADDRESS": f"127.0.0.1:{port}",
    }

    def command(words: list[str]) -> list[str]:
        return image.root.command(words, user=image.user, environment=environment, writable=[])

    def health() -> int:
        return subprocess.run(command(image.health), capture_output=True, check=False).returncode

    writes = subprocess.run(command(["touch", "/app/x", "/tmp/x", "/x"]), capture_output=True)
    assert writes.stderr.decode().count("Read-only file system") == 3
    assert health() == 1
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            command([*image.entrypoint, *image.command]), stdout=log, stderr=log
        )
    try:
        wait_until(lambda: page_of(port, "/-/ready") is not None, "the container to be ready")
        wait_until(
            lambda: Metrics(page_of(port, "/metrics") or "").value("up") == 1, "the queue's metrics"
        )
        assert health() == 0
        status = Path(f"/proc/{process.pid}/status").read_text()
        assert "Uid:\t65532\t65532" in status
        assert "NoNewPrivs:\t1" in status
        assert "CapEff:\t0000000000000000" in status
    finally:
        process.terminate()
        assert process.wait(timeout=10) == 0, (tmp_path / "log").read_text()
