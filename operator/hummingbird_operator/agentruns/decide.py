"""The one place that says what happens next to a run: an ordered list of named checks over frozen facts.

Every entry (event, restart, take-over, timer) leads to the same list. The first check that has an opinion decides; each
step makes one checkpoint settle and is safe to repeat. Read it from the top: it is the life of a run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from hummingbird_operator.agentruns.facts import Facts
from hummingbird_operator.api import conditions as c
from hummingbird_operator.api.conditions import Failure, RunCondition
from hummingbird_operator.errors import Invalid


class Step(StrEnum):
    """What can be done next; `runner.py` applies it."""

    DONE = "done"  # nothing, for ever
    REFUSE = "refuse"  # say why the spec cannot be carried out, and end
    ACCEPT = "accept"  # resolve and take over in one write
    TAKE_OVER = "take-over"  # fence off the process that had the run before
    CONCLUDE = "conclude"  # settle the outcome without another model call
    WAIT = "wait"  # say why, until something changes
    COMPARE = "compare"  # look whether the merge request's head is its commit still
    PLACEHOLDER = "placeholder"  # post the note that will carry the answer
    CLAIM = "claim"  # get a sandbox
    WORK = "work"  # the agent loop, up to its answer
    DELIVER = "deliver"  # put the outcome into the note
    SAVE = "save"  # store conversation, transcript and archive
    LET_GO = "let-go"  # let the sandbox linger or delete it
    FINISH = "finish"  # write the outcome, last


@dataclass(frozen=True)
class Decision:
    """The step, and why: reason and message as they go into a condition."""

    step: Step
    reason: str = ""
    message: str = ""


def decide(facts: Facts) -> Decision:
    """The next step."""
    for check in CHECKS:
        if decision := check(facts):
            return decision
    return Decision(Step.FINISH)


def _finished(facts: Facts) -> Decision | None:
    return Decision(Step.DONE) if facts.stands(RunCondition.FINISHED) else None


def _refused(facts: Facts) -> Decision | None:
    if isinstance(facts.order, Invalid) and not facts.settled(RunCondition.ACCEPTED) and not facts.cancelled:
        return Decision(Step.REFUSE, Failure.INVALID, str(facts.order))
    return None


def _new(facts: Facts) -> Decision | None:
    fresh = not facts.settled(RunCondition.ACCEPTED) and not facts.settled(RunCondition.ANSWERED)
    return Decision(Step.ACCEPT) if fresh and not facts.cancelled else None


def _not_mine(facts: Facts) -> Decision | None:
    return Decision(Step.TAKE_OVER) if facts.run.status.runner != facts.me else None


def _cancelled(facts: Facts) -> Decision | None:
    if not facts.cancelled or facts.settled(RunCondition.ANSWERED):
        return None
    return Decision(Step.CONCLUDE, Failure.CANCELLED, deleted_or_cancelled(deleted=facts.run.metadata.deleting))


def deleted_or_cancelled(*, deleted: bool) -> str:
    """What a person did that ended the run."""
    return "the run was deleted" if deleted else "spec.cancel was set"


def _too_many_attempts(facts: Facts) -> Decision | None:
    attempts = facts.run.status.attempts
    if facts.settled(RunCondition.ANSWERED) or attempts <= facts.max_attempts:
        return None
    text = f"{attempts} processes took this run over without finishing it (limits.max_attempts)"
    return Decision(Step.CONCLUDE, Failure.ATTEMPTS_EXHAUSTED, text)


def _no_longer_valid(facts: Facts) -> Decision | None:
    """The configuration changed under an accepted run: its workflow or project is gone."""
    if isinstance(facts.order, Invalid) and not facts.settled(RunCondition.ANSWERED):
        return Decision(Step.CONCLUDE, Failure.INVALID, str(facts.order))
    return None


def _out_of_time(facts: Facts) -> Decision | None:
    deadline = facts.deadline
    if facts.settled(RunCondition.ANSWERED) or deadline is None or facts.now < deadline:
        return None
    return Decision(Step.CONCLUDE, Failure.TIMED_OUT, out_of_time(facts))


def out_of_time(facts: Facts) -> str:
    """The wall time that was not enough."""
    limits = facts.run.status.resolved and facts.run.status.resolved.limits
    return f"not answered within limits.timeoutSeconds ({limits.timeout_seconds if limits else None})"


def _carried(facts: Facts) -> Decision | None:
    """Another run answers its words: it waits for that one, and ends with it."""
    if facts.carrier is None or facts.settled(RunCondition.ANSWERED):
        return None
    if facts.carrier.outcome is None:
        text = f"run {facts.carrier.name} answers these words with its own"
        return Decision(Step.WAIT, c.Working.WAITING_FOR_SESSION, text)
    return Decision(Step.CONCLUDE, *facts.carrier.outcome)


def _dropped(facts: Facts) -> Decision | None:
    if facts.turn.reason != Failure.DROPPED or facts.settled(RunCondition.ANSWERED):
        return None
    return Decision(Step.CONCLUDE, Failure.DROPPED, facts.turn.message)


def _superseded(facts: Facts) -> Decision | None:
    """A later run is about another commit: it counts once the merge request's head is not this one's any more."""
    if facts.settled(RunCondition.ANSWERED):
        return None
    if facts.head_now:
        return Decision(Step.CONCLUDE, c.Success.SUPERSEDED, superseded_by(facts.head_now))
    return Decision(Step.COMPARE) if facts.newer is not None else None


def superseded_by(sha: str) -> str:
    """The words about a newer commit."""
    return f"the merge request has a newer commit: {sha}"


def _not_its_turn(facts: Facts) -> Decision | None:
    if facts.turn.granted or facts.settled(RunCondition.ANSWERED):
        return None
    return Decision(Step.WAIT, facts.turn.reason, facts.turn.message)


def _no_note_yet(facts: Facts) -> Decision | None:
    if facts.settled(RunCondition.ANSWERED) or isinstance(facts.order, Invalid) or not facts.order.notes:
        return None
    noted = facts.run.status.note is not None and facts.run.status.note.id is not None
    return None if noted else Decision(Step.PLACEHOLDER)


def _is_a_notice(facts: Facts) -> Decision | None:
    """A fixed answer needs neither sandbox nor model: with its note it is done."""
    if facts.run.spec.notice is None or facts.settled(RunCondition.ANSWERED):
        return None
    return Decision(Step.CONCLUDE, c.Checkpoint.COMPLETED, f"the fixed answer {facts.run.spec.notice} was given")


def _no_sandbox_yet(facts: Facts) -> Decision | None:
    if facts.settled(RunCondition.ANSWERED) or facts.stands(RunCondition.SANDBOX_READY):
        return None
    return Decision(Step.CLAIM)


def _not_answered(facts: Facts) -> Decision | None:
    return None if facts.settled(RunCondition.ANSWERED) else Decision(Step.WORK)


def _not_delivered(facts: Facts) -> Decision | None:
    if facts.settled(RunCondition.DELIVERED) or _blocked(facts):
        return None
    return Decision(Step.DELIVER)


def _not_saved(facts: Facts) -> Decision | None:
    if facts.settled(RunCondition.SESSION_SAVED):
        return None
    if facts.run.metadata.deleting:
        return Decision(Step.SAVE, c.Checkpoint.NOTHING_TO_SAVE, "the run was deleted")
    return Decision(Step.SAVE)


def _sandbox_idle(facts: Facts) -> Decision | None:
    return Decision(Step.LET_GO) if facts.sandbox_held else None


def _forge_away(facts: Facts) -> Decision | None:
    if not _blocked(facts) or facts.settled(RunCondition.DELIVERED) or facts.run.metadata.deleting:
        return None
    return Decision(Step.WAIT, c.Working.DELIVERING, "the note could not be written yet; it is tried again")


def _blocked(facts: Facts) -> bool:
    return facts.delivery_after is not None and facts.now < facts.delivery_after


CHECKS: tuple[Callable[[Facts], Decision | None], ...] = (
    _finished,
    _refused,
    _new,
    _not_mine,
    # until it is answered, it can be ended
    _cancelled,
    _too_many_attempts,
    _no_longer_valid,
    _out_of_time,
    _dropped,
    _superseded,
    # towards the answer
    _carried,
    _not_its_turn,
    _no_note_yet,
    _is_a_notice,
    _no_sandbox_yet,
    _not_answered,
    # the answer is paid for: it is given and kept, whatever else happens
    _not_delivered,
    _not_saved,
    _sandbox_idle,
    _forge_away,
)
