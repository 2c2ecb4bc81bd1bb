"""``discover`` and what ``serve`` finds by itself."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import psycopg

from table_queue_exporter.app import Exporter
from table_queue_exporter.config import Config, load_config, parse_config
from table_queue_exporter.discover_command import discover_text
from table_queue_exporter.exposition import Format
from tests.support.pages import Metrics
from tests.support.queues import REFERENCE_SCHEMA, execute, query, read_once, until_ready

GUESSED = (
    "CREATE TYPE job_state AS ENUM ('queued', 'running', 'dead')",
    'CREATE SCHEMA "Odd $${HOME} Name"',
    'CREATE TABLE "Odd $${HOME} Name"."Jobs: #1" ("Id" int, kind text, "State" job_state,'
    ' attempts int, "user" text, created_at timestamptz)',
    "CREATE TABLE mail (id int, status text CHECK (status IN ('todo', 'it''s sent', 'failed')),"
    " run_at timestamptz, locked_until timestamptz, inserted_at timestamptz)",
    "CREATE TABLE numbered (state int, retry_count int, created timestamp)",
    "CREATE TABLE seen (status text, tries int, created_at timestamptz)",
    "INSERT INTO seen SELECT (ARRAY['PENDING', 'DONE'])[1 + i % 2], 0, now()"
    " FROM generate_series(1, 100) i",
    "ANALYZE seen",
    "CREATE TABLE timeless (status text, attempts int)",
)
NO_QUEUES = (
    "CREATE TABLE orders (id int, status text, created_at timestamptz)",
    "CREATE TABLE measured (state float8, attempts int, created_at timestamptz)",
    "CREATE TABLE parts (status text, attempts int, created_at timestamptz)"
    " PARTITION BY RANGE (created_at)",
    "CREATE TABLE parts_all PARTITION OF parts DEFAULT",
)


def config_of(dsn: str) -> Config:
    return parse_config(f"databases:\n  main:\n    dsn: {dsn}\n", environment={})


async def discovered(dsn: str) -> str:
    return await discover_text(config_of(dsn))


async def test_known_tables_are_active_and_serve_takes_the_file_as_it_stands(
    dsn: str, tmp_path: Path
) -> None:
    execute(
        dsn,
        REFERENCE_SCHEMA,
        'CREATE SCHEMA "Shop"',
        'CREATE TABLE "Shop"."Order $$1" (LIKE payment)',
        "CREATE SCHEMA other",
        "CREATE TABLE other.payment (LIKE payment) PARTITION BY LIST (status)",
        "CREATE TABLE other.payment_all PARTITION OF other.payment DEFAULT",
        f"CREATE TABLE {'x' * 63} (LIKE payment)",
        f"CREATE SCHEMA {'y' * 63}",
        f"CREATE TABLE {'y' * 63}.{'x' * 63} (LIKE payment)",
        "INSERT INTO payment (task_type) VALUES ('a')",
    )
    file = tmp_path / "found.yaml"
    file.write_text(await discovered(dsn))
    config = load_config(file)
    tables = {queue.name: queue.model().table.label for queue in config.queues}
    long = f"{'y' * 63}.{'x' * 63}"
    assert tables == {
        "payment": "public.payment",
        "Shop.Order $$1": "Shop.Order $$1",
        "other.payment": "other.payment",
        "x" * 63: f"public.{'x' * 63}",
        long[:100]: long,
    }
    assert {queue.preset for queue in config.queues} == {"lease"}
    page = await read_once(file.read_text())
    assert page.by("queue", "up") == dict.fromkeys(tables, 1)
    assert page.value("tasks", queue="payment", status="ready") == 1


async def test_guesses_are_commented_out_and_work_when_uncommented(
    dsn: str, tmp_path: Path
) -> None:
    execute(dsn, REFERENCE_SCHEMA, *GUESSED, *NO_QUEUES)
    text = await discovered(dsn)
    assert [queue.name for queue in parse_config(text, environment={}).queues] == ["payment"]
    reasons = re.findall(r"^  ## A guess: (.*)\.$", text, re.MULTILINE)
    assert reasons == [
        "Odd $${HOME} Name.Jobs: #1: State stands beside attempts",
        "public.mail: status stands beside locked_until, run_at",
        "public.numbered: state stands beside retry_count",
        "public.parts: status stands beside attempts",
        "public.seen: status stands beside tries",
        "public.timeless: status stands beside attempts, but no column tells when a task was"
        " enqueued",
    ]
    uncommented = re.sub(r"^  # (?=[-\s] )", "  ", text, flags=re.MULTILINE)
    file = tmp_path / "guesses.yaml"
    file.write_text(uncommented)
    queues = {queue.name: queue for queue in load_config(file).queues}
    assert queues["Odd $${HOME} Name.Jobs: #1"].waiting == ("\"State\" = 'queued'",)
    assert queues["mail"].waiting == ("status = 'todo'",)
    assert queues["mail"].lease_until == "locked_until"
    assert queues["mail"].failed == "status = 'failed'"
    assert queues["seen"].waiting == ("status = 'PENDING'",), (
        "the commonest values are in the catalog"
    )
    assert "## Nothing in the catalog proves waiting: correct it." in text
    page = await read_once(uncommented)
    assert page.by("queue", "up") == dict.fromkeys(queues, 1), "each fits its table"
    assert page.value("tasks", queue="seen", status="ready") == 50


async def test_nothing_found_is_said_and_still_a_configuration(dsn: str) -> None:
    execute(dsn, *NO_QUEUES[:2])
    text = await discovered(dsn)
    assert "queues:  # none of a known kind was found" in text
    assert parse_config(text, environment={}).queues == ()


async def test_a_password_is_never_printed(newest_dsn: str) -> None:
    text = await discovered(newest_dsn.replace("postgres@", "postgres:s3cret@"))
    assert "s3cret" not in text
    assert "# password_file: /run/secrets/database-password" in text
    assert parse_config(text, environment={}).databases


def test_discover_reads_the_catalog_only(newest_dsn: str) -> None:
    """A role that may read no table finds them all, while the tables are locked."""
    execute(
        newest_dsn,
        REFERENCE_SCHEMA,
        *GUESSED,
        "DO $$ BEGIN CREATE ROLE catalog_only LOGIN; EXCEPTION WHEN duplicate_object THEN END $$",
    )
    with psycopg.connect(newest_dsn) as holder:
        holder.execute("LOCK TABLE payment, mail IN ACCESS EXCLUSIVE MODE")
        dsn = newest_dsn.replace("postgres@", "catalog_only@")
        text = asyncio.run(discovered(dsn))
    assert "table: public.payment" in text
    assert "# - name: mail" in text


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  # the page is asked, as by Prometheus
            await asyncio.sleep(0.02)


async def test_serve_finds_a_table_that_is_made_later(dsn: str) -> None:
    execute(dsn, "CREATE TABLE unrelated (id int)")
    config = config_of(dsn)
    exporter = Exporter(lambda: config, search=True, search_interval=0.05)
    exporter.start()

    def page() -> Metrics:
        return Metrics(exporter.page.body(Format.TEXT).decode())

    try:
        await until_ready(exporter)
        assert page().all("tasks") == []
        execute(dsn, REFERENCE_SCHEMA, "INSERT INTO payment (task_type) VALUES ('a')")
        await until(lambda: page().value("tasks", queue="payment", status="ready") == 1)
        execute(dsn, "CREATE SCHEMA late", "CREATE TABLE late.mail (LIKE payment)")
        await until(lambda: page().value("up", queue="late.mail") == 1)
        assert query(
            dsn,
            "SELECT count(*) FROM pg_stat_activity WHERE datname ="
            " current_database() AND pid <> pg_backend_pid()",
        ) == [(1,)]
    finally:
        await exporter.stop()
