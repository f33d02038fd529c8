"""Condition types and reasons: the durable checkpoints of a run and the health of a pool.

Every type and reason that the operator writes is a constant here, with the sentence that explains it;
`docs/conditions.md` is held against this module by a test.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class RunCondition(StrEnum):
    """Condition types of an AgentRun. Each is a checkpoint that, once True, is not done again."""

    ACCEPTED = "Accepted"  # the spec was resolved against the configuration; `status.resolved` is in force
    SANDBOX_READY = "SandboxReady"  # a sandbox is claimed for this run
    ANSWERED = "Answered"  # the answer is stored: no more model calls
    DELIVERED = "Delivered"  # the note carries the answer, or there is nothing to deliver
    SESSION_SAVED = "SessionSaved"  # a reply can continue this session
    SUCCEEDED = "Succeeded"  # Unknown while working, then the outcome
    FINISHED = "Finished"  # True with either outcome: the one to wait for


class Checkpoint(StrEnum):
    """Reasons of the checkpoints from Accepted to SessionSaved; Answered = False carries a Failure instead."""

    ACCEPTED = "Accepted"  # resolved against the configuration
    CLAIMED = "Claimed"  # a standby member of the pool was claimed
    RECLAIMED = "Reclaimed"  # the session's own sandbox still lingered, with its files
    COLD_STARTED = "ColdStarted"  # the pool was empty: a sandbox was made for this run
    REPLACED = "Replaced"  # the first sandbox was lost; this is the second and last
    COMPLETED = "Completed"  # the model answered
    NOTE_WRITTEN = "NoteWritten"  # the note carries the outcome
    NOTHING_TO_DELIVER = "NothingToDeliver"  # no target, delivery None, or the run ended before its note
    RETRYING = "Retrying"  # the forge or the store is away; tried again
    SAVED = "Saved"  # conversation, transcript and archive are stored
    SAVED_WITHOUT_FILES = "SavedWithoutFiles"  # the conversation is stored, the files of the sandbox could not be
    NOTHING_TO_SAVE = "NothingToSave"  # the run ended before there was a conversation


class Working(StrEnum):
    """Reasons of `Succeeded` = Unknown."""

    QUEUED = "Queued"  # every slot of this operator is taken
    WAITING_FOR_SESSION = "WaitingForSession"  # another run of the session, or of the lane, goes first
    WAITING_FOR_SANDBOX = (
        "WaitingForSandbox"  # no sandbox is ready: one is being started, or the pool may not make more
    )
    BUDGET_BLOCKED = "BudgetBlocked"  # a budget that is shared by runs is used up for now
    RUNNING = "Running"  # the agent loop is at work
    WAITING_FOR_MODEL = "WaitingForModel"  # the model's service fails or is full; it is asked again
    DELIVERING = "Delivering"  # answered; the note or the session is being written


class Success(StrEnum):
    """Reasons of `Succeeded` = True; all but Completed were skipped on purpose."""

    COMPLETED = "Completed"
    ALREADY_REVIEWED = "AlreadyReviewed"
    RUN_LIMIT_REACHED = "RunLimitReached"
    SUPERSEDED = "Superseded"
    DUPLICATE = "Duplicate"
    MERGED = "Merged"


class Failure(StrEnum):
    """Reasons of `Succeeded` = False."""

    CANCELLED = "Cancelled"  # spec.cancel was set, or the run was deleted
    TIMED_OUT = "TimedOut"  # limits.timeoutSeconds passed
    MODEL_ERROR = "ModelError"  # the model's service failed past the retries
    REFUSED = "Refused"  # the model declined
    CONTEXT_OVERFLOW = "ContextOverflow"  # the conversation no longer fits the model
    SANDBOX_LOST = "SandboxLost"  # lost twice, or it could not be started
    BUDGET_EXHAUSTED = "BudgetExhausted"  # iterations or money ended before there was an answer
    SESSION_NOT_FOUND = "SessionNotFound"  # the session to resume does not exist (any more)
    SESSION_NOT_SAVED = "SessionNotSaved"  # no model had answered in the session to resume
    SESSION_UNREADABLE = "SessionUnreadable"  # what is stored of the session to resume cannot be read
    SESSION_INTERNAL = "SessionInternal"  # the session to resume is internal, and the run's note would be public
    STORE_UNAVAILABLE = "StoreUnavailable"  # the session store did not answer
    INTERNAL_NOTE_REFUSED = "InternalNoteRefused"  # the forge made a note public that had to be internal
    DELIVERY_FAILED = "DeliveryFailed"  # the note could not be written for a day
    ATTEMPTS_EXHAUSTED = "AttemptsExhausted"  # the operator died too often while at this run
    DROPPED = "Dropped"  # too many runs waited for this session
    INVALID = "Invalid"  # the spec cannot be carried out; the message names the field


class PoolCondition(StrEnum):
    """Condition types of a SandboxPool."""

    READY = "Ready"  # the wanted number of standby members is ready
    PROGRESSING = "Progressing"  # members are being made or replaced
    DEGRADED = "Degraded"  # the template is refused, or its members keep failing and are made with growing pauses


class PoolReason(StrEnum):
    """Reasons of a pool's conditions."""

    STANDBY_READY = "StandbyReady"
    STANDBY_MISSING = "StandbyMissing"
    UP_TO_DATE = "UpToDate"
    REPLENISHING = "Replenishing"
    HEALTHY = "Healthy"
    TEMPLATE_REFUSED = "TemplateRefused"  # the message names the field that a sandbox may not have
    MEMBERS_FAILING = "MembersFailing"  # members failed in a row; the message holds the pod's own reason
    QUOTA_EXCEEDED = "QuotaExceeded"
    NOT_SUPPORTED = "NotSupported"


