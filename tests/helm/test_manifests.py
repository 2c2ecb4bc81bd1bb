"""What is made: valid for Kubernetes and the operator, hardened, and without secrets."""

import json
from typing import Any

import kubernetes_validate
import pytest
import yaml

from table_queue_exporter.config import parse_config
from tests.helm.charts import (
    CHART,
    NAMESPACE,
    SETS,
    Manifest,
    Values,
    container,
    every_set,
    manifests,
    of_kind,
    only,
    pod_specs,
    workload,
)

OPERATOR = "monitoring.coreos.com/v1"
VERSIONS = ("1.25", "1.37")
"""The oldest that the chart is for, which is the oldest with schemas, and the newest."""


def test_versions_are_the_oldest_and_the_newest_that_the_validator_knows() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["kubeVersion"] == f">={VERSIONS[0]}.0-0"
    newest = kubernetes_validate.latest_version()
    assert tuple(int(part) for part in newest.split(".")) >= (1, 37), "update VERSIONS"


@pytest.mark.parametrize("version", [VERSIONS[0], kubernetes_validate.latest_version()])
@every_set
def test_is_valid_for_kubernetes(values: Values, version: str) -> None:
    objects = [m for m in manifests(values) if m["apiVersion"] != OPERATOR]
    assert len(objects) >= 4
    for document in objects:
        kubernetes_validate.validate(document, version, strict=True)


@every_set
def test_is_valid_for_the_operator(values: Values) -> None:
    from cloudcoil.models.prometheus_operator import v1

    for document in manifests(values):
        if document["apiVersion"] == OPERATOR:
            model = getattr(v1, document["kind"]).model_validate(document)
            # A key that the operator does not know is dropped: then it is missed here.
            kept = json.loads(model.model_dump_json(by_alias=True, exclude_unset=True))
            assert kept == document


def test_every_kind_of_the_operator_is_rendered_by_some_set() -> None:
    kinds = {m["kind"] for values in SETS.values() for m in manifests(values)}
    assert {"ServiceMonitor", "PodMonitor", "PrometheusRule", "NetworkPolicy"} <= kinds
    assert {"StatefulSet", "Deployment", "PodDisruptionBudget", "ServiceAccount"} <= kinds


