"""Each preset against the library itself: its own schema, its own worker, which is then killed.

Every library goes through the same: tasks wait, a worker takes them (some end well, one fails for
good, one fails and is to be tried again, one goes on and on), the worker is killed, time passes.
What the page says is compared with what the library was asked to do, and with its own table.
"""

import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.pages import Metrics
from tests.support.queues import execute, query

from .support import Library, highest, statuses, total, watching

JOBS = {"ok": 3, "fail": 1, "retry": 1, "slow": 1, "delayed": 1}


@dataclass(frozen=True)
class Case:
    """One library: its table, and in what it differs from the others.

    ``working`` and ``lost`` are the tasks by status while the worker holds one task, and after it
    was killed and ``passing`` made time pass. ``oldest`` is the library's own table asked for the
    time of the oldest ready task. ``finished`` are the outcomes counted, None where they cannot be.
    """

    table: str
    oldest: str
    passing: str = ""
    jobs: dict[str, int] = field(default_factory=lambda: dict(JOBS))
    waiting: dict[str, float] = field(default_factory=lambda: {"ready": 6, "delayed": 1})
    working: dict[str, float] = field(default_factory=lambda: {"delayed": 2, "processing": 1})
    lost: dict[str, float] = field(default_factory=lambda: {"ready": 2, "delayed": 2, "expired": 1})
    again: dict[str, int] = field(default_factory=lambda: {"ok": 2})
    retrying: float | None = 1
    finished: dict[str, float] | None = None
    failed: float | None = None
    settings: str = ""
    sees_start: bool = True


CASES = {
    "procrastinate": Case(
        "procrastinate_jobs",
        "SELECT min(e.at) FROM procrastinate_jobs j JOIN procrastinate_events e ON e.job_id = j.id"
        " WHERE j.status = 'todo' AND j.scheduled_at IS NULL AND e.type = 'deferred'",
        "UPDATE procrastinate_workers SET last_heartbeat = last_heartbeat - interval '1 min'",
    ),
    "pgqueuer": Case(
        "pgqueuer",
        "SELECT min(execute_after) FROM pgqueuer WHERE status = 'queued'",
        "UPDATE pgqueuer SET heartbeat = heartbeat - interval '1 min' WHERE status = 'picked'",
        finished={"done": 3, "failed": 1, "cancelled": 0},
    ),
    "chancy": Case(
        "chancy_jobs",
        "SELECT min(created_at) FROM chancy_jobs WHERE state = 'pending' AND scheduled_at <= now()",
        "UPDATE chancy_workers SET last_seen = last_seen - interval '2 min'",
    ),
    "django-tasks-db": Case(
        "django_tasks_database_dbtaskresult",
        "SELECT min(enqueued_at) FROM django_tasks_database_dbtaskresult"
        " WHERE status = 'READY' AND run_after > '9000-01-01'",
        jobs={"ok": 3, "fail": 1, "slow": 1, "delayed": 1},
        waiting={"ready": 5, "delayed": 1},
        working={"delayed": 1, "processing": 1},
        lost={"ready": 2, "delayed": 1, "processing": 1},
        retrying=0,
    ),
    "dramatiq-pg": Case(
        "dramatiq.queue",
        "SELECT to_timestamp(min((message->>'message_timestamp')::bigint) / 1000.0)"
        " FROM dramatiq.queue WHERE state = 'queued' AND queue_name = 'default'",
        lost={"ready": 2, "delayed": 2, "processing": 1},
    ),
    "absurd": Case(
        "absurd.r_mail",
        "SELECT min(available_at) FROM absurd.r_mail WHERE state = 'pending'",
        "UPDATE absurd.r_mail SET claim_expires_at = now() - interval '5 s' WHERE state='running'",
        jobs={"ok": 3, "fail": 1, "retry": 1, "slow": 1, "sleep": 1, "event": 1},
        waiting={"ready": 8},
        working={"delayed": 3, "processing": 1},
        lost={"ready": 2, "delayed": 3, "expired": 1},
    ),
    "outbox": Case(
        "outbox",
        "SELECT min(next_attempt_at) FROM outbox WHERE acquired_token IS NULL",
        "UPDATE outbox SET acquired_at = acquired_at - interval '2 min'"
        " WHERE acquired_token IS NOT NULL",
    ),
    "graphile-worker": Case(
        "graphile_worker._private_jobs",
        "SELECT min(run_at) FROM graphile_worker._private_jobs WHERE is_available",
        # Its back-off begins with seconds: the failed job would soon be due again.
        "UPDATE graphile_worker._private_jobs SET locked_at = locked_at - interval '5 h',"
        " run_at = run_at + CASE WHEN last_error IS NULL THEN '0' ELSE '1 h' END::interval"
        " WHERE attempts > 0",
    ),
    "pg-boss": Case(
        "pgboss.job",
        "SELECT min(start_after) FROM pgboss.job WHERE state < 'active'",
        "UPDATE pgboss.job SET started_on = started_on - interval '1 h' WHERE state = 'active'",
    ),
    "pg-boss-v10": Case(
        "pgboss.job",
        "SELECT min(start_after) FROM pgboss.job WHERE state < 'active'",
        "UPDATE pgboss.job SET started_on = started_on - interval '1 h' WHERE state = 'active'",
    ),
}


