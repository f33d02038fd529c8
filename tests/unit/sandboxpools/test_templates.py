"""What a template may not ask for, and what it gets whatever it asks."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from hummingbird_operator.api import labels
from hummingbird_operator.api.sandboxpool import SandboxPool
from hummingbird_operator.errors import Invalid
from hummingbird_operator.sandboxpools import objects, templates
from tests.unit.sandboxpools.world import START, member, pool, pool_body

PLAIN: dict[str, Any] = {"spec": {"containers": [{"name": "sandbox", "image": "i"}]}}

REFUSED = [
    ("hostNetwork", {"hostNetwork": True}),
    ("hostPID", {"hostPID": True}),
    ("hostIPC", {"hostIPC": True}),
    ("shareProcessNamespace", {"shareProcessNamespace": True}),
    ("serviceAccountName", {"serviceAccountName": "default"}),
    ("serviceAccount", {"serviceAccount": "x"}),
    ("automountServiceAccountToken", {"automountServiceAccountToken": True}),
    ("activeDeadlineSeconds", {"activeDeadlineSeconds": 1800}),
    ("ephemeralContainers", {"ephemeralContainers": [{"name": "x"}]}),
    ("volumes[0].hostPath", {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}),
    ("volumes[1].secret", {"volumes": [{"name": "a", "emptyDir": {}}, {"name": "v", "secret": {"secretName": "s"}}]}),
    ("volumes[0].csi", {"volumes": [{"name": "v", "csi": {"driver": "secrets"}}]}),
    ("volumes[0].persistentVolumeClaim", {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}),
    (
        "volumes[0].projected.sources[1].serviceAccountToken",
        {"volumes": [{"name": "v", "projected": {"sources": [{"configMap": {}}, {"serviceAccountToken": {}}]}}]},
    ),
    (
        "volumes[0].projected.sources[0].secret",
        {"volumes": [{"name": "v", "projected": {"sources": [{"secret": {}}]}}]},
    ),
    ("securityContext.runAsNonRoot", {"securityContext": {"runAsNonRoot": False}}),
    ("securityContext.runAsUser", {"securityContext": {"runAsUser": 0}}),
    ("securityContext.seccompProfile.type", {"securityContext": {"seccompProfile": {"type": "Unconfined"}}}),
    ("securityContext.sysctls", {"securityContext": {"sysctls": [{"name": "x", "value": "1"}]}}),
    ("nodeName", {"nodeName": "control-plane"}),
    ("securityContext.runAsGroup", {"securityContext": {"runAsGroup": 0}}),
    ("securityContext.fsGroup", {"securityContext": {"fsGroup": 0}}),
    ("securityContext.supplementalGroups", {"securityContext": {"supplementalGroups": [1000, 0]}}),
    ("securityContext.seLinuxOptions", {"securityContext": {"seLinuxOptions": {"type": "spc_t"}}}),
    ("securityContext.seLinuxChangePolicy", {"securityContext": {"seLinuxChangePolicy": "Recursive"}}),
    ("securityContext.windowsOptions", {"securityContext": {"windowsOptions": {"hostProcess": True}}}),
    ("securityContext.appArmorProfile.type", {"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}),
    ("securityContext.appArmorProfile.type", {"securityContext": {"appArmorProfile": {"type": "Localhost"}}}),
    ("securityContext.addedLater", {"securityContext": {"addedLater": "x"}}),
    ("securityContext.readOnlyRootFilesystem", {"securityContext": {"readOnlyRootFilesystem": True}}),
    ("securityContext", {"securityContext": "none"}),
]

REFUSED_CONTAINER = [
    ("securityContext.privileged", {"securityContext": {"privileged": True}}),
    ("securityContext.allowPrivilegeEscalation", {"securityContext": {"allowPrivilegeEscalation": True}}),
    ("securityContext.capabilities.add", {"securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}}),
    ("securityContext.runAsUser", {"securityContext": {"runAsUser": 0}}),
    ("securityContext.procMount", {"securityContext": {"procMount": "Unmasked"}}),
    ("env[0].valueFrom.secretKeyRef", {"env": [{"name": "T", "valueFrom": {"secretKeyRef": {"name": "s"}}}]}),
    ("envFrom[0].secretRef", {"envFrom": [{"secretRef": {"name": "s"}}]}),
    ("ports[0].hostPort", {"ports": [{"containerPort": 80, "hostPort": 80}]}),
    ("volumeDevices", {"volumeDevices": [{"name": "d", "devicePath": "/dev/x"}]}),
    ("securityContext.capabilities.later", {"securityContext": {"capabilities": {"drop": ["ALL"], "later": ["X"]}}}),
    ("securityContext.runAsGroup", {"securityContext": {"runAsGroup": 0}}),
    ("securityContext.runAsNonRoot", {"securityContext": {"runAsNonRoot": False}}),
    ("securityContext.seLinuxOptions", {"securityContext": {"seLinuxOptions": {"level": "s0"}}}),
    ("securityContext.appArmorProfile.type", {"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}),
    ("securityContext.seccompProfile.type", {"securityContext": {"seccompProfile": {"type": "Unconfined"}}}),
    ("securityContext.addedLater", {"securityContext": {"addedLater": "x"}}),
    ("livenessProbe.httpGet.host", {"livenessProbe": {"httpGet": {"host": "169.254.169.254", "port": 80}}}),
    ("readinessProbe.tcpSocket.host", {"readinessProbe": {"tcpSocket": {"host": "10.0.0.1", "port": 80}}}),
    ("startupProbe.httpGet.host", {"startupProbe": {"httpGet": {"host": "localhost", "port": 10250}}}),
    ("lifecycle.postStart.httpGet.host", {"lifecycle": {"postStart": {"httpGet": {"host": "h", "port": 80}}}}),
    ("lifecycle.preStop.tcpSocket.host", {"lifecycle": {"preStop": {"tcpSocket": {"host": "h", "port": 80}}}}),
]
ANNOTATIONS = [
    "container.apparmor.security.beta.kubernetes.io/sandbox",
    "container.seccomp.security.alpha.kubernetes.io/sandbox",
    "seccomp.security.alpha.kubernetes.io/pod",
]


@pytest.mark.parametrize("name", ANNOTATIONS)
def test_an_annotation_that_sets_a_profile_is_refused_by_its_name(name: str) -> None:
    template = {**PLAIN, "metadata": {"annotations": {"a": "b", name: "unconfined"}}}
    with pytest.raises(Invalid) as refusal:
        templates.check(template, "t")
    assert refusal.value.where == f"t.metadata.annotations[{name}]"


@pytest.mark.parametrize(("field", "spec"), REFUSED, ids=[field for field, _ in REFUSED])
def test_a_pod_that_asks_for_more_than_a_sandbox_has_is_refused_by_the_fields_name(
    field: str, spec: dict[str, Any]
) -> None:
    template = {"spec": {**PLAIN["spec"], **spec}}
    with pytest.raises(Invalid) as refusal:
        templates.check(template, "spec.pod.template")
    assert refusal.value.where == f"spec.pod.template.spec.{field}"


@pytest.mark.parametrize("group", ["containers", "initContainers"])
@pytest.mark.parametrize(("field", "change"), REFUSED_CONTAINER, ids=[field for field, _ in REFUSED_CONTAINER])
def test_a_container_that_asks_for_more_is_refused_by_the_fields_name(
    group: str, field: str, change: dict[str, Any]
) -> None:
    template = copy.deepcopy(PLAIN)
    template["spec"][group] = [{"name": "sandbox", "image": "i"}, {"name": "x", "image": "i", **change}]
    with pytest.raises(Invalid) as refusal:
        templates.check(template, "t")
    assert refusal.value.where == f"t.spec.{group}[1].{field}"


def test_what_a_sandbox_needs_is_not_refused() -> None:
    spec = {
        **PLAIN["spec"],
        "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "2Gi"}}, {"name": "c", "configMap": {"name": "c"}}],
        "securityContext": {
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "fsGroup": 65532,
            "supplementalGroups": [65532],
            "appArmorProfile": {"type": "RuntimeDefault"},
            "seLinuxOptions": None,
        },
        "hostAliases": [{"ip": "127.0.0.1", "hostnames": ["x"]}],
        "nodeSelector": {"pool": "sandboxes"},
        "tolerations": [{"key": "sandbox"}],
        "runtimeClassName": "gvisor",
        "imagePullSecrets": [{"name": "pull"}],
    }
    context = {"readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}, "privileged": False}
    probe = {"httpGet": {"port": 80}}
    spec["containers"] = [{**PLAIN["spec"]["containers"][0], "securityContext": context, "readinessProbe": probe}]
    templates.check({"metadata": {"labels": {"team": "x"}}, "spec": spec}, "t")


NODE_TAINTS = {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}


@pytest.mark.parametrize(
    ("given", "added"),
    [
        ([], {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}),
        (
            [{"key": "sandbox", "operator": "Exists"}],
            {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"},
        ),
        ([{"key": "node.kubernetes.io/unreachable", "operator": "Exists"}], {"node.kubernetes.io/not-ready"}),
        ([{"operator": "Exists"}], set()),
    ],
)
def test_a_member_leaves_a_node_that_does_not_answer_after_half_a_minute_unless_told_otherwise(
    given: list[dict[str, Any]], added: set[str]
) -> None:
    """The API server's own default is five minutes, which a run would spend on commands that cannot be reached."""
    template = {"spec": {**PLAIN["spec"], "tolerations": given}}
    found = objects.sandbox(template, namespace="n", pool="default")["spec"]["tolerations"]
    assert found[: len(given)] == given
    assert {each["key"] for each in found[len(given) :]} == added
    assert all(each["tolerationSeconds"] == 30 and each["effect"] == "NoExecute" for each in found[len(given) :])


