"""The status of an AgentRun: everything that the operator may write to it, with its bounds."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema, field_validator

from hummingbird_operator.api import conditions as c
from hummingbird_operator.api.conditions import Condition
from hummingbird_operator.api.fields import (
    Address,
    Count,
    Name,
    Observed,
    Sentence,
    Spent,
    Timestamp,
    Token,
    utf8_prefix,
)
from hummingbird_operator.api.limits import Backend

ANSWER_BYTES = 8 * 1024
"""Of UTF-8: how much of the answer stands in the status. All of it is in the session store."""

MERGED_LIMIT = 20


def _condition(value: object) -> Condition:
    if isinstance(value, Condition):
        return value
    if isinstance(value, dict):
        return Condition.from_dict(value)
    raise ValueError("must be a condition: an object with type, status, reason and message")


CONDITION_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "One checkpoint or observation; docs/conditions.md explains every type and reason.",
    "required": ["type", "status", "reason", "message", "lastTransitionTime"],
    "properties": {
        "type": {"type": "string", "maxLength": 63, "description": "Its name in CamelCase, such as Succeeded."},
        "status": {"type": "string", "enum": ["True", "False", "Unknown"], "description": "True, False or Unknown."},
        "reason": {
            "type": "string",
            "minLength": 1,
            "maxLength": 63,
            "pattern": "^[A-Za-z]([A-Za-z0-9]*)$",
            "description": "Why it has this status: one word in CamelCase that programs may rely on.",
        },
        "message": {"type": "string", "maxLength": c.MESSAGE_LIMIT, "description": "The same for people."},
        "lastTransitionTime": {
            "type": "string",
            "format": "date-time",
            "description": "When the status last changed; a new reason alone does not move it.",
        },
        "observedGeneration": {
            "type": "integer",
            "format": "int64",
            "minimum": 0,
            "description": "The metadata.generation that this was decided from.",
        },
    },
}

ConditionField = Annotated[
    Condition,
    PlainValidator(_condition),
    PlainSerializer(Condition.as_dict, return_type=dict),
    WithJsonSchema(CONDITION_SCHEMA),
]
Conditions = Annotated[
    tuple[ConditionField, ...],
    Field(max_length=16, json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
]
"""The list of conditions of either kind: one entry for each type."""


class Phase(StrEnum):
    """A run in one word, for people. Derived from the conditions; no code reads it."""

    PENDING = "Pending"  # not accepted yet
    WAITING = "Waiting"  # for a slot, its turn, a sandbox or a budget
    RUNNING = "Running"  # the agent is at work
    DELIVERING = "Delivering"  # answered; the note or the session is being written
    SUCCEEDED = "Succeeded"
    SKIPPED = "Skipped"  # ended well without an answer of its own: the reason says why
    FAILED = "Failed"
    CANCELLED = "Cancelled"


LIVE_PHASES = (Phase.PENDING, Phase.WAITING, Phase.RUNNING, Phase.DELIVERING)
"""Of runs that are not over."""


_WORKING = {
    c.Working.QUEUED: Phase.WAITING,
    c.Working.WAITING_FOR_SESSION: Phase.WAITING,
    c.Working.WAITING_FOR_SANDBOX: Phase.WAITING,
    c.Working.BUDGET_BLOCKED: Phase.WAITING,
    c.Working.RUNNING: Phase.RUNNING,
    c.Working.WAITING_FOR_MODEL: Phase.RUNNING,  # it holds its sandbox, and its time runs
    c.Working.DELIVERING: Phase.DELIVERING,
}


def phase(conditions: Sequence[Condition]) -> Phase:
    """The phase that these conditions mean. A working reason of a newer version counts as Running."""
    succeeded = c.find(conditions, c.RunCondition.SUCCEEDED)
    if succeeded is None:
        return Phase.PENDING
    if succeeded.status == "True":
        return Phase.SUCCEEDED if succeeded.reason == c.Success.COMPLETED else Phase.SKIPPED
    if succeeded.status == "False":
        return Phase.CANCELLED if succeeded.reason == c.Failure.CANCELLED else Phase.FAILED
    return next((found for reason, found in _WORKING.items() if reason == succeeded.reason), Phase.RUNNING)


class EffectiveSandbox(Observed):
    """The sandbox that is in force for a run."""

    backend: Backend | None = None
    """Its backend: k8s, k8spool, kubevirt or kubevirtpool."""
    pool: Name | None = None
    """The SandboxPool that it is claimed from."""


class EffectiveLimits(Observed):
    """The limits that are in force for a run. Their bounds are the configuration's, wider than a spec's."""

    max_iterations: Count | None = None
    """Turns: calls to the model."""
    context_tokens: Count | None = None
    """Size of the conversation in tokens, as of the last call."""
    max_cost_usd: Spent | None = None
    """US dollars."""
    timeout_seconds: Count | None = None
    """Wall time in seconds from startTime to the answer."""


class Resolved(Observed):
    """What is in force for this run, from its spec, its workflow and the configuration, within its ceilings."""

    workflow_hash: Token | None = None
    """Hash of the workflow as it was when the run was accepted: prompt, tools and settings."""
    model: Token | None = None
    """The model that is asked."""
    sandbox: EffectiveSandbox | None = None
    """Where commands run."""
    limits: EffectiveLimits | None = None
    """The limits that hold."""
    head_sha: Token | None = None
    """The commit that the run looks at: the head of the merge request when the run was accepted."""


class RunnerRef(Observed):
    """The process that works on the run; every write of it is tested against this."""

    identity: Name
    """Name of the process: the pod's name and a part that is new with every start."""
    epoch: Count
    """How often the leadership had changed hands when it took over: a lower one may no longer write."""


