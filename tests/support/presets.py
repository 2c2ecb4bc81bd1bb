"""Tables of the queue libraries as their own installation makes them, and rows in every state."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from table_queue_exporter.access import Access
from table_queue_exporter.config import parse_config
from table_queue_exporter.inspection import Inspection, inspect, probes
from table_queue_exporter.postgres import Connection, Session

from .queues import configuration

HERE = Path(__file__).parent / "libraries"
SETTINGS = (
    "enable_seqscan=off",
    "enable_bitmapscan=off",
    "enable_sort=off",
    "enable_incremental_sort=off",
)


@dataclass(frozen=True)
class Facts:
    """A library's table, and statements that fill it.

    The rows: ready since 60 s (enqueued then) and since 50 s; delayed; running since 10 s; lost,
    its lease over, since long; given up; done. ``statuses`` is how the preset must tell them.
    """

    table: str
    rows: tuple[str, ...]
    statuses: dict[str, float] = field(
        default_factory=lambda: {"ready": 2, "delayed": 1, "processing": 1, "expired": 1}
    )
    ready_age: float = 60
    running_age: float | None = 10
    failed: float | None = None
    attempts_max: float | None = None


NOW = "timezone('UTC', now())"


def _ago(seconds: int, now: str = "now()") -> str:
    return f"{now} - interval '{seconds} s'"


def schema(name: str) -> str:
    """The statements that make a library's tables."""
    return (HERE / f"{name}.sql").read_text(encoding="utf-8")


def _event(job: int, kind: str, seconds: int) -> str:
    return (
        f"INSERT INTO procrastinate_events (job_id, type, at) VALUES ({job}, '{kind}', "
        f"{_ago(seconds)})"
    )


