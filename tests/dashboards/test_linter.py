"""The rules of grafana's dashboard-linter that apply here; `LEFT_OUT` says why others do not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import promql_parser as promql
import pytest
from grafana_foundation_sdk.models import units

from tests.dashboards.boards import BOARDS, PANELS, SOME, fill, variables
from tests.dashboards.test_promql import selectors

Problems = Iterator[str]

LEFT_OUT = {
    "template-instance-rule": "a queue belongs to a database, not to the exporter that reads it; "
    "replicas are put together, and a choice of instance would take them apart",
    "target-instance-rule": "as template-instance-rule",
    "target-logql-rule": "no Loki here",
    "target-logql-auto-rule": "no Loki here",
}
ONLY_IN_PART = {
    "template-job-rule": "its allValue is `.*`, not `.+`: All also takes series without the label, "
    "as some ways of collecting write none",
    "target-job-rule": "ALERTS is matched by job or none: an alert on absent exporters has no job",
}
UNITS = {value for name, value in vars(units).items() if name[0].isupper()}


def template_datasource(uid: str) -> Problems:
    found = [v for v in variables(uid).values() if v["type"] == "datasource"]
    if [(v["query"], v["name"], v["label"]) for v in found] != [
        ("prometheus", "datasource", "Data source")
    ]:
        yield "one variable `datasource`, labelled `Data source`"


def template_job(uid: str) -> Problems:
    job = variables(uid)["job"]
    if job["type"] != "query" or job["datasource"]["uid"] != "${datasource}":
        yield "a query of the chosen data source"
    if job["label"] != "Job" or not job["multi"]:
        yield "labelled `Job`, for several values"


def template_label_promql(uid: str) -> Problems:
    for name, variable in variables(uid).items():
        if variable["type"] == "query":
            match = re.fullmatch(r"label_values\((.*), \w+\)", variable["query"])
            if match is None:
                yield f"{name}: {variable['query']}"
            else:
                promql.parse(fill(uid, match[1], SOME))


def template_on_time_change_reload(uid: str) -> Problems:
    for name, variable in variables(uid).items():
        if variable["type"] == "query" and variable["refresh"] != 2:
            yield name


def panel_datasource(uid: str) -> Problems:
    for panel in _panels(uid):
        if panel["datasource"]["uid"] != "${datasource}":
            yield panel["title"]


def panel_title_description(uid: str) -> Problems:
    for panel in _panels(uid):
        if not panel["title"] or not panel["description"]:
            yield str(panel["id"])


def panel_units(uid: str) -> Problems:
    for panel in _panels(uid):
        chosen = [panel["fieldConfig"]["defaults"].get("unit")]
        for override in panel["fieldConfig"]["overrides"]:
            chosen += [p["value"] for p in override["properties"] if p["id"] == "unit"]
        if not set(chosen) <= UNITS:
            yield f"{panel['title']}: {chosen}"


def panel_no_targets(uid: str) -> Problems:
    for panel in _panels(uid):
        if not panel["targets"]:
            yield panel["title"]


def target_promql(uid: str) -> Problems:
    for title, text in _expressions(uid):
        try:
            promql.parse(text)
        except ValueError as error:
            yield f"{title}: {error}"


def target_rate_interval(uid: str) -> Problems:
    for panel in _panels(uid):
        for target in panel["targets"]:
            windows = re.findall(r"\b(?:i?rate)\([^\[]*\[([^\]]*)\]", target["expr"])
            if set(windows) - {"$__rate_interval"}:
                yield f"{panel['title']}: {windows}"


def target_job(uid: str) -> Problems:
    for panel in _panels(uid):
        for target in panel["targets"]:
            for name, matchers in re.findall(r"(\w+)\{(.*?)\}(?=[\[)\s]|$)", target["expr"]):
                wanted = 'job=~"$job|"' if name == "ALERTS" else 'job=~"$job"'
                if wanted not in matchers:
                    yield f"{panel['title']}: {name}"


def target_counter_agg(uid: str) -> Problems:
    for title, text in _expressions(uid):
        for selector, around in selectors(promql.parse(text)):
            if (selector.name or "").endswith("_total"):
                *_, call, matrix = around
                if not isinstance(matrix, promql.MatrixSelector) or not (
                    isinstance(call, promql.Call)
                    and call.func.name in ("rate", "irate", "increase")
                ):
                    yield f"{title}: {selector}"


def uneditable_dashboard(uid: str) -> Problems:
    if BOARDS[uid]["editable"]:
        yield uid


def _panels(uid: str) -> list[dict[str, Any]]:
    return [panel.data for panel in PANELS if panel.uid == uid]


def _expressions(uid: str) -> Iterator[tuple[str, str]]:
    for panel in _panels(uid):
        for target in panel["targets"]:
            yield panel["title"], fill(uid, target["expr"], SOME)


RULES: dict[str, Callable[[str], Problems]] = {
    "template-datasource-rule": template_datasource,
    "template-job-rule": template_job,
    "template-label-promql-rule": template_label_promql,
    "template-on-time-change-reload-rule": template_on_time_change_reload,
    "panel-datasource-rule": panel_datasource,
    "panel-title-description-rule": panel_title_description,
    "panel-units-rule": panel_units,
    "panel-no-targets-rule": panel_no_targets,
    "target-promql-rule": target_promql,
    "target-rate-interval-rule": target_rate_interval,
    "target-job-rule": target_job,
    "target-counter-agg-rule": target_counter_agg,
    "uneditable-dashboard-rule": uneditable_dashboard,
}


@pytest.mark.parametrize("uid", BOARDS)
@pytest.mark.parametrize("rule", RULES)
def test_rule(rule: str, uid: str) -> None:
    assert list(RULES[rule](uid)) == []


def test_every_rule_is_here_or_left_out_with_a_reason() -> None:
    assert len(RULES.keys() | LEFT_OUT.keys()) == 17, "the linter has 17 rules"
    assert not RULES.keys() & LEFT_OUT.keys()
    assert ONLY_IN_PART.keys() <= RULES.keys()
    assert all({**LEFT_OUT, **ONLY_IN_PART}.values())
