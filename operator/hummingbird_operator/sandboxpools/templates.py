"""What a sandbox may not have, told by the field that asks for it. Everything else of the manifest is forced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hummingbird_operator.errors import Invalid

Finding = tuple[str, str]

VOLUMES = frozenset({"name", "emptyDir", "configMap", "downwardAPI", "ephemeral", "image", "projected"})
"""Kinds of volumes without a host, a credential or another sandbox's data behind them."""
PROJECTED = frozenset({"configMap", "downwardAPI"})
REFUSED_POD_FIELDS = {
    "activeDeadlineSeconds": "counts from the pod's start and would end waiting members; the claim sets it",
    "ephemeralContainers": "a sandbox has none",
    "hostIPC": "a sandbox has no access to its host",
    "hostNetwork": "a sandbox has no access to its host",
    "hostPID": "a sandbox has no access to its host",
    "nodeName": "the scheduler chooses the node: one that is named takes it past cordons, taints and room",
    "serviceAccount": "a sandbox has no identity",
    "serviceAccountName": "a sandbox has no identity",
    "automountServiceAccountToken": "a sandbox has no access to the API server",
    "shareProcessNamespace": "the first process of a sandbox must be its own",
}

POD_SECURITY = frozenset(
    {
        "appArmorProfile",
        "fsGroup",
        "fsGroupChangePolicy",
        "runAsGroup",
        "runAsNonRoot",
        "runAsUser",
        "seccompProfile",
        "supplementalGroups",
        "supplementalGroupsPolicy",
    }
)
CONTAINER_SECURITY = frozenset(
    {
        "allowPrivilegeEscalation",
        "appArmorProfile",
        "capabilities",
        "privileged",
        "procMount",
        "readOnlyRootFilesystem",
        "runAsGroup",
        "runAsNonRoot",
        "runAsUser",
        "seccompProfile",
    }
)
"""Fields of security contexts that a sandbox may set at all: what a later Kubernetes adds is refused."""
ROOTS = {
    "fsGroup": "a sandbox is not in root's group",
    "runAsGroup": "a sandbox is not in root's group",
    "runAsUser": "a sandbox does not run as root",
    "supplementalGroups": "a sandbox is not in root's group",
}
PROFILES = {
    "appArmorProfile": (("RuntimeDefault",), "a sandbox is confined by the runtime's own profile"),
    "seccompProfile": (("RuntimeDefault", "Localhost"), "a sandbox's system calls are filtered"),
}
PROFILE_ANNOTATIONS = (
    "container.apparmor.security.beta.kubernetes.io/",
    "container.seccomp.security.alpha.kubernetes.io/",
    "seccomp.security.alpha.kubernetes.io/",
)
"""How profiles were set before there were fields for them; some kubelets still read the first."""
PROBES = ("livenessProbe", "readinessProbe", "startupProbe")


def check(template: Mapping[str, Any], where: str) -> None:
    """Raise Invalid naming the first field of the template, below `where`, that a sandbox may not have."""
    for path, problem in findings(template):
        raise Invalid(f"{where}.{path}", problem)


def findings(template: Mapping[str, Any]) -> Iterator[Finding]:
    """Every such field, in the order of the template."""
    spec = template.get("spec") or {}
    for name in _mapping(_mapping(template.get("metadata")).get("annotations")):
        if name.startswith(PROFILE_ANNOTATIONS):
            yield f"metadata.annotations[{name}]", "a sandbox is confined by the runtime's own profiles"
    for name, problem in REFUSED_POD_FIELDS.items():
        if spec.get(name):
            yield f"spec.{name}", problem
    yield from _security("spec.securityContext", spec.get("securityContext"), POD_SECURITY)
    for number, volume in enumerate(_items(spec.get("volumes"))):
        yield from _volume(f"spec.volumes[{number}]", volume)
    for group in ("initContainers", "containers"):
        for number, container in enumerate(_items(spec.get(group))):
            yield from _container(f"spec.{group}[{number}]", container)


def _items(value: object) -> Sequence[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _volume(where: str, volume: Mapping[str, Any]) -> Iterator[Finding]:
    for kind in sorted(set(volume) - VOLUMES):
        yield f"{where}.{kind}", "a sandbox has no volume of this kind: it could hold what is not the sandbox's"
    for number, source in enumerate(_items((volume.get("projected") or {}).get("sources"))):
        for kind in sorted(set(source) - PROJECTED):
            yield f"{where}.projected.sources[{number}].{kind}", "a sandbox holds no credentials"


def _container(where: str, container: Mapping[str, Any]) -> Iterator[Finding]:
    yield from _security(f"{where}.securityContext", container.get("securityContext"), CONTAINER_SECURITY)
    yield from _reached(where, container)
    for number, variable in enumerate(_items(container.get("env"))):
        if "secretKeyRef" in (variable.get("valueFrom") or {}):
            yield f"{where}.env[{number}].valueFrom.secretKeyRef", "a sandbox holds no credentials"
    for number, source in enumerate(_items(container.get("envFrom"))):
        if "secretRef" in source:
            yield f"{where}.envFrom[{number}].secretRef", "a sandbox holds no credentials"
    for number, port in enumerate(_items(container.get("ports"))):
        if port.get("hostPort"):
            yield f"{where}.ports[{number}].hostPort", "a sandbox has no access to its host"
    if container.get("volumeDevices"):
        yield f"{where}.volumeDevices", "a sandbox has no block devices"


def _reached(where: str, container: Mapping[str, Any]) -> Iterator[Finding]:
    """Probes and hooks: the kubelet makes those requests, from the node's network, to whatever host they name."""
    lifecycle = container.get("lifecycle")
    hooks = {name: container.get(name) for name in PROBES}
    hooks |= {f"lifecycle.{name}": handler for name, handler in _mapping(lifecycle).items()}
    for name, handler in hooks.items():
        for kind in ("httpGet", "tcpSocket"):
            if _mapping(_mapping(handler).get(kind)).get("host"):
                yield f"{where}.{name}.{kind}.host", "the node would reach it for the sandbox"


def _security(where: str, context: object, allowed: frozenset[str]) -> Iterator[Finding]:
    if context is None:
        return
    if not isinstance(context, Mapping):
        yield where, "must be an object"
        return
    for name, value in context.items():
        if name not in allowed and value:
            yield f"{where}.{name}", "a sandbox does not set it"
        elif problem := _setting(name, value):
            yield f"{where}.{problem[0]}", problem[1]


def _setting(name: str, value: object) -> Finding | None:
    """What is wrong with the value of an allowed field, by the path below the security context."""
    if name in ("privileged", "allowPrivilegeEscalation") and value:
        return name, "a sandbox has no privilege"
    if name == "runAsNonRoot" and value is False:
        return name, "a sandbox does not run as root"
    if name in ROOTS and value is not None and _is_root(value):
        return name, ROOTS[name]
    if name in PROFILES and value:
        kind = value.get("type") if isinstance(value, Mapping) else value
        return (f"{name}.type", PROFILES[name][1]) if kind not in PROFILES[name][0] else None
    if name == "capabilities" and value:
        return next(((f"{name}.{key}", "a sandbox has no capabilities") for key in _added(value)), None)
    if name == "procMount" and value not in (None, "Default"):
        return name, "a sandbox sees the masked /proc"
    return None


def _is_root(value: object) -> bool:
    return any(item in (0, "0") for item in (value if isinstance(value, list) else [value]))


def _added(capabilities: object) -> list[str]:
    return [key for key, value in _mapping(capabilities).items() if key != "drop" and value]


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