FACTS = {
    "procrastinate": Facts(
        "procrastinate_jobs",
        (
            f"INSERT INTO procrastinate_workers (last_heartbeat) VALUES ({_ago(5)}), ({_ago(45)})",
            "INSERT INTO procrastinate_jobs"
            " (queue_name, task_name, status, scheduled_at, attempts, worker_id, lock) VALUES "
            "('a', 't', 'todo', NULL, 0, NULL, NULL), ('a', 't', 'todo', NULL, 2, NULL, NULL),"
            "('a', 't', 'todo', now() + interval '1 h', 0, NULL, NULL),"
            "('a', 't', 'doing', NULL, 0, 1, 'l'), ('b', 't', 'doing', NULL, 0, 2, NULL),"
            "('b', 't', 'failed', NULL, 1, 2, NULL), ('b', 't', 'succeeded', NULL, 1, 1, NULL),"
            "('a', 't', 'todo', NULL, 0, NULL, 'l')",
            *(_event(job, "deferred", 70 - 10 * job) for job in (1, 2, 3, 4, 5, 6, 7)),
            _event(8, "deferred", 5),
            "UPDATE procrastinate_events SET at = now() - interval '60 s' WHERE job_id = 1",
            _event(4, "started", 10),
            _event(5, "started", 50),
        ),
        {"ready": 2, "delayed": 1, "blocked": 1, "processing": 1, "expired": 1},
        attempts_max=2,
    ),
    "pgqueuer": Facts(
        "pgqueuer",
        (
            "INSERT INTO pgqueuer (priority, status, entrypoint, created, updated, heartbeat,"
            " execute_after, attempts) VALUES "
            f"(0, 'queued', 'a', {_ago(60)}, now(), now(), {_ago(60)}, 0),"
            f"(0, 'queued', 'a', {_ago(70)}, now(), now(), {_ago(50)}, 3),"
            f"(0, 'queued', 'a', {_ago(70)}, now(), now(), now() + interval '1 h', 0),"
            f"(0, 'picked', 'b', {_ago(70)}, {_ago(10)}, {_ago(1)}, {_ago(70)}, 0),"
            f"(0, 'picked', 'b', {_ago(70)}, {_ago(60)}, {_ago(60)}, {_ago(70)}, 0),"
            f"(0, 'failed', 'b', {_ago(70)}, {_ago(60)}, {_ago(60)}, {_ago(70)}, 0)",
        ),
        attempts_max=3,
    ),
    "chancy": Facts(
        "chancy_jobs",
        (
            "INSERT INTO chancy_workers (worker_id, last_seen, expires_at)"
            f" VALUES ('w', {_ago(5)}, now()), ('dead', {_ago(100)}, now())",
            "INSERT INTO chancy_jobs"
            " (id, queue, func, state, attempts, max_attempts, taken_by, created_at, started_at,"
            " scheduled_at) VALUES "
            f"(gen_random_uuid(), 'a', 'f', 'pending', 0, 3, NULL, {_ago(60)}, NULL, {_ago(61)}),"
            f"(gen_random_uuid(), 'a', 'f', 'retrying', 2, 3, 'w', {_ago(90)}, NULL, {_ago(50)}),"
            f"(gen_random_uuid(), 'a', 'f', 'pending', 0, 3, NULL, {_ago(60)}, NULL,"
            " now() + interval '1 h'),"
            f"(gen_random_uuid(), 'b', 'f', 'running', 0, 3, 'w', {_ago(60)}, {_ago(10)}, now()),"
            f"(gen_random_uuid(), 'b', 'f', 'running', 0, 3, 'dead', {_ago(60)}, {_ago(50)},"
            " now()),"
            f"(gen_random_uuid(), 'b', 'f', 'failed', 3, 3, 'w', {_ago(60)}, {_ago(50)}, now()),"
            f"(gen_random_uuid(), 'b', 'f', 'succeeded', 1, 3, 'w', {_ago(60)}, {_ago(50)}, now())",
        ),
        attempts_max=2,
    ),
    "django-tasks-db": Facts(
        "django_tasks_database_dbtaskresult",
        (
            "INSERT INTO django_tasks_database_dbtaskresult (id, status, args_kwargs, priority,"
            " task_path, queue_name, backend_name, run_after, enqueued_at, started_at,"
            " finished_at, exception_class_path, traceback, worker_ids)"
            " SELECT gen_random_uuid(), status, '{}', 0, 'p', 'default', 'default', run_after, e,"
            " s, f, '', '', w::jsonb FROM (VALUES "
            f"('READY', '9999-01-01Z'::timestamptz, {_ago(60)}, NULL::timestamptz,"
            " NULL::timestamptz, '[]'),"
            f"('READY', {_ago(50)}, {_ago(90)}, NULL, NULL, '[]'),"
            f"('READY', now() + interval '1 h', {_ago(50)}, NULL, NULL, '[]'),"
            f"('RUNNING', '9999-01-01Z', {_ago(50)}, {_ago(10)}, NULL, '[\"w\"]'),"
            f"('FAILED', '9999-01-01Z', {_ago(50)}, {_ago(40)}, {_ago(30)}, '[\"w\"]'),"
            f"('SUCCESSFUL', '9999-01-01Z', {_ago(50)}, {_ago(40)}, {_ago(30)}, '[\"w\"]')"
            ") AS r (status, run_after, e, s, f, w)",
        ),
        {"ready": 2, "delayed": 1, "processing": 1},
        attempts_max=1,
    ),
    "pgmq": Facts(
        "pgmq.q_mail",
        (
            "INSERT INTO pgmq.q_mail (read_ct, enqueued_at, last_read_at, vt, message) VALUES "
            f"(0, {_ago(60)}, NULL, {_ago(60)}, '{{}}'),"
            f"(7, {_ago(90)}, {_ago(80)}, {_ago(50)}, '{{}}'),"
            f"(0, {_ago(60)}, NULL, now() + interval '1 h', '{{}}'),"
            f"(1, {_ago(60)}, {_ago(10)}, now() + interval '20 s', '{{}}')",
        ),
        {"ready": 2, "delayed": 1, "processing": 1},
        attempts_max=7,
    ),
    "dramatiq-pg": Facts(
        "dramatiq.queue",
        (
            "INSERT INTO dramatiq.queue (message_id, queue_name, state, mtime, message)"
            " SELECT gen_random_uuid(), queue, state::dramatiq.state, mtime, jsonb_build_object("
            "'actor_name', 'a', 'message_timestamp', round(extract(epoch FROM sent) * 1000),"
            " 'options', jsonb_build_object('retries', retries, 'eta',"
            " round(extract(epoch FROM eta) * 1000))) FROM (VALUES "
            f"('q', 'queued', now(), {_ago(60)}, NULL::int, NULL::timestamptz),"
            f"('q', 'queued', now(), {_ago(50)}, 2, NULL),"
            f"('q.DQ', 'consumed', now(), {_ago(50)}, NULL, now() + interval '1 h'),"
            f"('q', 'consumed', {_ago(10)}, {_ago(50)}, NULL, NULL),"
            f"('q', 'rejected', {_ago(10)}, {_ago(50)}, 3, NULL),"
            f"('q', 'done', {_ago(10)}, {_ago(50)}, NULL, NULL)"
            ") AS r (queue, state, mtime, sent, retries, eta)",
        ),
        {"ready": 2, "delayed": 1, "processing": 1},
        attempts_max=2,
    ),
    "absurd": Facts(
        "absurd.r_mail",
        (
            "INSERT INTO absurd.t_mail (task_id, task_name, params, enqueue_at, state)"
            f" SELECT gen_random_uuid(), 't' || i, '{{}}', {_ago(60)}, 'pending'"
            " FROM generate_series(1, 6) i",
            "INSERT INTO absurd.r_mail (run_id, task_id, attempt, state, claim_expires_at,"
            " available_at, started_at)"
            " SELECT gen_random_uuid(), t.task_id, attempt, r.state, lease, due, started"
            " FROM (VALUES "
            f"('t1', 1, 'pending', NULL::timestamptz, {_ago(60)}, NULL::timestamptz),"
            f"('t2', 3, 'sleeping', NULL, {_ago(50)}, NULL),"
            "('t3', 1, 'sleeping', NULL, 'infinity', NULL),"
            f"('t4', 1, 'running', now() + interval '1 min', {_ago(10)}, {_ago(10)}),"
            f"('t5', 1, 'running', {_ago(5)}, {_ago(50)}, {_ago(50)}),"
            f"('t6', 1, 'failed', {_ago(5)}, {_ago(50)}, {_ago(50)})"
            ") AS r (name, attempt, state, lease, due, started)"
            " JOIN absurd.t_mail t ON t.task_name = r.name",
        ),
        attempts_max=2,
    ),
    "outbox": Facts(
        "outbox",
        (
            "INSERT INTO outbox (queue, payload, deliveries_count, created_at, next_attempt_at,"
            " acquired_at, acquired_token) VALUES "
            f"('a', '', 0, {_ago(60)}, {_ago(60)}, NULL, NULL),"
            f"('b', '', 4, {_ago(90)}, {_ago(50)}, NULL, NULL),"
            f"('a', '', 0, {_ago(60)}, now() + interval '1 h', NULL, NULL),"
            f"('a', '', 1, {_ago(60)}, {_ago(60)}, {_ago(10)}, gen_random_uuid()),"
            f"('a', '', 1, {_ago(90)}, {_ago(90)}, {_ago(70)}, gen_random_uuid())",
        ),
        attempts_max=4,
    ),
    "graphile-worker": Facts(
        "graphile_worker._private_jobs",
        (
            "INSERT INTO graphile_worker._private_tasks (identifier) VALUES ('t')",
            "INSERT INTO graphile_worker._private_job_queues (queue_name, locked_at)"
            " VALUES ('free', NULL), ('busy', now())",
            "INSERT INTO graphile_worker._private_jobs (job_queue_id, task_id, run_at, attempts,"
            " created_at, locked_at) VALUES "
            f"(NULL, 1, {_ago(60)}, 0, {_ago(60)}, NULL),"
            f"(1, 1, {_ago(50)}, 3, {_ago(90)}, NULL),"
            f"(2, 1, {_ago(80)}, 0, {_ago(80)}, NULL),"
            f"(NULL, 1, now() + interval '1 h', 0, {_ago(60)}, NULL),"
            f"(2, 1, {_ago(60)}, 1, {_ago(60)}, {_ago(10)}),"
            f"(NULL, 1, {_ago(60)}, 1, {_ago(60)}, now() - interval '5 h'),"
            f"(NULL, 1, {_ago(60)}, 25, {_ago(60)}, NULL)",
        ),
        {"ready": 2, "delayed": 1, "blocked": 1, "processing": 1, "expired": 1},
        attempts_max=3,
    ),
    "pg-boss": Facts(
        "pgboss.job",
        (
            "INSERT INTO pgboss.job (name, state, retry_count, start_after, created_on, started_on,"
            " completed_on, blocked) VALUES "
            f"('a', 'created', 0, {_ago(60)}, {_ago(60)}, NULL, NULL, false),"
            f"('b', 'retry', 1, {_ago(50)}, {_ago(90)}, {_ago(80)}, NULL, false),"
            f"('a', 'created', 0, {_ago(80)}, {_ago(80)}, NULL, NULL, true),"
            f"('a', 'created', 0, now() + interval '1 h', {_ago(60)}, NULL, NULL, false),"
            f"('a', 'active', 0, {_ago(60)}, {_ago(60)}, {_ago(10)}, NULL, false),"
            f"('a', 'active', 0, {_ago(60)}, {_ago(60)}, now() - interval '1 h', NULL, false),"
            f"('a', 'failed', 0, {_ago(60)}, {_ago(60)}, {_ago(50)}, {_ago(40)}, false),"
            f"('a', 'completed', 0, {_ago(60)}, {_ago(60)}, {_ago(50)}, {_ago(40)}, false)",
        ),
        {"ready": 2, "delayed": 1, "blocked": 1, "processing": 1, "expired": 1},
        attempts_max=2,
    ),
    "pg-boss-v10": Facts(
        "pgboss.job",
        (
            "INSERT INTO pgboss.job (name, state, retry_count, start_after, created_on, started_on,"
            " completed_on) VALUES "
            f"('ok', 'created', 0, {_ago(60)}, {_ago(60)}, NULL, NULL),"
            f"('retry', 'retry', 1, {_ago(50)}, {_ago(90)}, {_ago(80)}, NULL),"
            f"('ok', 'created', 0, now() + interval '1 h', {_ago(60)}, NULL, NULL),"
            f"('slow', 'active', 0, {_ago(60)}, {_ago(60)}, {_ago(10)}, NULL),"
            f"('slow', 'active', 0, {_ago(60)}, {_ago(60)}, now() - interval '1 h', NULL),"
            f"('fail', 'failed', 0, {_ago(60)}, {_ago(60)}, {_ago(50)}, {_ago(40)})",
        ),
        attempts_max=2,
    ),
    "river": Facts(
        "river_job",
        (
            "INSERT INTO river_job (state, queue, kind, priority, attempt, created_at,"
            " scheduled_at, attempted_at, finalized_at) VALUES "
            f"('available', 'a', 'k', 1, 0, {_ago(60)}, {_ago(60)}, NULL, NULL),"
            f"('retryable', 'a', 'k', 4, 2, {_ago(90)}, {_ago(50)}, {_ago(80)}, NULL),"
            f"('pending', 'a', 'k', 1, 0, {_ago(80)}, {_ago(80)}, NULL, NULL),"
            f"('scheduled', 'b', 'k', 1, 0, {_ago(60)}, now() + interval '1 h', NULL, NULL),"
            f"('running', 'a', 'k', 1, 1, {_ago(60)}, {_ago(60)}, {_ago(10)}, NULL),"
            f"('running', 'b', 'k', 1, 1, {_ago(60)}, {_ago(60)}, {_ago(7200)}, NULL),"
            f"('discarded', 'b', 'k', 1, 25, {_ago(60)}, {_ago(60)}, {_ago(50)}, {_ago(40)}),"
            f"('completed', 'b', 'k', 1, 1, {_ago(60)}, {_ago(60)}, {_ago(50)}, {_ago(40)})",
        ),
        {"ready": 2, "delayed": 1, "blocked": 1, "processing": 1, "expired": 1},
        failed=1,
        attempts_max=2,
    ),
    "oban": Facts(
        "oban_jobs",
        (
            "INSERT INTO oban_jobs (state, queue, worker, priority, attempt, inserted_at,"
            " scheduled_at, attempted_at, completed_at, discarded_at) VALUES "
            f"('available', 'a', 'w', 0, 0, {_ago(60, NOW)}, {_ago(60, NOW)}, NULL, NULL, NULL),"
            f"('retryable', 'a', 'w', 3, 2, {_ago(90, NOW)}, {_ago(50, NOW)}, {_ago(80, NOW)},"
            " NULL, NULL),"
            f"('suspended', 'a', 'w', 0, 0, {_ago(80, NOW)}, {_ago(80, NOW)}, NULL, NULL, NULL),"
            f"('scheduled', 'b', 'w', 0, 0, {_ago(60, NOW)}, {NOW} + interval '1 h', NULL, NULL,"
            " NULL),"
            f"('executing', 'a', 'w', 0, 1, {_ago(60, NOW)}, {_ago(60, NOW)}, {_ago(10, NOW)},"
            " NULL, NULL),"
            f"('executing', 'b', 'w', 0, 1, {_ago(60, NOW)}, {_ago(60, NOW)}, {_ago(7200, NOW)},"
            " NULL, NULL),"
            f"('discarded', 'b', 'w', 0, 20, {_ago(60, NOW)}, {_ago(60, NOW)}, {_ago(50, NOW)},"
            f" NULL, {_ago(40, NOW)}),"
            f"('completed', 'b', 'w', 0, 1, {_ago(60, NOW)}, {_ago(60, NOW)}, {_ago(50, NOW)},"
            f" {_ago(40, NOW)}, NULL)",
        ),
        {"ready": 2, "delayed": 1, "blocked": 1, "processing": 1, "expired": 1},
        failed=1,
        attempts_max=2,
    ),
    "good-job": Facts(
        "good_jobs",
        (
            "INSERT INTO good_jobs (queue_name, job_class, executions_count, created_at,"
            " scheduled_at, performed_at, finished_at, error) VALUES "
            f"('a', 'j', NULL, {_ago(60, NOW)}, NULL, NULL, NULL, NULL),"
            f"('a', 'j', 2, {_ago(90, NOW)}, {_ago(50, NOW)}, NULL, NULL, 'e'),"
            f"(NULL, 'j', 0, {_ago(60, NOW)}, {NOW} + interval '1 h', NULL, NULL, NULL),"
            f"('a', 'j', 1, {_ago(60, NOW)}, NULL, {_ago(10, NOW)}, NULL, NULL),"
            f"('a', 'j', 5, {_ago(60, NOW)}, NULL, {_ago(50, NOW)}, {_ago(40, NOW)}, 'e'),"
            f"('a', 'j', 1, {_ago(60, NOW)}, NULL, {_ago(50, NOW)}, {_ago(40, NOW)}, NULL)",
        ),
        {"ready": 2, "delayed": 1, "processing": 1},
        attempts_max=2,
    ),
    "solid-queue": Facts(
        "solid_queue_jobs",
        (
            "INSERT INTO solid_queue_processes (kind, last_heartbeat_at)"
            f" VALUES ('Worker', {_ago(20, NOW)}), ('Worker', {_ago(400, NOW)})",
            "INSERT INTO solid_queue_jobs (queue_name, class_name, created_at, finished_at)"
            f" SELECT 'q', 'j', {_ago(60, NOW)}, CASE WHEN i = 8 THEN {_ago(5, NOW)} END"
            " FROM generate_series(1, 8) i",
            "INSERT INTO solid_queue_ready_executions (job_id, queue_name, created_at)"
            f" VALUES (1, 'q', {_ago(60, NOW)})",
            "INSERT INTO solid_queue_scheduled_executions (job_id, queue_name, scheduled_at)"
            f" VALUES (2, 'q', {_ago(50, NOW)}), (3, 'q', {NOW} + interval '1 h')",
            "INSERT INTO solid_queue_blocked_executions"
            f" (job_id, queue_name, concurrency_key, expires_at) VALUES (4, 'q', 'k', {NOW})",
            "INSERT INTO solid_queue_claimed_executions (job_id, process_id, created_at)"
            f" VALUES (5, 1, {_ago(10, NOW)}), (6, 2, {_ago(390, NOW)})",
            "INSERT INTO solid_queue_failed_executions (job_id, error) VALUES (7, 'e')",
        ),
        {"ready": 2, "delayed": 1, "blocked": 1, "processing": 1, "expired": 1},
    ),
    "que": Facts(
        "que_jobs",
        (
            "INSERT INTO que_jobs (queue, job_class, run_at, error_count, expired_at, finished_at)"
            f" VALUES ('a', 'j', {_ago(60)}, 0, NULL, NULL), ('b', 'j', {_ago(50)}, 3, NULL, NULL),"
            "('a', 'j', now() + interval '1 h', 0, NULL, NULL),"
            f"('a', 'j', {_ago(90)}, 15, {_ago(40)}, NULL),"
            f"('a', 'j', {_ago(90)}, 0, NULL, {_ago(40)})",
        ),
        {"ready": 2, "delayed": 1},
        running_age=None,
        attempts_max=3,
    ),
    "delayed-job": Facts(
        "delayed_jobs",
        (
            "INSERT INTO delayed_jobs (attempts, run_at, locked_at, failed_at, created_at) VALUES "
            f"(0, {_ago(60, NOW)}, NULL, NULL, {_ago(60, NOW)}),"
            f"(2, {_ago(50, NOW)}, NULL, NULL, {_ago(90, NOW)}),"
            f"(0, {NOW} + interval '1 h', NULL, NULL, {_ago(60, NOW)}),"
            f"(0, {_ago(60, NOW)}, {_ago(10, NOW)}, NULL, {_ago(60, NOW)}),"
            f"(0, {_ago(60, NOW)}, {NOW} - interval '5 h', NULL, {_ago(60, NOW)}),"
            f"(25, {_ago(60, NOW)}, {_ago(50, NOW)}, {_ago(40, NOW)}, {_ago(60, NOW)})",
        ),
        attempts_max=2,
    ),
}


