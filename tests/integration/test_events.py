"""Events counted once: what the page says after things have happened to the table."""

import asyncio
import re

import psycopg
import pytest

from table_queue_exporter.demo import queue as demo_queue
from table_queue_exporter.demo.server import LocalServer
from table_queue_exporter.exposition import Format
from tests.support.processes import wait_until
from tests.support.queues import REFERENCE_SCHEMA, configuration, execute, query
from tests.support.running import FAST, HELD, Running


@pytest.fixture
def queue_dsn(dsn: str) -> str:
    """The reference table on each server."""
    execute(dsn, REFERENCE_SCHEMA)
    return dsn


@pytest.fixture
def newest_queue(newest_dsn: str) -> str:
    """The reference table on PostgreSQL 18."""
    execute(newest_dsn, REFERENCE_SCHEMA)
    return newest_dsn


async def test_each_event_is_counted(queue_dsn: str) -> None:
    execute(queue_dsn, "INSERT INTO payment (task_type, attempts) VALUES ('old', 4)")
    inserted = "SELECT n_tup_ins FROM pg_stat_user_tables WHERE relname = 'payment'"
    # Before version 15 the statistics come a little later.
    await asyncio.to_thread(wait_until, lambda: query(queue_dsn, inserted) == [(1,)], inserted)
    async with Running(configuration(queue_dsn, FAST)) as running:
        before = running.page()
        assert before.value("enqueued_total") == 0, "what was there before is not counted"
        assert before.by("outcome", "finished_total") == dict.fromkeys(
            ("done", "failed", "cancelled"), 0
        )
        assert before.value("attempts_total") == 0
        execute(
            queue_dsn,
            "INSERT INTO payment (task_type) SELECT 'a' FROM generate_series(1, 5)",
            "UPDATE payment SET status = 'PROCESSING', attempts = attempts + 1, started_at = now(),"
            " claimed_until = now() + interval '5 min'",
        )
        await running.polls(2)
        execute(
            queue_dsn,
            "UPDATE payment SET status = 'DONE', finished_at = now() WHERE id <= 3",
            "UPDATE payment SET status = 'FAILED', finished_at = now() WHERE id = 4",
            "UPDATE payment SET status = 'NEW', next_attempt_at = now() + interval '1 h',"
            " claimed_until = NULL WHERE id = 5",
            "UPDATE payment SET status = 'PROCESSING', attempts = attempts + 1 WHERE id = 5",
        )
        await running.polls(HELD)
        page = running.page()
    assert page.by("task_type", "enqueued_total") == {"a": 5, "old": 0}
    assert page.value("finished_total", task_type="a", outcome="done") == 2
    assert page.value("finished_total", task_type="old", outcome="done") == 1
    assert page.value("finished_total", task_type="a", outcome="failed") == 1
    assert page.by("task_type", "attempts_total") == {"a": 6, "old": 1}
    assert page.by("task_type", "retries_total") == {"a": 1, "old": 1}
    assert page.by("task_type", "lease_reclaims_total") == {"a": 0, "old": 0}
    assert page.value("processing_seconds_count", task_type="a", outcome="done") == 2
    assert page.value("wait_seconds_count", task_type="a") == 3
    assert page.value("events_exact") == 1
    assert page.value("rows_inserted_total") == 5
    assert page.value("rows_deleted_total") == 0


