"""A directory that programs take for the whole file system: what a container sees.

Needs root, and a kernel that gives it a mount namespace: no container engine. Inside are the
system's own libraries and the interpreter of the tests, nothing of this repository.
"""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

_SYSTEM = ("bin", "lib", "lib32", "lib64", "sbin")
_ETC = (
    "alternatives",
    "group",
    "host.conf",
    "hosts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "nsswitch.conf",
    "passwd",
    "pip.conf",
    "resolv.conf",
    "ssl",
    "xdg",
)


def need_namespaces() -> None:
    """Skips the test where no mount namespace can be made, and fails it under CI."""
    command = ["unshare", "--mount", "true"]
    done = os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False)
    if not done or done.returncode != 0:
        cannot("a bare root directory needs root and a mount namespace")


def cannot(reason: str) -> None:
    """Skips the test with a reason, and fails it under CI."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


class BareRoot:
    """A root directory of its own. ``path`` is where it lies on this machine."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._binds: list[Path] = []
        for name in ("dev", "etc", "proc", "tmp", "usr", "var"):
            (path / name).mkdir(parents=True)
        path.chmod(0o755)
        for name in _SYSTEM:
            source = Path("/") / name
            if source.is_symlink():
                (path / name).symlink_to(source.readlink())
            elif source.is_dir():
                self.bind(source)
        for source in sorted(Path("/usr").iterdir()):
            if source.is_dir() and source.name != "local":
                self.bind(source)
        for name in _ETC:
            source = Path("/etc") / name
            if source.is_dir():
                shutil.copytree(source, path / "etc" / name, symlinks=True)
            elif source.exists():
                shutil.copy(source, path / "etc" / name)
        base = Path(sys.base_prefix)
        if not base.is_relative_to("/usr") or base.is_relative_to("/usr/local"):
            self.bind(base)
        self.search_path = f"{base}/bin:/usr/bin:/bin"
        """PATH by which the interpreter is found."""

    def bind(self, source: Path) -> None:
        """Lets a directory of this machine be seen, under its own name, not to be written."""
        target = self.path / source.relative_to("/")
        target.mkdir(parents=True, exist_ok=True)
        self._binds.append(source)

    def command(
        self,
        command: Sequence[str],
        *,
        user: str = "0:0",
        directory: str = "/",
        environment: Mapping[str, str] | None = None,
        writable: Sequence[str] | None = None,
    ) -> list[str]:
        """The command line that runs a command in here.

        With ``writable`` everything but these directories is read-only.
        """
        root = shlex.quote(str(self.path))
        lines = ["set -e", f"mount --bind {root} {root}"]
        for source in self._binds:
            target = shlex.quote(str(self.path / source.relative_to("/")))
            lines.append(f"mount --bind {shlex.quote(str(source))} {target}")
            lines.append(f"mount -o remount,bind,ro {target}")
        lines.append(f"mount -t proc proc {root}/proc")
        lines.append(f"mount --rbind /dev {root}/dev")
        for name in writable or ():
            place = shlex.quote(str(self.path / name.lstrip("/")))
            lines.append(f"mount --bind {place} {place}")
        if writable is not None:
            lines.append(f"mount -o remount,bind,ro {root}")
        inner = shlex.join(
            ["env", "-i", *(f"{k}={v}" for k, v in (environment or {}).items()), *command]
        )
        inner = f"cd {shlex.quote(directory)} && exec {inner}"
        drop = f"setpriv --reuid={user.split(':')[0]} --regid={user.split(':')[1]} --clear-groups"
        drop += " --no-new-privs --bounding-set=-all --inh-caps=-all"
        if user.startswith("0:"):
            drop = ""
        lines.append(f"exec chroot {root} {drop} /bin/sh -c {shlex.quote(inner)}")
        return ["unshare", "--mount", "--propagation=private", "/bin/sh", "-c", "\n".join(lines)]

    def run(self, command: Sequence[str], **environment: str) -> str:
        """Runs a command as root to its end, and returns what it wrote; fails the test with it."""
        done = subprocess.run(
            self.command(command, environment=environment),
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
        return done.stdout
