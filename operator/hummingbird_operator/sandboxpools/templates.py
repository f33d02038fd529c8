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
    "serviceAccount": "a sandbox has no identity",
    "serviceAccountName": "a sandbox has no identity",
    "automountServiceAccountToken": "a sandbox has no access to the API server",
    "shareProcessNamespace": "the first process of a sandbox must be its own",
}


def check(template: Mapping[str, Any], where: str) -> None:
    """Raise Invalid naming the first field of the template, below `where`, that a sandbox may not have."""
    for path, problem in findings(template):
        raise Invalid(f"{where}.{path}", problem)


def findings(template: Mapping[str, Any]) -> Iterator[Finding]:
    """Every such field, in the order of the template."""
    spec = template.get("spec") or {}
    for name, problem in REFUSED_POD_FIELDS.items():
        if spec.get(name):
            yield f"spec.{name}", problem
    yield from _security("spec.securityContext", spec.get("securityContext") or {})
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
    yield from _security(f"{where}.securityContext", container.get("securityContext") or {})
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


def _security(where: str, context: Mapping[str, Any]) -> Iterator[Finding]:
    if context.get("privileged"):
        yield f"{where}.privileged", "a sandbox has no privilege"
    if context.get("allowPrivilegeEscalation"):
        yield f"{where}.allowPrivilegeEscalation", "a sandbox has no privilege"
    if (context.get("capabilities") or {}).get("add"):
        yield f"{where}.capabilities.add", "a sandbox has no capabilities"
    if context.get("runAsNonRoot") is False:
        yield f"{where}.runAsNonRoot", "a sandbox does not run as root"
    if context.get("runAsUser") == 0:
        yield f"{where}.runAsUser", "a sandbox does not run as root"
    if (context.get("seccompProfile") or {}).get("type") == "Unconfined":
        yield f"{where}.seccompProfile.type", "a sandbox's system calls are filtered"
    if context.get("procMount") not in (None, "Default"):
        yield f"{where}.procMount", "a sandbox sees the masked /proc"
    for name in ("sysctls", "windowsOptions"):
        if context.get(name):
            yield f"{where}.{name}", "a sandbox does not set it"
