"""What goes wrong, and what the page and the log say of it: one queue's failure is its own."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest

from table_queue_exporter.demo.server import LocalServer
from tests.support.pages import Metrics
from tests.support.pooler import pgbouncer
from tests.support.processes import ExporterProcess, free_port, wait_until
from tests.support.queues import PAYMENT, REFERENCE_SCHEMA, configuration, execute, query

INTERVAL = "300ms"
OTHER = "name: other\ntable: public.other"
TIMEOUTS = "statement_timeout: 400ms\nlock_timeout: 100ms"


def two_queues(dsn: str) -> str:
    """The payment queue and one beside it, which nothing happens to."""
    execute(
        dsn,
        REFERENCE_SCHEMA,
        "CREATE TABLE other (LIKE payment INCLUDING ALL)",
        "INSERT INTO payment (task_type) VALUES ('a')",
        "INSERT INTO other (task_type) VALUES ('a'), ('a')",
    )
    # A generous budget: here a failing poll must come again soon, not slow itself down.
    pace = f"\ninterval: {INTERVAL}\nbudget: 1"
    return configuration(dsn, PAYMENT + pace, OTHER + pace, database=TIMEOUTS)


def errors(page: Metrics, queue: str = "payment") -> dict[str, float]:
    return {k: v for k, v in page.by("reason", "poll_errors_total", queue=queue).items() if v}


def is_read(page: Metrics, queue: str = "payment") -> bool:
    return page.value("up", queue=queue) == 1 and bool(page.all("tasks", queue=queue))


def is_gone(page: Metrics, queue: str = "payment") -> bool:
    return page.value("up", queue=queue) == 0 and not any(
        page.all(name, queue=queue)
        for name in ("tasks", "oldest_ready_age_seconds", "recently_failed_tasks")
    )


def lines(exporter: ExporterProcess, text: str) -> list[str]:
    return [line for line in exporter.log().splitlines() if text in line]


def assert_one_fault(
    exporter: ExporterProcess,
    reason: str,
    break_it: Callable[[], object],
    mend_it: Callable[[], object],
) -> None:
    """The whole course of a fault of one queue: begins, is said, touches nobody else, ends."""
    before = exporter.wait_for(lambda page: is_read(page) and is_read(page, "other"), "both read")
    assert errors(before) == {}
    break_it()
    during = exporter.wait_for(
        lambda page: is_gone(page) and errors(page).get(reason, 0) >= 3, f"failing with {reason}"
    )
    assert set(errors(during)) == {reason}
    assert is_read(during, "other")
    assert errors(during, "other") == {}
    assert (during.value("polls_total", queue="payment") or 0) > (
        before.value("polls_total", queue="payment") or 0
    )
    assert len(lines(exporter, "queue cannot be read")) == 1, exporter.log()
    assert f"reason={reason}" in lines(exporter, "queue cannot be read")[0]
    mend_it()
    after = exporter.wait_for(is_read, "read again")
    assert errors(after)[reason] >= errors(during)[reason], "counters are kept"
    assert is_read(after, "other")
    assert len(lines(exporter, "queue is read again")) == 1
    assert len(lines(exporter, "queue cannot be read")) == 1


def test_a_missing_table(newest_dsn: str) -> None:
    with ExporterProcess(two_queues(newest_dsn)) as exporter:
        assert_one_fault(
            exporter,
            "undefined_object",
            lambda: execute(newest_dsn, "ALTER TABLE payment RENAME TO gone"),
            lambda: execute(newest_dsn, "ALTER TABLE gone RENAME TO payment"),
        )


def test_a_missing_column(newest_dsn: str) -> None:
    with ExporterProcess(two_queues(newest_dsn)) as exporter:
        assert_one_fault(
            exporter,
            "undefined_object",
            lambda: execute(newest_dsn, "ALTER TABLE payment RENAME created_at TO gone"),
            lambda: execute(newest_dsn, "ALTER TABLE payment RENAME gone TO created_at"),
        )
        assert "created_at" in lines(exporter, "queue cannot be read")[0]


def test_a_revoked_privilege(newest_server: LocalServer, newest_dsn: str) -> None:
    config = two_queues(newest_dsn)
    role = "reader_" + newest_dsn.rsplit("_", 1)[1]
    execute(newest_dsn, f"CREATE ROLE {role} LOGIN", f"GRANT SELECT ON payment, other TO {role}")
    config = config.replace("postgres@", f"{role}@")
    with ExporterProcess(config) as exporter:
        assert_one_fault(
            exporter,
            "permission",
            lambda: execute(newest_dsn, f"REVOKE SELECT ON payment FROM {role}"),
            lambda: execute(newest_dsn, f"GRANT SELECT ON payment TO {role}"),
        )


def test_a_statement_over_its_time_limit(newest_dsn: str) -> None:
    config = two_queues(newest_dsn)
    execute(
        newest_dsn,
        "CREATE TABLE switch (seconds float)",
        "INSERT INTO switch VALUES (0)",
        "CREATE FUNCTION slow(text) RETURNS boolean LANGUAGE sql VOLATILE AS "
        "$$ SELECT pg_sleep(seconds) IS NOT NULL AND $1 = 'NEW' FROM public.switch $$",
    )
    config = config.replace("budget: 1", 'budget: 1\n    waiting: "slow(status)"', 1)
    with ExporterProcess(config) as exporter:
        assert_one_fault(
            exporter,
            "timeout",
            lambda: execute(newest_dsn, "UPDATE switch SET seconds = 5"),
            lambda: execute(newest_dsn, "UPDATE switch SET seconds = 0"),
        )


@contextmanager
def locked(dsn: str) -> Iterator[None]:
    """An ALTER TABLE in a transaction that stays open."""
    with psycopg.connect(dsn) as connection:
        connection.execute("ALTER TABLE payment ADD COLUMN more int")
        yield
        connection.rollback()


def test_a_table_locked_by_alter_table(newest_dsn: str) -> None:
    with ExporterProcess(two_queues(newest_dsn)) as exporter:
        holder = locked(newest_dsn)
        assert_one_fault(
            exporter,
            "lock_timeout",
            holder.__enter__,
            lambda: holder.__exit__(None, None, None),
        )


def test_a_cancelled_statement(newest_dsn: str) -> None:
    config = two_queues(newest_dsn)
    execute(
        newest_dsn,
        "CREATE FUNCTION slow(text) RETURNS boolean LANGUAGE sql VOLATILE AS "
        "$$ SELECT pg_sleep(0.1) IS NOT NULL AND $1 = 'NEW' $$",
    )
    config = config.replace("budget: 1", 'budget: 1\n    waiting: "slow(status)"', 1)
    config = config.replace("statement_timeout: 400ms", "statement_timeout: 5s")
    with ExporterProcess(config) as exporter:
        exporter.wait_for(is_read, "read")

        def cancelled(page: Metrics) -> bool:
            query(
                newest_dsn,
                "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE state = 'active'"
                " AND application_name = 'table-queue-exporter' AND query LIKE '%slow(status)%'",
            )
            return errors(page).get("cancelled", 0) > 0

        exporter.wait_for(cancelled, "a cancelled poll")
        exporter.wait_for(is_read, "read again")


def test_only_counting_fails(newest_dsn: str) -> None:
    """The figure that pages stays when the counts cannot be had."""
    config = two_queues(newest_dsn)
    config = config.replace("budget: 1", "budget: 1\n    attempts: 1 / (attempts - 7)", 1)
    with ExporterProcess(config) as exporter:
        exporter.wait_for(is_read, "read")
        execute(newest_dsn, "INSERT INTO payment (task_type, attempts) VALUES ('a', 7)")
        page = exporter.wait_for(
            lambda page: (
                errors(page).get("data", 0) > 0
                and not page.all("tasks", queue="payment", status="ready")
            ),
            "counts absent",
        )
        assert page.value("up", queue="payment") == 0
        assert page.value("oldest_ready_age_seconds", queue="payment") is not None


def test_the_server_killed_and_started_again() -> None:
    with LocalServer() as server:
        config = two_queues(server.dsn())
        with ExporterProcess(config) as exporter:
            before = exporter.wait_for(is_read, "read")
            server.kill()
            during = exporter.wait_for(
                lambda page: (
                    is_gone(page) and is_gone(page, "other") and page.value("database_up") == 0
                ),
                "both queues gone",
            )
            assert set(errors(during)) == {"connection"}
            assert during.all("xmin_horizon_age_transactions") == []
            assert exporter.status("/-/healthy") == 200
            assert exporter.status("/-/ready") == 200
            server.start()
            after = exporter.wait_for(lambda page: is_read(page) and is_read(page, "other"), "read")
            assert after.value("database_up") == 1
            assert (after.value("polls_total", queue="payment") or 0) > (
                before.value("polls_total", queue="payment") or 0
            )
            assert len(lines(exporter, "database does not answer")) == 1, exporter.log()
            assert len(lines(exporter, "database answers again")) == 1
            assert lines(exporter, "queue cannot be read") == []
            assert sessions(server.dsn()) == 1


def test_the_server_absent_at_start() -> None:
    with LocalServer() as server:
        config = two_queues(server.dsn())
        server.stop()
        with ExporterProcess(config) as exporter:
            page = exporter.wait_for(lambda page: errors(page).get("connection"), "tried")
            assert is_gone(page)
            assert page.value("database_up") == 0
            wait_until(lambda: exporter.status("/-/ready") == 200, "ready though it is down")
            server.start()
            exporter.wait_for(lambda page: is_read(page) and is_read(page, "other"), "read")


def test_a_database_down_does_not_touch_another(newest_dsn: str) -> None:
    config = two_queues(newest_dsn)
    config = config.replace(
        "queues:\n",
        f"  down:\n    dsn: postgresql://127.0.0.1:{free_port()}/x\nqueues:\n"
        f"  - {{name: payment, database: down, table: payment, interval: {INTERVAL}}}\n",
    )
    with ExporterProcess(config) as exporter:
        page = exporter.wait_for(
            lambda page: page.by("database", "up", queue="payment") == {"down": 0, "main": 1},
            "one up, one down",
        )
        assert page.by("database", "database_up") == {"down": 0, "main": 1}


def sessions(dsn: str) -> int:
    """Sessions of the exporter on the server of a database."""
    ((count,),) = query(
        dsn,
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'table-queue-exporter'",
    )
    assert isinstance(count, int)
    return count


def test_one_session_and_nothing_left_in_it(newest_dsn: str) -> None:
    with LocalServer() as server, ExporterProcess(two_queues(server.dsn())) as exporter:
        exporter.wait_for(
            lambda page: (page.value("polls_total", queue="other") or 0) > 5, "some polls"
        )
        seen = [sessions(server.dsn()) for _ in range(20)]
        assert seen == [1] * 20
        idle = query(
            server.dsn(),
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE application_name = 'table-queue-exporter' AND state LIKE 'idle in%'",
        )
        assert idle == [(0,)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_a_poll_ends_it(number: int) -> None:
    with LocalServer() as server:
        dsn = server.dsn()
        config = two_queues(dsn)
        config = config.replace("lock_timeout: 100ms", "lock_timeout: 60s")
        config = config.replace("statement_timeout: 400ms", "statement_timeout: 60s")
        with ExporterProcess(config) as exporter:
            exporter.wait_for(is_read, "read")
            with locked(dsn):
                wait_until(
                    lambda: query(
                        dsn,
                        "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
                        "AND application_name = 'table-queue-exporter'",
                    ),
                    "a poll that waits for the lock",
                )
                begun = time.monotonic()
                assert exporter.stop(number) == 0
                assert time.monotonic() - begun < 5, "the contract: within 5 s"
                wait_until(lambda: sessions(dsn) == 0, "the session to go", seconds=3)


def test_a_poll_that_hangs_does_not_keep_old_numbers_alive() -> None:
    """The server's process is stopped: no time-out of its own can end the statement."""
    with LocalServer() as server:
        dsn = server.dsn()
        config = two_queues(dsn).replace("statement_timeout: 400ms", "statement_timeout: 5s")
        with ExporterProcess(config) as exporter:
            exporter.wait_for(lambda page: is_read(page) and is_read(page, "other"), "read")
            ((pid,),) = query(
                dsn,
                "SELECT pid FROM pg_stat_activity WHERE application_name = 'table-queue-exporter'",
            )
            assert isinstance(pid, int)
            os.kill(pid, signal.SIGSTOP)
            try:
                page = exporter.wait_for(
                    lambda page: is_gone(page) and is_gone(page, "other"), "gone"
                )
                assert errors(page) == {}, "the poll still hangs, and yet nothing old is shown"
            finally:
                os.kill(pid, signal.SIGCONT)
            exporter.wait_for(lambda page: is_read(page) and is_read(page, "other"), "read again")


def test_through_a_pooler_in_transaction_mode() -> None:
    with LocalServer() as server, pgbouncer(server) as pooled:
        config = two_queues(server.dsn())
        config = config.replace(server.dsn(), pooled)
        with ExporterProcess(config) as exporter:
            exporter.wait_for(lambda page: is_read(page) and is_read(page, "other"), "read")
            execute(server.dsn(), "ALTER TABLE payment RENAME TO gone")
            exporter.wait_for(is_gone, "an error through the pooler")
            # The pool's one server connection must be free for others, errors or not.
            for _ in range(10):
                assert query(pooled, "SHOW transaction_read_only") == [("off",)]
            execute(server.dsn(), "ALTER TABLE gone RENAME TO payment")
            page = exporter.wait_for(is_read, "read again")
            assert is_read(page, "other")
            assert errors(page, "other") == {}
