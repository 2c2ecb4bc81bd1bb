"""Rules and dashboards in the chart are the repository's own, and generated files are fresh."""

from pathlib import Path

import pytest
import yaml

from helm import generate
from table_queue_exporter import __version__
from tests.alerts.programs import program, run
from tests.helm.charts import CHART, ROOT, SETS, Manifest, Values, manifests, of_kind, only, texts

FILES = generate.committed_files()
RULES: list[Manifest] = yaml.safe_load((ROOT / "alerts/table-queue.rules.yaml").read_text())[
    "groups"
]
ON: Values = {"prometheusRule": {"enabled": True}}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_is_fresh(path: Path) -> None:
    assert path.read_text() == FILES[path], "run: make generate"


def test_no_dashboard_is_left_over() -> None:
    assert {path.name for path in generate.copied_dashboards()} == {
        path.name for path in (ROOT / "dashboards").glob("*.json")
    }


def test_versions_are_the_programs() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__
    assert f"ARG VERSION={__version__}\n" in (ROOT / "Dockerfile").read_text()


def test_the_rules_are_the_very_rules() -> None:
    assert only("PrometheusRule", ON)["spec"]["groups"] == RULES
    assert "{{ $labels.queue }}" in texts(ON)["prometheusrule.yaml"], "Helm ate no template"


@pytest.mark.parametrize("values", [ON, SETS["full"]], ids=["plain", "changed"])
def test_promtool_takes_the_rendered_rules(values: Values, tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(only("PrometheusRule", values)["spec"], width=10_000))
    checked = run(program("promtool"), "check", "rules", "--lint=all", "--lint-fatal", file)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def _alerts(groups: list[Manifest]) -> dict[str, Manifest]:
    return {r["alert"]: r for group in groups for r in group["rules"] if "alert" in r}


def test_labels_of_the_object_are_not_those_of_the_alerts() -> None:
    labels = only("PrometheusRule", SETS["full"])["metadata"]["labels"]
    assert labels["release"] == "prometheus"


def test_alerts_are_switched_off_changed_labelled_and_linked_one_by_one() -> None:
    before = _alerts(RULES)
    after = _alerts(only("PrometheusRule", SETS["full"])["spec"]["groups"])
    assert before.keys() - after.keys() == {"TableQueueOutgrown"}
    for name, rule in after.items():
        changed = name == "TableQueueNoArrivals"
        severity = "critical" if changed else before[name]["labels"]["severity"]
        assert rule["labels"] == {"severity": severity, "team": "payments"}
        assert rule["for"] == ("10m" if changed else before[name]["for"])
        assert rule["expr"] == before[name]["expr"]
        notes = rule["annotations"]
        assert notes["runbook_url"] == f"https://wiki.example.org/queues/{name}"
        assert notes["dashboard_url"].startswith("https://graphs.example.org/d/table-queue-depth?")
        rest = {"runbook_url": "", "dashboard_url": ""}
        assert notes | rest == before[name]["annotations"] | rest


def test_a_group_without_rules_is_left_out() -> None:
    slow = next(g for g in RULES if g["name"] == "table-queue.alerts.slow")
    off = {rule["alert"]: {"enabled": False} for rule in slow["rules"]}
    groups = only("PrometheusRule", {"prometheusRule": {"enabled": True, "alerts": off}})["spec"][
        "groups"
    ]
    assert [g["name"] for g in groups] == [g["name"] for g in RULES if g is not slow]


def test_dashboards_are_the_committed_ones() -> None:
    objects = of_kind("ConfigMap", manifests({"dashboards": {"enabled": True}}))
    data = {name: text for made in objects for name, text in made["data"].items()}
    committed = {path.name: path.read_text() for path in (ROOT / "dashboards").glob("*.json")}
    assert {name: text.rstrip("\n") for name, text in data.items()} == {
        name: text.rstrip("\n") for name, text in committed.items()
    }
    for made in objects:
        assert made["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert len(made["data"]) == 1
        assert sum(len(text) for text in made["data"].values()) < 900_000, "a ConfigMap's limit"
