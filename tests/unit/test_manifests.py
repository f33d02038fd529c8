"""The manifests name each other, their pods and ports; nothing but these tests would notice a wrong name."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml

from hummingbird_operator.config import HOOK_PATH
from hummingbird_operator.ingest.event import BODY_BYTES
from tests.unit.manifests import DEPLOYMENTS, MANIFESTS, ROOT, Object, of_kind, pod, ports, read, selected

WEBHOOK = MANIFESTS / "ingest-webhook"

# --- the files ---


def test_every_file_is_in_a_kustomization_or_says_by_its_name_that_it_is_a_sample() -> None:
    lists = list(MANIFESTS.rglob("kustomization.yaml"))
    listed = {path.parent / name for path in lists for name in read(path)[0]["resources"]}
    assert [path for path in listed if not path.exists()] == []
    others = {*lists, MANIFESTS / "config.yaml", *MANIFESTS.rglob("*.example.yaml")}
    assert set(MANIFESTS.rglob("*.yaml")) - others == {path for path in listed if path.is_file()}


# --- pods ---


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_every_pod_keeps_to_the_restricted_standard_and_to_its_resources(name: str) -> None:
    spec = pod(name)
    (container,) = spec["containers"]
    assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}
    assert container["resources"]["limits"].keys() == {"memory"}, "a limit of CPU would only make it late"
    assert {key for volume in spec["volumes"] for key in volume} <= {"name", "configMap", "emptyDir"}
    assert not spec.keys() & {"hostNetwork", "hostPID", "hostIPC"}


def test_a_pod_has_its_token_because_it_asks_and_no_service_account_hands_one_out() -> None:
    accounts = [each for name in ("rbac", "rbac-ingest") for each in read(MANIFESTS / f"{name}.yaml")]
    accounts = [each for each in accounts if each["kind"] == "ServiceAccount"]
    assert {pod(name)["serviceAccountName"] for name in DEPLOYMENTS} == {each["metadata"]["name"] for each in accounts}
    assert [each["automountServiceAccountToken"] for each in accounts] == [False, False]
    assert all(pod(name)["automountServiceAccountToken"] for name in DEPLOYMENTS)


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_replicas_spread_over_nodes_and_those_of_the_webhook_over_zones_too(name: str) -> None:
    assert DEPLOYMENTS[name]["spec"]["replicas"] == 2
    keys = []
    for each in pod(name)["topologySpreadConstraints"]:
        assert selected(each["labelSelector"]) == [name]
        assert each["matchLabelKeys"] == ["pod-template-hash"], "a rollout counts its own pods only"
        assert (each["maxSkew"], each["whenUnsatisfiable"]) == (1, "ScheduleAnyway"), "one node must do"
        keys.append(each["topologyKey"])
    zones = ["topology.kubernetes.io/zone"] if "webhook" in name else []
    assert keys == [*zones, "kubernetes.io/hostname"]


def test_a_drain_takes_one_pod_at_a_time_of_all_that_cannot_be_away() -> None:
    meant = []
    for budget in of_kind("PodDisruptionBudget").values():
        (name,) = selected(budget["spec"]["selector"])
        assert budget["metadata"]["name"] == name
        assert budget["spec"]["maxUnavailable"] == 1 < DEPLOYMENTS[name]["spec"]["replicas"]
        assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        meant.append(name)
    assert sorted(meant) == ["hummingbird-ingest-webhook", "hummingbird-operator"], "the queue keeps what sqs leaves"


# --- network ---


def test_every_pod_is_reached_at_its_own_ports_and_no_other() -> None:
    policies = {
        path: each for path, each in of_kind("NetworkPolicy").items() if each["spec"]["policyTypes"] == ["Ingress"]
    }
    meant = []
    for path, policy in policies.items():
        (name,) = selected(policy["spec"]["podSelector"])
        (rule,) = policy["spec"]["ingress"]
        assert {port["port"] for port in rule["ports"]} == ports(name)
        assert path in {"networkpolicy.yaml", f"{name.removeprefix('hummingbird-')}/networkpolicy.yaml"}
        meant.append(name)
    assert sorted(meant) == sorted(DEPLOYMENTS)


def test_the_sample_of_what_goes_out_means_every_pod_of_ours() -> None:
    (policy,) = read(MANIFESTS / "egress.example.yaml")
    assert selected(policy["spec"]["podSelector"]) == sorted(DEPLOYMENTS)
    assert policy["spec"]["policyTypes"] == ["Egress"]


def test_the_sample_of_what_goes_out_lets_names_be_asked_for_where_clusters_commonly_answer() -> None:
    """A policy that cuts DNS cuts everything, and says nothing."""
    (policy,) = read(MANIFESTS / "egress.example.yaml")
    dns = next(rule for rule in policy["spec"]["egress"] if {"port": 53, "protocol": "UDP"} in rule["ports"])
    assert {(each["port"], each["protocol"]) for each in dns["ports"]} == {
        (port, protocol) for port in (53, 5353) for protocol in ("UDP", "TCP")
    }
    (named,) = (each["namespaceSelector"]["matchExpressions"] for each in dns["to"] if "namespaceSelector" in each)
    assert named == [
        {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["kube-system", "openshift-dns"]}
    ]
    blocks = {each["ipBlock"]["cidr"] for each in dns["to"] if "ipBlock" in each}
    assert blocks == {"169.254.20.10/32", "169.254.169.254/32"}, "a node's cache, and GKE's Cloud DNS"


def test_the_service_does_not_publish_the_metrics() -> None:
    (service,) = read(WEBHOOK / "service.yaml")
    assert [port["targetPort"] for port in service["spec"]["ports"]] == ["webhook"]


def test_the_sample_of_an_ingress_leads_to_the_webhook_and_lets_the_largest_event_through() -> None:
    (service,), (ingress,) = read(WEBHOOK / "service.yaml"), read(WEBHOOK / "ingress.example.yaml")
    (rule,) = ingress["spec"]["rules"]
    (path,) = rule["http"]["paths"]
    assert (path["path"], path["pathType"]) == (HOOK_PATH, "Exact")
    backend = path["backend"]["service"]
    assert backend["name"] == service["metadata"]["name"]
    assert backend["port"]["name"] in {port["name"] for port in service["spec"]["ports"]}
    assert ingress["spec"]["tls"][0]["hosts"] == [rule["host"]]
    sizes = {key: value for key, value in ingress["metadata"]["annotations"].items() if key.endswith("body-size")}
    assert len(sizes) == 2
    assert {int(size.removesuffix("m")) * 1024**2 for size in sizes.values()} == {BODY_BYTES}


def test_the_sample_of_a_route_leads_to_the_webhook_and_waits_as_long_as_gitlab() -> None:
    (service,), (route,) = read(WEBHOOK / "service.yaml"), read(WEBHOOK / "httproute.example.yaml")
    (rule,) = route["spec"]["rules"]
    assert rule["matches"] == [{"path": {"type": "Exact", "value": HOOK_PATH}, "method": "POST"}]
    (backend,) = rule["backendRefs"]
    assert backend["name"] == service["metadata"]["name"]
    assert backend["port"] in {port["port"] for port in service["spec"]["ports"]}
    assert int(rule["timeouts"]["request"].removesuffix("s")) > 10


# --- the overlay of docs/operations.md; tests/e2e/test_manifests.py builds it ---

TOKEN_FOLDER = "/run/secrets/hummingbird"
SECTION = (ROOT / "docs" / "operations.md").read_text().split("\n## An overlay\n")[1].split("\n### ")[0]
OVERLAY: Object = yaml.safe_load(SECTION.split("```yaml\n")[1].split("```")[0])


def patched(shipped: Object) -> Object:
    """An object with the overlay's patches, each of which adds something to all objects of a kind, or to one."""
    made: Any = copy.deepcopy(shipped)
    for patch in OVERLAY["patches"]:
        kind, name = patch["target"]["kind"], patch["target"].get("name", shipped["metadata"]["name"])
        fits = (kind, name) == (shipped["kind"], shipped["metadata"]["name"])
        for step in yaml.safe_load(patch["patch"]) if fits else []:
            *way, last = step["path"].split("/")[1:]
            place = made
            for part in way:
                place = place[int(part) if isinstance(place, list) else part]
            place.append(step["value"]) if last == "-" else place.update({last: step["value"]})
    return dict(made)


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_the_sample_of_an_overlay_gives_every_deployment_its_image_its_role_and_the_token(name: str) -> None:
    spec = patched(DEPLOYMENTS[name])["spec"]["template"]["spec"]
    accounts = [each for file in ("rbac", "rbac-ingest") for each in read(MANIFESTS / f"{file}.yaml")]
    accounts = [each for each in accounts if each["kind"] == "ServiceAccount"]
    (account,) = (patched(each) for each in accounts if each["metadata"]["name"] == spec["serviceAccountName"])
    assert account["imagePullSecrets"] == [{"name": "registry"}]
    assert "eks.amazonaws.com/role-arn" in account["metadata"]["annotations"]
    assert f"gitlab.token_file: {TOKEN_FOLDER}/token" in SECTION
    (mount,) = (each for each in spec["containers"][0]["volumeMounts"] if each["mountPath"] == TOKEN_FOLDER)
    assert {"name": mount["name"], "secret": {"secretName": "hummingbird-gitlab"}} in spec["volumes"]
