"""Bytes on the page, read back by other people's parsers."""

import math
import subprocess

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from table_queue_exporter import metrics
from table_queue_exporter.exposition import Format, Page, Sample, format_value, negotiate
from table_queue_exporter.metrics import Metric
from tests.conftest import program

NASTY = [
    "plain",
    "",
    'a "quote"',
    "back\\slash",
    "\\n is not a newline",
    "two\nlines",
    "\\",
    '"',
    '\\"\n',
    "a,b={c} d",
    "# HELP x y",
    "tab\tcr\r",
    "ü 🚚 \u2028 \x85 \x0c",
    "nul\0",
]


def page(families: dict[Metric, list[Sample]], max_series: int = 1000) -> Page:
    made = Page(max_series)
    made.put("test", families)
    return made


def test_label_values_come_back_from_both_parsers() -> None:
    samples = [Sample(("db", value, None, "ready"), index) for index, value in enumerate(NASTY)] + [
        Sample(("db", "typed", value, "ready"), 0) for value in NASTY
    ]
    made = page({metrics.TASKS: samples, metrics.POLLS: [Sample(("db", v), 1) for v in NASTY]})
    families = [
        list(parse_text(made.body(Format.TEXT).decode())),
        list(parse_openmetrics(made.body(Format.OPENMETRICS).decode() + "# EOF\n")),  # type: ignore[no-untyped-call]
    ]
    for found in families:
        tasks, polls = found[0].samples, found[1].samples
        assert [s.labels["queue"] for s in tasks[: len(NASTY)]] == NASTY
        assert [s.value for s in tasks[: len(NASTY)]] == list(range(len(NASTY)))
        assert "task_type" not in tasks[0].labels, "None leaves the label off"
        assert [s.labels["task_type"] for s in tasks[len(NASTY) :]] == NASTY
        assert [s.labels["queue"] for s in polls] == NASTY
        assert polls[0].name == "table_queue_polls_total"


PROMETHEUS_2_42 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
    "application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;"
    "escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
)
PROMETHEUS_3_PROTOBUF = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;"
    "encoding=delimited;q=0.6," + PROMETHEUS_3
)
PROMETHEUS_3_TEXT_FIRST = (
    "text/plain;version=0.0.4;q=0.5,application/openmetrics-text;version=1.0.0;q=0.4,*/*;q=0.3"
)
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        (PROMETHEUS_2_42, Format.OPENMETRICS),
        (PROMETHEUS_3, Format.OPENMETRICS),
        (PROMETHEUS_3_PROTOBUF, Format.OPENMETRICS),
        (PROMETHEUS_3_TEXT_FIRST, Format.TEXT),
        (BROWSER, Format.TEXT),
        ("", Format.TEXT),
        ("*/*", Format.TEXT),
        ("application/openmetrics-text", Format.OPENMETRICS),
        ("Application/OpenMetrics-Text; Version=1.0.0", Format.OPENMETRICS),
        ('application/openmetrics-text; version="1.0.0"', Format.OPENMETRICS),
        ("application/openmetrics-text;version=9.0.0", Format.TEXT),
        ("application/openmetrics-text;q=0, text/plain;q=0.1", Format.TEXT),
        ("application/openmetrics-text;q=0.1, text/plain", Format.TEXT),
        ("application/openmetrics-text;q=high, */*", Format.TEXT),
        ("application/json", Format.TEXT),
        (";;;,,,=;q=;q=nan,\0", Format.TEXT),
    ],
)
def test_the_format_that_a_scraper_likes_best(accept: str, form: Format) -> None:
    assert negotiate(accept) is form


def test_families_stay_together_whoever_owns_their_samples() -> None:
    made = Page(1000)
    for owner in ("one", "two", "three"):
        made.put(
            owner,
            {
                metrics.UP: [Sample(("db", owner), 1)],
                metrics.TASKS: [Sample(("db", owner, None, "ready"), 1)],
            },
        )
    made.put("one", {metrics.UP: [Sample(("db", "one"), 0)]})
    for form in Format:
        text = made.body(form).decode()
        names = [line.split("{")[0].split(" ")[0] for line in text.splitlines() if line[0] != "#"]
        assert names == [
            *["table_queue_tasks"] * 2,
            *["table_queue_up"] * 3,
            "table_queue_exporter_series_dropped_total",
        ]
        assert text.count("# TYPE table_queue_up gauge\n") == 1
    assert 'table_queue_up{database="db",queue="one"} 0\n' in text
    made.remove("one")
    assert 'queue="one"' not in made.body(Format.TEXT).decode()


def test_openmetrics_names_a_counter_without_its_ending() -> None:
    made = page({metrics.POLLS: [Sample(("db", "q"), 3)]})
    assert "# TYPE table_queue_polls counter\n" in made.body(Format.OPENMETRICS).decode()
    assert "# TYPE table_queue_polls_total counter\n" in made.body(Format.TEXT).decode()
    for form in Format:
        sample = 'table_queue_polls_total{database="db",queue="q"} 3\n'
        assert sample in made.body(form).decode()


def dropped(made: Page) -> float:
    (line,) = [
        line
        for line in made.body(Format.TEXT).decode().splitlines()
        if line.startswith("table_queue_exporter_series_dropped_total")
    ]
    return float(line.split()[1])


def test_too_many_series_are_left_off_by_whole_families_and_counted() -> None:
    made = Page(10)
    made.put("small", {metrics.UP: [Sample(("db", str(i)), 1) for i in range(4)]})
    assert dropped(made) == 0
    made.put(
        "large",
        {
            metrics.TASKS: [Sample(("db", str(i), None, "ready"), 1) for i in range(7)],
            metrics.POLLS: [Sample(("db", str(i)), 1) for i in range(6)],
        },
    )
    text = made.body(Format.TEXT).decode()
    assert "table_queue_tasks" not in text, "half a family would be a false sum"
    assert text.count("\ntable_queue_polls_total{") == 6, "what fits stays"
    assert text.count("\ntable_queue_up{") == 4
    assert dropped(made) == 7
    made.remove("small")
    made.put(
        "large",
        {metrics.TASKS: [Sample(("db", str(i), None, "ready"), 1) for i in range(7)]},
    )
    assert made.body(Format.TEXT).decode().count("\ntable_queue_tasks{") == 7, "room again"
    assert dropped(made) == 7, "a counter never steps back"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1.0, "1"),
        (-3, "-3"),
        (True, "1"),
        (0.25, "0.25"),
        (0.1 + 0.2, "0.30000000000000004"),
        (1_700_000_000.123, "1700000000.123"),
        (123_456_789_012_345, "123456789012345"),
        (1e22, "1e+22"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (math.nan, "NaN"),
    ],
)
def test_numbers_lose_nothing(value: float, text: str) -> None:
    assert format_value(value) == text
    assert float(text) == value or math.isnan(value)


def test_promtool_has_nothing_to_say() -> None:
    """Every family of plain samples once; the contract tests show it a live page."""
    families = {
        metric: [Sample(tuple("x" for _ in metric.labels), 1)]
        for metric in metrics.METRICS
        if metric.kind != "histogram"
    }
    body = page(families).body(Format.TEXT)
    done = subprocess.run(
        [program("promtool"), "check", "metrics"], input=body, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout.decode(), done.stderr.decode()) == (0, "", "")