class SandboxStatus(Observed):
    """The sandbox that the run holds or held."""

    backend: Token
    """Its backend: k8s, k8spool, kubevirt, kubevirtpool or podman."""
    name: Name
    """Name of the pod or virtual machine in the sandbox namespace."""
    uid: Token | None = None
    """Its uid: a name can come back, a uid cannot."""
    lost: Sentence | None = None
    """Why the run's first sandbox was lost. It is replaced once: a second loss ends the run."""


class SessionStatus(Observed):
    """The saved conversation that a reply continues."""

    id: Token
    """The session's UUID: spec.session, else the uid of the run that began it."""
    uri: Address | None = None
    """Folder of the session in the session store."""
    transcript: Address | None = None
    """The conversation as Markdown, for people."""


class AnswerStatus(Observed):
    """The final answer."""

    text: Annotated[str, Field(max_length=ANSWER_BYTES)] = ""
    """Its beginning: at most 8 KiB of UTF-8. All of it is at the uri."""
    bytes: Count = 0
    """Size of the whole answer in bytes of UTF-8."""
    uri: Address | None = None
    """The whole answer in the session store."""

    @field_validator("text", mode="before")
    @classmethod
    def _first_bytes(cls, value: object) -> object:
        return utf8_prefix(value, ANSWER_BYTES) if isinstance(value, str) else value


class UsageStatus(Observed):
    """What the run has used so far; written at most once a second. The four token counters do not overlap."""

    iterations: Count = 0
    """Turns: calls to the model that count against limits.maxIterations."""
    input_tokens: Count = 0
    """Tokens sent and not found in the provider's cache."""
    output_tokens: Count = 0
    """Tokens that the model wrote, its thoughts included."""
    cache_read_tokens: Count = 0
    """Tokens sent and found in the provider's cache."""
    cache_write_tokens: Count = 0
    """Tokens sent and stored in the provider's cache."""
    total_tokens: Count = 0
    """Sum of the four."""
    cost_usd: Spent = Decimal(0)
    """US dollars at the prices in force, rounded up to a millionth; a call lost by a crash counts at its worst case."""


class NoteStatus(Observed):
    """The note on the merge request, pull request or issue."""

    id: Count | None = None
    """Its number at the forge."""
    discussion: Token | None = None
    """The thread that it stands in; none for a plain note."""
    url: Address | None = None
    """Its address."""
    attempted_at: Timestamp | None = None
    """When posting was begun, written before the request: a successor looks for that note before it posts anew."""


class AgentRunStatus(Observed):
    """What the operator observed and did. Only the operator writes it."""

    observed_generation: Count = 0
    """The metadata.generation of the spec that this status is about."""
    phase: Token | None = None
    """Pending, Waiting, Running, Delivering, Succeeded, Skipped, Failed or Cancelled: derived from the conditions, for
    people. Programs read the condition Succeeded, and wait for Finished."""
    conditions: Conditions = ()
    """Checkpoints: Accepted, SandboxReady, Answered, Delivered, SessionSaved, Succeeded and Finished."""
    resolved: Resolved | None = None
    """What is in force for this run: values that the spec leaves out come from the workflow and the configuration."""
    target: Sentence | None = None
    """The target in one word, such as group/app!42 or octo-org/app#7."""
    start_time: Timestamp | None = None
    """When its turn came and work began; limits.timeoutSeconds counts from here."""
    completion_time: Timestamp | None = None
    """When it was finished."""
    attempts: Count = 0
    """How often a process began or took over this run."""
    runner: RunnerRef | None = None
    """The process that works on it now."""
    sandbox: SandboxStatus | None = None
    """The sandbox that it holds or held."""
    session: SessionStatus | None = None
    """The conversation; name its id in spec.session of another run to continue it."""
    answer: AnswerStatus | None = None
    """The final answer."""
    usage: UsageStatus | None = None
    """Turns, tokens and money so far."""
    note: NoteStatus | None = None
    """The note that carries the answer."""
    merged: Annotated[
        tuple[Name, ...], Field(max_length=MERGED_LIMIT, json_schema_extra={"x-kubernetes-list-type": "set"})
    ] = ()
    """Names of waiting follow-up runs whose messages this run answers with its own."""
    message: Sentence | None = None
    """One sentence for people: what happens now, or how it ended."""
