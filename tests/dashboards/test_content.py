"""What the dashboards promise, read from their JSON."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlsplit

import pytest
import yaml

from dashboards.panels import RATE_INTERVAL
from tests.dashboards.boards import BOARDS, HERE, PANELS, Panel, panel, panels, variables

ONCALL, DEPTH = BOARDS
ALERT_RULES = HERE.parent / "alerts" / "table-queue.rules.yaml"


def test_on_call_is_six_panels() -> None:
    assert [found.title for found in panels(ONCALL)] == [
        "Firing alerts",
        "Queues not being read",
        "Queues, worst first",
        "Lateness in objectives, top ten",
        "Failed in the last hour",
        "Share of attempts failing",
    ]
    assert len(BOARDS[ONCALL]["panels"]) == 6


def test_in_depth_has_its_rows() -> None:
    rows = [panel["title"] for panel in BOARDS[DEPTH]["panels"] if panel["type"] == "row"]
    assert rows == [
        "Tasks",
        "Flow",
        "Waiting and processing time",
        "Leases",
        "Attempts and poison tasks",
        "The table",
        "The exporter",
    ]


@pytest.mark.parametrize("found", PANELS, ids=str)
def test_panel_says_what_is_bad_and_what_to_do(found: Panel) -> None:
    shows, bad, do = found.data["description"].split("\n\n")
    assert shows.endswith(".")
    assert bad.startswith("**Bad:** ")
    assert do.startswith("**Do:** ")
    assert found.no_value, "an idle panel must say so"


@pytest.mark.parametrize("found", PANELS, ids=str)
def test_rates_have_a_least_interval(found: Panel) -> None:
    rates = any("$__rate_interval" in target["expr"] for target in found.targets)
    assert (found.data.get("interval") == RATE_INTERVAL) == rates
    for target in found.targets:
        assert (target.get("interval") == RATE_INTERVAL) == rates


def test_heatmaps_show_buckets_as_they_come() -> None:
    heatmaps = [found for found in PANELS if found.data["type"] == "heatmap"]
    assert [found.title for found in heatmaps] == ["Waiting time", "Processing time"]
    for found in heatmaps:
        (target,) = found.targets
        assert target["format"] == "heatmap"
        assert target["legendFormat"] == "{{le}}"
        assert target["expr"].startswith("sum by (le) (max by (")
        assert "_bucket{" in target["expr"]
        assert target["expr"].endswith("[$__rate_interval])))")
        assert found.data["options"]["calculate"] is False


@pytest.mark.parametrize(
    ("title", "line"),
    [
        ("Oldest task, by what it waits for", "objective"),
        ("Oldest task, by what it waits for", "lease"),
        ("Lateness by task type", "objective"),
        ("Waiting time, by task type", "objective"),
        ("Processing time, by task type", "lease"),
        ("Most attempts of a live task", "limit"),
    ],
)
def test_limits_that_differ_by_queue_are_queries(title: str, line: str) -> None:
    found = panel(DEPTH, title)
    (query,) = [target for target in found.targets if target["legendFormat"] == line]
    assert re.search(r"table_queue_(objective_seconds|lease_seconds|attempts_limit)", query["expr"])
    overrides = {o["matcher"]["options"] for o in found.data["fieldConfig"]["overrides"]}
    assert line in overrides


def test_ratio_is_logarithmic_with_lines_at_one_and_five() -> None:
    defaults = panel(ONCALL, "Lateness in objectives, top ten").data["fieldConfig"]["defaults"]
    assert defaults["custom"]["scaleDistribution"] == {"type": "log", "log": 10}
    assert [step["value"] for step in defaults["thresholds"]["steps"]] == [None, 1, 5]
    assert defaults["custom"]["thresholdsStyle"]["mode"] == "dashed"


def test_table_colours_the_ratio_and_puts_the_worst_first() -> None:
    found = panel(ONCALL, "Queues, worst first").data
    columns = {
        override["matcher"]["options"]: {p["id"]: p["value"] for p in override["properties"]}
        for override in found["fieldConfig"]["overrides"]
    }
    ratio = columns["Value #C"]
    assert ratio["displayName"] == "÷ objective"
    assert [step["value"] for step in ratio["thresholds"]["steps"]] == [None, 1, 5]
    assert found["targets"][0]["expr"].startswith("max by (")
    assert "table_queue_up{" in found["targets"][0]["expr"]
    names = {column["displayName"] for column in columns.values()}
    sorted_by = [(key["displayName"], key["desc"]) for key in found["options"]["sortBy"]]
    assert sorted_by == [("read", False), ("÷ objective", True), ("late", True)]
    assert {name for name, _ in sorted_by} <= names


@pytest.mark.parametrize("uid", BOARDS)
def test_variables(uid: str) -> None:
    found = variables(uid)
    labels = ["cluster", "namespace", "job", "database", "queue", "task_type"]
    assert list(found) == ["datasource", *labels]
    for name in labels:
        several = uid == ONCALL or name not in ("database", "queue")
        assert found[name]["multi"] is several
        assert found[name]["includeAll"] is several
        if several:
            # Matches series without the label too.
            assert found[name]["allValue"] == ".*"
            assert found[name]["current"]["value"] == ["$__all"]


def _named(url: str) -> set[str]:
    return set(re.findall(r"var-(\w+)=", url)) | set(re.findall(r"\$\{(\w+):queryparam\}", url))


@pytest.mark.parametrize(("uid", "other"), [(ONCALL, DEPTH), (DEPTH, ONCALL)])
def test_dashboards_link_to_each_other(uid: str, other: str) -> None:
    (link,) = BOARDS[uid]["links"]
    assert link["url"].startswith(f"/d/{other}?")
    assert link["keepTime"] is True
    assert _named(link["url"]) == {"datasource", "cluster", "namespace", "job"}


@pytest.mark.parametrize(
    ("title", "source"),
    [
        ("Queues, worst first", "__data.fields"),
        ("Lateness in objectives, top ten", "__field.labels"),
        ("Failed in the last hour", "__field.labels"),
        ("Share of attempts failing", "__field.labels"),
    ],
)
def test_rows_and_lines_link_to_their_queue(title: str, source: str) -> None:
    (link,) = panel(ONCALL, title).data["fieldConfig"]["defaults"]["links"]
    assert link["url"].startswith(f"/d/{DEPTH}?")
    assert _named(link["url"]) == set(variables(DEPTH))
    assert f"var-queue=${{{source}.queue:percentencode}}" in link["url"]
    assert "${__url_time_range}" in link["url"]


def test_alerts_link_to_variables_that_exist() -> None:
    urls = set()
    for group in yaml.safe_load(ALERT_RULES.read_text("utf-8"))["groups"]:
        urls |= {rule["annotations"]["dashboard_url"] for rule in group["rules"] if "alert" in rule}
    for url in urls:
        # What stands between braces is a template, not a part of the address.
        parts = urlsplit(re.sub(r"\{\{.*?\}\}", "", url))
        assert parts.path == f"/d/{DEPTH}"
        asked = {name for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
        assert {name.removeprefix("var-") for name in asked} <= set(variables(DEPTH))


@pytest.mark.parametrize("uid", BOARDS)
def test_alerts_are_marked_in_every_graph(uid: str) -> None:
    (annotation,) = BOARDS[uid]["annotations"]["list"]
    assert annotation["enable"] is True
    assert 'ALERTS{alertname=~"TableQueue.*",alertstate="firing"' in annotation["expr"]
