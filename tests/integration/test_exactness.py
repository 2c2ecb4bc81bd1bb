"""Exact through whatever happens: the short drill, failovers, standbys, clocks, fast polls."""

import asyncio
import functools
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from table_queue_exporter.demo.server import LocalServer
from tests.drill.drill import LATE_TYPE, run_drill
from tests.support.pages import Metrics
from tests.support.processes import ExporterProcess, wait_until
from tests.support.queues import REFERENCE_SCHEMA, configuration, execute, query
from tests.support.running import FAST, HELD, Running

FINISH = (
    "INSERT INTO payment (task_type, status, finished_at, attempts, started_at) "
    "SELECT 'a', 'DONE', now(), 1, now() FROM generate_series(1, {})"
)


async def test_the_short_drill() -> None:
    report = await run_drill(seconds=60, kills=4, rate=1200, longest=6)
    assert report.watch.scrapes > 100
    finished: dict[str, float] = {}
    for labels, value in report.page.all("finished_total"):
        task_type = labels["task_type"]
        finished[task_type] = finished.get(task_type, 0) + value
    assert sum(finished.values()) > 5_000, "the writers did nothing"
    assert sum(report.writers.truth.reclaims.values()) > 0
    assert sum(report.writers.truth.retries.values()) > 0
    # Prometheus's own increase(), which extrapolates to the window's edges.
    assert LATE_TYPE in report.increase
    for task_type, value in finished.items():
        assert report.increase[task_type] == pytest.approx(value, rel=0.05), task_type


@contextmanager
def writing(dsn: str) -> Iterator[threading.Event]:
    """Somebody who finishes tasks all the time, each in a short transaction, whatever fails."""
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            try:
                with psycopg.connect(dsn, autocommit=True, connect_timeout=2) as connection:
                    while not stop.is_set():
                        connection.execute(FINISH.format(3).encode())
                        time.sleep(0.01)
            except psycopg.Error:
                time.sleep(0.1)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield stop
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("synchronous", [True, False])
def test_a_failover(synchronous: bool, tmp_path: Path) -> None:
    """To a synchronous standby nothing is lost; otherwise nothing steps back, and it goes on."""
    with LocalServer() as primary:
        dsn = primary.create_database("queue")
        execute(dsn, REFERENCE_SCHEMA)
        with LocalServer.standby_of(primary) as standby:
            both = (
                f"postgresql://postgres@127.0.0.1:{primary.port},127.0.0.1:{standby.port}/queue"
                "?target_session_attrs=read-write"
            )
            if synchronous:
                execute(
                    dsn,
                    "ALTER SYSTEM SET synchronous_standby_names = '*'",
                    "SELECT pg_reload_conf()",
                )
                wait_until(
                    lambda: query(
                        dsn, "SELECT 1 FROM pg_stat_replication WHERE sync_state <> 'async'"
                    ),
                    "a synchronous standby",
                )
            text = configuration(both, FAST)
            with ExporterProcess(text, f"--state.dir={tmp_path}") as exporter:
                exporter.wait_for(lambda page: page.value("events_exact") == 1, "counting")
                with writing(both):
                    exporter.wait_for(lambda page: _finished(page) > 200, "events")
                    if not synchronous:
                        # What is written from now on never reaches the standby.
                        execute(
                            standby.dsn("queue"),
                            "ALTER SYSTEM SET primary_conninfo = ''",
                            "SELECT pg_reload_conf()",
                        )
                        lost_from = _finished(exporter.metrics())
                        exporter.wait_for(
                            lambda page: _finished(page) > lost_from + 200, "events to lose"
                        )
                    before = _finished(exporter.metrics())
                    primary.kill()
                    execute(standby.dsn("queue"), "SELECT pg_promote()")
                    values: list[float] = []

                    def more(page: Metrics) -> bool:
                        values.append(_finished(page))
                        return values[-1] > before + 200

                    exporter.wait_for(more, "events after the failover")
                    assert values == sorted(values)
                    assert values[0] >= before
                ((rows,),) = query(standby.dsn("queue"), "SELECT count(*) FROM payment")
                assert isinstance(rows, int)
                if synchronous:
                    exporter.wait_for(
                        lambda page: _finished(page) == rows == page.value("enqueued_total"),
                        "every event of the new primary",
                    )
                else:
                    page = exporter.wait_for(lambda page: _finished(page) >= rows, "them all")
                    assert _finished(page) > rows, "what was lost stays counted"
                    lost = [line for line in exporter.log().splitlines() if "failover" in line]
                    assert len(lost) == 1, exporter.log()


