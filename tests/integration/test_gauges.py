"""What the page says of a queue, against what the table holds."""

import psycopg
import pytest

from table_queue_exporter.demo.server import LocalServer
from tests.support.queues import (
    PAYMENT,
    REFERENCE_SCHEMA,
    configuration,
    execute,
    query,
    read_once,
)

STATUSES = ("ready", "delayed", "blocked", "processing", "expired")


async def test_every_gauge_agrees_with_the_table(dsn: str) -> None:
    execute(
        dsn,
        REFERENCE_SCHEMA,
        # ready: 3 of a (overdue 90, 50, 10 s), 2 of b; delayed: 4 of a; retries among both
        "INSERT INTO payment (task_type, created_at, next_attempt_at, attempts) VALUES "
        "('a', now() - interval '100 s', now() - interval '90 s', 2),"
        "('a', now() - interval '200 s', now() - interval '50 s', 1),"
        "('a', now() - interval '10 s', now() - interval '10 s', 0),"
        "('b', now() - interval '5 s', now() - interval '5 s', 0),"
        "('b', now() - interval '4 s', now() - interval '4 s', 0)",
        "INSERT INTO payment (task_type, created_at, next_attempt_at, attempts) "
        "SELECT 'a', now() - interval '300 s', now() + interval '1 h', 7 "
        "FROM generate_series(1, 4)",
        # processing: 2 of b since 30 and 20 s; expired: 1 of c 40 s ago
        "INSERT INTO payment (task_type, status, started_at, claimed_until, attempts) VALUES "
        "('b', 'PROCESSING', now() - interval '30 s', now() + interval '1 min', 3),"
        "('b', 'PROCESSING', now() - interval '20 s', now() + interval '2 min', 1),"
        "('c', 'PROCESSING', now() - interval '340 s', now() - interval '40 s', 9)",
        # finished: 2 failed in the window, 1 before it, 5 done
        "INSERT INTO payment (task_type, status, started_at, finished_at, attempts) VALUES "
        "('a', 'FAILED', now() - interval '31 min', now() - interval '30 min', 10),"
        "('b', 'FAILED', now() - interval '59 min', now() - interval '58 min', 10),"
        "('b', 'FAILED', now() - interval '3 h', now() - interval '2 h', 10)",
        "INSERT INTO payment (task_type, status, created_at, started_at, finished_at, attempts) "
        "SELECT 'd', 'DONE', now() - interval '1 h', now(), now() - interval '1 min', 99 "
        "FROM generate_series(1, 5)",
        "VACUUM ANALYZE payment",
    )
    page = await read_once(configuration(dsn, PAYMENT + "\nobjective: 60s\nlease: 5m"))

    def tasks(task_type: str) -> dict[str, float]:
        return page.by("status", "tasks", task_type=task_type)

    assert tasks("a") == dict(zip(STATUSES, (3, 4, 0, 0, 0), strict=True))
    assert tasks("b") == dict(zip(STATUSES, (2, 0, 0, 2, 0), strict=True))
    assert tasks("c") == dict(zip(STATUSES, (0, 0, 0, 0, 1), strict=True))
    assert page.by("task_type", "recently_failed_tasks") == {"a": 1, "b": 1, "c": 0}
    assert page.by("task_type", "oldest_task_age_seconds") == {
        "a": pytest.approx(300, abs=5),
        "b": pytest.approx(5, abs=5),
        "c": 0,
    }
    assert page.by("task_type", "oldest_ready_age_seconds") == {
        "a": pytest.approx(90, abs=5),
        "b": pytest.approx(5, abs=5),
        "c": 0,
    }
    assert page.by("task_type", "oldest_processing_age_seconds") == {
        "a": 0,
        "b": pytest.approx(30, abs=5),
        "c": 0,
    }
    assert page.by("task_type", "oldest_expired_age_seconds") == {
        "a": 0,
        "b": 0,
        "c": pytest.approx(40, abs=5),
    }
    assert page.by("task_type", "retrying_tasks") == {"a": 6, "b": 0, "c": 0}
    assert page.by("task_type", "attempts_max") == {"a": 7, "b": 3, "c": 9}
    assert set(page.by("status", "count_limited", task_type="a").values()) == {0}
    ((enqueued, finished),) = query(
        dsn,
        "SELECT extract(epoch FROM max(created_at))::float8, "
        "extract(epoch FROM max(finished_at))::float8 FROM payment",
    )
    assert page.value("last_enqueued_timestamp_seconds") == pytest.approx(enqueued, abs=0.001)
    assert page.value("last_finished_timestamp_seconds") == pytest.approx(finished, abs=0.001)
    assert page.value("objective_seconds") == 60
    assert page.value("lease_seconds") == 300
    assert page.value("failed_window_seconds") == 3600
    assert page.value("max_runtime_seconds") is None
    assert page.value("up") == 1
    assert page.value("database_up") == 1
    assert page.value("database_in_recovery") == 0
    assert page.value("info", table="public.payment", preset="lease") == 1
    assert page.value("clamped_values_total") == 0
    assert page.by("holder", "xmin_horizon_age_transactions").keys() == {
        "session",
        "prepared",
        "slot",
        "standby",
    }
    ((size,),) = query(dsn, "SELECT pg_total_relation_size('payment')")
    assert page.value("table_bytes", table="public.payment") == size


