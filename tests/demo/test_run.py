"""The demo as a command: it ends as told, and nothing of it stays."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PROGRAM = "import asyncio, sys; from table_queue_exporter.demo import runner; "


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory for temporary files that the server's user may enter; pytest's own is closed."""
    directory = Path(tempfile.mkdtemp(prefix="tq-run-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


def _start(place: Path, arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", f"{PROGRAM}sys.exit(asyncio.run({arguments}))"],
        env={**os.environ, "TMPDIR": str(place)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _run(place: Path, arguments: str) -> tuple[int, str]:
    with _start(place, arguments) as process:
        output, _ = process.communicate(timeout=60)
    return process.returncode, output


def _ours(place: Path) -> list[str]:
    """The processes that run with our directory for temporary files."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"TMPDIR={place}".encode() in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_text().replace("\0", " "))
        except OSError:  # it ended, or is not ours to look at
            continue
    return found


def _assert_nothing_left(place: Path) -> None:
    assert list(place.iterdir()) == []
    assert _ours(place) == []


def _until_line(process: subprocess.Popen[str], start: str) -> str:
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if line.strip().startswith(start):
            return line
    raise AssertionError(f"no line {start!r} in:\n{''.join(seen)}")


def test_it_ends_when_the_time_is_up(place: Path) -> None:
    began = time.monotonic()
    code, output = _run(place, "runner.run('crash', 5, exporter=False)")
    assert code == 0, output
    assert "fault on: crash" in output
    assert "done " in output
    assert "psql postgresql://" in output
    assert 5 < time.monotonic() - began < 25
    _assert_nothing_left(place)


def test_two_interrupts_in_a_row_leave_nothing(place: Path) -> None:
    with _start(place, "runner.run(exporter=False)") as process:
        _until_line(process, "0 s")
        assert len(_ours(place)) >= 5  # this program, the server, three workers
        process.send_signal(signal.SIGINT)
        _until_line(process, "stopping")
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=30)
    assert process.returncode == 0, rest
    assert "Traceback" not in rest
    _assert_nothing_left(place)


def test_a_signal_while_it_starts_leaves_nothing(place: Path) -> None:
    with _start(place, "runner.run(exporter=False)") as process:
        deadline = time.monotonic() + 20
        while not any("data" in path.name for path in place.glob("*/*")):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=30)
    assert process.returncode == 0, output
    _assert_nothing_left(place)


def test_an_exporter_that_cannot_start_is_explained(place: Path) -> None:
    code, output = _run(place, "runner.run(duration=20, listen_address=':0', interval='soon')")
    assert code == 1
    assert "the exporter ended (exit code" in output
    assert len(output.splitlines()) > 1
    assert "Traceback" not in output
    _assert_nothing_left(place)


def test_a_fault_that_does_not_exist_is_named_with_those_that_do(place: Path) -> None:
    code, output = _run(place, "runner.run('earthquake', 5)")
    assert code == 2
    assert "earthquake" in output
    assert "held-snapshot" in output
    _assert_nothing_left(place)


def test_an_address_that_is_none_is_refused(place: Path) -> None:
    code, output = _run(place, "runner.run(duration=5, listen_address='here')")
    assert code == 2
    assert "'here' is not an address" in output
    _assert_nothing_left(place)


def test_with_the_exporter_on_a_taken_port(place: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, output = _run(place, f"runner.run(duration=3, listen_address='127.0.0.1:{port}')")
    assert code == 0, output
    assert f"port {port} is taken; listening on " in output
    assert "/metrics" in output
    _assert_nothing_left(place)
