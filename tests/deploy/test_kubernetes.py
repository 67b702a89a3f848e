"""deploy/k8s, rendered: valid for Kubernetes, and about settings, paths and times that a node really has."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from dotenv import dotenv_values

from app import __version__, metrics
from app.access.plane import bootstrap_key
from app.adapters import open_adapters
from app.core.addresses import EventsKind, events_kind, split_address
from app.core.memory import MemoryShares
from app.core.redis_address import parse_redis_url
from app.core.sizes import MIB
from app.main import Homing
from app.profiles.loader import load_profiles
from app.runtime.services import STOP
from app.server.run import GRACE_SECONDS
from app.settings import Settings, load_settings, variables
from tests.deploy.rendering import KUBERNETES, Manifest, render

ALONE = ("overlays/single", "overlays/embedded")
REDIS_OF_MANY = ("redis-cluster", "redis-sentinel")
NODES = (*ALONE, "overlays/cluster", *(f"overlays/{one}" for one in REDIS_OF_MANY), "overlays/production")
OVERLAYS = (*NODES, "analysis")
VERSIONS = ("1.25", "1.37")
"""The oldest that has everything used here, and the newest whose schema the validator brings along."""
POD_NAME = "homing-6f7c9d8b5-abcde"

Rendered = Callable[[str], list[Manifest]]


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    scratch, known = tmp_path_factory.mktemp("kustomize"), dict[str, list[Manifest]]()

    def once(overlay: str) -> list[Manifest]:
        if overlay not in known:
            known[overlay] = render(overlay, scratch)
        return known[overlay]

    return once


def of_kind(manifests: list[Manifest], kind: str) -> list[Manifest]:
    return [one for one in manifests if one["kind"] == kind]


def named(manifests: list[Manifest], kind: str, name: str) -> Manifest:
    return next(one for one in of_kind(manifests, kind) if one["metadata"]["name"] == name)


def pods(manifests: list[Manifest]) -> Iterator[tuple[str, Manifest]]:
    """Name and spec of the pods of everything that makes pods."""
    for one in manifests:
        spec = one.get("spec", {})
        if one["kind"] == "CronJob":
            spec = spec["jobTemplate"]["spec"]
        if "template" in spec:
            yield f"{one['kind']} {one['metadata']['name']}", spec["template"]["spec"]


def node_pod(manifests: list[Manifest]) -> Manifest:
    pod: Manifest = named(manifests, "Deployment", "homing")["spec"]["template"]["spec"]
    return pod


def environment_of(overlay: str, manifests: list[Manifest]) -> dict[str, str]:
    """The variables that a node's container gets, with the Secret that people make by the example."""
    (container,) = node_pod(manifests)["containers"]
    found: dict[str, str] = {}
    for source in container["envFrom"]:
        if "configMapRef" in source:
            found |= named(manifests, "ConfigMap", source["configMapRef"]["name"])["data"]
        elif overlay == "overlays/production":
            assert source["secretRef"]["name"] == "homing-secrets"
            example = KUBERNETES / overlay / "secrets.example.env"
            found |= {name: value or "" for name, value in dotenv_values(example).items()}
        else:
            data = named(manifests, "Secret", source["secretRef"]["name"])["data"]
            found |= {name: base64.b64decode(value).decode() for name, value in data.items()}
    for one in container["env"]:
        assert "value" in one or one["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
        found[one["name"]] = one.get("value", POD_NAME)
    return found


@pytest.fixture
def settings_of(rendered: Rendered, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Settings]:
    def load(overlay: str) -> Settings:
        for name, value in environment_of(overlay, rendered(overlay)).items():
            monkeypatch.setenv(name, value)
        return load_settings(_env_file=None)

    return load


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_everything_is_valid(rendered: Rendered, overlay: str, version: str) -> None:
    for manifest in rendered(overlay):
        kubernetes_validate.validate(manifest, version, strict=True)


def test_the_validator_would_find_a_mistake(rendered: Rendered) -> None:
    broken = {**named(rendered("overlays/cluster"), "PodDisruptionBudget", "homing"), "spec": {"minAvailabel": 1}}

    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, VERSIONS[1], strict=True)


