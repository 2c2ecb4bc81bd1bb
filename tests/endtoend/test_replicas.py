"""Two exporters of the same queues under the shipped rules: the same gauges, one alert."""

from pathlib import Path

from alerts import generate
from table_queue_exporter.demo.server import LocalServer
from tests.support.processes import ExporterProcess, wait_until
from tests.support.prometheus import Prometheus
from tests.support.queues import PAYMENT, REFERENCE_SCHEMA, configuration, execute

SCALE = 60
LATE = "INSERT INTO payment (task_type, created_at, next_attempt_at)" + (
    " SELECT 'receipt', now() - interval '1 h', now() - interval '1 h' FROM generate_series(1, 7)"
)


def test_two_replicas_give_the_same_gauges_and_one_alert(
    newest_server: LocalServer, tmp_path: Path
) -> None:
    """Late tasks are told of once; and when one replica dies, nobody is woken for that."""
    dsn = newest_server.create_database("replicated")
    execute(dsn, REFERENCE_SCHEMA, LATE)
    config = configuration(dsn, PAYMENT + "\ninterval: 300ms\nobjective: 1s\nlease: 20s")
    rules = tmp_path / "rules.yaml"
    generate.main([f"--scale={SCALE}", f"--output={rules}"])
    with ExporterProcess(config) as first, ExporterProcess(config) as second:
        targets = [f"127.0.0.1:{replica.port}" for replica in (first, second)]
        with Prometheus(targets, interval="300ms", rule_files=[rules]) as prometheus:

            def firing(name: str) -> list[dict[str, str]]:
                data = prometheus.api("alerts")
                assert isinstance(data, dict)
                alerts = [alert for alert in data["alerts"] if alert["state"] == "firing"]
                return [a["labels"] for a in alerts if a["labels"]["alertname"] == name]

            wait_until(lambda: firing("TableQueueTasksLate"), "the alert to fire", seconds=60)
            ready = prometheus.query('table_queue_tasks{status="ready"}')
            assert [value for _, value in ready] == [7, 7]
            assert {labels["instance"] for labels, _ in ready} == set(targets)
            (alert,) = firing("TableQueueTasksLate")
            assert alert["queue"] == "payment"
            assert "instance" not in alert
            # No sum counts a task twice.
            assert prometheus.value('queue:table_queue_tasks:sum{status="ready"}') == 7
            second.stop()
            down = f"max_over_time(up{{instance='{targets[1]}'}}[8s])"
            wait_until(
                lambda: prometheus.value(down) == 0,
                "longer than TableQueueExporterDown waits, in scaled time",
            )
            assert len(firing("TableQueueTasksLate")) == 1
            assert firing("TableQueueExporterDown") == []
            assert firing("TableQueueUnwatched") == []