def test_the_manifest_is_forced_and_the_operators_labels_win() -> None:
    """Seed 003 §8.5."""
    template = {
        "metadata": {"labels": {"team": "x", labels.POOL: "another"}, "annotations": {"a": "b"}},
        "spec": {
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 3600,
            "containers": [{"name": "sandbox", "image": "i"}, {"name": "side", "image": "j", "command": ["x"]}],
            "securityContext": {"runAsUser": 7, "seccompProfile": {"type": "Localhost", "localhostProfile": "p"}},
        },
    }
    before = copy.deepcopy(template)
    pod = objects.sandbox(template, namespace="n", pool="default")
    spec = pod["spec"]
    assert template == before
    assert spec["automountServiceAccountToken"] is False
    assert spec["restartPolicy"] == "Never"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["securityContext"] == {
        "runAsUser": 7,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "Localhost", "localhostProfile": "p"},
    }
    for container in spec["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "privileged": False,
            "runAsNonRoot": True,
        }
    assert spec["containers"][0]["command"][:2] == ["sh", "-c"]
    assert spec["containers"][0]["workingDir"] == "/tmp"
    assert spec["containers"][1]["command"] == ["x"]
    assert pod["metadata"]["labels"]["team"] == "x"
    assert pod["metadata"]["labels"][labels.POOL] == "default"
    assert "runAsUser" not in objects.sandbox(PLAIN, namespace="n", pool="p")["spec"]["securityContext"]


