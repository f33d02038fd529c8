"""What a run may override of its workflow and the configuration beside the model: sandbox and limits."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, ConfigDict, WithJsonSchema
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


_ClusterBackend = Annotated[
    Backend,
    BeforeValidator(_in_cluster),
    WithJsonSchema({"type": "string", "enum": [str(backend) for backend in IN_CLUSTER]}),
]


class SandboxChoice(Input):
    """Where commands run, instead of what the workflow or the configuration says."""

    backend: _ClusterBackend | None = None
    """k8s and kubevirt make a sandbox for the run; k8spool and kubevirtpool claim one from a SandboxPool. Left out: the
    workflow's, else sandbox.backend of the configuration."""
    pool: PoolName | None = None
    """Name of the SandboxPool in the sandbox namespace. Left out: sandbox.pool of the configuration."""


class Limits(Input):
    """Where the run must end; each is bounded by the configuration's ceiling."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "!has(self.maxCostUSD) || self.maxCostUSD.matches('[1-9]')",
                    "message": "must be more than 0: no call to a model is free",
                    "fieldPath": ".maxCostUSD",
                }
            ]
        }
    )

    max_iterations: Annotated[int, whole(1, 1000)] | None = None
    """Turns: calls to the model. At 80 % of them the agent is warned, the last one is for the answer. Left out: the
    workflow's, else limits.max_iterations of the configuration, which is also the ceiling."""
    context_tokens: Annotated[int, whole(1000, 10_000_000)] | None = None
    """Size of the conversation in tokens, as of the last call: not the sum of what was billed. Left out:
    limits.context_tokens of the configuration, which is also the ceiling."""
    max_cost_usd: Annotated[Money, AfterValidator(_positive)] | None = None
    """US dollars, in quotes, such as "2.00". The worst case of each call is counted before it is made. Left out:
    limits.max_cost_usd of the configuration, which is also the ceiling."""
    timeout_seconds: Annotated[int, whole(1, 86_400)] | None = None
    """Wall time in seconds from status.startTime to the answer; then the agent is stopped and the run ends TimedOut.
    Left out: limits.run_timeout_seconds of the configuration, which is also the ceiling."""
