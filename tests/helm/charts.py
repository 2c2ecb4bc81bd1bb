"""Renders the chart with Helm's own engine."""

import json
from pathlib import Path
from typing import Any

import helm_python as helm
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "table-queue-exporter"
CI = sorted((CHART / "ci").glob("*-values.yaml"))
NAMESPACE = "watching"

Manifest = dict[str, Any]
Values = dict[str, Any]

SETS: dict[str, Values] = {"defaults": {}} | {
    path.name.removesuffix("-values.yaml"): yaml.safe_load(path.read_text()) for path in CI
}
"""The values that every check goes through, by name."""
every_set = pytest.mark.parametrize("values", SETS.values(), ids=SETS)


def texts(values: Values | None = None, *, release: str = "queues") -> dict[str, str]:
    """Every rendered template by its name. Raises HelmError."""
    with helm.Chart.load(CHART) as chart:
        rendered = chart.render(values, name=release, namespace=NAMESPACE)
    return {name.partition("/templates/")[2]: text for name, text in rendered.items()}


def manifests(values: Values | None = None, *, release: str = "queues") -> list[Manifest]:
    """Every object that is made. Raises HelmError."""
    return [
        document
        for name, text in texts(values, release=release).items()
        if name != "NOTES.txt"
        for document in yaml.safe_load_all(text)
        if document is not None
    ]


def only(kind: str, values: Values | None = None) -> Manifest:
    """The one object of a kind."""
    found = of_kind(kind, manifests(values))
    assert len(found) == 1, f"{len(found)} × {kind}"
    return found[0]


def of_kind(kind: str, objects: list[Manifest]) -> list[Manifest]:
    """The objects of a kind."""
    return [document for document in objects if document["kind"] == kind]


def workload(values: Values | None = None) -> Manifest:
    """The StatefulSet or the Deployment."""
    (found,) = [m for m in manifests(values) if m["kind"] in ("StatefulSet", "Deployment")]
    return found


def pod_specs(objects: list[Manifest]) -> dict[str, Manifest]:
    """The spec of every pod, those of a workload's template and of hooks, by kind."""
    found = {}
    for document in objects:
        if document["kind"] == "Pod":
            found["Pod"] = document["spec"]
        elif "template" in document.get("spec", {}):
            found[document["kind"]] = document["spec"]["template"]["spec"]
    return found


def container(values: Values | None = None) -> Manifest:
    """The exporter's container."""
    (found,) = workload(values)["spec"]["template"]["spec"]["containers"]
    return dict(found)


def refusal(values: Values) -> str:
    """What Helm says to values that it refuses."""
    with pytest.raises(helm.HelmError) as refused:
        manifests(values)
    return str(refused.value)


def lint(values: Values | None = None) -> list[str]:
    """What `helm lint` warns of, or worse."""
    answer: dict[str, Any] = helm.lint(CHART, values)
    messages = [f"{m['path']}: {m['error']}" for m in answer["messages"] if m["severity"] > 1]
    return messages + [json.dumps(error) for error in answer["errors"]]