def test_the_hash_tells_templates_apart_and_ignores_the_order_of_keys() -> None:
    """sandbox-pools.md §6 no. 22."""
    one = {"spec": {"containers": [{"name": "a", "image": "i"}]}}
    same = {"spec": {"containers": [{"image": "i", "name": "a"}]}}
    other = {"spec": {"containers": [{"name": "a", "image": "i"}]}, "metadata": {"labels": {"x": "y"}}}
    assert objects.template_hash(one) == objects.template_hash(same)
    assert objects.template_hash(one) != objects.template_hash(other)


def test_machines_are_not_supported_yet_and_it_is_said() -> None:
    machine = {"template": {"spec": {"x": 1}}, "sshKeySecret": "key"}
    body = pool_body()
    del body["spec"]["pod"]
    body["spec"]["virtualMachine"] = machine
    with pytest.raises(Invalid, match="virtualMachine"):
        objects.template_of(SandboxPool.parse(body))


def test_a_standby_member_is_owned_marked_safe_to_evict_and_has_no_deadline() -> None:
    """sandbox-pools.md §6 no. 41b, 59: the waiting pods died of the run's deadline; drains refuse unowned pods."""
    pod = objects.standby(pool())
    assert pod["metadata"]["ownerReferences"][0] | {"controller": True} == pod["metadata"]["ownerReferences"][0]
    assert pod["metadata"]["annotations"][objects.SAFE_TO_EVICT] == "true"
    assert "activeDeadlineSeconds" not in pod["spec"]


