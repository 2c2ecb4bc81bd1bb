"""Values: linted, described, and refused with a clear message when they are wrong."""

import pytest
import yaml

from helm import values as described
from tests.helm.charts import CHART, Values, every_set, lint, manifests, refusal, texts

DEFAULTS: Values = yaml.safe_load((CHART / "values.yaml").read_text())


@every_set
def test_lint_has_nothing_to_say(values: Values) -> None:
    assert lint(values) == []


@every_set
def test_renders_and_says_what_to_look_at_next(values: Values) -> None:
    notes = texts(values)["NOTES.txt"]
    assert "Look at next:" in notes
    assert "kubectl --namespace watching rollout status" in notes
    assert "helm --namespace watching test queues" in notes
    assert "<no value>" not in notes


def test_notes_name_what_is_missing() -> None:
    notes = texts()["NOTES.txt"]
    assert "create secret generic queues-table-queue-exporter-database --from-literal=dsn=" in notes
    for hint in ("serviceMonitor.enabled", "prometheusRule.enabled", "dashboards.enabled"):
        assert hint in notes
    assert "sql --database.dsn-file=/etc/table-queue-exporter/database/dsn" in notes
    off = {"state": {"persistence": {"enabled": False}}}
    assert "Counters start at 0" in texts(off)["NOTES.txt"]
    assert "Counters start at 0" not in notes


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"replicas": 2}, "'replicas' not allowed"),
        ({"image": {"tagg": "1"}}, "'tagg' not allowed"),
        ({"serviceMonitor": {"enable": True}}, "'enable' not allowed"),
        ({"replicaCount": "two"}, "/replicaCount': got string, want integer"),
        ({"replicaCount": -1}, "/replicaCount': minimum"),
        ({"shards": 0}, "/shards': minimum"),
        ({"image": {"pullPolicy": "Sometimes"}}, "value must be one of 'Always'"),
        ({"image": {"digest": "sha256:abc"}}, "/image/digest': 'sha256:abc' does not match"),
        ({"configReload": "both"}, "value must be one of 'restart', 'live'"),
        ({"antiAffinity": "firm"}, "value must be one of 'soft', 'hard'"),
        ({"log": {"level": "loud"}}, "value must be one of 'debug'"),
        ({"config": {"database": {}}}, "'database' not allowed"),
        ({"config": {"databases": {}}}, "/config/databases': minProperties"),
        ({"commonLabels": {"a": 1}}, "/commonLabels/a': got number, want string"),
        ({"service": {"port": 123456}}, "/service/port': maximum"),
        ({"databaseSecrets": {"main": {"passwordKey": "p"}}}, "missing property 'existingSecret'"),
        ({"databaseSecrets": {"a/b": {"existingSecret": "x"}}}, "invalid propertyName 'a/b'"),
        ({"prometheusRule": {"alerts": {"TableQueueLate": {}}}}, "'TableQueueLate' not allowed"),
        (
            {"prometheusRule": {"alerts": {"TableQueueStalled": {"for": "soon"}}}},
            "'soon' does not match pattern",
        ),
    ],
)
def test_the_schema_refuses(values: Values, said: str) -> None:
    assert said in refusal(values)


MAIN: Values = {"databases": {"main": {"dsn": "host=a"}}}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"config": MAIN, "existingConfigMap": "mine"}, "either config or existingConfigMap"),
        ({"shards": 2}, "shards split the databases of config"),
        (
            {"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}},
            "either serviceMonitor or podMonitor",
        ),
        ({"config": {"queues": []}}, "config.databases must name at least one database"),
        (
            {"config": MAIN, "databaseSecrets": {"mian": {"existingSecret": "s", "dsnKey": "d"}}},
            "databaseSecrets.mian names no database of config.databases: main",
        ),
        (
            {"config": MAIN, "databaseSecrets": {"main": {"existingSecret": "s"}}},
            "databaseSecrets.main needs passwordKey or dsnKey",
        ),
        (
            {"databaseSecrets": {"main": {"existingSecret": "s", "dsnKey": "d"}}},
            "without them use database.existingSecret",
        ),
        ({"webConfig": {"tls": True}}, "webConfig.existingSecret: name it"),
    ],
)
def test_contradictions_are_refused(values: Values, said: str) -> None:
    assert said in refusal(values)


@pytest.mark.parametrize(
    "database",
    [
        {"password": "geheim"},
        {"dsn": "postgresql://monitor:geheim@db/app"},
        {"dsn": "postgresql://monitor:ge/heim@db/app"},
        {"dsn": "postgresql://monitor@db/app?password=geheim"},
        {"dsn": "host=db user=monitor password=geheim"},
        {"dsn": "password = 'geheim' host=db"},
    ],
)
def test_a_password_in_the_configuration_is_refused_and_not_repeated(
    database: dict[str, str],
) -> None:
    said = refusal({"config": {"databases": {"main": database}}})
    assert "put it into a Secret and name that in databaseSecrets.main" in said
    assert "geheim" not in said


@pytest.mark.parametrize(
    "dsn", ["postgresql://monitor@db:5432/app", "host=db user=monitor passfile=/x/y", ""]
)
def test_an_address_without_a_password_is_taken(dsn: str) -> None:
    assert manifests({"config": {"databases": {"main": {"dsn": dsn}}}})


def test_every_value_is_described_and_in_the_readme() -> None:
    values = described.read((CHART / "values.yaml").read_text())
    readme = (CHART / "README.md").read_text()
    for value in values:
        assert value.description.endswith("."), value.name
        assert f"| `{value.name}` |" in readme
    assert len(values) > 80


def test_a_value_without_a_description_is_told_of() -> None:
    with pytest.raises(ValueError, match=r"image.tag has no '# --' above it"):
        described.read("image:\n  # -- Where.\n  registry: x\n  tag: y\n")


def test_global_values_of_a_parent_chart_are_taken() -> None:
    assert manifests({"global": {"anything": True}})


def test_templates_use_every_value() -> None:
    """A value that nothing reads is a promise that nobody keeps."""
    source = "".join(
        path.read_text() for path in (CHART / "templates").rglob("*") if path.is_file()
    )
    for value in described.read((CHART / "values.yaml").read_text()):
        assert f".{value.path[-1]}" in source, value.name
