"""The demo, the exporter and a real Prometheus: what its API answers is what SQL says."""

import asyncio

import pytest

from table_queue_exporter.demo.stage import Demo
from tests.support.processes import ExporterProcess
from tests.support.prometheus import Prometheus
from tests.support.queues import PAYMENT, configuration

TRUTH = """
SELECT task_type,
  count(*) FILTER (WHERE status = 'NEW' AND next_attempt_at <= now()) AS ready,
  count(*) FILTER (WHERE status = 'NEW' AND next_attempt_at > now()) AS delayed,
  count(*) FILTER (WHERE status = 'PROCESSING' AND claimed_until >= now()) AS processing,
  count(*) FILTER (WHERE status = 'PROCESSING' AND claimed_until < now()) AS expired,
  count(*) FILTER (WHERE status = 'FAILED' AND finished_at > now() - interval '1 h') AS failed,
  count(*) FILTER (WHERE status = 'NEW' AND attempts > 0) AS retrying
FROM payment GROUP BY task_type ORDER BY task_type
"""
STATUSES = ("ready", "delayed", "processing", "expired")


async def test_prometheus_answers_what_sql_says() -> None:
    async with Demo(workers=2, rate=0, day=None) as demo:
        config = configuration(demo.dsn, PAYMENT + "\ninterval: 500ms\nobjective: 60s\nlease: 20s")
        with (
            ExporterProcess(config) as exporter,
            Prometheus([f"127.0.0.1:{exporter.port}"]) as prometheus,
        ):
            await demo.enqueue("transfer", 30)
            await demo.enqueue("receipt", 10)
            async with demo.fault("poison"):
                await _until(demo, "SELECT count(*) = 40 FROM payment WHERE status = 'DONE'")
            async with demo.fault("crash-all"):
                # Nobody is left: leases expire, what is enqueued now stays, nothing changes.
                await demo.enqueue("limits_check", 5)
                await _until(
                    demo,
                    "SELECT count(*) = 0 FROM payment "
                    "WHERE (status = 'PROCESSING' AND claimed_until >= now()) "
                    "OR (status = 'NEW' AND next_attempt_at > now())",
                )
                truth = await demo.query(TRUTH)
                await _agreement(prometheus, truth)
                ((age,),) = await demo.query(
                    "SELECT extract(epoch FROM now() - min(greatest(created_at, next_attempt_at)))"
                    "::float8 FROM payment WHERE status = 'NEW' AND next_attempt_at <= now()"
                )
                told = prometheus.value("max(table_queue_oldest_ready_age_seconds)")
                assert told == pytest.approx(age, abs=10)
            assert prometheus.value("table_queue_up") == 1
            assert prometheus.value('up{job="table-queue"}') == 1
            assert prometheus.value("table_queue_objective_seconds") == 60
            # Back at work: everything that can be done is done.
            await _until(demo, "SELECT count(*) = 45 FROM payment WHERE status = 'DONE'")
            await _agreement(prometheus, await demo.query(TRUTH))
            for family in ("ready", "processing", "expired"):
                assert prometheus.value(f'sum(table_queue_tasks{{status="{family}"}})') == 0


async def _until(demo: Demo, condition: str) -> None:
    async with asyncio.timeout(90):
        while not (await demo.query(condition))[0][0]:  # noqa: ASYNC110  # the table is asked
            await asyncio.sleep(0.1)


async def _agreement(prometheus: Prometheus, truth: list[tuple[object, ...]]) -> None:
    """Waits for the scrape that has seen the table as it is; fails with the last answer."""
    expected = {
        (str(row[0]), status): float(str(row[index]))
        for row in truth
        for index, status in enumerate(STATUSES, start=1)
    }
    failed = {str(row[0]): float(str(row[5])) for row in truth}
    retrying = {str(row[0]): float(str(row[6])) for row in truth}
    answers: tuple[object, ...] = ()
    try:
        async with asyncio.timeout(20):
            while answers != (expected, failed, retrying):
                await asyncio.sleep(0.2)
                tasks = {
                    (labels["task_type"], labels["status"]): value
                    for labels, value in prometheus.query('table_queue_tasks{status!="blocked"}')
                }
                answers = (
                    tasks,
                    _by_type(prometheus, "table_queue_recently_failed_tasks"),
                    _by_type(prometheus, "table_queue_retrying_tasks"),
                )
    except TimeoutError:
        assert answers == (expected, failed, retrying)


def _by_type(prometheus: Prometheus, expression: str) -> dict[str, float]:
    return {labels["task_type"]: value for labels, value in prometheus.query(expression)}