Status = str  # "True" | "False" | "Unknown", as the API conventions have it


@dataclass(frozen=True)
class Condition:
    """One entry of `status.conditions`, as the Kubernetes API conventions define it."""

    type: str
    status: Status
    reason: str
    message: str
    last_transition_time: str
    observed_generation: int

    def as_dict(self) -> dict[str, object]:
        """The wire form. Generation 0 is left out: `kubectl wait` would take it for an old observation."""
        observed = {"observedGeneration": self.observed_generation} if self.observed_generation else {}
        return {
            "type": self.type,
            "status": self.status,
            "reason": self.reason,
            "message": self.message,
            "lastTransitionTime": self.last_transition_time,
            **observed,
        }

    @classmethod
    def from_dict(cls, raw: dict[str, object]) -> Condition:
        """From the wire form; fields that an older operator did not write are empty."""
        generation = raw.get("observedGeneration")
        return cls(
            type=str(raw.get("type", "")),
            status=str(raw.get("status", "Unknown")),
            reason=str(raw.get("reason", "")),
            message=str(raw.get("message", "")),
            last_transition_time=str(raw.get("lastTransitionTime", "")),
            observed_generation=generation if isinstance(generation, int) else 0,
        )


MESSAGE_LIMIT = 1024
"""Characters of a condition's message, as the schema bounds it."""


def find(conditions: Iterable[Condition], type_: str) -> Condition | None:
    """The condition of that type, if it stands there."""
    return next((condition for condition in conditions if condition.type == type_), None)


def is_true(conditions: Iterable[Condition], type_: str) -> bool:
    """Whether the condition stands there and is True."""
    found = find(conditions, type_)
    return found is not None and found.status == "True"


def with_condition(
    conditions: Sequence[Condition],
    type_: str,
    status: Status,
    reason: str,
    message: str,
    *,
    now: datetime,
    generation: int,
) -> tuple[Condition, ...]:
    """The list with that condition set. The transition time moves only when the status does."""
    old = find(conditions, type_)
    same = old is not None and old.status == status
    new = Condition(
        type=type_,
        status=status,
        reason=reason,
        message=message[:MESSAGE_LIMIT],
        last_transition_time=old.last_transition_time if same and old else rfc3339(now),
        observed_generation=generation,
    )
    if old is None:
        return (*conditions, new)
    return tuple(new if condition.type == type_ else condition for condition in conditions)


def rfc3339(moment: datetime) -> str:
    """A moment in UTC as the API server writes times: seconds, with Z."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