def _finished(page: Metrics) -> float:
    return page.value("finished_total", outcome="done") or 0.0


def test_a_standby_that_lags_as_the_source() -> None:
    with LocalServer() as primary:
        dsn = primary.create_database("queue")
        execute(dsn, REFERENCE_SCHEMA)
        lag = {"recovery_min_apply_delay": "5s"}
        with LocalServer.standby_of(primary, settings=lag) as standby:
            execute(dsn, FINISH.format(1))
            wait_until(
                lambda: query(standby.dsn("queue"), "SELECT count(*) FROM payment") == [(1,)],
                "the standby to replay",
            )
            text = configuration(standby.dsn("queue"), FAST)
            with ExporterProcess(text) as exporter:
                exporter.wait_for(lambda page: page.value("events_exact") == 0, "counting")
                assert _finished(exporter.metrics()) == 0
                with writing(dsn):
                    time.sleep(3)
                ((rows,),) = query(dsn, "SELECT count(*) FROM payment")
                assert isinstance(rows, int)
                page = exporter.wait_for(
                    lambda page: _finished(page) == rows - 1, "all, once they arrive"
                )
                assert page.value("database_in_recovery") == 1
                assert page.all("rows_inserted_total") == []


async def test_pgbench_at_twenty_millisecond_polls() -> None:
    """The order of the two statements is the heart of it: any other loses events here."""
    with LocalServer() as server:
        dsn = server.create_database("bench")
        execute(dsn, REFERENCE_SCHEMA)
        script = server.root / "finish.sql"
        script.write_text(
            "\\set late random(1, 100)\n"
            "BEGIN;\n"
            "INSERT INTO payment (task_type, status, finished_at, attempts)"
            " VALUES ('a', 'DONE', now(), 1);\n"
            "\\if :late < 5\n\\sleep 30 ms\n\\endif\nEND;\n"
        )
        queue = FAST.replace("200ms", "20ms")
        async with Running(configuration(dsn, queue)) as running:
            bench = await asyncio.create_subprocess_exec(
                str(server.bin_dir / "pgbench"),
                *("-n", "-c", "8", "-T", "8", "-f", str(script), dsn),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            assert await bench.wait() == 0
            ((rows,),) = query(dsn, "SELECT count(*) FROM payment")
            assert isinstance(rows, int)
            assert rows > 3_000
            polls = running.exporter.queues[0].polls
            await running.until(
                lambda page: page.value("finished_total", outcome="done") == rows, f"{rows} events"
            )
            page = running.page()
        assert page.value("enqueued_total") == rows
        assert polls > 60


def _faketime() -> str:
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
    if found:
        return str(found[0])
    reason = "libfaketime is not installed; tests/install-tools installs it where it may"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def test_the_clock_of_the_exporters_machine_changes(newest_dsn: str, tmp_path: Path) -> None:
    execute(newest_dsn, REFERENCE_SCHEMA)
    clock = tmp_path / "clock"
    clock.write_text("+0")
    environment = {
        "LD_PRELOAD": _faketime(),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    text = configuration(newest_dsn, FAST)
    with ExporterProcess(text, f"--state.dir={tmp_path}", environment=environment) as exporter:
        exporter.wait_for(lambda page: page.value("enqueued_total") == 0, "counting")
        total = 0
        for offset in ("+0", "+3h", "-2d", "+0"):
            clock.write_text(offset)
            execute(newest_dsn, FINISH.format(4))
            total += 4
            page = exporter.wait_for(
                functools.partial(_has_finished, total), f"{total} at {offset}"
            )
            told = page.value("last_success_timestamp_seconds") or 0
            expected = time.time() + {"+3h": 10_800, "-2d": -172_800}.get(offset, 0)
            assert abs(told - expected) < 60, "the clock was not changed: this test tests nothing"


def _has_finished(total: float, page: Metrics) -> bool:
    read = page.value("up") == 1 and page.value("oldest_ready_age_seconds") == 0
    return read and _finished(page) == total


async def test_a_session_idle_in_transaction_loses_nothing(newest_dsn: str) -> None:
    """It began before the others, and commits after all of them."""
    execute(newest_dsn, REFERENCE_SCHEMA)
    async with Running(configuration(newest_dsn, FAST)) as running:
        with psycopg.connect(newest_dsn) as idle:
            idle.execute(FINISH.format(5).encode())
            for _ in range(10):
                execute(newest_dsn, FINISH.format(1))
                await running.polls(1)
            await running.polls(HELD)
            assert running.page().value("finished_total", outcome="done") == 10
        await running.polls(2)
        assert running.page().value("finished_total", outcome="done") == 15
