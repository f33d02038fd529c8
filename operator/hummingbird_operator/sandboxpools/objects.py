"""Pure: the objects that the operator makes for pools, and the changes that it makes to their members."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from hummingbird_operator.api import labels
from hummingbird_operator.api.conditions import rfc3339
from hummingbird_operator.api.sandboxpool import Network, SandboxPool
from hummingbird_operator.errors import Invalid
from hummingbird_operator.sandboxpools import resources, templates
from hummingbird_operator.sandboxpools.members import Pod

Object = dict[str, Any]

SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
PID_1 = 'trap "exit 0" TERM; while :; do sleep 3600 & wait "$!"; done'
"""Waits for its children, so it reaps what commands orphan (`sleep infinity` leaves zombies), and ends on SIGTERM."""
GRACE_SECONDS = 2
LOST_NODE_SECONDS = 30
MARGIN_SECONDS = 60
"""Between the run's own deadline and the member's: the run ends itself first and says why."""
REUSES = 3
"""Claims that a pod's activeDeadlineSeconds leaves room for: it cannot be raised when a lingering member is claimed."""
UNPOOLED_POLICY = "hummingbird-sandboxes-isolated"
MANIFEST_VERSION = 3
"""Part of the template hash: raised when what is forced changes, so that members are replaced."""


def template_of(pool: SandboxPool) -> Mapping[str, Any]:
    """The pool's pod template. Raises Invalid naming the field that a sandbox may not have."""
    if pool.spec.pod is None:
        raise Invalid("spec.virtualMachine", "this version of the operator makes pods only")
    templates.check(pool.spec.pod.template, "spec.pod.template")
    return pool.spec.pod.template


def template_hash(template: Mapping[str, Any]) -> str:
    """Tells members of one template from those of another; metadata counts, key order does not."""
    text = json.dumps([MANIFEST_VERSION, template], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def sandbox(template: Mapping[str, Any], *, namespace: str, pool: str) -> Object:
    """A pod of the template, forced into the manifest of seed 003 §8.5; the caller adds name, role and owner."""
    meta = template.get("metadata") or {}
    spec = copy.deepcopy(dict(template.get("spec") or {}))
    spec["tolerations"] = [*(spec.get("tolerations") or []), *_short_tolerations(spec)]
    spec |= {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": min(spec.get("terminationGracePeriodSeconds", GRACE_SECONDS), 30),
        "securityContext": {
            "seccompProfile": {"type": "RuntimeDefault"},
            **(spec.get("securityContext") or {}),
            "runAsNonRoot": True,
        },
    }
    for group in ("initContainers", "containers"):
        spec[group] = [_confined(container) for container in spec.get(group) or []]
    first = spec["containers"][0]
    if not spec.get("resources"):  # limits of the whole pod bound it already, and ours might be above them
        first["resources"] = resources.bounded(first.get("resources") or {})
    first.setdefault("command", ["sh", "-c", PID_1])
    first.setdefault("workingDir", "/tmp")  # noqa: S108 - a path inside the sandbox
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": namespace,
            "labels": {
                **(meta.get("labels") or {}),
                labels.APP_NAME: labels.SANDBOX_APP,
                labels.MANAGED_BY: labels.MANAGER,
                labels.POOL: pool,
                labels.TEMPLATE_HASH: template_hash(template),
            },
            "annotations": dict(meta.get("annotations") or {}),
        },
        "spec": spec,
    }


def _short_tolerations(spec: Mapping[str, Any]) -> list[Object]:
    """A run should not hold on for five minutes (the API server's default) to a sandbox whose node does not answer."""
    given = {toleration.get("key") for toleration in spec.get("tolerations") or []}
    return [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": LOST_NODE_SECONDS}
        for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
        if not given & {key, None}
    ]


def _confined(container: Mapping[str, Any]) -> Object:
    context = dict(container.get("securityContext") or {})
    context |= {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "privileged": False,
        "runAsNonRoot": True,
    }
    return {**container, "securityContext": context}


def standby(pool: SandboxPool) -> Object:
    """A member that waits for a claim, owned by the pool so that nothing is left when the pool goes."""
    meta = pool.metadata
    pod = sandbox(template_of(pool), namespace=meta.namespace, pool=meta.name)
    pod["metadata"]["generateName"] = f"{meta.name[:50]}-"
    pod["metadata"]["labels"][labels.ROLE] = labels.ROLE_STANDBY
    pod["metadata"]["annotations"][SAFE_TO_EVICT] = "true"
    pod["metadata"]["ownerReferences"] = [owner_of(pool)]
    return pod


