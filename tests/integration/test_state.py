"""Counters that outlive the process, and what happens when they cannot be kept."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from table_queue_exporter.errors import ExporterError
from table_queue_exporter.state import StateDirectory
from tests.support.processes import ExporterProcess
from tests.support.queues import REFERENCE_SCHEMA, configuration, execute
from tests.support.running import FAST, HELD, Running

FINISH = (
    "INSERT INTO payment (task_type, status, finished_at, attempts, started_at) "
    "SELECT 'a', 'DONE', now(), 1, now() FROM generate_series(1, {})"
)


@pytest.fixture
def queue_dsn(newest_dsn: str) -> str:
    """The reference table."""
    execute(newest_dsn, REFERENCE_SCHEMA)
    return newest_dsn


async def test_counters_go_on_after_a_restart(queue_dsn: str, tmp_path: Path) -> None:
    text = configuration(queue_dsn, FAST)
    async with Running(text, tmp_path) as running:
        execute(queue_dsn, FINISH.format(5))
        await running.polls(HELD)
    execute(queue_dsn, FINISH.format(7))  # while nobody watches
    async with Running(text, tmp_path) as running:
        page = running.page()
        assert page.value("finished_total", outcome="done") == 12
        assert page.value("enqueued_total") == 12
        assert page.value("attempts_total") == 12
        assert page.value("processing_seconds_count", outcome="done") == 12
    async with Running(text) as running:
        assert running.page().value("finished_total", outcome="done") == 0, "without a directory"


async def test_other_buckets_keep_the_counters(queue_dsn: str, tmp_path: Path) -> None:
    async with Running(configuration(queue_dsn, FAST), tmp_path) as running:
        execute(queue_dsn, FINISH.format(5))
        await running.polls(12)  # more than the margin within which rows are read again
    async with Running(configuration(queue_dsn, FAST + "\nbuckets: [1s]"), tmp_path) as running:
        page = running.page()
        assert page.value("finished_total", outcome="done") == 5
        assert page.value("attempts_total") == 5
        assert page.value("processing_seconds_count", outcome="done") == 0
        execute(queue_dsn, FINISH.format(2))
        await running.polls(2)
        page = running.page()
        assert page.by("le", "processing_seconds_bucket", outcome="done") == {"1.0": 2, "+Inf": 2}


def set_aside(directory: Path) -> list[Path]:
    return list(directory.glob("*.set-aside-*"))


DAMAGES = {
    "garbage": b"\x00\xff garbage",
    "empty": b"",
    "half": None,
    "another version": b"version",
    "another table": b"table",
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_or_foreign_file_is_set_aside(
    queue_dsn: str, tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = configuration(queue_dsn, FAST)
    async with Running(text, tmp_path) as running:
        execute(queue_dsn, FINISH.format(5))
        await running.polls(HELD)
    file = StateDirectory(tmp_path).file("main", "payment")
    whole = file.read_bytes()
    broken = {
        "half": whole[: len(whole) // 2],
        "another version": whole.replace(b'"version":1', b'"version":999'),
        "another table": whole.replace(b"public.payment", b"public.invoice"),
    }.get(damage, DAMAGES[damage] or b"")
    assert broken != whole
    file.write_bytes(broken)
    async with Running(text, tmp_path) as running:
        assert running.page().value("up") == 1
        assert running.page().value("finished_total", outcome="done") == 0
        execute(queue_dsn, FINISH.format(3))
        await running.polls(HELD)
        assert running.page().value("finished_total", outcome="done") == 3
    (aside,) = set_aside(tmp_path)
    assert aside.read_bytes() == broken, "kept for whoever wants to look"
    said = [line for line in capsys.readouterr().out.splitlines() if "set aside" in line]
    assert len(said) == 1
    assert aside.name in said[0]


def test_one_process_per_directory(queue_dsn: str, tmp_path: Path) -> None:
    text = configuration(queue_dsn, FAST)
    with (
        ExporterProcess(text, f"--state.dir={tmp_path}"),
        pytest.raises(ExporterError, match="used by another exporter"),
    ):
        StateDirectory(tmp_path).open()
    directory = StateDirectory(tmp_path)
    directory.open()  # free again, though its lock file is still there
    directory.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 kB."""
    path = tmp_path / "small"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(path)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        if os.environ.get("CI") == "true":
            pytest.fail(f"cannot mount a small disk: {mounted.stderr.decode()}")
        pytest.skip("cannot mount a small disk here (needs root)")
    yield path
    subprocess.run(["umount", str(path)], check=True)


async def test_a_full_disk(
    queue_dsn: str, small_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = configuration(queue_dsn, FAST)
    async with Running(text, small_disk) as running:
        execute(queue_dsn, FINISH.format(5))
        await running.polls(HELD)
        filler = small_disk / "filler"
        with filler.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * 1024)
            except OSError:
                pass
        execute(queue_dsn, FINISH.format(7))
        await running.polls(5)
        page = running.page()
        assert page.value("finished_total", outcome="done") == 5, "the last saved value stays"
        assert page.value("enqueued_total") == 5
        assert page.value("up") == 1
        assert page.value("tasks", status="ready") == 0, "gauges go on"
        assert (page.value("exporter_state_write_errors_total") or 0) >= 3
        filler.unlink()
        await running.polls(3)
        page = running.page()
        assert page.value("finished_total", outcome="done") == 12, "nothing is lost"
        assert page.value("enqueued_total") == 12
    said = capsys.readouterr().out
    assert said.count("state not saved") == 1
    assert said.count("states are saved again") == 1


async def test_many_finishes_during_a_pause_are_caught_up_in_chunks(
    queue_dsn: str, tmp_path: Path
) -> None:
    slow = FAST.replace("interval: 200ms", "interval: 1s").replace("budget: 1", "budget: 0.05")
    text = configuration(queue_dsn, slow)
    async with Running(configuration(queue_dsn, FAST), tmp_path) as running:
        execute(queue_dsn, FINISH.format(1))
        await running.polls(12)
    execute(
        queue_dsn,
        "INSERT INTO payment (task_type, status, finished_at, created_at, attempts) "
        "SELECT 'a', 'DONE', clock_timestamp(), clock_timestamp(), 1 "
        "FROM generate_series(1, 200000)",
    )
    seen: list[float] = []
    async with Running(text, tmp_path, warm=False) as running:
        while not seen or seen[-1] < 200_001:
            await running.polls(1)
            page = running.page()
            assert page.value("up") == 1
            seen.append(page.value("finished_total", outcome="done") or 0)
        assert seen[0] <= 20_001, f"one message's bound at first: {seen}"
        assert seen == sorted(seen)
        page = await running.until(
            lambda page: page.value("enqueued_total") == 200_001, "every enqueue"
        )
        assert page.value("finished_total", outcome="done") == 200_001
        page = await running.until(
            lambda page: page.value("attempts_total") == 200_001, "every attempt"
        )
