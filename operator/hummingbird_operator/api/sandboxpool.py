"""The kind SandboxPool: sandboxes kept ready, so that a run need not wait for one to start.

A pool has no other place that could set these fields, so its schema may hold defaults.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, WithJsonSchema, model_validator

from hummingbird_operator.api.fields import Address, Count, Input, Members, Observed, SecretName, whole
from hummingbird_operator.api.metadata import Metadata
from hummingbird_operator.api.runstatus import Conditions

MEMBERS_LIMIT = 1000
"""Upper bound of a pool: a mistyped number must not fill a cluster."""


class Network(StrEnum):
    """What a member may reach."""

    ISOLATED = "Isolated"  # nothing: a deny-all NetworkPolicy that the operator keeps
    UNMANAGED = "Unmanaged"  # what the cluster's own policies allow


def _has_containers(template: dict[str, Any]) -> dict[str, Any]:
    spec = template.get("spec")
    containers = spec.get("containers") if isinstance(spec, dict) else None
    if not isinstance(containers, list) or not containers:
        raise ValueError("spec.containers must hold at least one container")
    for number, container in enumerate(containers):
        if not isinstance(container, dict) or not container.get("name") or not container.get("image"):
            raise ValueError(f"spec.containers[{number}] must have a name and an image")
    return template


def _has_spec(template: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(template.get("spec"), dict):
        raise ValueError("spec is required")
    return template


_ANY_OBJECT = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_TEXT_MAP = {"type": "object", "additionalProperties": {"type": "string", "maxLength": 16_384}, "maxProperties": 64}
_TEMPLATE_METADATA = {
    **_ANY_OBJECT,
    "description": "Labels and annotations that members get besides the operator's own.",
    "properties": {
        "labels": {**_TEXT_MAP, "description": "Labels; those of the operator win."},
        "annotations": {**_TEXT_MAP, "description": "Annotations; those of the operator win."},
    },
}
_CONTAINER = {
    **_ANY_OBJECT,
    "description": "A container, as in a Pod.",
    "required": ["name", "image"],
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 63, "description": "Its name."},
        "image": {"type": "string", "minLength": 1, "maxLength": 512, "description": "Its image."},
    },
}
_POD_TEMPLATE = {
    **_ANY_OBJECT,
    "required": ["spec"],
    "properties": {
        "metadata": _TEMPLATE_METADATA,
        "spec": {
            **_ANY_OBJECT,
            "description": "A PodSpec: see kubectl explain pod.spec. What a sandbox may not have degrades the pool.",
            "required": ["containers"],
            "properties": {
                "containers": {
                    "type": "array",
                    "description": "Containers; commands run in the first.",
                    "minItems": 1,
                    "maxItems": 8,
                    "items": _CONTAINER,
                }
            },
        },
    },
}
_VM_TEMPLATE = {
    **_ANY_OBJECT,
    "required": ["spec"],
    "properties": {
        "metadata": _TEMPLATE_METADATA,
        "spec": {**_ANY_OBJECT, "description": "Spec of a KubeVirt VirtualMachineInstance."},
    },
}


class PodTemplate(Input):
    """Members are pods."""

    template: Annotated[dict[str, Any], AfterValidator(_has_containers), WithJsonSchema(_POD_TEMPLATE)]
    """A PodTemplateSpec. Members never get host access, privilege, a service account's token, Secrets or hostPath
    volumes: a template that asks for one degrades the pool, and the condition names the field."""


class VirtualMachineTemplate(Input):
    """Members are KubeVirt virtual machines."""

    template: Annotated[dict[str, Any], AfterValidator(_has_spec), WithJsonSchema(_VM_TEMPLATE)]
    """Template of a VirtualMachineInstance: metadata and spec."""
    ssh_key_secret: SecretName
    """Secret in the pool's namespace with the ed25519 key pair by which the operator reaches the machines."""


class Linger(Input):
    """How long a member waits for the reply after its run."""

    seconds: Annotated[int, whole(0, 86_400)] = 300
    """Seconds; 0 deletes a member at the end of its run."""
    max: Annotated[int, whole(0, MEMBERS_LIMIT)] = 2
    """Most members that linger at once; the one whose time is up first makes room."""


class SandboxPoolSpec(Input):
    """The sandboxes that are wanted."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "has(self.pod) != has(self.virtualMachine)",
                    "message": "name exactly one of pod and virtualMachine",
                },
                {
                    "rule": "self.maxSandboxes >= self.replicas",
                    "message": "must be at least replicas, for it counts them too",
                    "fieldPath": ".maxSandboxes",
                },
            ]
        }
    )

    replicas: Annotated[int, whole(0, MEMBERS_LIMIT)] = 3
    """Members that stand by, free and ready. kubectl scale sets it."""
    max_sandboxes: Annotated[int, whole(1, MEMBERS_LIMIT)] = 20
    """Most members at once: standing by, in use and lingering. Reached, runs wait."""
    active_deadline_seconds: Annotated[int, whole(1, 604_800)] = 1800
    """Seconds, from the claim, after which a member in use is ended."""
    linger: Linger = Field(default_factory=Linger, json_schema_extra={"default": {"seconds": 300, "max": 2}})
    """How long a member waits for the reply after its run."""
    pod: PodTemplate | None = None
    """Members are pods of this template."""
    virtual_machine: VirtualMachineTemplate | None = None
    """Members are KubeVirt virtual machines of this template."""
    network: Network = Network.ISOLATED
    """Isolated keeps a NetworkPolicy that lets members reach nothing (machines: port 22 from the operator only).
    Unmanaged leaves the network to the cluster's own policies."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.pod is None) == (self.virtual_machine is None):
            raise ValueError("name exactly one of pod and virtualMachine")
        if self.max_sandboxes < self.replicas:
            raise ValueError(f"maxSandboxes must be at least replicas ({self.replicas}), for it counts them too")
        return self


class SandboxPoolStatus(Observed):
    """The sandboxes that there are. Only the operator writes it."""

    observed_generation: Count = 0
    """The metadata.generation of the spec that this status is about."""
    standby: Members = 0
    """Members that are free and ready."""
    pending: Members = 0
    """Members that are being made and are not ready yet."""
    active: Members = 0
    """Members that a run holds."""
    lingering: Members = 0
    """Members that wait for a reply to their session."""
    replicas: Members = 0
    """Standing by or being made: what spec.replicas asks for, and what kubectl scale compares."""
    selector: Address | None = None
    """Label selector of the members counted in replicas, for the scale subresource."""
    conditions: Conditions = ()
    """Ready, Progressing and Degraded."""


class SandboxPool(Observed):
    """Sandboxes kept ready, so that a run need not wait for one to start."""

    api_version: Literal["hummingbird-project.io/v1alpha1"] = "hummingbird-project.io/v1alpha1"
    kind: Literal["SandboxPool"] = "SandboxPool"
    metadata: Metadata
    spec: SandboxPoolSpec
    """The sandboxes that are wanted."""
    status: SandboxPoolStatus = Field(default_factory=SandboxPoolStatus)
    """The sandboxes that there are."""
