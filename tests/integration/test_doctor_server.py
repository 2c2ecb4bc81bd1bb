"""What the doctor says of the server: dead rows, held horizons, poolers, standbys, versions."""

import dataclasses
from collections.abc import Iterator

import psycopg
import pytest

from table_queue_exporter.config import parse_config
from table_queue_exporter.demo.server import LocalServer
from table_queue_exporter.doctor.diagnosis import diagnose
from table_queue_exporter.doctor.findings import Severity
from table_queue_exporter.doctor.server import Server, server_findings
from table_queue_exporter.doctor.vacuum import Holder, judge_holders
from tests.support.doctor import complaints, cure, examine, statements
from tests.support.pooler import pgbouncer
from tests.support.processes import wait_until
from tests.support.queues import PAYMENT, REFERENCE_SCHEMA, configuration, execute, query

LAZY = (
    REFERENCE_SCHEMA,
    "ALTER TABLE payment RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold)",
)
MANY = (
    "INSERT INTO payment (task_type, status, finished_at) SELECT 'a', 'DONE', now()"
    " FROM generate_series(1, {rows})"
)


@pytest.fixture(scope="module")
def holding_server() -> Iterator[LocalServer]:
    """A server that may prepare transactions, and stream."""
    with LocalServer(settings={"max_prepared_transactions": "4"}) as server:
        yield server


async def test_autovacuum_that_is_too_lazy_for_a_queue(dsn: str) -> None:
    execute(dsn, *LAZY, MANY.format(rows=100_001), "ANALYZE payment")
    (finding,) = complaints(await examine(dsn))["autovacuum_lazy"]
    assert finding.what == "autovacuum comes to public.payment after 20,050 dead rows"
    (statement,) = finding.sql
    execute(dsn, statement)
    assert complaints(await examine(dsn)) == {}
    (options,) = query(dsn, "SELECT reloptions::text FROM pg_class WHERE relname = 'payment'")
    assert "autovacuum_vacuum_threshold=5000" in str(options[0])
    assert "fillfactor=70" in str(options[0]), "what else was set stays"


async def test_autovacuum_that_is_off_and_a_partition_of_its_own(dsn: str) -> None:
    columns = REFERENCE_SCHEMA.partition("CREATE TABLE payment (")[2].partition("CONSTRAINT")[0]
    columns = columns.rstrip().rstrip(",").replace(" PRIMARY KEY", "")
    execute(
        dsn,
        f"CREATE TABLE payment ({columns}) PARTITION BY LIST (task_type)",
        "CREATE TABLE payment_a PARTITION OF payment FOR VALUES IN ('a')",
        "CREATE TABLE payment_b PARTITION OF payment FOR VALUES IN ('b')"
        " WITH (autovacuum_enabled = off)",
        MANY.format(rows=100_001),
        "ANALYZE payment",
    )
    found = complaints(await examine(dsn))
    assert [f.sql for f in found["autovacuum_off"]] == [
        ('ALTER TABLE "public"."payment_b" SET (autovacuum_enabled = true)',)
    ]
    assert [f.what for f in found["autovacuum_lazy"]] == [
        "autovacuum comes to public.payment_a after 20,050 dead rows"
    ]
    last, _ = await cure(dsn)
    assert complaints(last) == {}


async def test_dead_rows_that_vacuum_did_not_remove(dsn: str) -> None:
    execute(
        dsn,
        REFERENCE_SCHEMA,
        "ALTER TABLE payment SET (autovacuum_vacuum_threshold = 9000)",
        MANY.format(rows=30_000),
        "ANALYZE payment",
    )
    with psycopg.connect(dsn) as holder:
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT 1")
        execute(dsn, "UPDATE payment SET attempts = 1")
        dead = "SELECT n_dead_tup >= 20000 FROM pg_stat_user_tables WHERE relname = 'payment'"
        wait_until(lambda: query(dsn, dead) == [(True,)], "the statistics to say so")
        report = await examine(dsn)
        (finding,) = complaints(report)["dead_rows"]
        assert finding.what == "public.payment holds 30,000 dead rows"
        assert [f for f in report.findings if f.check == "xmin_horizon"], "and who holds them"
    for statement in finding.sql:
        execute(dsn, statement)
    wait_until(lambda: query(dsn, dead) == [(False,)], "the statistics to say so")
    assert "dead_rows" not in complaints(await examine(dsn))


