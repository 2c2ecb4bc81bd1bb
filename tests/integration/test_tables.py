"""Tables of every make: partitioned, quoted, other status types, many queues in one."""

import asyncio

import psycopg
import pytest

from table_queue_exporter.app import Exporter
from table_queue_exporter.config import Config, parse_config
from table_queue_exporter.demo.server import LocalServer
from table_queue_exporter.exposition import Format
from tests.support.pages import Metrics
from tests.support.queues import (
    PAYMENT,
    REFERENCE_SCHEMA,
    configuration,
    execute,
    read_once,
    until_ready,
)

COLUMNS = (
    "id bigint, task_type text NOT NULL, status {type} NOT NULL, created_at timestamptz NOT NULL,"
    " attempts int NOT NULL DEFAULT 0, next_attempt_at timestamptz NOT NULL,"
    " claimed_until timestamptz, started_at timestamptz, finished_at timestamptz"
)
STATUS_TYPES = {
    "text": ("text", "'NEW'", "'PROCESSING'", "'FAILED'"),
    "varchar": ("varchar(20)", "'NEW'", "'PROCESSING'", "'FAILED'"),
    "char": ("char(12)", "'NEW'", "'PROCESSING'", "'FAILED'"),
    "enum": ("task_status", "'NEW'", "'PROCESSING'", "'FAILED'"),
    "integer": ("integer", "0", "1", "3"),
}


@pytest.mark.parametrize("kind", STATUS_TYPES)
async def test_statuses_of_every_type_use_their_indexes(dsn: str, kind: str) -> None:
    sql_type, new, processing, failed = STATUS_TYPES[kind]
    execute(
        dsn,
        "CREATE TYPE task_status AS ENUM ('NEW', 'PROCESSING', 'DONE', 'FAILED')",
        f"CREATE TABLE payment ({COLUMNS.format(type=sql_type)})",
        f"CREATE INDEX ON payment (task_type, created_at) WHERE status = {new}",
        f"CREATE INDEX ON payment (task_type, next_attempt_at) WHERE status = {new}",
        f"CREATE INDEX ON payment (claimed_until) WHERE status = {processing}",
        f"CREATE INDEX ON payment (finished_at) WHERE status = {failed}",
        f"INSERT INTO payment SELECT i, 'a', {new}, now() - interval '9 s', 0, "
        "now() - interval '6 s' FROM generate_series(1, 3) i",
        f"INSERT INTO payment SELECT i, 'a', {processing}, now(), 1, now(), "
        "now() - interval '5 s' FROM generate_series(1, 2) i",
        f"INSERT INTO payment SELECT i, 'a', {failed}, now(), 1, now(), NULL, NULL, now() "
        "FROM generate_series(1, 4) i",
    )
    queue = PAYMENT
    if kind == "integer":
        queue += (
            "\nwaiting: status = 0\nprocessing: status = 1\nfailed: status = 3"
            "\ndone: status = 2\ncancelled: null"
        )
    page = await read_once(configuration(dsn, queue))
    assert page.value("up") == 1
    assert page.value("tasks", status="ready") == 3
    assert page.value("tasks", status="expired") == 2
    assert page.value("oldest_ready_age_seconds") == pytest.approx(6, abs=5)
    assert page.value("recently_failed_tasks") == 4, "absent would mean that no index was found"


