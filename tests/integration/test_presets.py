"""Every preset on its library's tables, which are made from the facts. `make test-presets` runs the
libraries themselves."""

from typing import cast

import pytest
import yaml

from docs.presets_page import ACCESSES
from table_queue_exporter.access import Access
from table_queue_exporter.config import parse_config
from table_queue_exporter.demo.server import LocalServer
from table_queue_exporter.model import load_preset, preset_names
from table_queue_exporter.sql_command import ROLE, describe
from tests.support.pages import Metrics
from tests.support.presets import FACTS, indexes, inspected, schema
from tests.support.queues import configuration, execute, query, read_once

PRESETS = sorted(FACTS)


def test_every_preset_has_its_facts() -> None:
    assert {*PRESETS, "lease", "none"} == set(preset_names())


@pytest.mark.parametrize("name", PRESETS)
async def test_a_preset_tells_every_state(newest_dsn: str, name: str) -> None:
    facts = FACTS[name]
    execute(newest_dsn, schema(name), *facts.rows)
    queue = f"name: q\ntable: {facts.table}\npreset: {name}"
    page = await read_once(configuration(newest_dsn, queue))
    assert {value for _, value in page.all("up")} == {1}, page.text
    assert _statuses(page) == facts.statuses
    assert _highest(page, "oldest_ready_age_seconds") == pytest.approx(facts.ready_age, abs=5)
    task_age = _highest(page, "oldest_task_age_seconds")
    assert task_age is not None
    assert task_age >= facts.ready_age - 1
    running = _highest(page, "oldest_processing_age_seconds")
    if facts.running_age is None:
        assert running is None
    else:
        assert running == pytest.approx(facts.running_age, abs=5)
    if "expired" in facts.statuses:
        assert (_highest(page, "oldest_expired_age_seconds") or 0) > 0
    else:
        assert _highest(page, "oldest_expired_age_seconds") is None
    assert _highest(page, "attempts_max") == facts.attempts_max
    failed = page.all("recently_failed_tasks")
    assert (sum(value for _, value in failed) if failed else None) == facts.failed


@pytest.mark.parametrize("name", PRESETS)
async def test_nothing_waits_in_an_empty_table(newest_dsn: str, name: str) -> None:
    execute(newest_dsn, schema(name))
    queue = f"name: q\ntable: {FACTS[name].table}\npreset: {name}"
    page = await read_once(configuration(newest_dsn, queue))
    assert _statuses(page) == {}
    assert {value for _, value in page.all("poll_errors_total")} <= {0.0}


@pytest.mark.parametrize("name", PRESETS)
async def test_metrics_that_a_preset_calls_absent_are(newest_dsn: str, name: str) -> None:
    facts = FACTS[name]
    execute(newest_dsn, schema(name), *facts.rows)
    queue = f"name: q\ntable: {facts.table}\npreset: {name}\nnew_series_hold: 0s"
    page = await read_once(configuration(newest_dsn, queue))
    preset = load_preset(name)
    for metric in (*preset.absent, *preset.unserved):
        assert not page.all(metric), metric


@pytest.mark.parametrize("name", PRESETS)
async def test_discovery_knows_each_library(newest_dsn: str, name: str) -> None:
    execute(newest_dsn, schema(name), *FACTS[name].rows)
    page = await read_once(f"databases:\n  main:\n    dsn: {newest_dsn}\n", search=True)
    assert {labels["preset"] for labels, _ in page.all("info")} == {name}
    assert len({labels["table"] for labels, _ in page.all("info")}) == 1


@pytest.mark.parametrize("name", PRESETS)
async def test_the_documented_indexes_serve(newest_dsn: str, name: str) -> None:
    execute(newest_dsn, schema(name))
    found = await inspected(newest_dsn, name)
    assert not found.missing
    written = cast(dict[str, dict[str, list[str]]], yaml.safe_load(ACCESSES.read_text("utf-8")))
    assert indexes(newest_dsn, found) == written[name], "run make generate-presets"


