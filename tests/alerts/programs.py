"""The programs that the tests run, and how they are found."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ALERTS = ROOT / "alerts"


def program(*names: str) -> str:
    """Return the path of a program; without it skip on a desk, fail in CI."""
    for name in names:
        if path := shutil.which(name):
            return path
    reason = f"{names[0]} is not installed (Debian: prometheus, prometheus-alertmanager)"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; collecting garbage less often makes promtool half as slow."""
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        env={**os.environ, "GOGC": "800", "TZ": "UTC"},
        timeout=600,
        check=False,
    )