def owner_of(pool: SandboxPool) -> Object:
    """The reference by which the pool owns what it made."""
    return {
        "apiVersion": labels.API_VERSION,
        "kind": "SandboxPool",
        "name": pool.metadata.name,
        "uid": pool.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def cold_name(pool: str, run_uid: str, *, replacement: bool = False) -> str:
    """The only name that a member made for this run can have: AlreadyExists is the lock.

    One that replaces what the run lost has another: a pod on a dead node keeps its name for as long as the node is.
    """
    suffix = f"-{run_uid.replace('-', '')[:16].lower()}{'-2' if replacement else ''}"
    return (pool or "sandbox")[: 63 - len(suffix)] + suffix


def made_for(run_uid: str, pod: Pod) -> bool:
    """Whether the member was made for this very run."""
    return any(pod.name == cold_name(pod.pool, run_uid, replacement=replacement) for replacement in (False, True))


def cold(
    template: Mapping[str, Any],
    *,
    namespace: str,
    pool: str,
    run_uid: str,
    reap_by: datetime,
    active_seconds: int,
    linger_seconds: int,
    replacement: bool = False,
) -> Object:
    """A member made for one run: active from its birth, owned by nobody, ended by its deadlines."""
    pod = sandbox(template, namespace=namespace, pool=pool)
    pod["metadata"]["name"] = cold_name(pool, run_uid, replacement=replacement)
    pod["metadata"]["labels"] |= {labels.ROLE: labels.ROLE_ACTIVE, labels.RUN: run_uid}
    pod["metadata"]["annotations"] |= {labels.REAP_BY: rfc3339(reap_by), SAFE_TO_EVICT: "false"}
    pod["spec"]["activeDeadlineSeconds"] = _backstop(0, active_seconds, linger_seconds)
    return pod


def claim_patch(pod: Pod, *, run_uid: str, now: datetime, active_seconds: int, linger_seconds: int) -> list[Object]:
    """The one write of a warm claim: it holds only if nobody else wrote to the pod since it was read."""
    operations = [
        _test(pod),
        _set("labels", labels.ROLE, labels.ROLE_ACTIVE),
        _set("labels", labels.RUN, run_uid),
        _set("annotations", labels.REAP_BY, rfc3339(now + timedelta(seconds=active_seconds + MARGIN_SECONDS))),
        _set("annotations", SAFE_TO_EVICT, "false"),
    ]
    if pod.session:
        operations.append({"op": "remove", "path": _path("annotations", labels.SESSION_ID)})
    if pod.has_owners:
        operations.append({"op": "remove", "path": "/metadata/ownerReferences"})
    if pod.deadline is None:
        age = max(0, round((now - (pod.started or pod.created)).total_seconds()))
        deadline = _backstop(age, active_seconds, linger_seconds)
        operations.append({"op": "add", "path": "/spec/activeDeadlineSeconds", "value": deadline})
    return operations


def lasts(pod: Pod, *, now: datetime, active_seconds: int) -> bool:
    """Whether the pod's own deadline, which cannot be raised, leaves room for another run."""
    if pod.deadline is None or pod.started is None:
        return True
    left = pod.deadline - (now - pod.started).total_seconds()
    return left >= active_seconds + MARGIN_SECONDS


def linger_patch(pod: Pod, *, session: str, now: datetime, seconds: int) -> list[Object]:
    """From active to lingering. The run's label goes: asked again, the run holds nothing."""
    return [
        _test(pod),
        _set("labels", labels.ROLE, labels.ROLE_LINGERING),
        {"op": "remove", "path": _path("labels", labels.RUN)},
        _set("annotations", labels.SESSION_ID, session),
        _set("annotations", labels.REAP_BY, rfc3339(now + timedelta(seconds=seconds))),
        _set("annotations", SAFE_TO_EVICT, "true"),
    ]


def _backstop(age: int, active_seconds: int, linger_seconds: int) -> int:
    return age + REUSES * (active_seconds + linger_seconds + MARGIN_SECONDS)


def _test(pod: Pod) -> Object:
    return {"op": "test", "path": "/metadata/resourceVersion", "value": pod.version}


def _path(field: str, key: str) -> str:
    return f"/metadata/{field}/{key.replace('~', '~0').replace('/', '~1')}"


def _set(field: str, key: str, value: str) -> Object:
    return {"op": "add", "path": _path(field, key), "value": value}


def policy_name(pool: str) -> str:
    """The NetworkPolicy of a pool's members; without a pool, of those that were made from the settings."""
    if not pool:
        return UNPOOLED_POLICY
    name = f"{pool}-isolated"
    return name if name != UNPOOLED_POLICY else f"{name}-pool"


def policy(namespace: str, pool: str, owner: Object | None) -> Object:
    """Denies everything to and from members. It selects labels that stand from birth to death (agent-sandbox#1044)."""
    metadata: Object = {
        "name": policy_name(pool),
        "namespace": namespace,
        "labels": {labels.MANAGED_BY: labels.MANAGER},
    }
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata,
        "spec": {
            "podSelector": {"matchLabels": {labels.APP_NAME: labels.SANDBOX_APP, labels.POOL: pool}},
            "policyTypes": ["Ingress", "Egress"],
        },
    }


def policy_drifted(found: Mapping[str, Any] | None, wanted: Object) -> bool:
    """Whether somebody changed what the policy denies, or took it away, or whether it goes with a pool of old."""
    if found is None:
        return True
    spec = {key: value for key, value in (found.get("spec") or {}).items() if value}
    return bool(spec != wanted["spec"]) or _owners(found) != _owners(wanted)


def _owners(body: Mapping[str, Any]) -> set[str]:
    return {str(owner.get("uid")) for owner in (body.get("metadata") or {}).get("ownerReferences") or []}


def policy_patch(wanted: Object) -> list[Object]:
    """Makes the policy that was found the wanted one."""
    owners = wanted["metadata"].get("ownerReferences") or []
    return [{"op": "replace", "path": "/spec", "value": wanted["spec"]}, *owners_patch(owners)]


def owners_patch(owners: Sequence[Object]) -> list[Object]:
    """Gives an object to these owners: it is collected when the last of them is gone."""
    return [{"op": "add", "path": "/metadata/ownerReferences", "value": list(owners)}]


def member_owner(pod: Pod) -> Object:
    """The reference by which a member owns what must not go before it."""
    return {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}


def wants_policy(pool: SandboxPool) -> bool:
    """Whether the operator keeps the members' network closed."""
    return pool.spec.network is Network.ISOLATED