async def test_an_empty_table_reads_zero(dsn: str) -> None:
    execute(dsn, REFERENCE_SCHEMA)
    page = await read_once(configuration(dsn, PAYMENT))
    assert page.by("status", "tasks") == dict.fromkeys(STATUSES, 0)
    for age in ("task", "ready", "processing", "expired"):
        assert page.value(f"oldest_{age}_age_seconds") == 0
    assert page.value("recently_failed_tasks") == 0
    assert page.value("retrying_tasks") == 0
    assert page.value("attempts_max") == 0
    assert page.value("up") == 1
    assert page.value("last_enqueued_timestamp_seconds") is None


async def test_a_table_with_only_failed_rows(dsn: str) -> None:
    execute(
        dsn,
        REFERENCE_SCHEMA,
        "INSERT INTO payment (task_type, status, finished_at) "
        "SELECT 'a', 'FAILED', now() - interval '1 min' FROM generate_series(1, 7)",
    )
    page = await read_once(configuration(dsn, PAYMENT))
    assert page.by("task_type", "recently_failed_tasks") == {"a": 7}
    assert page.by("status", "tasks", task_type="a") == dict.fromkeys(STATUSES, 0)
    assert page.value("oldest_ready_age_seconds") == 0


LOOSE = """
CREATE TABLE payment (
  id bigint, task_type text, status text, created_at timestamptz, attempts int,
  next_attempt_at timestamptz, claimed_until timestamptz, started_at timestamptz,
  finished_at timestamptz, last_error text
)
"""
"""The same columns with nothing declared: every one may be NULL."""


@pytest.mark.parametrize("indexed", [True, False])
async def test_null_in_any_optional_column(dsn: str, indexed: bool) -> None:
    execute(
        dsn,
        LOOSE,
        "INSERT INTO payment (task_type, status, created_at, next_attempt_at) VALUES "
        "(NULL, 'NEW', now() - interval '70 s', NULL),"
        "('a', 'NEW', now() - interval '60 s', NULL),"
        "('a', 'NEW', now() - interval '50 s', now() - interval '5 s'),"
        "('a', 'NEW', NULL, NULL),"
        "('b', 'NEW', NULL, now() - interval '20 s'),"
        "('a', NULL, now(), NULL)",
        "INSERT INTO payment (task_type, status) VALUES (NULL, 'PROCESSING'), ('a', 'PROCESSING'),"
        " (NULL, 'FAILED')",
    )
    if indexed:
        execute(
            dsn,
            "CREATE INDEX ON payment (task_type, created_at) WHERE status = 'NEW'",
            "CREATE INDEX ON payment (task_type, next_attempt_at) WHERE status = 'NEW'",
            "CREATE INDEX ON payment (claimed_until) WHERE status = 'PROCESSING'",
            "CREATE INDEX ON payment (finished_at) WHERE status = 'FAILED'",
        )
    page = await read_once(configuration(dsn, PAYMENT))
    assert page.value("up") == 1
    assert page.by("task_type", "tasks", status="ready") == {"a": 3, "b": 1, "_none": 1}
    assert page.by("task_type", "tasks", status="processing") == {"a": 1, "b": 0, "_none": 1}
    assert page.by("task_type", "oldest_ready_age_seconds") == {
        "a": pytest.approx(60, abs=5),
        "b": pytest.approx(20, abs=5),
        "_none": pytest.approx(70, abs=5),
    }
    oldest = page.by("task_type", "oldest_task_age_seconds")
    assert oldest["a"] == pytest.approx(60, abs=5)
    assert oldest["_none"] == pytest.approx(70, abs=5)
    assert "b" not in oldest, "its only row has no enqueue time: unknown, not 0"
    assert page.value("recently_failed_tasks", task_type="a") == (0 if indexed else None)


