"""A real PgBouncer before a server."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from table_queue_exporter.demo.server import LocalServer
from tests.conftest import program

from .processes import free_port, wait_until


@contextmanager
def pgbouncer(server: LocalServer, mode: str = "transaction", size: int = 1) -> Iterator[str]:
    """A pooler with so many server connections; yields its DSN."""
    path = program("pgbouncer")
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="tqe-pgbouncer-") as name:
        directory = Path(name)
        directory.chmod(0o755)
        (directory / "users").write_text('"postgres" ""\n')
        ini = directory / "pgbouncer.ini"
        ini.write_text(
            f"[databases]\n* = host=127.0.0.1 port={server.port}\n[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
            f"auth_type = trust\nauth_file = {directory / 'users'}\npool_mode = {mode}\n"
            f"default_pool_size = {size}\n"
        )
        process = subprocess.Popen(
            [path, str(ini)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            user="nobody" if os.geteuid() == 0 else None,
        )
        dsn = f"postgresql://postgres@127.0.0.1:{port}/postgres"
        try:
            wait_until(lambda: _answers(dsn), "PgBouncer to take connections")
            yield dsn
        finally:
            process.terminate()
            process.wait()


def _answers(dsn: str) -> bool:
    try:
        psycopg.connect(dsn).close()
    except psycopg.OperationalError:
        return False
    return True
