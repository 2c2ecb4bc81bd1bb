"""Every expression is PromQL, on metrics and labels that exist, with replicas put together."""

from __future__ import annotations

import re

import promql_parser as promql
import pytest

from alerts.model import JOB
from table_queue_exporter.metrics import METRICS
from tests.dashboards.boards import BOARDS, PANELS, expressions, variables

EXPRESSIONS = dict(expressions())
SERIES = {
    metric.name + suffix: set(metric.labels) | ({"le"} if suffix == "_bucket" else set())
    for metric in METRICS
    for suffix in (("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",))
}
OF_JOB = set(JOB.split(", "))
OF_ALERTS = {"alertname", "alertstate", "severity", "database", "queue", "task_type"}
LABELS = {**SERIES, "ALERTS": OF_ALERTS}
NOT_LARGEST = {
    "table_queue_exporter_build_info": "replicas are what is counted",
    "table_queue_exporter_config_last_reload_successful": "each replica with an old file counts",
}
"""Series that are not reduced to the largest of all replicas, and why."""


def selectors(expr: promql.Expr) -> list[tuple[promql.VectorSelector, list[promql.Expr]]]:
    """Every selector, with what stands around it from the outside to the inside."""
    found: list[tuple[promql.VectorSelector, list[promql.Expr]]] = []
    around: list[promql.Expr] = []

    def enter(node: promql.Expr) -> None:
        if isinstance(node, promql.VectorSelector):
            found.append((node, list(around)))
        around.append(node)

    def leave(_: promql.Expr) -> None:
        around.pop()

    promql.walk(expr, enter, leave)
    return found


def names(modifier: promql.AggModifier | promql.LabelModifier | None) -> set[str]:
    return set(modifier.labels) if modifier is not None else set()


@pytest.mark.parametrize("place", EXPRESSIONS)
def test_is_promql(place: str) -> None:
    promql.parse(EXPRESSIONS[place])


@pytest.mark.parametrize("place", EXPRESSIONS)
def test_names_only_what_the_exporter_has(place: str) -> None:
    found = selectors(promql.parse(EXPRESSIONS[place]))
    # Recording rules have a colon in their name; none is among these.
    assert {selector.name for selector, _ in found} <= set(LABELS)
    assert len(re.findall(r"\b(?:table_queue_\w+|ALERTS)\{", EXPRESSIONS[place])) == len(found)
    for selector, _ in found:
        used = {matcher.name for matcher in selector.matchers.matchers}
        assert used <= LABELS[selector.name or ""] | OF_JOB, selector


@pytest.mark.parametrize("place", EXPRESSIONS)
def test_groups_only_by_what_is_there(place: str) -> None:
    expr = promql.parse(EXPRESSIONS[place])
    problems: list[tuple[str, str]] = []

    def check(node: promql.Expr) -> None:
        inside = selectors(node)
        known = OF_JOB.union(*(LABELS[selector.name or ""] for selector, _ in inside))
        known |= set(re.findall(r'label_replace\(.*?, "(\w+)", ', node.prettify(), re.DOTALL))
        asked: set[str] = set()
        if isinstance(node, promql.AggregateExpr):
            assert node.modifier is None or node.modifier.type is promql.AggModifierType.By
            asked = names(node.modifier)
        elif isinstance(node, promql.BinaryExpr) and node.modifier is not None:
            asked = names(node.modifier.matching)
        problems.extend((label, str(node)) for label in asked - known)

    promql.walk(expr, check)
    assert problems == []


@pytest.mark.parametrize("place", EXPRESSIONS)
def test_replicas_count_once(place: str) -> None:
    for selector, around in selectors(promql.parse(EXPRESSIONS[place])):
        if selector.name in NOT_LARGEST:
            continue
        (*_, nearest) = [
            str(node.op) for node in around if isinstance(node, promql.AggregateExpr)
        ] or ["none"]
        # How many series there are does not matter where they are only counted to be 0 or more.
        only_known = EXPRESSIONS[place].count("or 0 * count(table_queue_up{")
        assert nearest == "max" or (nearest == "count" and only_known), selector


@pytest.mark.parametrize("uid", BOARDS)
def test_variables_ask_for_labels_that_exist(uid: str) -> None:
    for name, variable in variables(uid).items():
        if variable["type"] != "query":
            continue
        match = re.fullmatch(r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", variable["query"])
        assert match
        assert match[2] == name
        assert name in SERIES[match[1]] | OF_JOB


@pytest.mark.parametrize("uid", BOARDS)
def test_every_variable_is_used_by_every_panel_that_can(uid: str) -> None:
    for panel in PANELS:
        if panel.uid != uid:
            continue
        for target in panel.targets:
            for name, matchers in re.findall(r"(table_queue_\w+)\{(.*?)\}", target["expr"]):
                chosen = SERIES[name] & set(variables(uid)) | OF_JOB
                assert set(re.findall(r'"\$(\w+)"', matchers)) == chosen
