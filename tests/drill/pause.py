"""Three million tasks finish while the exporter is down: caught up in chunks, within the budget."""

import tempfile
import time

from table_queue_exporter.demo.server import LocalServer
from tests.support.pages import Metrics
from tests.support.processes import ExporterProcess
from tests.support.queues import PAYMENT, REFERENCE_SCHEMA, configuration, execute

BUDGET = 0.5
LOAD = """
INSERT INTO payment (task_type, status, created_at, started_at, finished_at, attempts)
SELECT 'a', 'DONE', t, t, t, 1
FROM generate_series(1, {rows}) i, LATERAL (SELECT clock_timestamp() AS t WHERE i > 0) times
"""


def catch_up(rows: int) -> str:
    """Runs it and returns what to tell; fails when a number is wrong or a poll took too long."""
    with (
        LocalServer(settings={"max_wal_size": "8GB"}) as server,
        tempfile.TemporaryDirectory(prefix="tqe-pause-") as state,
    ):
        dsn = server.create_database("pause")
        execute(dsn, REFERENCE_SCHEMA)
        queue = f"{PAYMENT}\ninterval: 1s\nbudget: {BUDGET}\nnew_series_hold: 1s"
        exporter = ExporterProcess(configuration(dsn, queue), f"--state.dir={state}")
        with exporter:
            exporter.wait_for(lambda page: page.value("enqueued_total") == 0, "counting")
            exporter.stop()
            execute(dsn, LOAD.format(rows=rows))
            begun = time.monotonic()
            exporter.start()
            seen: list[float] = []
            over: list[str] = []

            def all_there(page: Metrics) -> bool:
                seen.append(page.value("finished_total", outcome="done") or 0)
                duration = page.value("poll_duration_seconds") or 0
                pace = page.value("poll_interval_seconds") or 1
                if duration > BUDGET * pace * 1.001:
                    over.append(f"{duration} s of {pace} s")
                return seen[-1] == rows == page.value("attempts_total")

            deadline = time.monotonic() + 600
            while not all_there(exporter.metrics()):
                assert time.monotonic() < deadline, f"not caught up: {sorted(set(seen))}"
                time.sleep(0.2)
            page = exporter.metrics()
            assert page.value("enqueued_total") == rows
            assert page.value("processing_seconds_count", outcome="done") == rows
            errors = {k: v for k, v in page.by("reason", "poll_errors_total").items() if v}
            assert errors == {}, f"{errors}\n{exporter.log()}"
            assert seen == sorted(seen)
            assert not over, over
            steps = len(set(seen))
            return (
                f"{rows:,} finishes while it was down: counted in {steps} steps and "
                f"{time.monotonic() - begun:.0f} s, no poll over its budget\n"
            )