async def test_a_partitioned_table(dsn: str) -> None:
    execute(
        dsn,
        f"CREATE TABLE payment ({COLUMNS.format(type='text')}) PARTITION BY LIST (task_type)",
        "CREATE TABLE payment_a PARTITION OF payment FOR VALUES IN ('a')",
        "CREATE TABLE payment_rest PARTITION OF payment DEFAULT",
        "CREATE INDEX ON payment (task_type, created_at) WHERE status = 'NEW'",
        "CREATE INDEX ON payment (task_type, next_attempt_at) WHERE status = 'NEW'",
        "CREATE INDEX ON payment (claimed_until) WHERE status = 'PROCESSING'",
        "CREATE INDEX ON payment (finished_at) WHERE status = 'FAILED'",
        "INSERT INTO payment SELECT i, 'type ' || i % 3, 'NEW', now() - i * interval '1 s', 0, "
        "now() - i * interval '1 s' FROM generate_series(1, 30) i",
        "INSERT INTO payment SELECT i, 'a', 'FAILED', now(), 1, now(), NULL, NULL, now() "
        "FROM generate_series(1, 4) i",
        "ANALYZE payment",
    )
    page = await read_once(configuration(dsn, PAYMENT))
    assert page.by("task_type", "tasks", status="ready") == {
        "a": 0,
        "type 0": 10,
        "type 1": 10,
        "type 2": 10,
    }
    assert page.value("oldest_ready_age_seconds", task_type="type 0") == pytest.approx(30, abs=5)
    assert page.value("recently_failed_tasks", task_type="a") == 4
    assert (page.value("table_bytes") or 0) >= 3 * 8192, "the partitions' size, not the parent's"


async def test_quoted_and_mixed_case_names(dsn: str) -> None:
    execute(
        dsn,
        'CREATE SCHEMA "Billing ""X"" Co"',
        'CREATE TABLE "Billing ""X"" Co"."Payment.Task" ("Id" int, "Created At" timestamptz,'
        ' "Status" text, "user" text)',
        'CREATE INDEX ON "Billing ""X"" Co"."Payment.Task" ("user", "Created At")'
        """ WHERE "Status" = 'New'""",
        'INSERT INTO "Billing ""X"" Co"."Payment.Task"'
        " VALUES (1, now() - interval '50 s', 'New', 'Ann''s'), (2, now(), 'Done', 'Bob')",
    )
    queue = """
        name: quoted
        table: '"Billing ""X"" Co"."Payment.Task"'
        preset: none
        enqueued_at: '"Created At"'
        task_type: '"user"'
        waiting: '"Status" = ''New'''
    """
    page = await read_once(configuration(dsn, queue))
    assert page.by("task_type", "tasks", status="ready") == {"Ann's": 1}
    assert page.value("oldest_ready_age_seconds") == pytest.approx(50, abs=5)
    assert page.value("info", table='Billing "X" Co.Payment.Task') == 1


async def test_a_model_without_optional_columns_loses_just_their_metrics(dsn: str) -> None:
    execute(
        dsn,
        "CREATE TABLE outbox (created timestamptz, published timestamptz)",
        "CREATE INDEX ON outbox (created) WHERE published IS NULL",
        "INSERT INTO outbox SELECT now() - i * interval '1 s' FROM generate_series(1, 5) i",
    )
    queue = """
        name: outbox
        table: outbox
        preset: none
        enqueued_at: created
        waiting: published IS NULL
    """
    page = await read_once(configuration(dsn, queue))
    assert page.value("up") == 1
    assert page.by("status", "tasks") == {"ready": 5, "delayed": 0, "blocked": 0}
    assert page.value("oldest_ready_age_seconds") == pytest.approx(5, abs=5)
    for absent in (
        "oldest_processing_age_seconds",
        "oldest_expired_age_seconds",
        "attempts_max",
        "retrying_tasks",
        "recently_failed_tasks",
        "task_types_limited",
        "last_finished_timestamp_seconds",
    ):
        assert page.value(absent) is None, absent
    assert all("task_type" not in labels for labels, _ in page.all("tasks"))


async def test_the_preset_without_the_columns_that_the_table_lacks(dsn: str) -> None:
    execute(
        dsn,
        "CREATE TABLE payment (id int, status text, created_at timestamptz, attempts int,"
        " next_attempt_at timestamptz, claimed_until timestamptz)",
        "INSERT INTO payment VALUES (1, 'PROCESSING', now(), 1, now(), now() + interval '4 min')",
    )
    page = await read_once(configuration(dsn, PAYMENT))
    assert page.value("up") == 1
    assert page.value("tasks", status="processing") == 1
    assert page.value("oldest_processing_age_seconds") is None
    page = await read_once(configuration(dsn, PAYMENT + "\nlease: 5m"))
    assert page.value("oldest_processing_age_seconds") == pytest.approx(60, abs=5), (
        "a fixed lease tells when the attempt began"
    )