async def test_row_level_security_is_said_and_not_read_as_empty(newest_dsn: str) -> None:
    name = "graphile-worker"
    role = "watcher_of_rows"
    table = FACTS[name].table
    execute(
        newest_dsn,
        schema(name),
        *FACTS[name].rows,
        f"DROP ROLE IF EXISTS {role}",
        f"CREATE ROLE {role} LOGIN",
        f"GRANT USAGE ON SCHEMA graphile_worker TO {role}",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA graphile_worker TO {role}",
    )
    dsn = newest_dsn.replace("postgres@", f"{role}@")
    queue = f"name: q\ntable: {table}\npreset: {name}"
    page = await read_once(configuration(dsn, queue))
    assert page.value("up") == 0
    assert page.value("poll_errors_total", reason="permission") == 1
    assert page.value("tasks", status="ready") is None, "0 would be false"
    hidden = query(newest_dsn, "SELECT oid::regclass::text FROM pg_class WHERE relrowsecurity")
    for (table_name,) in hidden:
        policy = f"CREATE POLICY seen ON {table_name} FOR SELECT TO {role} USING (true)"
        execute(newest_dsn, policy)
    page = await read_once(configuration(dsn, queue))
    assert page.value("up") == 1
    assert page.value("tasks", status="ready") == 2
    execute(newest_dsn, f"DROP OWNED BY {role}", f"DROP ROLE {role}")


async def test_every_number_of_waiting_tasks_leaves_the_main_age_exact(newest_dsn: str) -> None:
    """30,000 tasks of a high priority in front, and the oldest one behind them."""
    name = "river"
    execute(
        newest_dsn,
        schema(name),
        "INSERT INTO river_job (state, queue, kind, priority, scheduled_at, created_at)"
        " SELECT 'available', 'q', 'k', 1, now() - interval '9 s', now() - interval '9 s'"
        " FROM generate_series(1, 30000)",
        "INSERT INTO river_job (state, queue, kind, priority, scheduled_at, created_at)"
        " VALUES ('retryable', 'q', 'k', 4, now() - interval '77 s', now() - interval '99 s')",
        "ANALYZE river_job",
    )
    queue = f"name: q\ntable: river_job\npreset: {name}"
    page = await read_once(configuration(newest_dsn, queue))
    assert page.value("tasks", status="ready") == 30_001
    assert page.value("oldest_ready_age_seconds") == pytest.approx(77, abs=5)
    assert page.value("oldest_task_age_seconds") is None, "more wait than can be looked at"


async def test_claimed_tasks_that_no_index_finds_are_bounded_and_said(newest_dsn: str) -> None:
    name, table = "graphile-worker", FACTS["graphile-worker"].table
    execute(
        newest_dsn,
        schema(name),
        f"INSERT INTO {table} (task_id) SELECT 1 FROM generate_series(1, 1000)",
        f"INSERT INTO {table} (task_id, attempts, locked_at)"
        " SELECT 1, 1, now() - interval '10 s' FROM generate_series(1, 3)",
    )
    queue = f"name: q\ntable: {table}\npreset: {name}\ncount_limit: 500"
    page = await read_once(configuration(newest_dsn, queue))
    assert page.value("up") == 1
    assert page.value("oldest_processing_age_seconds") is None, "not all rows were looked at"
    assert page.value("tasks", status="processing") in (0, None)
    index = f"CREATE INDEX ON {table} (locked_at) WHERE locked_at IS NOT NULL"
    execute(newest_dsn, index)
    page = await read_once(configuration(newest_dsn, queue))
    assert page.value("tasks", status="processing") == 3
    assert page.value("oldest_processing_age_seconds") == pytest.approx(10, abs=5)


@pytest.mark.parametrize("name", PRESETS)
async def test_the_printed_grants_are_enough(newest_dsn: str, name: str) -> None:
    facts = FACTS[name]
    execute(newest_dsn, schema(name), *facts.rows)
    queue = f"name: q\ntable: {facts.table}\npreset: {name}"
    config = parse_config(configuration(newest_dsn, queue), environment={})
    printed = await describe(config, None, offline=False)
    grants = [line for line in printed.splitlines() if line.startswith("GRANT ")]
    if not query(newest_dsn, f"SELECT 1 FROM pg_roles WHERE rolname = '{ROLE}'"):
        execute(newest_dsn, f"CREATE ROLE {ROLE} LOGIN BYPASSRLS")
    execute(newest_dsn, *grants)
    page = await read_once(configuration(newest_dsn.replace("postgres@", f"{ROLE}@"), queue))
    assert {value for _, value in page.all("up")} == {1}, page.text
    assert _statuses(page) == facts.statuses


