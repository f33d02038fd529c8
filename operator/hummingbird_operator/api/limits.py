"""The overrides of a run that also stand in its status as what is in force: sandbox and limits."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from hummingbird_operator.api.fields import Input, Money, PoolName, whole


class Backend(StrEnum):
    """Where commands run. Never detected: named by the run, its workflow or the configuration."""

    PODMAN = "podman"  # a container on this computer; only for `hummingbird run`
    K8S = "k8s"  # a pod made for the run
    K8SPOOL = "k8spool"  # a pod claimed from a SandboxPool
    KUBEVIRT = "kubevirt"  # a virtual machine made for the run
    KUBEVIRTPOOL = "kubevirtpool"  # a virtual machine claimed from a SandboxPool


IN_CLUSTER = tuple(backend for backend in Backend if backend is not Backend.PODMAN)
"""The backends that an AgentRun may name."""


def _in_cluster(value: object) -> object:
    if value not in IN_CLUSTER:
        names = ", ".join(IN_CLUSTER)
        sentence = f"must be one of {names} (podman is only for `hummingbird run`)"
        raise PydanticCustomError("wrong_form", "{sentence}", {"sentence": sentence})
    return value


def _positive(value: Money) -> Money:
    if value <= 0:
        raise ValueError("must be more than 0: no call to a model is free")
    return value


class SandboxChoice(Input):
    """Where commands run, instead of what the workflow or the configuration says."""

    backend: (
        Annotated[Backend, BeforeValidator(_in_cluster), WithJsonSchema({"type": "string", "enum": [*IN_CLUSTER]})]
        | None
    ) = None
    """k8s and kubevirt make a sandbox for the run; k8spool and kubevirtpool claim one from a SandboxPool."""
    pool: PoolName | None = None
    """Name of the SandboxPool in the sandbox namespace."""


class Limits(Input):
    """Where the run must end; each is bounded by the configuration's ceiling."""

    max_iterations: Annotated[int, whole(1, 1000)] | None = None
    """Turns: calls to the model. At 80 % the agent is warned, the last turn is for the answer."""
    context_tokens: Annotated[int, whole(1000, 10_000_000)] | None = None
    """Size of the conversation in tokens, as of the last call: not the sum of what was billed."""
    max_cost_usd: Annotated[Money, AfterValidator(_positive)] | None = None
    """US dollars as a string, such as "2.00"; the worst case of each call is counted before it is made."""
    timeout_seconds: Annotated[int, whole(1, 86_400)] | None = None
    """Wall time in seconds; when it is up the agent is stopped and the run ends TimedOut."""
