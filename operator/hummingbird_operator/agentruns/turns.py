"""Whose turn it is: one run of a session, one of a lane, and no more than there are slots.

The order is in the cluster (creation times, checkpoints); what this process granted is only a reservation on top, so a
new leader comes to the same order. Pure: `grant` maps what is known to who may go and why the others wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hummingbird_operator.agentruns.following import MOST_WAITING, too_many
from hummingbird_operator.api.conditions import Failure, Working

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True)
class RunView:
    """What the order needs to know of one live run."""

    uid: str
    name: str
    created: str
    """creationTimestamp; RFC 3339 sorts as text."""
    session: str
    lane: str
    """Empty for runs without a target: they disturb nobody's merge request."""
    reply: bool
    """It continues a session: it waits by session only."""
    automatic: bool
    """No person waits for it: people go first."""
    started: bool
    """Some process began it: it goes on before anything new begins."""
    needs_slot: bool
    """It still has work for a thread; a run that only retries its delivery has not."""
    note: int = 0
    """Number of the comment that asked."""
    thread: str = ""
    """Replies of one thread are answered together; empty for a run that is answered by itself."""
    ending: bool = False
    """It is being cancelled, or has its outcome: nobody answers it with anything."""
    over: bool = False
    """It has its answer and its session is saved: it may still retry its note, and holds nobody up."""
    carried: bool = False
    """Another run answers its words: it has no turn of its own."""

    @property
    def waits(self) -> bool:
        """Its turn did not come yet."""
        return not self.started and not self.ending

    @property
    def order(self) -> tuple[bool, bool, str, int, str]:
        """Sorts runs as they get their turn; creation times have whole seconds, numbers of comments tell more."""
        return (not self.started, self.automatic, self.created, self.note, self.uid)


@dataclass(frozen=True)
class Turn:
    """May the run go on? If not, why."""

    granted: bool
    reason: str
    message: str


GRANTED = Turn(granted=True, reason=Working.RUNNING, message="")
TOO_MANY = Turn(
    granted=False,
    reason=Failure.DROPPED,
    message=f"more than {MOST_WAITING} replies wait for this session, and this was the oldest",
)
CARRIED = Turn(granted=False, reason=Working.WAITING_FOR_SESSION, message="another run answers these words too")


def grant(views: Iterable[RunView], *, slots: int) -> Mapping[str, Turn]:
    """The turn of every live run, by uid.

    First those that were begun, then people's before automatic ones, then the oldest; the uid breaks ties because
    creation times have whole seconds.
    """
    turns: dict[str, Turn] = {}
    sessions: dict[str, RunView] = {}
    lanes: dict[str, RunView] = {}
    taken = 0
    ordered = sorted(views, key=lambda view: view.order)
    dropped = too_many(ordered)
    begins = {view.uid: view for view in ordered if not view.over}
    for view in ordered:
        if view.carried or view.uid in dropped:
            turns[view.uid] = CARRIED if view.carried else TOO_MANY
            continue
        # a session has the uid of the run that begins it: whoever goes on with it comes after that one
        before = sessions.get(view.session) or (begins.get(view.session) if view.reply else None)
        turn = _turn(view, before, None if view.reply else lanes.get(view.lane), free=slots - taken)
        turns[view.uid] = turn
        # A run that waits for a slot keeps its place in session and lane: a later one must not pass it.
        if not view.over:
            sessions.setdefault(view.session, view)
        if view.lane and not view.reply:
            lanes.setdefault(view.lane, view)
        if turn.granted and view.needs_slot:
            taken += 1
    return turns


def _turn(view: RunView, in_session: RunView | None, in_lane: RunView | None, *, free: int) -> Turn:
    if in_session:
        return Turn(False, Working.WAITING_FOR_SESSION, f"run {in_session.name} of the same session goes first")
    if in_lane:
        return Turn(
            False, Working.WAITING_FOR_SESSION, f"run {in_lane.name} of the same workflow and merge request goes first"
        )
    if view.needs_slot and free <= 0:
        return Turn(False, Working.QUEUED, "every slot of the operator is taken (limits.max_concurrent_runs)")
    return GRANTED