async def test_tasks_that_the_library_holds_back_are_blocked(dsn: str) -> None:
    execute(
        dsn,
        REFERENCE_SCHEMA,
        "ALTER TABLE payment ADD held boolean",
        "INSERT INTO payment (task_type, created_at, next_attempt_at, held) VALUES "
        "('a', now() - interval '90 s', now() - interval '90 s', true),"
        "('a', now() - interval '30 s', now() - interval '30 s', NULL),"
        "('a', now() - interval '20 s', now() + interval '1 h', true)",
    )
    page = await read_once(configuration(dsn, PAYMENT + "\nblocked: held"))
    assert page.value("tasks", status="blocked") == 1
    assert page.value("tasks", status="ready") == 1
    assert page.value("tasks", status="delayed") == 1
    assert page.value("oldest_ready_age_seconds") == pytest.approx(30, abs=5)


MANY = """
    name: jobs
    table: jobs
    preset: none
    queue: queue
    task_type: kind
    enqueued_at: created
    due_at: due
    waiting: state = 'new'
    processing: state = 'run'
    lease_until: lease
"""


@pytest.mark.parametrize("indexed", [True, False])
async def test_a_table_that_holds_many_queues(dsn: str, indexed: bool) -> None:
    execute(
        dsn,
        "CREATE TABLE jobs (queue text, kind text, state text, created timestamptz,"
        " due timestamptz, lease timestamptz)",
        "INSERT INTO jobs VALUES "
        "('mail', 'a', 'new', now() - interval '10 s', now() - interval '10 s'),"
        "('mail', 'b', 'new', now() - interval '20 s', NULL),"
        "('mail', NULL, 'new', now() - interval '30 s', now() - interval '25 s'),"
        "('video', 'a', 'new', now() - interval '40 s', now() + interval '40 s'),"
        "(NULL, 'a', 'new', now() - interval '50 s', now() - interval '50 s'),"
        "(NULL, NULL, 'new', now() - interval '60 s', NULL)",
        "INSERT INTO jobs VALUES ('only running', 'a', 'run', now(), now(), now())",
    )
    if indexed:
        execute(
            dsn,
            "CREATE INDEX ON jobs (queue, kind, due) WHERE state = 'new'",
            "CREATE INDEX ON jobs (queue, kind, created) WHERE state = 'new'",
            "CREATE INDEX ON jobs (queue, created)",
        )
    page = await read_once(configuration(dsn, MANY + "    objective: 60s"))
    assert page.value("up", queue="jobs/mail") == 1
    assert page.value("up", queue="jobs") is None

    def ready(queue: str) -> dict[str, float]:
        return page.by("task_type", "tasks", queue=queue, status="ready")

    assert ready("jobs/mail") == {"a": 1, "b": 1, "_none": 1}
    assert ready("jobs/video") == {"a": 0}
    assert ready("jobs/_none") == {"a": 1, "_none": 1}
    assert ready("jobs/only running") == {"a": 0}
    assert page.value("tasks", queue="jobs/only running", status="expired") == 1
    ages = page.by("task_type", "oldest_ready_age_seconds", queue="jobs/mail")
    assert ages == {
        "a": pytest.approx(10, abs=5),
        "b": pytest.approx(20, abs=5),
        "_none": pytest.approx(25, abs=5),
    }
    ages = page.by("task_type", "oldest_ready_age_seconds", queue="jobs/_none")
    assert ages == {"a": pytest.approx(50, abs=5), "_none": pytest.approx(60, abs=5)}
    newest = page.by("queue", "last_enqueued_timestamp_seconds")
    expected = {"jobs/mail", "jobs/video", "jobs/_none", "jobs/only running"}
    assert set(newest) == (expected if indexed else set())
    assert {labels["queue"] for labels, _ in page.all("objective_seconds")} == expected


