"""All live runs that the watch has shown: their turns, and what each must know of the others.

All of it may be lost at any line: the cluster has the truth, and a new leader reads it once before it drives a run.
"""

from __future__ import annotations

import time
from collections import defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from hummingbird_operator.agentruns import objects
from hummingbird_operator.agentruns.control import Control
from hummingbird_operator.agentruns.facts import settled, view
from hummingbird_operator.agentruns.following import Carrier, carrier, together
from hummingbird_operator.agentruns.turns import RunView, Turn, grant
from hummingbird_operator.api import conditions as c

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from hummingbird_operator.api.agentrun import AgentRun

UNSEEN = Turn(granted=False, reason=c.Working.QUEUED, message="not seen by the operator's watch yet")

Name = tuple[str, str, str]
"""Namespace, session and name of a run whose words another one answers."""


class Runs:
    """The live runs, and the controls of those that this process drives."""

    def __init__(
        self,
        *,
        slots: int,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._slots = slots
        self._clock = clock
        self._monotonic = monotonic
        self._seen: dict[str, AgentRun] = {}
        self._since: dict[str, float] = {}
        self._views: dict[str, RunView] = {}
        self._lanes: defaultdict[str, set[str]] = defaultdict(set)
        """Uids of automatic runs by lane."""
        self._turns: Mapping[str, Turn] = {}
        self._controls: dict[str, Control] = {}
        self._carriers: dict[str, Carrier] = {}
        """By uid; also finished ones, for the sake of those whose words they answered."""
        self._carried: dict[Name, str] = {}

    def observe(self, run: AgentRun, *, gone: bool = False) -> None:
        """The watch, or an own write, showed the run. Wakes it, and those whose turn came by it."""
        uid = run.metadata.uid
        self._carry(run, gone=gone)
        if gone or c.is_true(run.status.conditions, c.RunCondition.FINISHED):
            changed = self._drop(uid)
        else:
            unknown = uid not in self._seen
            self._seen[uid] = run
            new = self._view(run)
            changed = self._views.get(uid) != new
            self._views[uid] = new
            if unknown:
                self._appeared(run)
        if changed:
            self._grant()
        if control := self._controls.get(uid):
            control.deleted = control.deleted or gone or run.metadata.deleting
            control.cancelled = control.cancelled or control.deleted or run.spec.cancel
            control.wake.set()

    def forget(self, uid: str) -> None:
        """The run is not there any more, though the watch has not said so."""
        if (run := self._seen.get(uid)) is not None:
            self.observe(run, gone=True)

    # --- turns, and who drives what ---

    def turn(self, uid: str) -> Turn:
        """Whether the run may go on; a granted turn is kept until the run is over."""
        turn = self._turns.get(uid, UNSEEN)
        if turn.granted and not self._views[uid].started:
            self._controls[uid].began = self._controls[uid].began or self._clock()
            self.observe(self._seen[uid])
        return turn

    def open(self, run: AgentRun) -> Control:
        """The control of a run that this process begins to drive."""
        meta = run.metadata
        ended = run.spec.cancel or meta.deleting
        control = Control(meta.uid, meta.name, meta.namespace, cancelled=ended, deleted=meta.deleting)
        self._controls[meta.uid] = control
        self.observe(run)
        return control

    def close(self, control: Control) -> None:
        """This process drives it no longer."""
        self._controls.pop(control.uid, None)

    def driven(self, run: AgentRun) -> bool:
        """Whether this process drives it now."""
        return run.metadata.uid in self._controls

    def undriven(self, seconds: float) -> list[AgentRun]:
        """Live runs that were seen so long ago and that nothing drives: a watch may have missed their end."""
        return [run for uid, run in self._seen.items() if uid not in self._controls and self.age(uid) >= seconds]

    def phases(self) -> Mapping[str, int]:
        """Live runs by phase."""
        counts: dict[str, int] = {}
        for run in self._seen.values():
            phase = run.status.phase or "Pending"
            counts[phase] = counts.get(phase, 0) + 1
        return counts

    # --- what a run must know of the others ---

    def carrier_of(self, run: AgentRun) -> Carrier | None:
        """The run that answers this one's words with its own.

        Not one that is over and told nobody; nor one that had its answer before this run was made, which then only has
        the name of one that is gone.
        """
        found = self._carriers.get(self._carried.get(_name(run), ""))
        created = run.metadata.creation_timestamp
        if found is None or found.silent or found.uid == run.metadata.uid:
            return None
        return None if found.answered and created and c.rfc3339(created) > found.answered else found

    def followers(self, uid: str) -> list[AgentRun]:
        """The waiting replies that this run may answer with its own, oldest first."""
        own = self._views.get(uid)
        free = (each for each in self._views.values() if not each.carried or self._carried_by(each.uid, uid))
        return [self._seen[view.uid] for view in together(own, free)] if own else []

    def newer(self, run: AgentRun, refuted: Collection[str]) -> AgentRun | None:
        """The latest automatic run of the same workflow and merge request that came after it, for another commit."""
        own = self._views.get(run.metadata.uid)
        if own is None or not own.automatic or settled(run, c.RunCondition.ANSWERED):
            return None
        later = [
            (theirs.created, theirs.uid)
            for theirs in (self._views[uid] for uid in self._lanes.get(objects.lane(run), ()))
            if theirs.uid != own.uid
            and theirs.uid not in refuted
            and not theirs.ending
            and theirs.created >= own.created
            and objects.commit(self._seen[theirs.uid]) not in ("", objects.commit(run))
        ]
        return self._seen[max(later)[1]] if later else None

    def age(self, uid: str) -> float:
        """Seconds since the run was first seen, by this process's own clock; 0 for one that is not live."""
        return self._monotonic() - self._since.get(uid, self._monotonic())

    def alive(self, uid: str) -> str | None:
        """None where no unfinished run has that uid; else its outcome so far, empty while it works."""
        run = self._seen.get(uid)
        if run is None:
            return None
        answered = c.find(run.status.conditions, c.RunCondition.ANSWERED)
        return answered.reason if answered and answered.status in ("True", "False") else ""

    # --- keeping all that up ---

    def _drop(self, uid: str) -> bool:
        run = self._seen.pop(uid, None)
        self._since.pop(uid, None)
        if run is not None:
            lane = objects.lane(run)
            self._lanes[lane].discard(uid)
            if not self._lanes[lane]:
                del self._lanes[lane]
            self._carried.pop(_name(run), None)
        return self._views.pop(uid, None) is not None

    def _appeared(self, run: AgentRun) -> None:
        uid, lane = run.metadata.uid, objects.lane(run)
        self._since[uid] = self._monotonic()
        if not self._views[uid].automatic or not lane:
            return
        for other in self._lanes[lane]:
            if control := self._controls.get(other):
                control.wake.set()
        self._lanes[lane].add(uid)

    def _carry(self, run: AgentRun, *, gone: bool) -> None:
        """Keep in mind whose words the run answers, and tell those runs when that changes or is over."""
        uid = run.metadata.uid
        before, now = self._carriers.get(uid), None if gone else carrier(run)
        if before == now:
            return
        self._carriers.pop(uid, None)
        if now is not None:
            self._carriers[uid] = now
        names = {_name(run, member) for each in (before, now) if each is not None for member in each.members}
        for name in names:
            if now is not None and name[2] in now.members:
                self._carried[name] = uid
            elif self._carried.get(name) == uid:
                del self._carried[name]
        for other in [each for each in self._seen.values() if _name(each) in names]:
            self._views[other.metadata.uid] = self._view(other)
            if control := self._controls.get(other.metadata.uid):
                control.wake.set()
        self._grant()

    def _view(self, run: AgentRun) -> RunView:
        return view(run, held=self._holds(run.metadata.uid), carried=self.carrier_of(run) is not None)

    def _carried_by(self, uid: str, by: str) -> bool:
        found = self.carrier_of(self._seen[uid])
        return found is not None and found.uid == by

    def _holds(self, uid: str) -> bool:
        """This process gave it the turn."""
        control = self._controls.get(uid)
        return control is not None and control.began is not None

    def _grant(self) -> None:
        before, self._turns = self._turns, grant(self._views.values(), slots=self._slots)
        for uid, turn in self._turns.items():
            if turn != before.get(uid) and (control := self._controls.get(uid)):
                control.wake.set()


def _name(run: AgentRun, member: str = "") -> Name:
    return (run.metadata.namespace, run.spec.session or "", member or run.metadata.name)