async def test_times_in_the_future_and_infinite_ones(dsn: str) -> None:
    execute(
        dsn,
        REFERENCE_SCHEMA,
        "INSERT INTO payment (task_type, created_at, next_attempt_at) VALUES "
        "('future', now() + interval '1 h', now() - interval '1 s'),"
        "('never', now() - interval '10 s', 'infinity'),"
        "('ever', '-infinity', '-infinity')",
        "INSERT INTO payment (task_type, status, claimed_until, started_at) VALUES "
        "('forever', 'PROCESSING', 'infinity', now() - interval '5 s'),"
        "('long ago', 'PROCESSING', '-infinity', '-infinity')",
    )
    page = await read_once(configuration(dsn, PAYMENT))
    assert page.value("up") == 1
    ready = page.by("task_type", "oldest_ready_age_seconds")
    assert ready["future"] == 0, "a negative age reads as 0"
    assert ready["never"] == 0, "it is never due"
    assert ready["ever"] == 10 * 365 * 86400, "an infinite age reads as the limit"
    assert page.value("tasks", task_type="never", status="delayed") == 1
    assert page.value("tasks", task_type="forever", status="processing") == 1
    assert page.value("tasks", task_type="long ago", status="expired") == 1
    # future: both ages; ever: both ages; long ago: its expired age; the newest enqueue time
    assert page.value("clamped_values_total") == 6
    for _, value in page.all("oldest_expired_age_seconds"):
        assert 0 <= value <= 10 * 365 * 86400


async def test_times_without_zone_on_a_server_in_tokyo(dsn: str) -> None:
    name = dsn.rsplit("/", 1)[1]
    execute(
        dsn,
        f"ALTER DATABASE {name} SET timezone = 'Asia/Tokyo'",
        "CREATE TABLE payment (id int, status text, task_type text, created_at timestamp,"
        " attempts int, next_attempt_at timestamp, claimed_until timestamp)",
        "CREATE INDEX ON payment (task_type, next_attempt_at) WHERE status = 'NEW'",
        "INSERT INTO payment VALUES (1, 'NEW', 'a', timezone('UTC', now()) - interval '60 s', 0,"
        " timezone('UTC', now()) - interval '30 s')",
        "INSERT INTO payment VALUES (2, 'NEW', 'b', timezone('Asia/Tokyo', now()) - interval '1 h',"
        " 0, timezone('Asia/Tokyo', now()) - interval '30 s')",
    )
    page = await read_once(configuration(dsn, PAYMENT))
    assert page.value("oldest_ready_age_seconds", task_type="a") == pytest.approx(30, abs=5)
    assert page.value("tasks", task_type="a", status="ready") == 1
    page = await read_once(configuration(dsn, PAYMENT + "\ntimezone: Asia/Tokyo"))
    assert page.value("oldest_ready_age_seconds", task_type="b") == pytest.approx(30, abs=5)
    assert page.value("tasks", task_type="b", status="ready") == 1


NASTY = {
    "quotes": 'it\'s "quoted"',
    "newline": "two\nlines",
    "backslash": "back\\slash \\n",
    "emoji": "🚚" * 40,
    "long": "x" * 10_240,
    "empty": "",
}


async def test_task_types_of_every_kind(dsn: str) -> None:
    execute(dsn, REFERENCE_SCHEMA)
    with psycopg.connect(dsn, autocommit=True) as connection:
        for task_type in NASTY.values():
            connection.execute("INSERT INTO payment (task_type) VALUES (%s)", (task_type,))
    page = await read_once(configuration(dsn, PAYMENT))
    types = page.by("task_type", "tasks", status="ready")
    assert set(types) == {
        NASTY["quotes"],
        NASTY["newline"],
        NASTY["backslash"],
        "🚚" * 32,
        "x" * 128,
        "",
    }
    assert set(types.values()) == {1}