@pytest.mark.parametrize("overlay", NODES)
def test_every_variable_exists_and_has_a_value_that_a_node_accepts(
    rendered: Rendered, settings_of: Callable[[str], Settings], overlay: str
) -> None:
    given = environment_of(overlay, rendered(overlay))

    assert not given.keys() - variables()
    assert {"HOMING_STORE_URL", "HOMING_MQTT_URL", "HOMING_NODE_ID", "HOMING_API_HOST"} <= given.keys()
    settings = settings_of(overlay)
    assert settings.profile in load_profiles(None)
    assert settings.node.id == POD_NAME
    assert settings.api.host == "0.0.0.0"  # noqa: S104 - what a container has to listen on


@pytest.mark.parametrize("overlay", NODES)
def test_several_nodes_share_a_store_and_one_alone_may_have_it_in_memory(
    rendered: Rendered, settings_of: Callable[[str], Settings], overlay: str
) -> None:
    manifests, alone = rendered(overlay), settings_of(overlay).store.url.startswith("memory:")
    deployment = named(manifests, "Deployment", "homing")["spec"]

    assert alone == (overlay in ALONE)
    if alone:
        assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"})
    else:
        replicas = (
            deployment.get("replicas") or named(manifests, "HorizontalPodAutoscaler", "homing")["spec"]["minReplicas"]
        )
        assert replicas >= 3
        assert deployment["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
        selector = named(manifests, "PodDisruptionBudget", "homing")["spec"]["selector"]
        assert selector == deployment["selector"]


@pytest.mark.parametrize("overlay", ALONE)
def test_a_node_with_its_store_in_memory_refuses_before_its_container_is_ended(
    rendered: Rendered, settings_of: Callable[[str], Settings], overlay: str
) -> None:
    (container,) = node_pod(rendered(overlay))["containers"]
    memory = int(container["resources"]["limits"]["memory"].removesuffix("Mi")) * MIB

    assert settings_of(overlay).store.records_bytes <= MemoryShares.of(memory).records_bytes


def test_services_for_development_are_not_for_production(rendered: Rendered) -> None:
    names = {one["metadata"]["name"] for one in rendered("overlays/production")}
    assert not names & {"redis", "mosquitto"}
    assert not of_kind(rendered("overlays/production"), "Secret"), "passwords do not belong into a repository"


@pytest.mark.parametrize("overlay", NODES)
def test_files_that_settings_name_are_mounted(
    rendered: Rendered, settings_of: Callable[[str], Settings], overlay: str
) -> None:
    settings = settings_of(overlay)
    (container,) = node_pod(rendered(overlay))["containers"]
    mounted = [Path(one["mountPath"]) for one in container["volumeMounts"]]
    files = (settings.mqtt.ca_file, settings.mqtt.cert_file, settings.mqtt.key_file, settings.profiles.dir)
    folders = [Path(settings.latency.log_dir)] if settings.latency.log_dir else []

    for path in [*folders, *(one for one in files if one)]:
        assert any(path.is_relative_to(place) for place in mounted), f"{path} is not in a volume"


def test_events_of_one_node_lie_on_a_volume_that_outlives_it_and_has_room_for_them(
    rendered: Rendered, settings_of: Callable[[str], Settings]
) -> None:
    manifests, events = rendered("overlays/embedded"), settings_of("overlays/embedded").events
    folder = Path(split_address(events.url).path)
    pod = node_pod(manifests)
    (mount,) = (one for one in pod["containers"][0]["volumeMounts"] if folder.is_relative_to(one["mountPath"]))
    (volume,) = (one for one in pod["volumes"] if one["name"] == mount["name"])
    claim = named(manifests, "PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"])["spec"]

    assert events_kind(events.url) is EventsKind.ROCKS
    assert folder != Path(mount["mountPath"]), "a volume may have a folder lost+found"
    assert claim["accessModes"] == ["ReadWriteOnce"], "one process has it open"
    assert int(claim["resources"]["requests"]["storage"].removesuffix("Gi")) * 2**30 >= 2 * events.quota_bytes
    assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsUser"], "or nobody could write there"


