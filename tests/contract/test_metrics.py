"""``metrics.py``, the page of a live exporter and the names' rules hold against each other."""

import http.client
import re
import subprocess
from collections.abc import Iterator

import pytest
from prometheus_client import Metric as ParsedFamily
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from table_queue_exporter import metrics
from table_queue_exporter.demo.server import LocalServer
from table_queue_exporter.metrics import METRICS, PREFIX, Metric
from tests.conftest import program
from tests.support.pages import Metrics
from tests.support.processes import ExporterProcess
from tests.support.queues import REFERENCE_SCHEMA, configuration, execute

EVERY_SETTING = """
name: payment
table: payment
interval: 1s
objective: 60s
lease: 5m
max_runtime: 10m
max_silence: 1h
attempts_limit: 5
failed_tolerated: 3
failed_window: 2h
"""
MANY_QUEUES = "name: jobs\ntable: jobs\nqueue: task_type\ntask_type: null\ninterval: 1s"
BROKEN = "name: broken\ntable: missing\ninterval: 1s"
OURS = re.compile(rf"^{PREFIX}|^python_|^process_")
PROCESS = re.compile(r"^python_|^process_")


@pytest.fixture(scope="module")
def exporter() -> Iterator[ExporterProcess]:
    """Tables that have everything, on a server that vacuums at once."""
    settings = {"autovacuum_naptime": "1s", "max_prepared_transactions": "1"}
    with LocalServer(settings=settings) as server:
        dsn = server.create_database("everything")
        execute(
            dsn,
            REFERENCE_SCHEMA,
            "ALTER TABLE payment SET (autovacuum_vacuum_threshold = 1)",
            "INSERT INTO payment (task_type, attempts) SELECT 'a', 1 FROM generate_series(1, 100)",
            "INSERT INTO payment (task_type, status, started_at, claimed_until) VALUES"
            " ('a', 'PROCESSING', now(), now() + interval '1 h'),"
            " ('b', 'PROCESSING', now() - interval '1 h', now() - interval '1 min')",
            "INSERT INTO payment (task_type, status, finished_at) VALUES"
            " ('a', 'FAILED', now()), ('b', 'DONE', now())",
            "CREATE TABLE jobs (LIKE payment INCLUDING ALL)",
            "CREATE INDEX ON jobs (task_type, finished_at)",
            "INSERT INTO jobs (task_type) VALUES ('mail'), ('sms')",
            "DELETE FROM payment WHERE id <= 50",
        )
        config = configuration(dsn, EVERY_SETTING, MANY_QUEUES, BROKEN)
        with ExporterProcess(config) as process:
            process.wait_for(
                lambda page: (
                    page.value("up", queue="payment")
                    and page.value("up", queue="jobs/mail")
                    and page.all("last_autovacuum_timestamp_seconds")
                ),
                "both queues to be read and the table to be vacuumed",
            )
            yield process


@pytest.fixture(scope="module")
def pages(exporter: ExporterProcess) -> dict[str, list[ParsedFamily]]:
    text = exporter.get("/metrics")
    openmetrics = exporter.get("/metrics", Accept="application/openmetrics-text")
    return {
        "text": list(parse_text(text)),
        "openmetrics": list(parse_openmetrics(openmetrics)),  # type: ignore[no-untyped-call]
    }


def family_name(metric: Metric) -> str:
    """As both parsers call it."""
    return metric.name.removesuffix("_total") if metric.kind == "counter" else metric.name


@pytest.mark.parametrize("form", ["text", "openmetrics"])
def test_every_family_is_on_the_page_as_it_is_defined(
    pages: dict[str, list[ParsedFamily]], form: str
) -> None:
    found = {family.name: family for family in pages[form]}
    missing = [metric.name for metric in METRICS if family_name(metric) not in found]
    assert not missing
    for metric in METRICS:
        family = found[family_name(metric)]
        assert family.type == metric.kind, metric.name
        assert family.documentation == metric.help
        assert family.samples, metric.name
        for sample in family.samples:
            have, expected = set(sample.labels) - {"le"}, set(metric.labels)
            assert ("le" in sample.labels) == sample.name.endswith("_bucket")
            assert have in (expected, expected - {"task_type"}), metric.name
            if sample.labels.get("queue") == "payment":
                assert have == expected, "it has task types"