@pytest.mark.parametrize("name", CASES)
async def test_a_library_at_work(name: str, newest_dsn: str, tmp_path: Path) -> None:
    case = CASES[name]
    library = Library(name, newest_dsn)
    queue = f"name: jobs\ntable: {case.table}\npreset: {name}\n{case.settings}"
    async with watching(newest_dsn, queue) as watch:
        page = watch.page()
        assert total(page, "up") in (1, None), page.text
        assert statuses(page) == {}
        begun = time.time()
        library.push(**case.jobs)

        page = await watch.until(lambda p: statuses(p) == case.waiting, "tasks that wait")
        _compare_ages(page, newest_dsn, case, since=begun)
        assert total(page, "retrying_tasks") == (None if case.retrying is None else 0)

        with library.worker(tmp_path / "worker.log"):
            page = await watch.until(
                lambda p: statuses(p) == case.working and _has_finished(p, case), "a working worker"
            )
            assert total(page, "retrying_tasks") == case.retrying
            assert highest(page, "oldest_ready_age_seconds") == 0
            running = highest(page, "oldest_processing_age_seconds")
            assert running is not None
            assert 0 <= running <= time.time() - begun + 1
            assert total(page, "recently_failed_tasks") == case.failed

        if case.passing:
            execute(newest_dsn, case.passing)
        again = time.time()
        library.push(**case.again)
        page = await watch.until(lambda p: statuses(p) == case.lost, "a lost task")
        _compare_ages(page, newest_dsn, case, since=again)
        if "expired" in case.lost:
            assert (highest(page, "oldest_expired_age_seconds") or 0) > 0
        else:
            assert highest(page, "oldest_expired_age_seconds") is None
        assert _has_finished(page, case), "what is finished stays counted"


def _compare_ages(page: Metrics, dsn: str, case: Case, *, since: float) -> None:
    """The age of the longest-overdue task, by what was pushed when and by the library's table."""
    ready = highest(page, "oldest_ready_age_seconds")
    assert ready is not None
    assert -1 <= ready <= time.time() - since + 1
    ((oldest,),) = query(dsn, f"SELECT extract(epoch FROM ({case.oldest}))::float8")
    read = highest(page, "last_success_timestamp_seconds")
    assert isinstance(oldest, float)
    assert read is not None
    took = highest(page, "poll_duration_seconds") or 0
    expected = pytest.approx(read - oldest, abs=1 + took)
    assert ready == expected, "what the library's own table says"
    task = highest(page, "oldest_task_age_seconds")
    assert task is not None
    assert task >= ready - 1


def _has_finished(page: Metrics, case: Case) -> bool:
    """Whether the counter of finished tasks is where it must be, or absent where it must be."""
    counted = page.all("finished_total")
    if case.finished is None:
        assert not counted
        return True
    outcomes = {
        outcome: total(page, "finished_total", outcome=outcome) for outcome in case.finished
    }
    return outcomes == case.finished