def test_the_network_policy_selects_labels_that_a_claim_never_touches() -> None:
    """sandbox-pools.md §6 no. 49."""
    pod = objects.standby(pool())
    policy = objects.policy("n", "default", None)
    wanted = policy["spec"]["podSelector"]["matchLabels"]
    assert wanted.items() <= pod["metadata"]["labels"].items()
    assert labels.ROLE not in wanted
    changed = {
        operation["path"]
        for operation in objects.claim_patch(member(), run_uid="r", now=START, active_seconds=1, linger_seconds=1)
    }
    assert not any(
        labels.APP_NAME.replace("/", "~1") in path or labels.POOL.replace("/", "~1") in path for path in changed
    )


def test_drift_of_a_policy_is_any_hole_in_it() -> None:
    wanted = objects.policy("n", "default", None)
    assert objects.policy_drifted(None, wanted)
    assert not objects.policy_drifted({"spec": {**wanted["spec"], "ingress": [], "egress": None}}, wanted)
    assert objects.policy_drifted({"spec": {**wanted["spec"], "egress": [{}]}}, wanted)
    assert objects.policy_drifted({"spec": {**wanted["spec"], "policyTypes": ["Ingress"]}}, wanted)


def test_a_deadline_of_the_pod_counts_from_its_start_and_leaves_room_for_the_linger() -> None:
    """DESIGN §7: it can be set or lowered, never raised."""
    pod = member()
    patch = objects.claim_patch(pod, run_uid="r", now=START, active_seconds=600, linger_seconds=300)
    deadline = next(op["value"] for op in patch if op["path"] == "/spec/activeDeadlineSeconds")
    assert deadline >= 99 + 600 + 300
    again = objects.claim_patch(
        member(deadline=deadline, session="s"), run_uid="r", now=START, active_seconds=600, linger_seconds=300
    )
    assert not any(op["path"] == "/spec/activeDeadlineSeconds" for op in again)
    assert objects.lasts(member(deadline=deadline), now=START, active_seconds=600)
    assert not objects.lasts(member(deadline=700), now=START, active_seconds=600)


def test_a_cold_members_name_fits_a_pod_and_is_the_runs_own() -> None:
    name = objects.cold_name("p" * 63, "3f0c4b8e-1111-2222-3333-444455556666")
    assert name.endswith("-3f0c4b8e11112222")
    second = objects.cold_name("p" * 63, "3f0c4b8e-1111-2222-3333-444455556666", replacement=True)
    assert second.endswith("-3f0c4b8e11112222-2")
    assert len(name) == len(second) == 63
    assert objects.cold_name("", "3f0c4b8e-1111-2222-3333-444455556666") == "sandbox-3f0c4b8e11112222"


def test_members_of_before_the_defaults_are_replaced() -> None:
    """The forced manifest counts in the hash: members without limits are not handed out any more."""
    assert objects.template_hash(PLAIN) != "7cf9e1487b48"
