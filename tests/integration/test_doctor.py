"""What the doctor says of a queue: columns, rights, rows that are hidden, leases, labels."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from table_queue_exporter.config import parse_config
from table_queue_exporter.doctor.diagnosis import diagnose
from table_queue_exporter.doctor.findings import Report, Severity
from table_queue_exporter.doctor.report import ReportFormat, render
from tests.support.doctor import complaints, cure, examine, measured, statements
from tests.support.queues import PAYMENT, REFERENCE_SCHEMA, configuration, execute, query

BARE = (
    "CREATE TABLE payment (id int PRIMARY KEY, status text, created_at {time}, attempts int,"
    " next_attempt_at {time}, claimed_until {time})"
)
ROLE = "DO $$ BEGIN CREATE ROLE {name} LOGIN; EXCEPTION WHEN duplicate_object THEN END $$"


def as_role(dsn: str, name: str) -> str:
    """The DSN of a role that may do nothing but log in."""
    execute(dsn, ROLE.format(name=name))
    return dsn.replace("postgres@", f"{name}@")


async def test_a_queue_that_lacks_nothing(dsn: str) -> None:
    execute(dsn, REFERENCE_SCHEMA, "INSERT INTO payment (task_type) VALUES ('a')")
    report = await examine(dsn)
    assert report.healthy, report.findings
    assert statements(report) == []
    (queue,) = report.queues
    assert all(measurement.measured for measurement in queue.measurements)
    assert len(queue.measurements) >= 17
    names = {cost.name for cost in queue.statements}
    assert {"waiting_ages", "in_flight", "finished", "enqueued", "lease_watch", "table"} <= names
    assert all(cost.pages is not None and not cost.error for cost in queue.statements)


@pytest.mark.parametrize("time", ["timestamptz", "timestamp"])
async def test_missing_columns_with_the_statement_and_the_workers_line(dsn: str, time: str) -> None:
    execute(dsn, BARE.format(time=time), "INSERT INTO payment VALUES (1, 'NEW', now(), 0, now())")
    report = await examine(dsn)
    found = {f.what.partition(":")[0]: f for f in complaints(report)["missing_column"]}
    assert set(found) == {"task_type", "started_at", "finished_at"}
    assert found["started_at"].sql == (
        f'ALTER TABLE "public"."payment" ADD COLUMN "started_at" {time}',
    )
    assert found["started_at"].advice == (
        "worker: in the claim: UPDATE public.payment SET …, started_at = now() …",
    )
    assert "table_queue_processing_seconds" in found["finished_at"].why
    assert not measured(report) & {"finished_total", "oldest_processing_age_seconds"}
    (queue,) = report.queues
    reasons = {m.metric.removeprefix("table_queue_"): m.reason for m in queue.measurements}
    assert reasons["processing_seconds"] == "no finished_at, started_at"
    last, _ = await cure(dsn)
    assert last.healthy, last.findings
    assert {"finished_total", "oldest_processing_age_seconds"} <= measured(last)
    kinds = query(dsn, "SELECT DISTINCT atttypid::regtype::text FROM pg_attribute WHERE attrelid"
                  " = 'payment'::regclass AND attname LIKE '%ed_at'")  # fmt: skip
    assert len(kinds) == 1, "new times are of the kind that the table keeps already"


async def test_what_a_model_does_not_name_is_a_note(dsn: str) -> None:
    execute(
        dsn,
        "CREATE TABLE outbox (id int PRIMARY KEY, created timestamptz, published timestamptz,"
        " started_at timestamptz)",
        "CREATE INDEX ON outbox (created) WHERE published IS NULL",
        "CREATE INDEX ON outbox (created)",
    )
    queue = """
        name: outbox
        table: outbox
        preset: none
        id: id
        enqueued_at: created
        waiting: published IS NULL
        attempts: null
    """
    report = await examine(dsn, queue)
    assert report.healthy, report.findings
    notes = {f.what: f for f in report.findings if f.check == "unknown_column"}
    assert "the queue has no attempts" not in notes, "the user switched it off"
    assert notes["the queue has no started_at"].advice == (
        "in the configuration: started_at: started_at",
    )
    assert notes["the queue has no started_at"].sql == ()
    assert notes["the queue has no finished_at"].sql == (
        'ALTER TABLE "public"."outbox" ADD COLUMN "finished_at" timestamptz',
    )
    for statement in statements(report):
        execute(dsn, statement)


async def test_an_expression_of_the_users_that_does_not_fit(dsn: str) -> None:
    execute(dsn, REFERENCE_SCHEMA)
    report = await examine(dsn, PAYMENT + "\nstarted_at: began\nblocked: status + 1 > 2")
    found = {f.what.partition(":")[0]: f for f in complaints(report)["missing_column"]}
    assert found["started_at"].severity is Severity.ERROR
    assert found["started_at"].sql == (
        'ALTER TABLE "public"."payment" ADD COLUMN "began" timestamptz',
    )
    assert found["blocked"].sql == ()
    assert found["blocked"].advice == (
        "in the configuration: blocked: <an expression that fits, or null>",
    )
    assert "oldest_ready_age_seconds" in measured(report), "the rest is examined all the same"


async def test_a_required_expression_that_does_not_fit_and_tables_that_are_not_there(
    dsn: str,
) -> None:
    shop = BARE.format(time="timestamptz").replace("payment", '"Shop".payment')
    execute(dsn, 'CREATE SCHEMA "Shop"', shop)
    report = await examine(dsn)
    (finding,) = complaints(report)["no_table"]
    assert finding.why == 'a table of that name stands at "Shop"."payment"'
    (advice,) = finding.advice
    there = PAYMENT.replace("table: public.payment", advice.partition(": ")[2])
    assert "no_table" not in complaints(await examine(dsn, there))
    (finding,) = complaints(await examine(dsn, there + "\nwaiting: no_such_column"))["unreadable"]
    assert "waiting: " in finding.what
    assert "undefined_object" in finding.why


async def test_every_grant_that_is_missing(dsn: str) -> None:
    execute(
        dsn,
        "CREATE SCHEMA closed",
        "CREATE TABLE closed.payment (id int PRIMARY KEY, status text, created_at timestamptz,"
        " attempts int, next_attempt_at timestamptz, claimed_until timestamptz, secret text)",
        "INSERT INTO closed.payment VALUES (1, 'NEW', now(), 0, now(), NULL, 'x')",
    )
    reader = as_role(dsn, "closed_reader")
    queue = PAYMENT.replace("public", "closed")
    report = await examine(reader, queue)
    (finding,) = complaints(report)["privileges"]
    assert finding.sql[0] == 'GRANT USAGE ON SCHEMA "closed" TO "closed_reader"'
    assert finding.sql[1].startswith('GRANT SELECT ("id", "status", "created_at", ')
    assert "secret" not in finding.sql[1], "not a column more than is read"
    (statistics,) = complaints(report)["statistics_role"]
    assert statistics.sql == ('GRANT pg_read_all_stats TO "closed_reader"',)
    assert "events_exact 0" in statistics.why
    try:
        last, _ = await cure(reader, queue, owner=dsn)
        assert last.healthy, last.findings
    finally:
        execute(dsn, "REVOKE pg_read_all_stats FROM closed_reader")


async def test_row_level_security_that_hides_rows(dsn: str) -> None:
    reader = as_role(dsn, "row_reader")
    execute(
        dsn,
        REFERENCE_SCHEMA,
        "INSERT INTO payment (task_type) VALUES ('a')",
        "GRANT SELECT ON payment TO row_reader",
        "ALTER TABLE payment ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY theirs ON payment FOR SELECT USING (task_type = 'b')",
    )
    report = await examine(reader)
    (finding,) = complaints(report)["row_security"]
    assert "with no error" in finding.why
    assert query(reader, "SELECT count(*) FROM payment") == [(0,)]
    (statement,) = finding.sql
    execute(dsn, statement)
    assert query(reader, "SELECT count(*) FROM payment") == [(1,)]
    assert "row_security" not in complaints(await examine(reader))
    assert "row_security" not in complaints(await examine(dsn)), "it does not apply to the owner"
    execute(dsn, "CREATE POLICY narrow ON payment AS RESTRICTIVE USING (id > 5)")
    assert "row_security" in complaints(await examine(reader))


async def test_the_lease_against_the_processing_times_seen(dsn: str) -> None:
    execute(
        dsn,
        REFERENCE_SCHEMA,
        "INSERT INTO payment (task_type, status, started_at, finished_at) SELECT 'a', 'DONE',"
        " now() - i * interval '1 s', now() FROM generate_series(1, 100) i",
        "INSERT INTO payment (task_type, status, started_at, claimed_until) VALUES"
        " ('a', 'PROCESSING', now(), now() + interval '60 s')",
    )
    (finding,) = complaints(await examine(dsn))["lease"]
    assert finding.what == (
        "the lease of 1m is shorter than the work: of 100 tasks half took 50s, 99 % at most 1m39s,"
        " the longest 1m40s"
    )
    assert "a lease of 5m fits, with up to 1 tasks a worker at once" in finding.why
    assert finding.advice == (
        "worker: in the claim: now() + interval '300 seconds'",
        "in the configuration: lease: 5m",
    )
    report = await examine(dsn, PAYMENT + "\nlease: 20m")
    assert report.healthy
    (note,) = [f for f in report.findings if f.check == "lease"]
    assert "up to 6 tasks at once" in note.why
    (note,) = [
        f for f in (await examine(dsn, PAYMENT + "\nlease: 2h")).findings if f.check == "lease"
    ]
    assert "a dead worker's tasks wait that long; 5m would do" in note.why


async def test_an_interval_too_long_for_the_lease(dsn: str) -> None:
    execute(dsn, REFERENCE_SCHEMA)
    (finding,) = complaints(await examine(dsn, PAYMENT + "\nlease: 20s"))["interval"]
    assert finding.what == "the interval of 15s is long for a lease of 20s"
    assert finding.advice == ("in the configuration: interval: 10s",)
    assert (await examine(dsn, PAYMENT + "\nlease: 20s\ninterval: 10s")).healthy


async def test_label_counts_against_their_caps(dsn: str) -> None:
    execute(
        dsn,
        REFERENCE_SCHEMA,
        "INSERT INTO payment (task_type) SELECT 'type ' || i FROM generate_series(1, 5) i",
        "INSERT INTO payment (task_type, status, claimed_until, started_at)"
        " VALUES ('other', 'PROCESSING', now() + interval '1 h', now())",
    )
    (finding,) = complaints(await examine(dsn, PAYMENT + "\nmax_task_types: 5"))["labels"]
    assert finding.what == "6 task types among live tasks, and max_task_types is 5"
    report = await examine(dsn, PAYMENT + "\nmax_task_types: 6")
    assert report.healthy
    assert [f.check for f in report.findings if f.queue is not None] == ["labels"]
    assert not [f for f in (await examine(dsn)).findings if f.check == "labels"]


async def test_rows_from_the_future(dsn: str) -> None:
    execute(
        dsn,
        REFERENCE_SCHEMA,
        "INSERT INTO payment (task_type, created_at) VALUES ('a', now() + interval '1 h')",
    )
    (finding,) = complaints(await examine(dsn))["future"]
    assert finding.what in (
        f"the newest task was enqueued {seconds} s in the future" for seconds in (3600, 3599, 3598)
    )


# --- the command ---------------------------------------------------------------------------------


def doctor(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "table_queue_exporter", "doctor", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "COLUMNS": "200"},
    )


def test_the_command_its_formats_and_exit_codes(newest_dsn: str, tmp_path: Path) -> None:
    execute(
        newest_dsn, REFERENCE_SCHEMA, "CREATE SCHEMA x", "CREATE TABLE x.payment (LIKE payment)"
    )
    by_dsn = f"--database.dsn={newest_dsn}"
    fine = doctor(by_dsn, "--queue=payment")
    assert (fine.returncode, fine.stderr) == (0, "")
    assert "Queue payment (public.payment)" in fine.stdout
    assert "x.payment" not in fine.stdout
    both = doctor(by_dsn)
    assert both.returncode == 1
    assert "Queue x.payment (x.payment)" in both.stdout
    assert '          CREATE INDEX CONCURRENTLY "payment_waiting_by_due" ON "x"."payment" ' in (
        both.stdout
    )
    file = tmp_path / "config.yaml"
    file.write_text(configuration(newest_dsn, PAYMENT, "name: x\ntable: x.payment"))
    machine = doctor(f"--config.file={file}", "--format=json")
    assert machine.returncode == 1
    report = json.loads(machine.stdout)
    assert report["healthy"] is False
    assert [queue["queue"] for queue in report["queues"]] == ["payment", "x"]
    assert {"severity", "check", "database", "queue", "what", "why", "sql", "advice"} == set(
        report["findings"][0]
    )
    assert {f["queue"] for f in report["findings"] if f["severity"] == "warning"} == {"x"}
    wrong = doctor(by_dsn, "--queue=mail")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "no queue 'mail'; known: payment, x.payment" in wrong.stderr


async def test_a_database_that_does_not_answer_is_a_finding(newest_dsn: str) -> None:
    gone = newest_dsn.rpartition("/")[0] + "/no_such_database"
    (finding,) = complaints(await examine(gone))["connection"]
    assert "no_such_database" in finding.what
    empty = parse_config(f"databases:\n  main:\n    dsn: {newest_dsn}\n", environment={})
    assert set(complaints(await diagnose(empty, search=True))) == {"no_queues"}


async def test_the_table_shows_whole_statements_and_no_control_characters(dsn: str) -> None:
    execute(dsn, 'CREATE TABLE "pay\x1bment" (id int, status text, created_at timestamptz)')
    queue = 'name: odd\ntable: "\\"pay\\ement\\""'
    report: Report = await examine(dsn, queue)
    text = render(report, ReportFormat.TABLE)
    assert "\x1b" not in text
    assert r"pay\x1bment" in text
    assert json.loads(render(report, ReportFormat.JSON))["queues"][0]["table"] == (
        "public.pay\x1bment"
    )


async def test_nothing_is_changed(dsn: str) -> None:
    """A role that can only read sees the same, and no relation or setting is other than before."""
    execute(dsn, BARE.format(time="timestamptz"), "INSERT INTO payment VALUES (1, 'NEW', now())")
    state = (
        "SELECT (SELECT array_agg(relname || coalesce(reloptions::text, '') ORDER BY relname)"
        " FROM pg_class WHERE relkind IN ('r', 'i')), (SELECT array_agg(p::text) FROM payment p)"
    )
    before = query(dsn, state)
    assert statements(await examine(dsn))
    assert query(dsn, state) == before
    execute(dsn, "ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
    try:
        assert statements(await examine(dsn))
    finally:
        with_write = dsn + "?options=-cdefault_transaction_read_only%3Doff"
        execute(with_write, "ALTER SYSTEM RESET default_transaction_read_only")
        execute(with_write, "SELECT pg_reload_conf()")
