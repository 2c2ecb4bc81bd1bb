"""The indexes that the doctor prescribes: valid everywhere, and they help."""

import psycopg
import pytest

from table_queue_exporter.doctor.indexable import is_column, is_indexable
from tests.support.doctor import complaints, cure, examine, measured, pages, statements
from tests.support.queues import PAYMENT, REFERENCE_SCHEMA, execute, query

COLUMNS = (
    "id bigint, task_type {label}, status {type}, created_at {time}, attempts int,"
    " next_attempt_at {time}, claimed_until {time}, started_at {time}, finished_at {time}"
)
FINISHED = (
    "INSERT INTO payment SELECT i, 'type ' || i % 3, 'DONE', now(), 1, now(), NULL, now(),"
    " now() - i * interval '1 s' FROM generate_series(1, 20000) i"
)
LIVE = (
    "INSERT INTO payment SELECT -i, 'type ' || i % 3, 'NEW', now() - i * interval '1 s', 0, now()"
    " FROM generate_series(1, 30) i"
)


def table(type_: str = "text", *, time: str = "timestamptz", label: str = "text") -> str:
    return f"CREATE TABLE payment ({COLUMNS.format(type=type_, time=time, label=label)})"


async def test_the_printed_indexes_make_the_findings_go_away_and_the_pages_drop(dsn: str) -> None:
    execute(dsn, table(label="text NOT NULL"), FINISHED, LIVE, "ANALYZE payment")
    before = await examine(dsn)
    found = complaints(before)
    assert set(found) == {"missing_index"}
    prescribed = statements(before)
    assert prescribed[0] == (
        'CREATE INDEX CONCURRENTLY "payment_waiting_by_due" ON "public"."payment"'
        " (task_type, next_attempt_at) INCLUDE (attempts) WHERE status = 'NEW'"
    )
    assert len(prescribed) == 7
    whole = {cost.name: cost.scanned_bytes for cost in before.queues[0].statements}
    assert whole["waiting_ages_listed"] == query(dsn, "SELECT pg_relation_size('payment')")[0][0]
    first = found["missing_index"][0]
    cost = pages(before)["waiting_ages_listed"]
    assert f"waiting_ages_listed reads {cost} pages in " in first.why
    assert "with a sequential scan over 1.9 MB" in first.why
    assert "Its size would be about 16 kB" in first.why
    for statement in prescribed:
        execute(dsn, statement)
    after = await examine(dsn)
    assert complaints(after) == {}
    for name in ("waiting_ages", "waiting_counts", "in_flight"):
        assert pages(before)[name if name == "in_flight" else f"{name}_listed"] > 200
        assert pages(after)[name] < 30, name
    assert not any(cost.scanned for cost in after.queues[0].statements)
    assert {"oldest_task_age_seconds", "finished_total", "lease_reclaims_total"} <= (
        measured(after) - measured(before)
    )


async def test_the_size_is_estimated(dsn: str) -> None:
    execute(dsn, table(), FINISHED, "ANALYZE payment")
    report = await examine(dsn)
    sizes = {}
    for finding in complaints(report)["missing_index"]:
        amount, unit = finding.why.partition("about ")[2].split()
        name = finding.sql[0].split('"')[1]
        execute(dsn, finding.sql[0])
        said = float(amount) * {"bytes": 1, "kB": 1024, "MB": 1024**2}[unit]
        sizes[name] = said
        (real,) = query(dsn, f"SELECT pg_relation_size('{name}')")
        assert isinstance(real[0], int)
        assert real[0] <= said * 1.5 + 16_384
        assert real[0] >= said / 4 - 16_384, "equal keys are stored once, so it may be smaller"
    assert sizes["payment_finished"] > 10 * sizes["payment_failed"]


@pytest.mark.parametrize("kind", ["enum", "char(12)", "integer", "timestamp", "partitioned", "odd"])
async def test_every_statement_is_valid_whatever_the_table(dsn: str, kind: str) -> None:
    queue = PAYMENT
    if kind == "partitioned":
        execute(
            dsn,
            table() + " PARTITION BY LIST (task_type)",
            "CREATE TABLE payment_a PARTITION OF payment FOR VALUES IN ('a')"
            " PARTITION BY RANGE (created_at)",
            "CREATE TABLE payment_a_all PARTITION OF payment_a DEFAULT",
            'CREATE SCHEMA "Other"',
            'CREATE TABLE "Other".payment_waiting_by_age PARTITION OF payment DEFAULT',
            "CREATE TABLE payment_waiting_by_age (id int)",
        )
    elif kind == "odd":
        long = "ü" * 31
        execute(
            dsn,
            'CREATE SCHEMA "A ""b"""',
            table(label="varchar(20)").replace("payment", f'"A ""b"""."{long}"'),
        )
        queue = f'name: odd\ntable: \'"A ""b"""."{long}"\'\nqueue: coalesce(task_type, \'none\')'
        queue += "\ntask_type: lower(task_type)"
    elif kind == "enum":
        execute(
            dsn,
            "CREATE TYPE s AS ENUM ('NEW', 'PROCESSING', 'DONE', 'FAILED', 'CANCELLED')",
            table("s"),
        )
    elif kind == "integer":
        execute(dsn, table("int"))
        queue += (
            "\nwaiting: status = 0 AND attempts < 5\nprocessing: status IN (1, 2)"
            "\nfailed: status = 3\ndone: status = 4\ncancelled: null"
        )
    else:
        time = "timestamp" if kind == "timestamp" else "timestamptz"
        execute(dsn, table("text" if kind == "timestamp" else kind, time=time))
    report, run = await cure(dsn, queue)
    assert complaints(report) == {}
    assert len(run) >= 6
    assert {"finished_total", "oldest_task_age_seconds", "recently_failed_tasks"} <= measured(
        report
    )
    if kind == "partitioned":
        assert any("ATTACH PARTITION" in statement for statement in run)
        assert query(dsn, "SELECT count(*) FROM pg_index WHERE NOT indisvalid") == [(0,)]