async def test_who_holds_the_xmin_horizon_now(holding_server: LocalServer) -> None:
    dsn = holding_server.create_database("holders")
    execute(dsn, REFERENCE_SCHEMA)
    with psycopg.connect(dsn, application_name="night's report") as preparing:
        preparing.execute("INSERT INTO payment (task_type) VALUES ('a')")
        preparing.execute("PREPARE TRANSACTION 'for''gotten'")
    holder = psycopg.connect(dsn, application_name="night's report")
    holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    holder.execute("SELECT 1")
    pid = holder.info.backend_pid
    report = await examine(dsn)
    found = [f for f in report.findings if f.check == "xmin_horizon"]
    assert [f.severity for f in found] == [Severity.NOTE, Severity.NOTE], "it has just begun"
    assert found[0].what.startswith(
        f"the session {pid} (postgres, night's report, idle in transaction) holds the xmin horizon"
    )
    assert [f.sql for f in found] == [
        (f"SELECT pg_terminate_backend({pid})",),
        ("ROLLBACK PREPARED 'for''gotten'",),
    ]
    for statement in statements(report):
        execute(dsn, statement)
    holder.close()
    assert not [f for f in (await examine(dsn)).findings if f.check == "xmin_horizon"]


def test_a_long_hold_is_a_warning_and_a_standby_cannot_be_ended() -> None:
    holders = [
        Holder("session", "7", "app", 10, 301.0),
        Holder("slot", "it's", "unused", 2_000_000, None),
        Holder("slot", "busy", "in use", 5, None, can_be_ended=False),
        Holder("standby", "9", "replica", 5, None, can_be_ended=False),
    ]
    found = judge_holders("main", holders)
    warning, note = Severity.WARNING, Severity.NOTE
    assert [f.severity for f in found] == [warning, warning, note, note]
    assert "for 5m1s, 10 transactions back" in found[0].what
    assert found[1].sql == ("SELECT pg_drop_replication_slot('it''s')",)
    assert found[2].sql == found[3].sql == ()


@pytest.mark.parametrize(("mode", "size"), [("transaction", 1), ("transaction", 3), ("session", 3)])
async def test_the_mode_of_a_pooler(newest_server: LocalServer, mode: str, size: int) -> None:
    with pgbouncer(newest_server, mode, size) as pooled:
        dsn = pooled.rpartition("/")[0] + "/pooled"
        if not query(newest_server.dsn(), "SELECT FROM pg_database WHERE datname = 'pooled'"):
            newest_server.create_database("pooled")
            execute(newest_server.dsn("pooled"), REFERENCE_SCHEMA)
        report = await examine(dsn)
        (note,) = [f for f in report.findings if f.check == "pooler"]
        assert note.what == f"a pooler in {mode} mode stands between"
        assert complaints(report) == {}
    direct = await examine(newest_server.dsn("pooled"))
    assert not [f for f in direct.findings if f.check == "pooler"]


async def test_a_standby(holding_server: LocalServer) -> None:
    dsn = holding_server.create_database("replicated")
    execute(dsn, REFERENCE_SCHEMA, "INSERT INTO payment (task_type) VALUES ('a')")
    with LocalServer.standby_of(holding_server) as standby:
        report = await examine(standby.dsn("replicated"))
        (note,) = [f for f in report.findings if f.check == "server"]
        assert "a standby" in note.what
        assert "events_exact is 0" in note.why
        assert complaints(report) == {}
        assert report.queues[0].statements[0].pages


SERVER = Server(
    version_number=180000,
    version="18.0",
    in_recovery=False,
    role="monitor",
    sees_sessions=True,
    clock_ahead=0.0,
    pooler=None,
)


def test_a_server_that_is_too_old_and_a_clock_that_differs() -> None:
    assert [f.check for f in server_findings("main", SERVER)] == ["server"]
    old = dataclasses.replace(SERVER, version_number=120022, version="12.22")
    (finding,) = [f for f in server_findings("main", old) if f.severity is Severity.ERROR]
    assert finding.what == "PostgreSQL 12.22 is not supported"
    for ahead, side in ((3.0, "ahead of"), (-3.0, "behind")):
        differing = dataclasses.replace(SERVER, clock_ahead=ahead)
        (finding,) = [f for f in server_findings("main", differing) if f.check == "clock"]
        assert finding.what == f"the server's clock is 3.0 s {side} this machine's"


async def test_each_queue_of_a_broken_pair_is_examined(dsn: str) -> None:
    execute(dsn, REFERENCE_SCHEMA)
    text = configuration(dsn, "name: gone\ntable: gone", PAYMENT)
    report = await diagnose(parse_config(text, environment={}))
    assert [queue.queue for queue in report.queues] == ["gone", "payment"]
    assert report.queues[1].measurements
    assert set(complaints(report)) == {"no_table"}