async def test_a_thousand_task_types(dsn: str) -> None:
    execute(
        dsn,
        REFERENCE_SCHEMA,
        "INSERT INTO payment (task_type, created_at, next_attempt_at) "
        "SELECT 'type ' || lpad(i::text, 4, '0'), now() - i * interval '1 s', "
        "now() - i * interval '1 s' FROM generate_series(1, 1000) i",
    )
    page = await read_once(configuration(dsn, PAYMENT))
    ready = page.by("task_type", "tasks", status="ready")
    assert len(ready) == 31
    assert ready.pop("_other") == 970
    assert set(ready.values()) == {1}
    assert page.value("oldest_ready_age_seconds", task_type="_other") == pytest.approx(1000, abs=5)
    assert page.value("task_types_limited") == 1
    assert page.value("oldest_ready_age_seconds", task_type="type 0007") == pytest.approx(7, abs=5)


async def test_a_million_waiting_rows(newest_dsn: str) -> None:
    execute(
        newest_dsn,
        REFERENCE_SCHEMA,
        "ALTER TABLE payment SET UNLOGGED",
        "INSERT INTO payment (task_type, created_at, next_attempt_at) "
        "SELECT 'type ' || i % 10, now() - i * interval '1 ms', now() - i * interval '1 ms' "
        "FROM generate_series(1, 999990) i",
        "INSERT INTO payment (task_type, created_at, next_attempt_at) "
        "SELECT 'zz few', now() - interval '3 h', now() - interval '2 h' "
        "FROM generate_series(1, 10)",
        "VACUUM ANALYZE payment",
    )
    page = await read_once(configuration(newest_dsn, PAYMENT))
    truth = {
        str(task_type): (count, age)
        for task_type, count, age in query(
            newest_dsn,
            "SELECT task_type, count(*), extract(epoch FROM now() - min(created_at))::float8 "
            "FROM payment GROUP BY 1",
        )
    }
    assert page.by("task_type", "oldest_task_age_seconds") == {
        name: pytest.approx(age, abs=20) for name, (_, age) in truth.items()
    }
    ready = page.by("task_type", "oldest_ready_age_seconds")
    assert ready.keys() == truth.keys()
    assert ready["zz few"] == pytest.approx(7200, abs=20)
    limited = page.by("task_type", "count_limited", status="ready")
    counts = page.by("task_type", "tasks", status="ready")
    assert limited == {name: float(name != "zz few") for name in truth}
    assert counts["zz few"] == 10
    for name, (count, _) in truth.items():
        if name != "zz few":
            assert isinstance(count, int)
            assert 1000 <= counts[name] < count, "a lower bound, and no small one"
    assert "type 3" not in page.by("task_type", "retrying_tasks"), "not all were read: absent"


async def test_overdue_tasks_behind_many_delayed_ones(newest_dsn: str) -> None:
    execute(
        newest_dsn,
        REFERENCE_SCHEMA,
        "INSERT INTO payment (task_type, created_at, next_attempt_at) "
        "SELECT 'a', now() - interval '1 day', now() + interval '1 day' "
        "FROM generate_series(1, 120000)",
        "INSERT INTO payment (task_type, created_at, next_attempt_at) "
        "SELECT 'a', now() - interval '3 h', now() - interval '2 h' FROM generate_series(1, 500)",
    )
    page = await read_once(configuration(newest_dsn, PAYMENT))
    assert page.value("oldest_ready_age_seconds") == pytest.approx(7200, abs=20)
    assert page.value("tasks", status="ready") == 500
    assert page.value("count_limited", status="ready") == 0
    assert page.value("count_limited", status="delayed") == 1
    # Without the index in due order nothing proves the answer: absent, never a false number.
    execute(newest_dsn, "DROP INDEX payment_waiting_by_due")
    page = await read_once(configuration(newest_dsn, PAYMENT))
    assert page.value("oldest_ready_age_seconds") is None
    assert page.value("oldest_task_age_seconds") == pytest.approx(86400, abs=20)
    assert page.value("up") == 1


async def test_a_standby_tells_no_statistics(newest_server: LocalServer) -> None:
    with LocalServer() as primary:
        dsn = primary.create_database("queue")
        execute(dsn, REFERENCE_SCHEMA, "INSERT INTO payment (task_type) VALUES ('a')")
        with LocalServer.standby_of(primary) as standby:
            page = await read_once(configuration(standby.dsn("queue"), PAYMENT))
            assert page.value("up") == 1
            assert page.value("database_in_recovery") == 1
            assert page.value("tasks", status="ready") == 1
            assert page.value("dead_rows") is None
            assert page.value("live_rows") is None
            assert page.value("table_bytes") is not None