ADDED = {
    "procrastinate": (
        "procrastinate_events (at) WHERE type IN ('succeeded', 'failed', 'cancelled', 'aborted')",
        "procrastinate_events (at) WHERE type = 'failed'",
    ),
    "chancy": ("chancy_jobs (completed_at)", "chancy_jobs (completed_at) WHERE state = 'failed'"),
    "django-tasks-db": (
        "django_tasks_database_dbtaskresult (finished_at)",
        "django_tasks_database_dbtaskresult (finished_at) WHERE status = 'FAILED'",
    ),
    "pg-boss": (
        "pgboss.job (completed_on)",
        "pgboss.job (completed_on) WHERE state = 'failed'",
    ),
    "oban": ("oban_jobs (state, completed_at)", "oban_jobs (state, discarded_at)"),
}
"""The indexes that the presets' notes name."""


@pytest.mark.parametrize("name", ADDED)
async def test_an_added_index_gives_what_the_notes_say(newest_dsn: str, name: str) -> None:
    execute(newest_dsn, schema(name), *(f"CREATE INDEX ON {index}" for index in ADDED[name]))
    accesses = (await inspected(newest_dsn, name)).shape.accesses
    assert Access.FAILED_BY_FINISH in accesses
    assert {Access.FINISHED_BY_TIME, Access.FINISHED_BY_OUTCOME} & accesses


OUTBOXES = {
    "a nullable stamp": (
        "created_at timestamptz, published_at timestamptz",
        "(now() - interval '60 s', NULL), (now() - interval '70 s', now())",
        "enqueued_at: created_at\nwaiting: published_at IS NULL"
        "\nfinished_at: published_at\ndone: published_at IS NOT NULL",
    ),
    "Spring Modulith": (
        "publication_date timestamptz, completion_date timestamptz",
        "(now() - interval '60 s', NULL), (now() - interval '70 s', now())",
        "enqueued_at: publication_date\nwaiting: completion_date IS NULL"
        "\nfinished_at: completion_date\ndone: completion_date IS NOT NULL",
    ),
    "a boolean": (
        "created_at timestamptz, published boolean",
        "(now() - interval '60 s', false), (now() - interval '70 s', true)",
        "enqueued_at: created_at\nwaiting: published = false",
    ),
    "a status": (
        "created_at timestamptz, status text",
        "(now() - interval '60 s', 'PENDING'), (now() - interval '70 s', 'SENT')",
        "enqueued_at: created_at\nwaiting: status = 'PENDING'",
    ),
}
"""Shapes of an outbox that are overrides: columns, rows, and what its note says to write."""


@pytest.mark.parametrize("shape", OUTBOXES)
async def test_outboxes_of_other_shapes(newest_dsn: str, shape: str) -> None:
    columns, rows, overrides = OUTBOXES[shape]
    execute(newest_dsn, f"CREATE TABLE box ({columns})", f"INSERT INTO box VALUES {rows}")
    queue = f"name: q\ntable: box\npreset: none\n{overrides}"
    page = await read_once(configuration(newest_dsn, queue))
    assert _statuses(page) == {"ready": 1}
    assert page.value("oldest_ready_age_seconds") == pytest.approx(60, abs=5)


async def test_a_standby_cannot_read_unlogged_tables(newest_server: LocalServer) -> None:
    """Chancy keeps its workers' heartbeats in one: nothing is expired there, the rest is read."""
    name = "chancy"
    with LocalServer(newest_server.bin_dir) as primary:
        dsn = primary.create_database("queue")
        execute(dsn, schema(name), *FACTS[name].rows)
        queue = f"name: q\ntable: {FACTS[name].table}\npreset: {name}"
        with LocalServer.standby_of(primary) as standby:
            page = await read_once(configuration(standby.dsn("queue"), queue))
    assert {value for _, value in page.all("up")} == {1}, page.text
    assert _statuses(page) == {"ready": 2, "delayed": 1, "processing": 2}
    assert not page.all("tasks", status="expired")


def _statuses(page: Metrics) -> dict[str, float]:
    sums: dict[str, float] = {}
    for labels, value in page.all("tasks"):
        sums[labels["status"]] = sums.get(labels["status"], 0) + value
    return {status: value for status, value in sums.items() if value}


def _highest(page: Metrics, name: str) -> float | None:
    found = page.all(name)
    return max(value for _, value in found) if found else None