async def test_what_no_index_can_hold_is_not_prescribed(dsn: str) -> None:
    execute(dsn, table())
    queue = PAYMENT + (
        "\nwaiting: status = 'NEW' AND created_at > now() - interval '1 day'"
        "\ntask_type: to_char(created_at, 'YYYY')\nfinished_at: created_at + interval '1 h'"
        "\nlease_until: null\nlease: 5m\nenqueued_at: created_at"
    )
    report = await examine(dsn, queue)
    indexes = [s for s in statements(report) if s.startswith("CREATE INDEX")]
    assert [s.split('"')[1] for s in indexes] == ["payment_enqueued"]
    for statement in statements(report):
        execute(dsn, statement)


async def test_an_index_that_the_planner_passes_over_is_not_prescribed_again(dsn: str) -> None:
    """While statistics say that no task waits, any small index looks as good as the right one."""
    execute(
        dsn,
        REFERENCE_SCHEMA,
        "INSERT INTO payment (task_type, status, finished_at) SELECT 'a', 'DONE', now()"
        " FROM generate_series(1, 1000)",
        "ANALYZE payment",
    )
    report = await examine(dsn)
    assert complaints(report) == {}
    assert "oldest_task_age_seconds" in measured(report)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("status", True),
        ("status = 'NEW'", True),
        ("status IN ('a', 'b') AND NOT held", True),
        ("lower(status) = 'new'", True),
        ("coalesce(status, 'x')", True),
        ("data ->> 'kind'", True),
        ("status = 'a - b::c'", True),
        ("created_at > now()", False),
        ("status::text = 'NEW'", False),
        ("status = 'NEW'::state", True),
        ("attempts + 1", False),
        ("created_at - interval '1 h'", False),
        ("created_at AT TIME ZONE 'UTC'", False),
        ("created_at < current_timestamp", False),
        ("no_such_column", False),
    ],
)
def test_what_an_index_may_hold(text: str, verdict: bool) -> None:
    columns = {"status", "held", "data", "created_at", "attempts"}
    assert is_indexable(text, columns, {"lower"}) is verdict


def test_what_is_just_a_column() -> None:
    assert is_column(' "Created At" ', {"Created At"})
    assert is_column("Status", {"status"})
    assert not is_column('"Status"', {"status"})
    assert not is_column("status = 'a'", {"status"})
    assert not is_column("'status'", {"status"})


async def test_indexes_that_are_invalid(dsn: str) -> None:
    """Made as they come about: CREATE INDEX CONCURRENTLY that fails, or is given up."""
    execute(
        dsn,
        REFERENCE_SCHEMA,
    )
    execute(dsn, "INSERT INTO payment (task_type) VALUES ('a'), ('a')")
    with pytest.raises(psycopg.errors.UniqueViolation):
        execute(dsn, "CREATE UNIQUE INDEX CONCURRENTLY broken ON payment (task_type)")
    with psycopg.connect(dsn) as holder:
        holder.execute("INSERT INTO payment (task_type) VALUES ('b')")
        with pytest.raises(psycopg.errors.QueryCanceled):
            execute(
                dsn + "?options=-cstatement_timeout%3D300ms",
                "REINDEX INDEX CONCURRENTLY payment_failed",
            )
    found = complaints(await examine(dsn))["invalid_index"]
    fixes = {finding.sql[0] for finding in found}
    assert fixes == {
        'REINDEX INDEX CONCURRENTLY "public"."broken"',
        'DROP INDEX CONCURRENTLY "public"."payment_failed_ccnew"',
    }
    execute(dsn, "UPDATE payment SET task_type = 'c' WHERE id = 1")
    for statement in fixes:
        execute(dsn, statement)
    assert complaints(await examine(dsn)) == {}


async def test_a_statement_that_does_not_end_in_time(dsn: str) -> None:
    execute(dsn, table(), FINISHED, "ANALYZE payment")
    execute(dsn, "UPDATE payment SET status = 'NEW' WHERE id < 100")
    report = await examine(
        dsn,
        PAYMENT + "\nwaiting: status = 'NEW' AND pg_sleep(0.01) IS NOT NULL",
        database="statement_timeout: 100ms",
    )
    failed = complaints(report)["statement_failed"]
    assert {f.what.split()[0] for f in failed} == {
        "waiting_ages_listed",
        "waiting_counts_listed",
    }
    assert "statement timeout" in failed[0].what
    costs = {cost.name: cost for cost in report.queues[0].statements}
    assert costs["waiting_ages_listed"].error
    assert costs["in_flight"].pages, "the others were examined all the same"
    for statement in statements(report):
        execute(dsn, statement)