@every_set
def test_every_pod_keeps_the_rules_of_the_restricted_profile(values: Values) -> None:
    """Pod Security Standards, "restricted", rule by rule; and a read-only root."""
    specs = pod_specs(manifests(values))
    assert len(specs) == 2, "the workload's and the test's"
    for spec in specs.values():
        for host in ("hostNetwork", "hostPID", "hostIPC"):
            assert not spec.get(host)
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] == 65532
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not spec["securityContext"].get("sysctls")
        assert spec["automountServiceAccountToken"] is False
        for volume in spec.get("volumes", []):
            (kind,) = volume.keys() - {"name"}
            assert kind in ("configMap", "emptyDir", "secret", "projected", "persistentVolumeClaim")
        for one in spec["containers"] + spec.get("initContainers", []):
            context = one["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert context["readOnlyRootFilesystem"] is True
            assert not context.get("privileged")
            assert not context.get("procMount")
            assert not any("hostPort" in port for port in one.get("ports", []))
            assert one["resources"]["requests"].keys() == {"cpu", "memory"}
            assert "memory" in one["resources"]["limits"]


def _texts(data: object) -> list[str]:
    if isinstance(data, dict):
        return [text for value in data.values() for text in _texts(value)]
    if isinstance(data, list):
        return [text for value in data for text in _texts(value)]
    return [data] if isinstance(data, str) else []


@every_set
def test_no_secret_is_in_a_config_map_and_none_is_made(values: Values) -> None:
    objects = manifests(values)
    assert of_kind("Secret", objects) == []
    for document in of_kind("ConfigMap", objects):
        for text in _texts(document.get("data", {})):
            assert "password:" not in text
            assert "password=" not in text
    for spec in pod_specs(objects).values():
        for one in spec["containers"]:
            assert all("secret" not in json.dumps(e).lower() for e in one.get("env", []))
            # A single mounted file would never rotate.
            assert all("subPath" not in mount for mount in one.get("volumeMounts", []))


@every_set
def test_names_and_selectors_fit_together(values: Values) -> None:
    objects = manifests(values)
    (template,) = [
        m["spec"]["template"] for m in objects if m["kind"] in ("StatefulSet", "Deployment")
    ]
    labels = template["metadata"]["labels"].items()
    (service,) = of_kind("Service", objects)
    assert service["spec"]["selector"].items() <= labels
    for kind in ("PodDisruptionBudget", "NetworkPolicy"):
        for document in of_kind(kind, objects):
            spec = document["spec"]
            selector = spec.get("selector") or spec["podSelector"]
            assert selector["matchLabels"].items() <= labels
    for monitor in of_kind("PodMonitor", objects):
        assert monitor["spec"]["selector"]["matchLabels"].items() <= labels
    for monitor in of_kind("ServiceMonitor", objects):
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        assert wanted <= service["metadata"]["labels"].items()
    for pod in of_kind("Pod", objects):
        assert not service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    names = [(m["kind"], m["metadata"]["name"], m["metadata"].get("namespace")) for m in objects]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("kind", ["serviceMonitor", "podMonitor"])
def test_instance_is_the_name_of_the_pod_and_limits_and_labels_arrive(kind: str) -> None:
    monitor = only(
        kind[0].upper() + kind[1:],
        {
            kind: {
                "enabled": True,
                "labels": {"release": "prometheus"},
                "sampleLimit": 5,
                "relabelings": [{"targetLabel": "cluster", "replacement": "eu"}],
                "metricRelabelings": [{"action": "labeldrop", "regex": "pid"}],
            }
        },
    )
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["sampleLimit"] == 5
    assert monitor["spec"]["namespaceSelector"] == {"matchNames": [NAMESPACE]}
    (endpoint,) = monitor["spec"].get("endpoints") or monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["relabelings"] == [
        {"sourceLabels": ["__meta_kubernetes_pod_name"], "targetLabel": "instance"},
        {"targetLabel": "cluster", "replacement": "eu"},
    ]
    assert endpoint["metricRelabelings"] == [{"action": "labeldrop", "regex": "pid"}]
    assert "basicAuth" not in endpoint


@pytest.mark.parametrize(
    ("values", "kind", "volume"),
    [
        ({}, "StatefulSet", "claim"),
        ({"state": {"persistence": {"enabled": False}}}, "Deployment", "emptyDir"),
        (
            {
                "shards": 2,
                "existingConfigMap": "mine",
                "state": {"persistence": {"enabled": False}},
            },
            "StatefulSet",
            "emptyDir",
        ),
    ],
)
def test_counters_live_on_a_volume_or_with_the_pod(values: Values, kind: str, volume: str) -> None:
    made = workload(values)
    assert made["kind"] == kind
    claims = made["spec"].get("volumeClaimTemplates", [])
    volumes = {v["name"]: v for v in made["spec"]["template"]["spec"]["volumes"]}
    assert [claim["metadata"]["name"] for claim in claims] == (
        ["state"] if volume == "claim" else []
    )
    assert ("state" in volumes) is (volume == "emptyDir")


def test_shards_times_replicas_are_one_stateful_set() -> None:
    values: Values = {"shards": 3, "replicaCount": 2, "existingConfigMap": "mine"}
    assert workload(values)["spec"]["replicas"] == 6
    assert "--shard=$(POD_NAME)/3" in container(values)["args"]
    assert not [a for a in container({})["args"] if "--shard" in a]


@pytest.mark.parametrize(("replicas", "budgets"), [(0, 0), (1, 0), (2, 1)])
def test_a_disruption_budget_comes_with_the_second_replica(replicas: int, budgets: int) -> None:
    assert len(of_kind("PodDisruptionBudget", manifests({"replicaCount": replicas}))) == budgets


MAIN: Values = {"config": {"databases": {"main": {"dsn": "host=a"}}}}


def test_a_change_restarts_or_reloads_and_never_both() -> None:
    def checksum(values: Values) -> Any:
        template = workload(values)["spec"]["template"]["metadata"]
        return template.get("annotations", {}).get("checksum/config")

    changed: Values = {"config": {"databases": {"main": {"dsn": "host=b"}}}}
    restart = {"configReload": "restart"}
    assert checksum(MAIN | restart) != checksum(changed | restart)
    assert "--config.auto-reload" not in container(MAIN | restart)["args"]
    assert checksum(MAIN) is None
    assert "--config.auto-reload" in container(MAIN)["args"]


@pytest.mark.parametrize("name", ["full", "replicas"])
def test_the_configuration_is_one_that_the_exporter_takes(name: str) -> None:
    """And it names the files of the Secrets, under the mounts of the container."""
    values = SETS[name]
    (made,) = [
        m for m in of_kind("ConfigMap", manifests(values)) if "config.yaml" in m.get("data", {})
    ]
    config = parse_config(made["data"]["config.yaml"], environment={}, files=False)
    assert config.databases.keys() == values["config"]["databases"].keys()
    mounts = {mount["mountPath"] for mount in container(values)["volumeMounts"]}
    for database, secret in values["databaseSecrets"].items():
        settings = config.databases[database]
        file = settings.password_file or settings.dsn_file
        assert file is not None
        assert str(file.parent) in mounts
        assert file.name == (secret.get("passwordKey") or secret.get("dsnKey"))


def _probes(values: Values) -> dict[str, Manifest]:
    found = container(values)
    return {name: found[f"{name}Probe"] for name in ("startup", "liveness", "readiness")}


def test_probes_ask_by_the_means_that_the_page_lets_in() -> None:
    plain = _probes({})
    assert plain["liveness"]["httpGet"]["path"] == "/-/healthy"
    assert plain["readiness"]["httpGet"]["path"] == "/-/ready"
    tls = _probes({"webConfig": {"existingSecret": "w", "tls": True}})
    assert tls["liveness"]["httpGet"]["scheme"] == "HTTPS"
    clients = _probes(SETS["replicas"])
    assert clients["readiness"]["tcpSocket"] == {"port": "http"}
    guarded = _probes(SETS["guarded"])
    for probe in guarded.values():
        assert "httpGet" not in probe
        assert "--tls-skip-verify" in probe["exec"]["command"]
    # No header with a password stands in a pod.
    assert "Authorization" not in json.dumps(workload(SETS["guarded"]))


def test_a_monitor_shows_the_password_by_reference() -> None:
    (endpoint,) = only("PodMonitor", SETS["guarded"])["spec"]["podMetricsEndpoints"]
    assert endpoint["scheme"] == "https"
    assert endpoint["basicAuth"]["username"] == {"name": "queues-login", "key": "username"}
    assert endpoint["basicAuth"]["password"] == {"name": "queues-login", "key": "password"}


def test_the_network_policy_lets_prometheus_in_and_the_databases_out() -> None:
    policy = only("NetworkPolicy", SETS["full"])["spec"]
    (ingress,) = policy["ingress"]
    assert ingress["ports"] == [{"port": "http", "protocol": "TCP"}]
    assert SETS["full"]["networkPolicy"]["ingress"]["from"][0] in ingress["from"]
    dns, databases = policy["egress"]
    assert {port["port"] for port in dns["ports"]} == {53}
    assert databases["to"] == [{"ipBlock": {"cidr": "10.0.7.0/24"}}]
    assert [port["port"] for port in databases["ports"]] == [5432, 6432]
    assert of_kind("NetworkPolicy", manifests()) == [], "off by default"


def test_pods_keep_apart_softly_firmly_or_not() -> None:
    def apart(values: Values) -> Any:
        spec = workload({"replicaCount": 2} | values)["spec"]["template"]["spec"]
        return list(spec.get("affinity", {}).get("podAntiAffinity", {}))

    assert apart({}) == ["preferredDuringSchedulingIgnoredDuringExecution"]
    assert apart({"antiAffinity": "hard"}) == ["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart({"antiAffinity": ""}) == []
    assert apart({"replicaCount": 1}) == []
    own: Values = {"affinity": {"podAntiAffinity": {"own": []}}}
    assert apart(own) == ["own"]


def test_extra_manifests_are_taken_as_they_are_or_as_templates() -> None:
    names = {m["metadata"]["name"] for m in of_kind("ConfigMap", manifests(SETS["full"]))}
    assert {"extra", "queues-templated"} <= names


def test_long_names_stay_short_enough_for_pods() -> None:
    long = "a" * 53
    made = [m for m in manifests({}, release=long) if m["kind"] == "StatefulSet"]
    assert len(made[0]["metadata"]["name"]) <= 52