async def inspected(dsn: str, name: str) -> Inspection:
    """What the exporter finds in a library's table."""
    queue = f"name: q\ntable: {FACTS[name].table}\npreset: {name}"
    config = parse_config(configuration(dsn, queue), environment={})
    connection = Connection(config.databases["main"])
    await connection.connect()
    try:
        model = config.queues[0].model()
        session = Session.of(config.databases["main"], schema=model.table.schema)
        return await inspect(connection, model, session)
    finally:
        await connection.close()


def indexes(dsn: str, found: Inspection) -> dict[str, list[str]]:
    """The accesses that were found cheap, each with the indexes that serve it."""
    served = {}
    with psycopg.connect(dsn, autocommit=True) as connection:
        schema = found.model.table.schema
        connection.execute(f'SET search_path = "{schema}", public'.encode())
        for access, statements in probes(found.model):
            parts = [
                part
                for part, _ in enumerate(statements)
                if access in found.shape.accesses
                or (len(found.shape.walks) > part and access in found.shape.walks[part])
            ]
            names: dict[str, None] = {}
            for part in parts:
                names |= dict.fromkeys(_indexes(connection, access, statements[part][0]))
            if parts:
                served[access.name.lower()] = list(names)
    return served


def _indexes(connection: psycopg.Connection, access: Access, statement: str) -> list[str]:
    settings = SETTINGS[:1] if access is Access.PROCESSING else SETTINGS
    with connection.transaction():
        for setting in settings:
            connection.execute(f"SET LOCAL {setting}".encode())
        row = connection.execute(f"EXPLAIN (FORMAT JSON) {statement}".encode()).fetchone()
    assert row is not None
    found: list[str] = []

    def walk(node: dict[str, object]) -> None:
        if node.get("Parent Relationship") in ("InitPlan", "SubPlan"):
            return
        if "Index Name" in node:
            found.append(str(node["Index Name"]))
        plans = node.get("Plans", [])
        assert isinstance(plans, list)
        for child in plans:
            walk(child)

    plan = row[0] if isinstance(row[0], list) else json.loads(row[0])
    walk(plan[0]["Plan"])
    return found
