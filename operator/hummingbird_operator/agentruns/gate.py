"""May a run that came from an event post a note at all? An ordered list of named checks over the bot's own notes.

Pure. A run that a person asked for is only held against its own event (Duplicate). An automatic one also against its
commit, the merge request's head and the limit of its workflow (DESIGN: "Delivery", "Ingest").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from hummingbird_operator.api.conditions import Failure, Success

if TYPE_CHECKING:
    from hummingbird_operator.api.agentrun import AgentRun

RUNNING, DONE, CANCELLED, SUPERSEDED = "running", "done", "cancelled", "superseded"
STATES: dict[str, str] = {Success.COMPLETED: DONE, Failure.CANCELLED: CANCELLED, Success.SUPERSEDED: SUPERSEDED}
"""The marker's state that an outcome will have; any other is a failure, which counts for nothing."""


class Mark(Protocol):
    """What a note of the bot says of itself: see delivery.markers.Marker."""

    @property
    def id(self) -> str | None:
        """The session."""

    @property
    def wf(self) -> str | None:
        """The workflow."""

    @property
    def sha(self) -> str | None:
        """The commit that it speaks for."""

    @property
    def run(self) -> str | None:
        """The AgentRun's uid."""

    @property
    def key(self) -> str | None:
        """The AgentRun's name."""

    @property
    def state(self) -> str | None:
        """How far it got."""


@dataclass(frozen=True)
class Scan:
    """One pass over the bot's notes on the merge request, and what is known besides."""

    run: AgentRun
    marks: Sequence[Mark]
    """Of the bot's notes, this very run's left out."""
    head_sha: str
    """The merge request's head now."""
    limit: int
    """Automatic runs of one workflow on one merge request."""
    alive: Callable[[str], str | None]
    """Of the AgentRun with that uid: None where it is gone or finished, else its outcome so far, empty at work."""
    shut: str = ""
    """Why nothing starts by itself on the merge request any more: closed, merged or a draft."""

    @property
    def automatic(self) -> bool:
        """Nobody asked for the run."""
        return bool(self.run.spec.trigger and self.run.spec.trigger.automatic)

    @property
    def sha(self) -> str:
        """The commit that the run is about."""
        resolved = self.run.status.resolved
        return (resolved and resolved.head_sha) or ""

    def settled(self, mark: Mark) -> str:
        """How the run of that mark ended, also where its note does not say so yet; empty: at work, or never ended."""
        if mark.state != RUNNING:
            return mark.state or ""
        return STATES.get(self.alive(mark.run or "") or "", "")

    @property
    def of_workflow(self) -> list[Mark]:
        """Marks of the run's own workflow."""
        return [mark for mark in self.marks if mark.wf == self.run.spec.workflow]


@dataclass(frozen=True)
class Verdict:
    """Why the run has nothing to do: reason and message of its outcome."""

    reason: str
    message: str


def gate(scan: Scan) -> Verdict | None:
    """The reason to skip the run; None where it may go on."""
    for check in CHECKS:
        if verdict := check(scan):
            return verdict
    return None


def same_event(run: AgentRun, mark: Mark) -> bool:
    """The note was made for the same event: by a run of the same name, which was deleted since."""
    by_event = run.spec.trigger is not None and run.spec.trigger.key is not None
    return by_event and mark.key == run.metadata.name and mark.run != run.metadata.uid


def _duplicate(scan: Scan) -> Verdict | None:
    answered = [mark for mark in scan.marks if same_event(scan.run, mark) and mark.state != RUNNING]
    return Verdict(Success.DUPLICATE, "this event was answered by a run that is deleted since") if answered else None


def _stale(scan: Scan) -> Verdict | None:
    if not scan.automatic or not scan.sha or not scan.head_sha or scan.sha == scan.head_sha:
        return None
    return Verdict(Success.SUPERSEDED, f"the merge request's head is {scan.head_sha} now, not {scan.sha}")


def _shut(scan: Scan) -> Verdict | None:
    if not scan.automatic or not scan.shut:
        return None
    return Verdict(Success.SUPERSEDED, f"the merge request is {scan.shut} by now")


def _already_reviewed(scan: Scan) -> Verdict | None:
    if not scan.automatic or not scan.sha:
        return None
    for mark in scan.of_workflow:
        at_work = mark.state == RUNNING and scan.alive(mark.run or "") == ""
        if mark.sha == scan.sha and (at_work or scan.settled(mark) in (DONE, CANCELLED)):
            return Verdict(Success.ALREADY_REVIEWED, f"{scan.run.spec.workflow} has been at commit {scan.sha} before")
    return None


def _limit_reached(scan: Scan) -> Verdict | None:
    if not scan.automatic:
        return None
    sessions = {mark.id for mark in scan.of_workflow if mark.id and scan.settled(mark) != SUPERSEDED}
    if len(sessions) < scan.limit:
        return None
    text = f"{scan.run.spec.workflow} has {len(sessions)} conversations here, max_runs_per_mr is {scan.limit}"
    return Verdict(Success.RUN_LIMIT_REACHED, f"{text}; a command still starts one")


CHECKS: tuple[Callable[[Scan], Verdict | None], ...] = (_duplicate, _stale, _shut, _already_reviewed, _limit_reached)