@pytest.mark.parametrize("form", ["text", "openmetrics"])
def test_nothing_else_is_on_the_page(pages: dict[str, list[ParsedFamily]], form: str) -> None:
    known = {family_name(metric) for metric in METRICS}
    others = [f.name for f in pages[form] if f.name not in known and not PROCESS.match(f.name)]
    assert not others
    assert {f.name for f in pages["text"]} == {f.name for f in pages["openmetrics"]}


def test_each_series_is_there_once(pages: dict[str, list[ParsedFamily]]) -> None:
    for families in pages.values():
        names = [family.name for family in families]
        assert len(names) == len(set(names)), "families stay together"
        series = [
            (s.name, tuple(sorted(s.labels.items()))) for family in families for s in family.samples
        ]
        assert len(series) == len(set(series))


def test_families_stand_in_the_documented_order(exporter: ExporterProcess) -> None:
    heads = re.findall(r"^# TYPE (\S+)", exporter.get("/metrics"), re.MULTILINE)
    assert [name for name in heads if name.startswith(PREFIX)] == [m.name for m in METRICS]


def test_every_reason_and_status_is_there_from_the_start(exporter: ExporterProcess) -> None:
    page = exporter.metrics()
    reasons = page.by("reason", "poll_errors_total", queue="payment")
    assert set(reasons) == {
        "connection",
        "timeout",
        "lock_timeout",
        "conflict",
        "permission",
        "undefined_object",
        "data",
        "cancelled",
        "other",
    }
    assert set(reasons.values()) == {0}
    assert set(page.by("status", "tasks", queue="payment", task_type="a")) == {
        "ready",
        "delayed",
        "blocked",
        "processing",
        "expired",
    }


def test_promtool_has_nothing_to_say_of_a_live_page(exporter: ExporterProcess) -> None:
    done = subprocess.run(
        [program("promtool"), "check", "metrics"],
        input=exporter.get("/metrics"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


BASE_UNITS = ("seconds", "bytes")
OTHER_UNITS = re.compile(
    r"_(ms|milliseconds|microseconds|minutes|hours|days|kb|kilobytes|megabytes|percent|pct)(_|$)"
)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.short_name)
def test_names_follow_the_rules(metric: Metric) -> None:
    assert re.fullmatch(r"table_queue(_[a-z]+)+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert not OTHER_UNITS.search(metric.name), "base units only"
    for unit in BASE_UNITS:
        words = metric.short_name.removesuffix("_total").split("_")
        assert unit not in words[:-1], "the unit stands last"
    assert "timestamp" not in metric.name or metric.name.endswith("_timestamp_seconds")
    assert not metric.name.endswith(("_count", "_sum", "_bucket", "_info_info"))
    for label in metric.labels:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", label)
        assert label not in ("le", "quantile", "job", "instance"), "Prometheus's own"
    assert len(set(metric.labels)) == len(metric.labels)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.short_name)
def test_help_is_a_sentence(metric: Metric) -> None:
    assert metric.help[0].isupper() or metric.help[0].isdigit()
    assert metric.help.endswith(".")
    assert "\n" not in metric.help
    assert len(metric.help) < 200


def test_every_metric_that_is_defined_is_listed_once() -> None:
    defined = [value for value in vars(metrics).values() if isinstance(value, Metric)]
    assert {id(metric) for metric in defined} == {id(metric) for metric in METRICS}
    names = [family_name(metric) for metric in METRICS]
    assert len(names) == len(set(names))


def test_values_of_a_poll_say_that_they_are_not_of_the_scrape() -> None:
    for metric in METRICS:
        if metric.kind == "gauge" and "task_type" in metric.labels:
            if metric is metrics.COUNT_LIMITED:
                continue  # it speaks of another gauge
            assert "as of the last poll" in metric.help, metric.name


def test_the_wire_carries_no_timestamps(exporter: ExporterProcess) -> None:
    """Values are cached; a sample's own time would make Prometheus drop them as stale."""
    connection = http.client.HTTPConnection("127.0.0.1", exporter.port)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    samples = [line for line in lines if OURS.match(line)]
    assert len(samples) > 100
    for line in samples:
        assert re.fullmatch(r"[a-z_]+(\{.*\})? \S+", line), line
    assert Metrics("\n".join(lines) + "\n").value("database_up") == 1