async def test_durations_fall_into_their_buckets_and_absurd_ones_are_clamped(
    queue_dsn: str,
) -> None:
    queue = FAST + "\nbuckets: [1s, 10s]\nlease: 100s\nobjective: 5s"
    async with Running(configuration(queue_dsn, queue)) as running:
        execute(
            queue_dsn,
            "INSERT INTO payment (task_type, status, next_attempt_at, created_at, started_at,"
            " finished_at) SELECT 'a', 'DONE', t, t, t, t + d FROM"
            " (SELECT now() - interval '1 h' AS t) x,"
            " unnest(ARRAY['0.5 s', '1 s', '1.000001 s', '79 s', '81 s', '399 s', '500 s']"
            "::interval[]) d",
            "UPDATE payment SET finished_at = now(), "
            " started_at = now() - (finished_at - created_at), "
            " next_attempt_at = now() - (finished_at - created_at) - interval '5 s', "
            " created_at = now() - interval '1 h'",
            "INSERT INTO payment (task_type, status, started_at, finished_at) VALUES"
            " ('b', 'DONE', now() + interval '1 min', now()),"
            " ('b', 'DONE', now() - interval '20 years', now()),"
            " ('b', 'DONE', '-infinity', now()), ('b', 'DONE', NULL, now())",
        )
        await running.polls(HELD)
        page = running.page()
        buckets = page.by("le", "processing_seconds_bucket", task_type="a", outcome="done")
        assert list(buckets) == ["1.0", "10.0", "80.0", "100.0", "400.0", "+Inf"]
        assert list(buckets.values()) == [2, 3, 4, 5, 6, 7]
        waits = page.by("le", "wait_seconds_bucket", task_type="a")
        assert waits == {"1.0": 0, "5.0": 7, "10.0": 7, "+Inf": 7}
        assert page.value("wait_seconds_sum", task_type="a") == 35
        total = page.value("processing_seconds_sum", task_type="a", outcome="done")
        assert total == pytest.approx(0.5 + 1 + 1.000001 + 79 + 81 + 399 + 500, abs=1e-9)
        assert page.value("processing_seconds_count", task_type="b", outcome="done") == 2
        assert page.value("finished_total", task_type="b", outcome="done") == 4
        ten_years = 10 * 365 * 86400
        assert page.value("processing_seconds_sum", task_type="b", outcome="done") == ten_years
        # two processing times; three waiting times (in the future is fine: one is negative)
        clamped = page.value("clamped_values_total") or 0
        assert clamped >= 2
        await running.polls(3)
        assert running.page().value("clamped_values_total") == clamped, "each once"
        same = running.page(Format.OPENMETRICS)
        assert same.by("le", "processing_seconds_bucket", task_type="a", outcome="done") == buckets


async def test_exemplars_lead_to_a_task(newest_queue: str) -> None:
    for wanted in (True, False):
        queue = FAST + f"\nexemplars: {str(wanted).lower()}"
        async with Running(configuration(newest_queue, queue)) as running:
            execute(
                newest_queue,
                "INSERT INTO payment (task_type, status, started_at, finished_at) VALUES"
                " ('a', 'DONE', now() - interval '7 s', now()),"
                " ('a', 'DONE', now() - interval '8 s', now())",
            )
            await running.polls(HELD)
            text = running.page().text
            metrics = running.page(Format.OPENMETRICS).text
        assert "task_id" not in text, "the text format has no exemplars"
        found = re.findall(
            r'processing_seconds_bucket\{.*le="10.0"\}.* # \{task_id="(\d+)"\} 8', metrics
        )
        ((newest,),) = query(newest_queue, "SELECT max(id) FROM payment")
        assert found == ([str(newest)] if wanted else [])


async def test_what_the_table_cannot_tell_is_absent(
    dsn: str, capsys: pytest.CaptureFixture[str]
) -> None:
    execute(
        dsn,
        "CREATE TABLE payment (id int, task_type text, status text, created_at timestamptz,"
        " attempts int, next_attempt_at timestamptz, claimed_until timestamptz)",
        "INSERT INTO payment VALUES (1, 'a', 'NEW', now(), 0, now())",
    )
    families = (
        "enqueued_total",
        "finished_total",
        "attempts_total",
        "retries_total",
        "lease_reclaims_total",
        "processing_seconds_count",
        "wait_seconds_count",
        "events_exact",
    )
    async with Running(configuration(dsn, FAST)) as running:
        page = running.page()
        assert {name: page.all(name) for name in families} == {name: [] for name in families}
        assert page.value("up") == 1
    said = capsys.readouterr().out.splitlines()
    (line,) = (line for line in said if "not everything can be measured" in line)
    for name in ("finished_total", "enqueued_total", "attempts_total", "lease_reclaims_total"):
        assert f"{name}=" in line, "each with its reason"
    execute(dsn, "CREATE INDEX ON payment (created_at)")
    async with Running(configuration(dsn, FAST)) as running:
        page = running.page()
        assert page.value("enqueued_total") == 0
        assert page.value("events_exact") == 1
        assert page.value("finished_total") is None