async def test_more_queues_than_labels(dsn: str) -> None:
    execute(
        dsn,
        "CREATE TABLE jobs (queue text, kind text, state text, created timestamptz,"
        " due timestamptz, lease timestamptz)",
        "INSERT INTO jobs SELECT 'q' || i, 'a', 'new', now(), now() FROM generate_series(1, 9) i",
    )
    page = await read_once(configuration(dsn, MANY + "    max_queues: 4"))
    ready = page.by("queue", "tasks", status="ready")
    assert ready == {"jobs/q1": 1, "jobs/q2": 1, "jobs/q3": 1, "jobs/q4": 1, "jobs/_other": 5}
    assert page.value("queues_limited", table="public.jobs") == 1


async def test_discovery_with_nothing_but_a_dsn(dsn: str) -> None:
    execute(
        dsn,
        REFERENCE_SCHEMA,
        'CREATE SCHEMA "Shop"',
        'CREATE TABLE "Shop"."Order" (LIKE payment)',
        "INSERT INTO payment (task_type) VALUES ('a')",
    )
    text = f"databases:\n  main:\n    dsn: {dsn}\n"
    page = await read_once(text, search=True)
    assert page.by("queue", "up") == {"payment": 1, "Shop.Order": 1}
    assert page.value("tasks", queue="payment", status="ready") == 1


async def test_long_task_types_that_differ_past_their_cut_are_added_up(dsn: str) -> None:
    execute(
        dsn,
        LOOSE_TYPES,
        "INSERT INTO payment (task_type) SELECT repeat('x', 200) || i FROM generate_series(1, 3) i",
        "INSERT INTO payment (task_type) VALUES (NULL), (NULL), ('_none')",
    )
    page = await read_once(configuration(dsn, PAYMENT))
    assert page.by("task_type", "tasks", status="ready") == {"x" * 128: 3, "_none": 3}


LOOSE_TYPES = (
    "CREATE TABLE payment (id int, task_type text, status text DEFAULT 'NEW',"
    " created_at timestamptz DEFAULT now(), attempts int DEFAULT 0,"
    " next_attempt_at timestamptz DEFAULT now(), claimed_until timestamptz)"
)


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
async def test_databases_in_other_encodings(newest_server: LocalServer, encoding: str) -> None:
    name = f"encoded_{encoding.lower()}"
    execute(
        newest_server.dsn(),
        f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0",
    )
    dsn = newest_server.dsn(name)
    with psycopg.connect(dsn, autocommit=True, client_encoding="utf8") as connection:
        connection.execute(LOOSE_TYPES.encode())
        connection.execute("INSERT INTO payment (task_type) VALUES ('façade')".encode())
    waiting = "\nwaiting: status = 'NEW' AND task_type = 'façade'"
    for queue in (PAYMENT, PAYMENT + waiting):
        page = await read_once(configuration(dsn, queue))
        assert page.by("task_type", "tasks", status="ready") == {"façade": 1}


async def test_reloads_at_once_leave_one_poller(newest_dsn: str) -> None:
    execute(newest_dsn, REFERENCE_SCHEMA, "INSERT INTO payment (task_type) VALUES ('a')")
    objectives = iter(range(60, 100))

    def load() -> Config:
        text = configuration(newest_dsn, PAYMENT + f"\nobjective: {next(objectives)}s")
        return parse_config(text, environment={})

    exporter = Exporter(load)
    exporter.start()
    try:
        await until_ready(exporter)
        await asyncio.gather(*(exporter.reload() for _ in range(4)))
        assert exporter.is_ready(), "what was read before the reload still counts"
        page = Metrics(exporter.page.body(Format.TEXT).decode())
        assert page.value("objective_seconds") == 64
        assert page.value("tasks", status="ready") == 1, "no gap in the gauges"
        assert len([t for t in asyncio.all_tasks() if t.get_name().startswith("poll ")]) == 1
    finally:
        await exporter.stop()
    assert not [t for t in asyncio.all_tasks() if t.get_name().startswith("poll ")]