@pytest.mark.parametrize("overlay", NODES)
def test_probes_ask_paths_and_ports_that_the_api_has(
    rendered: Rendered, settings_of: Callable[[str], Settings], overlay: str
) -> None:
    settings = settings_of(overlay)
    alone = settings.model_copy(
        update={"store": Settings(_env_file=None).store.model_copy(update={"url": "memory://"})}
    )
    plain = alone.model_copy(update={"mqtt": type(alone.mqtt)(), "access": type(alone.access)()})
    adapters = open_adapters(plain, Counter(), lambda _error: None)
    paths = set(Homing(plain, adapters, lambda _error: None).application.openapi()["paths"])
    (container,) = node_pod(rendered(overlay))["containers"]
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}

    probes = {name: container[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {name: probe["path"] for name, probe in probes.items()} == {
        "startupProbe": "/healthz",
        "livenessProbe": "/healthz",
        "readinessProbe": "/readyz",
    }
    assert {"/healthz", "/readyz", "/metrics"} <= paths
    assert {probe["port"] for probe in probes.values()} == {"ops"}
    assert ports == {"http": settings.api.port, "ops": settings.ops.port}
    (served,) = named(rendered(overlay), "Service", "homing")["spec"]["ports"]
    assert served["targetPort"] == "http", "health and metrics are not for callers"


@pytest.mark.parametrize("overlay", NODES)
def test_nobody_is_let_in_without_a_key(settings_of: Callable[[str], Settings], overlay: str) -> None:
    settings = settings_of(overlay)
    assert not settings.access.open
    assert settings.access.migrate
    assert bootstrap_key(settings.access) is not None
    assert settings.access.url.startswith("sqlite:" if overlay in ALONE else "postgresql:")


@pytest.mark.parametrize("overlay", NODES)
def test_a_pod_has_the_time_that_a_node_takes_to_stop(
    rendered: Rendered, settings_of: Callable[[str], Settings], overlay: str
) -> None:
    pod = node_pod(rendered(overlay))
    *_, program = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    pre_stop = float(program.removeprefix("import time; time.sleep(").removesuffix(")"))
    drain = settings_of(overlay).cluster.drain_delay.total_seconds()

    assert pod["terminationGracePeriodSeconds"] >= pre_stop + drain + GRACE_SECONDS + STOP.total_seconds()
    readiness = pod["containers"][0]["readinessProbe"]
    assert drain + pre_stop > readiness["periodSeconds"] * readiness["failureThreshold"] + readiness["timeoutSeconds"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_pods_are_what_restricted_pod_security_allows(rendered: Rendered, overlay: str) -> None:
    seen = dict(pods(rendered(overlay)))
    assert seen
    for name, pod in seen.items():
        context = pod["securityContext"]
        assert context["runAsNonRoot"] is True, name
        assert context["runAsUser"] > 0, name
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert pod["automountServiceAccountToken"] is False, name
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}, name
            assert "memory" in container["resources"]["limits"], name
    for namespace in of_kind(rendered(overlay), "Namespace"):
        assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_images_have_the_version_of_this_tree_or_a_fixed_one(rendered: Rendered, overlay: str) -> None:
    for name, pod in pods(rendered(overlay)):
        for container in pod["containers"]:
            image, _, tag = container["image"].partition(":")
            assert tag == __version__ if image.startswith("homing") else tag not in ("", "latest"), name


def test_it_scales_on_a_metric_that_nodes_have_and_that_the_adapter_hands_on(rendered: Rendered) -> None:
    spec = named(rendered("overlays/production"), "HorizontalPodAutoscaler", "homing")["spec"]
    (pod_metric,) = (one["pods"] for one in spec["metrics"] if one["type"] == "Pods")
    adapter: Any = yaml.safe_load((KUBERNETES / "overlays/production/prometheus-adapter.yaml").read_text())
    (rule,) = adapter["rules"]["custom"]

    assert pod_metric["metric"]["name"] == "homing_commands_in_flight" == rule["name"]["as"]
    assert rule["seriesQuery"].startswith("homing_commands_in_flight{")
    assert '"homing_commands_in_flight", "gauge"' in Path(metrics.__file__).read_text()
    # With a third of the nodes gone, the others still have room for the callers.
    limit = load_settings(_env_file=None).command.max_waiters
    assert int(pod_metric["target"]["averageValue"]) * 3 / 2 <= limit
    assert spec["behavior"]["scaleDown"]["stabilizationWindowSeconds"] >= 300


def test_network_policies_let_nodes_reach_what_their_settings_name(
    rendered: Rendered, settings_of: Callable[[str], Settings]
) -> None:
    for overlay in (one for one in NODES if one not in ALONE):
        policies = {one["metadata"]["name"]: one["spec"] for one in of_kind(rendered(overlay), "NetworkPolicy")}
        assert policies["nobody"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
        allowed = {port["port"] for rule in policies["homing"]["egress"] for port in rule["ports"]}
        settings = settings_of(overlay)
        for url in (settings.store.url, settings.mqtt.url):
            assert int(url.rpartition(":")[2].partition("/")[0]) in allowed
        assert 53 in allowed


def test_mosquitto_runs_with_the_configuration_that_was_tested(rendered: Rendered) -> None:
    tested = (KUBERNETES.parent / "mosquitto.conf").read_text()
    config = next(
        one
        for one in of_kind(rendered("overlays/cluster"), "ConfigMap")
        if one["metadata"]["name"].startswith("mosquitto")
    )
    assert config["data"]["mosquitto.conf"] == tested


@pytest.mark.parametrize("kind", REDIS_OF_MANY)
def test_servers_start_by_the_scripts_and_rights_of_the_compose_files(rendered: Rendered, kind: str) -> None:
    manifests = rendered(f"overlays/{kind}")
    scripts = next(
        one for one in of_kind(manifests, "ConfigMap") if one["metadata"]["name"].startswith("redis-scripts")
    )
    for name, text in scripts["data"].items():
        folder = "redis" if name == "users.acl" else "compose"
        assert text == (KUBERNETES.parent / folder / name).read_text(), name


@pytest.mark.parametrize("kind", REDIS_OF_MANY)
def test_the_servers_that_nodes_are_told_of_are_there_and_may_be_reached(
    rendered: Rendered, settings_of: Callable[[str], Settings], kind: str
) -> None:
    manifests = rendered(f"overlays/{kind}")
    address = parse_redis_url(settings_of(f"overlays/{kind}").store.url)
    joined = [one.partition(":")[0] for _, pod in pods(manifests) for one in pod["containers"][0].get("args", [])]
    for host, port in address.seeds:
        pod_name, _, service = host.partition(".")
        servers = named(manifests, "StatefulSet", service)["spec"]
        assert int(pod_name.removeprefix(f"{service}-")) < servers["replicas"]
        assert servers["serviceName"] == service
        served = {one["containerPort"]: one["name"] for one in servers["template"]["spec"]["containers"][0]["ports"]}
        rules = named(manifests, "NetworkPolicy", service)["spec"]["ingress"]
        assert any({"protocol": "TCP", "port": served[port]} in rule["ports"] for rule in rules)
        assert kind != "redis-cluster" or host in joined
    replicas = named(manifests, "StatefulSet", "redis")["spec"]["replicas"]
    assert replicas == (len({one for one in joined if one.startswith("redis-")}) if kind == "redis-cluster" else 3)


def test_the_analysis_reads_what_the_nodes_write(rendered: Rendered) -> None:
    nodes, analyses = rendered("overlays/production"), rendered("analysis")
    written = {
        one["persistentVolumeClaim"]["claimName"]
        for one in node_pod(nodes)["volumes"]
        if "persistentVolumeClaim" in one
    }
    named(nodes, "PersistentVolumeClaim", "homing-latency-log")
    for name, pod in pods(analyses):
        claims = {
            one["name"]: one["persistentVolumeClaim"]["claimName"] for one in pod["volumes"] if "emptyDir" not in one
        }
        assert claims["latency-log"] in written, name
        (container,) = pod["containers"]
        assert container["command"] == ["spark-submit"]
        assert container["args"][:4] == ["--master", "local[*]", "--deploy-mode", "client"]
        folder = next(one["mountPath"] for one in container["volumeMounts"] if one["name"] == "latency-log")
        assert folder in container["args"]
