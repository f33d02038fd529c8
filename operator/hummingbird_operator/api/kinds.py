"""What the CRDs say beside their schemas: names, columns of `kubectl get`, rules on names, the scale subresource."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hummingbird_operator.api.agentrun import AgentRun, AgentRunSpec
from hummingbird_operator.api.fields import Model
from hummingbird_operator.api.runstatus import AgentRunStatus
from hummingbird_operator.api.sandboxpool import SandboxPool, SandboxPoolSpec, SandboxPoolStatus

Schema = dict[str, Any]

_SUCCEEDED_REASON = '.status.conditions[?(@.type=="Succeeded")].reason'
_READY_STATUS = '.status.conditions[?(@.type=="Ready")].status'
_READY_REASON = ".status.conditions[?(@.type=='Ready')].reason"
_DEGRADED_MESSAGE = ".status.conditions[?(@.type=='Degraded')].message"


@dataclass(frozen=True)
class Column:
    """A column of `kubectl get`; a wide one shows with `-o wide` only."""

    name: str
    path: str
    description: str
    type: str = "string"
    wide: bool = False

    def as_dict(self) -> Schema:
        """The wire form."""
        wide = {"priority": 1} if self.wide else {}
        return {
            "name": self.name,
            "type": self.type,
            "description": self.description,
            "jsonPath": self.path,
            **wide,
        }


@dataclass(frozen=True)
class Kind:
    """What a CRD says beside its schema."""

    model: type[Model]
    spec: type[Model]
    status: type[Model]
    plural: str
    short_name: str
    columns: tuple[Column, ...]
    rules: tuple[Schema, ...]
    scale: bool = False
    defaults: bool = False
    """Whether the models' defaults stand in the schema of the spec."""
    mutable: frozenset[str] | None = None
    """The only attributes of the spec that may change; None: all may."""


_AGE = Column("Age", ".metadata.creationTimestamp", "Time since it was created.", "date")
_NAME_RULE = {"rule": "size(self.metadata.name) <= 63", "message": "metadata.name must have at most 63 characters"}
_LABEL_RULE = {
    "rule": "!self.metadata.name.contains('.')",
    "message": "metadata.name must not hold dots: members are named after it",
}

KINDS = (
    Kind(
        AgentRun,
        AgentRunSpec,
        AgentRunStatus,
        "agentruns",
        "hbrun",
        (
            Column("Workflow", ".spec.workflow", "The workflow that runs."),
            Column("Target", ".status.target", "Merge request, pull request or issue; empty until it is accepted."),
            Column("Phase", ".status.phase", "The run in one word."),
            Column("Reason", _SUCCEEDED_REASON, "Reason of the condition Succeeded."),
            Column("Turns", ".status.usage.iterations", "Calls to the model.", "integer"),
            Column("Tokens", ".status.usage.totalTokens", "All tokens of the run.", "integer"),
            Column("Cost", ".status.usage.costUSD", "US dollars so far."),
            _AGE,
            Column("Event", ".spec.trigger.event", "Kind of the event that made it; empty: made by hand.", wide=True),
            Column("Author", ".spec.trigger.author", "User name of who caused the event.", wide=True),
            Column("Session", ".status.session.id", "Name it in spec.session to continue the conversation.", wide=True),
            Column("Sandbox", ".status.sandbox.name", "The sandbox that the run holds or held.", wide=True),
            Column("Model", ".status.resolved.model", "The model that is asked.", wide=True),
            Column("Message", ".status.message", "What happens now, or how it ended.", wide=True),
        ),
        (_NAME_RULE,),
        mutable=frozenset({"cancel", "ttl_seconds_after_finished"}),
    ),
    Kind(
        SandboxPool,
        SandboxPoolSpec,
        SandboxPoolStatus,
        "sandboxpools",
        "hbpool",
        (
            Column("Desired", ".spec.replicas", "Members that are to stand by.", "integer"),
            Column("Standby", ".status.standby", "Members that are free and ready.", "integer"),
            Column("Pending", ".status.pending", "Members that are being made.", "integer"),
            Column("Active", ".status.active", "Members that a run holds.", "integer"),
            Column("Lingering", ".status.lingering", "Members that wait for a reply.", "integer"),
            Column("Ready", _READY_STATUS, "Whether the wanted number stands by."),
            Column("Reason", _READY_REASON, "Why it is so."),
            _AGE,
            Column("Message", _DEGRADED_MESSAGE, "What is wrong with its members, if anything.", wide=True),
        ),
        (_NAME_RULE, _LABEL_RULE),
        scale=True,
        defaults=True,
    ),
)
