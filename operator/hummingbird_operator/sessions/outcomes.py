"""How an agent loop can end, and which end an error means."""

from __future__ import annotations

from enum import StrEnum

from hummingbird_ai import errors as ai
from hummingbird_operator.api.conditions import Failure, Success
from hummingbird_operator.errors import Aborted, Conflict, Doubt, HummingbirdError, LeadershipLost, SandboxLost


class Outcome(StrEnum):
    """How a loop ended. The values are the reasons of the run's `Succeeded` condition, but for the last."""

    COMPLETED = Success.COMPLETED.value
    SUPERSEDED = Success.SUPERSEDED.value
    CANCELLED = Failure.CANCELLED.value
    TIMED_OUT = Failure.TIMED_OUT.value
    MODEL_ERROR = Failure.MODEL_ERROR.value
    REFUSED = Failure.REFUSED.value
    CONTEXT_OVERFLOW = Failure.CONTEXT_OVERFLOW.value
    SANDBOX_LOST = Failure.SANDBOX_LOST.value
    BUDGET_EXHAUSTED = Failure.BUDGET_EXHAUSTED.value
    STORE_UNAVAILABLE = Failure.STORE_UNAVAILABLE.value
    SHUTTING_DOWN = "ShuttingDown"
    """Not an end of the run: whoever leads next goes on from the journal."""


_ABORTS = {"TimedOut": Outcome.TIMED_OUT, "Superseded": Outcome.SUPERSEDED, "ShuttingDown": Outcome.SHUTTING_DOWN}


def outcome_of(error: ai.ModelError | HummingbirdError) -> Outcome:
    """The end that an error means. Conflict, LeadershipLost and Doubt are raised again: they may conclude nothing.

    What is left of our own errors once tools have turned theirs into results comes from the journal's store.
    """
    if isinstance(error, Conflict | LeadershipLost | Doubt):
        raise error
    if isinstance(error, Aborted | ai.CallAborted):
        return _ABORTS.get(error.reason, Outcome.CANCELLED)
    if isinstance(error, ai.ContextOverflow | ai.RequestTooLarge):
        return Outcome.CONTEXT_OVERFLOW
    if isinstance(error, ai.Refused):
        return Outcome.REFUSED
    if isinstance(error, ai.ModelError):
        return Outcome.MODEL_ERROR
    return Outcome.SANDBOX_LOST if isinstance(error, SandboxLost) else Outcome.STORE_UNAVAILABLE