async def test_a_role_that_cannot_see_sessions_is_not_exact_and_loses_nothing(
    newest_queue: str,
) -> None:
    role = "blind_" + newest_queue.rsplit("_", 1)[1]
    execute(newest_queue, f"CREATE ROLE {role} LOGIN", f"GRANT SELECT ON payment TO {role}")
    text = configuration(newest_queue.replace("postgres@", f"{role}@"), FAST)
    async with Running(text) as running:
        assert running.page().value("events_exact") == 0
        with psycopg.connect(newest_queue) as late:
            late.execute(
                "INSERT INTO payment (task_type, status, finished_at) VALUES ('a', 'DONE', now())"
            )
            await running.polls(10)
        await running.polls(HELD)
        page = running.page()
        assert page.value("finished_total", outcome="done") == 1
        assert page.all("xmin_horizon_age_seconds", holder="session") == []


async def test_a_type_that_appears_later_is_shown_at_zero_first(newest_queue: str) -> None:
    queue = FAST.replace("new_series_hold: 1ms", "new_series_hold: 1500ms")
    seen: list[float | None] = []
    async with Running(configuration(newest_queue, queue)) as running:
        execute(
            newest_queue,
            "INSERT INTO payment (task_type, status, finished_at) VALUES ('new', 'DONE', now())",
        )
        async with asyncio.timeout(20):
            while not seen or seen[-1] != 1:
                await running.polls(1)
                value = running.page().value("finished_total", task_type="new", outcome="done")
                seen.append(value)
    shown = [value for value in seen if value is not None]
    assert shown == [0.0] * (len(shown) - 1) + [1.0]
    assert len(shown) >= 3, "0 for more than one poll"


async def test_reclaims_of_workers_that_died(newest_queue: str) -> None:
    """Some die holding leases, others take over within a second of expiry."""
    reclaimed = 0
    async with Running(configuration(newest_queue, FAST + "\nlease: 2s")) as running:
        async with await psycopg.AsyncConnection.connect(newest_queue, autocommit=True) as c:
            for _ in range(60):
                await demo_queue.enqueue(c, "a")
            for _ in range(40):
                tasks = await demo_queue.claim(c, 5, 2)
                for number, task in enumerate(tasks):
                    # attempts grow only over expired leases here: nothing fails or is released
                    reclaimed += task.attempts > 1
                    if (task.id + number) % 3:
                        await demo_queue.finish(c, task)
                await asyncio.sleep(0.2)
        await running.polls(3)
        page = running.page()
    assert reclaimed > 10
    assert page.value("lease_reclaims_total") == reclaimed
    assert page.value("retries_total") == 0


async def test_a_rolling_deploy_and_heartbeats_are_no_reclaims(newest_queue: str) -> None:
    async with Running(configuration(newest_queue, FAST + "\nlease: 3s")) as running:
        async with await psycopg.AsyncConnection.connect(newest_queue, autocommit=True) as c:
            for _ in range(100):
                await demo_queue.enqueue(c, "a")
            for round_ in range(12):
                tasks = await demo_queue.claim(c, 20, 3)
                for task in tasks:
                    if round_ % 3 == 0:
                        await demo_queue.release(c, task)  # the worker is told to stop
                    elif task.id % 2:
                        await demo_queue.heartbeat(c, task, 3)
                await asyncio.sleep(0.3)
                for task in tasks:
                    await demo_queue.finish(c, task)
        await running.polls(3)
        page = running.page()
        ((extra,),) = query(newest_queue, "SELECT sum(greatest(attempts - 1, 0)) FROM payment")
    assert page.value("lease_reclaims_total") == 0
    assert page.value("retries_total") == extra, "releases count as retries"


async def test_the_server_restarted_and_the_connection_cut() -> None:
    with LocalServer() as server:
        dsn = server.create_database("queue")
        execute(dsn, REFERENCE_SCHEMA)
        async with Running(configuration(dsn, FAST)) as running:
            for turn in range(6):
                execute(
                    dsn,
                    "INSERT INTO payment (task_type, status, finished_at, attempts) "
                    "SELECT 'a', 'DONE', now(), 1 FROM generate_series(1, 10)",
                )
                if turn == 3:
                    await asyncio.to_thread(server.stop)
                    await asyncio.to_thread(server.start)
                else:
                    query(
                        dsn,
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                        "WHERE application_name = 'table-queue-exporter'",
                    )
                await running.polls(3)
            async with asyncio.timeout(30):
                while running.page().value("up") != 1:  # noqa: ASYNC110  # back-off has its time
                    await asyncio.sleep(0.1)
            await running.polls(HELD)
            page = running.page()
        assert page.value("finished_total", outcome="done") == 60
        assert page.value("enqueued_total") == 60
        assert page.value("attempts_total") == 60
        assert page.value("rows_inserted_total") is not None
