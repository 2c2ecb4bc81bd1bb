"""Every alert is complete: tested both ways, linked, and built on metrics that exist."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from alerts.generate import RULES, TESTS
from alerts.scenarios.dsl import OF_DATABASE, OF_TABLE, TYPED
from table_queue_exporter.metrics import METRICS

GROUPS = yaml.safe_load(RULES.read_text())["groups"]
EVERY_RULE: list[dict[str, Any]] = [rule for group in GROUPS for rule in group["rules"]]
ALERTS: dict[str, dict[str, Any]] = {r["alert"]: r for r in EVERY_RULE if "alert" in r}
RECORDS = {rule["record"] for rule in EVERY_RULE if "record" in rule}

# The table: names and severities are a promise to whoever routes them.
PROMISED = {
    "critical": {
        "TableQueueTasksLate",
        "TableQueueStalled",
        "TableQueueAttemptsFailing",
        "TableQueueFailuresSpike",
        "TableQueueDatabaseDown",
        "TableQueueExporterDown",
    },
    "warning": {
        "TableQueueFailures",
        "TableQueueWorkersNotReturning",
        "TableQueueLeasesNotReclaimed",
        "TableQueueLeaseReclaims",
        "TableQueueLeaseTooShort",
        "TableQueuePoisonTask",
        "TableQueueRetryStorm",
        "TableQueueBacklogGrowing",
        "TableQueueTaskStuck",
        "TableQueueNoArrivals",
        "TableQueueVacuumBlocked",
        "TableQueueBloated",
        "TableQueuePollFailing",
        "TableQueueUnwatched",
        "TableQueueConfigReloadFailed",
        "TableQueueStateNotSaved",
    },
    "info": {"TableQueueOutgrown", "TableQueueCountsLimited"},
}


def _series_names() -> set[str]:
    """Return all names of exported series, with the suffixes that histograms have."""
    names: set[str] = set()
    for metric in METRICS:
        if metric.kind == "histogram":
            names |= {metric.name + suffix for suffix in ("_bucket", "_sum", "_count")}
        else:
            names.add(metric.name)
    return names


SERIES = _series_names()


def _tests() -> list[dict[str, Any]]:
    return [
        test
        for path in sorted(TESTS.glob("*.test.yaml"))
        for test in yaml.safe_load(path.read_text())["tests"]
    ]


EVERY_TEST = _tests()


def test_all_promised_alerts_are_there() -> None:
    severities: dict[str, set[str]] = {}
    for name, rule in ALERTS.items():
        severities.setdefault(rule["labels"]["severity"], set()).add(name)
    assert severities == PROMISED


def _checks(alert: str) -> tuple[bool, bool]:
    """Return whether some test expects the alert to fire, and some expects it not to."""
    fires = silent = False
    for test in EVERY_TEST:
        for check in test.get("alert_rule_test", []):
            if check["alertname"] == alert:
                fires |= bool(check["exp_alerts"])
                silent |= not check["exp_alerts"]
        for check in test.get("promql_expr_test", []):
            if f'alertname="{alert}"' in check["expr"]:
                fires |= bool(check.get("exp_samples"))
                silent |= not check.get("exp_samples")
    return fires, silent


@pytest.mark.parametrize("alert", ALERTS)
def test_alert_is_tested_both_ways(alert: str) -> None:
    fires, silent = _checks(alert)
    assert fires, "no test in which it fires"
    assert silent, "no test in which it stays silent"


@pytest.mark.parametrize("alert", ALERTS)
def test_message_of_alert_is_tested(alert: str) -> None:
    checked = [
        check
        for test in EVERY_TEST
        for check in test.get("alert_rule_test", [])
        if check["alertname"] == alert
    ]
    assert checked


@pytest.mark.parametrize("alert", ALERTS)
def test_alert_says_what_a_woken_person_needs(alert: str) -> None:
    annotations = ALERTS[alert]["annotations"]
    assert re.fullmatch(r"[A-Z][^{}]+\.", annotations["summary"]), "one static sentence"
    assert "{{ $labels." in annotations["description"]
    assert annotations["runbook_url"].endswith(f"/{alert}")
    for label in ("database", "queue"):
        assert f"var-{label}={{{{ $labels.{label} | urlquery }}}}" in annotations["dashboard_url"]


@pytest.mark.parametrize("rule", EVERY_RULE, ids=lambda rule: rule.get("alert") or rule["record"])
def test_rule_names_only_what_exists(rule: dict[str, Any]) -> None:
    text = rule["expr"] + " " + " ".join(rule.get("annotations", {}).values())
    recorded = set(re.findall(r"\b\w+:table_queue_\w+:\w+", text))
    assert recorded <= RECORDS
    raw = set(re.findall(r"(?<![:\w])table_queue_\w+(?![:\w])", text))
    assert raw <= SERIES


def test_every_record_is_used() -> None:
    used = {
        name
        for rule in EVERY_RULE
        for name in re.findall(
            r"\b\w+:table_queue_\w+:\w+",
            rule["expr"] + " " + " ".join(rule.get("annotations", {}).values()),
        )
        if name != rule.get("record")
    }
    assert RECORDS - used == set()


def test_scenarios_label_series_as_the_exporter_does() -> None:
    labels = {metric.name: set(metric.labels) for metric in METRICS}
    suffix = re.compile(r"_(bucket|sum|count)$")
    for test in EVERY_TEST:
        for series in test["input_series"]:
            name, _, inner = series["series"].partition("{")
            if name == "up":
                continue
            family = name if name in labels else suffix.sub("", name)
            assert family in labels, f"{name} is not exported"
            own = set(re.findall(r"(\w+)=", inner))
            own -= {"cluster", "namespace", "job", "instance", "le"}
            assert own <= labels[family], name
            # A queue whose model has no task type leaves that label out; versions do not matter.
            missing = labels[family] - own
            assert missing <= {"task_type", "version", "python_version"}, name


def test_scenarios_know_the_levels_of_metrics() -> None:
    for metric in METRICS:
        short = metric.name.removeprefix("table_queue_")
        assert (short in OF_TABLE) <= ("table" in metric.labels)
        assert (short in OF_DATABASE) <= ("queue" not in metric.labels)
        assert (short in TYPED) <= ("task_type" in metric.labels)
