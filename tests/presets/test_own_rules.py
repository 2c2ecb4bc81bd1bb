"""What only some libraries have: reclaims, locks, kept failures, an own rule for the lease."""

from pathlib import Path

from tests.support.queues import execute, query

from .support import Library, highest, statuses, total, watching


async def test_a_pgmq_message_is_due_again_when_its_time_is_over(
    newest_dsn: str, tmp_path: Path
) -> None:
    library = Library("pgmq", newest_dsn)
    async with watching(newest_dsn, "name: mail\ntable: pgmq.q_mail\npreset: pgmq") as watch:
        library.push(ok=3, archive=1, retry=1, slow=1, delayed=1)
        page = await watch.until(
            lambda p: statuses(p) == {"ready": 6, "delayed": 1}, "messages that wait"
        )
        assert (highest(page, "oldest_ready_age_seconds") or 0) < 15
        with library.worker(tmp_path / "worker.log"):
            # What was put off by set_vt looks like what is being worked on.
            page = await watch.until(
                lambda p: statuses(p) == {"delayed": 1, "processing": 2}, "a reader at work"
            )
            assert highest(page, "attempts_max") == 1
            assert total(page, "lease_reclaims_total") == 0
        page = await watch.until(
            lambda p: statuses(p) == {"ready": 1, "delayed": 1, "processing": 1},
            "a message whose reader is gone",
        )
        with library.worker(tmp_path / "worker.log"):
            page = await watch.until(
                lambda p: total(p, "lease_reclaims_total") == 1, "its second reading"
            )
            assert statuses(page) == {"delayed": 1, "processing": 2}
            assert highest(page, "attempts_max") == 2
        for absent in ("enqueued_total", "finished_total", "attempts_total"):
            assert total(page, absent) is None, "messages are deleted"
        assert total(page, "tasks", status="expired") is None


async def test_an_outbox_counts_reclaims(newest_dsn: str, tmp_path: Path) -> None:
    library = Library("outbox", newest_dsn)
    async with watching(newest_dsn, "name: box\ntable: outbox\npreset: outbox") as watch:
        library.push(slow=1)
        with library.worker(tmp_path / "worker.log"):
            await watch.until(lambda p: statuses(p) == {"processing": 1}, "a message under way")
        execute(newest_dsn, "UPDATE outbox SET acquired_at = acquired_at - interval '2 min'")
        page = await watch.until(lambda p: statuses(p) == {"expired": 1}, "a lost message")
        assert total(page, "lease_reclaims_total") == 0
        with library.worker(tmp_path / "worker.log"):
            await watch.until(lambda p: total(p, "lease_reclaims_total") == 1, "another worker")


async def test_procrastinate_holds_back_jobs_behind_a_lock(newest_dsn: str, tmp_path: Path) -> None:
    library = Library("procrastinate", newest_dsn)
    queue = "name: jobs\ntable: procrastinate_jobs\npreset: procrastinate"
    async with watching(newest_dsn, queue) as watch:
        library.push(locked=1)
        with library.worker(tmp_path / "worker.log"):
            await watch.until(lambda p: statuses(p) == {"processing": 1}, "a job with a lock")
            library.push(blocked=2, ok=1)
            page = await watch.until(
                lambda p: statuses(p) == {"processing": 1, "blocked": 2}, "jobs behind the lock"
            )
            assert highest(page, "oldest_ready_age_seconds") == 0, "a blocked job is not late"
            assert (highest(page, "oldest_task_age_seconds") or 0) > 0


async def test_procrastinate_counts_finished_jobs_with_an_index_on_its_events(
    newest_dsn: str, tmp_path: Path
) -> None:
    library = Library("procrastinate", newest_dsn)
    kinds = "('succeeded', 'failed', 'cancelled', 'aborted')"
    execute(
        newest_dsn,
        f"CREATE INDEX ON procrastinate_events (at) WHERE type IN {kinds}",
        "CREATE INDEX ON procrastinate_events (at) WHERE type = 'failed'",
    )
    queue = "name: jobs\ntable: procrastinate_jobs\npreset: procrastinate"
    async with watching(newest_dsn, queue) as watch:
        with library.worker(tmp_path / "worker.log"):
            library.push(ok=4, fail=2, retry=1)
            await watch.until(
                lambda p: (
                    total(p, "finished_total", outcome="done") == 4
                    and total(p, "finished_total", outcome="failed") == 2
                    and total(p, "recently_failed_tasks") == 2
                ),
                "finished jobs",
            )
            page = await watch.until(
                lambda p: statuses(p) == {"delayed": 1}, "the job to be tried again"
            )
            assert total(page, "processing_seconds_count") == 6
            assert total(page, "wait_seconds_count") == 6
            assert total(page, "lease_reclaims_total") is None


async def test_pgqueuer_counts_what_its_log_says(newest_dsn: str, tmp_path: Path) -> None:
    library = Library("pgqueuer", newest_dsn)
    async with watching(newest_dsn, "name: jobs\ntable: pgqueuer\npreset: pgqueuer") as watch:
        with library.worker(tmp_path / "worker.log"):
            library.push(ok=5, fail=2, held=1)
            page = await watch.until(
                lambda p: total(p, "finished_total", outcome="done") == 5, "finished jobs"
            )
            page = await watch.until(
                lambda p: total(p, "finished_total", outcome="failed") == 3, "failed jobs"
            )
            assert total(page, "processing_seconds_count") == 8
            longest = query(
                newest_dsn,
                "SELECT sum(extract(epoch FROM l.created - (SELECT max(p.created) FROM"
                " pgqueuer_log p WHERE p.job_id = l.job_id AND p.status = 'picked')))::float8"
                " FROM pgqueuer_log l WHERE l.status IN ('successful', 'exception', 'failed')",
            )[0][0]
            measured = total(page, "processing_seconds_sum")
            assert isinstance(longest, float)
            assert measured is not None
            assert abs(measured - longest) < 0.01, "what the log itself says"
            assert statuses(page) == {}, "a kept failure is no live job"
