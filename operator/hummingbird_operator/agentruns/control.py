"""What this process holds in memory of live runs. All of it may be lost at any line: the cluster has the truth."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from hummingbird_ai.abort import Abort
from hummingbird_operator.agentruns import objects
from hummingbird_operator.agentruns.facts import settled, view
from hummingbird_operator.agentruns.following import carried_outcome, together
from hummingbird_operator.agentruns.turns import RunView, Turn, grant
from hummingbird_operator.api import conditions as c

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from hummingbird_operator.agentruns.work import Conversation
    from hummingbird_operator.api.agentrun import AgentRun
    from hummingbird_operator.errors import SandboxLost

T = TypeVar("T")

UNSEEN = Turn(granted=False, reason=c.Working.QUEUED, message="not seen by the operator's watch yet")


@dataclass
class Control:
    """One live run in this process: what wakes it, what ends it, what it need not do twice."""

    uid: str
    name: str
    namespace: str
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    abort: Abort = field(default_factory=Abort)
    saving: Abort = field(default_factory=Abort)
    """Ends a save: of its own, for a cancelled run is saved, but one that is deleted or handed over is not."""
    cancelled: bool = False
    """The watch saw spec.cancel or a deletion."""
    deleted: bool = False
    """The watch saw a deletion: what the run still waits for must not hold it up."""
    leaving: bool = False
    """This process ends: leave the run to the next one as it is."""
    began: datetime | None = None
    """When the turn came, until a checkpoint holds it."""
    let_go: bool = False
    lost: SandboxLost | None = None
    """Why its sandbox was lost, until that is written down."""
    unheld: int = 0
    """Looks at the run that found no finalizer of ours on it."""
    delivery_after: datetime | None = None
    deliveries: int = 0
    newer_sha: str = ""
    """The commit that ended its work."""
    refuted: set[str] = field(default_factory=set)
    """Later runs (by uid) that do not supersede this one: the merge request's head is this one's commit."""
    overtaken: set[str] = field(default_factory=set)
    """Those that do: the head was another commit when it was looked at."""
    conversation: Conversation | None = None
    """What the agent loop came to; rebuilt from the journal where this process did not run it."""

    def end(self, reason: str) -> None:
        """Stop a call or a command in flight and wake the run."""
        self.abort.set(reason)
        self.saving.set(reason)
        self.wake.set()

    async def unless_deleted(self, work: Awaitable[T], seconds: float) -> T:
        """That work; TimeoutError where it takes longer than so many seconds past the run's deletion."""
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                if self.deleted:
                    async with asyncio.timeout(seconds):
                        return await task
                woken = asyncio.ensure_future(self.wake.wait())
                await asyncio.wait({task, woken}, return_when=asyncio.FIRST_COMPLETED)
                woken.cancel()
                if not task.done():  # of a task that is done, the next look at the facts is not to be missed
                    self.wake.clear()
            return await task
        finally:
            task.cancel()

    async def pause(self, seconds: float) -> None:
        """Wait, but not past anything that wakes the run."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.wake.wait()


class Runs:
    """All live runs that the watch has shown, their turns, and the control of those that this process drives."""

    def __init__(self, *, slots: int, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._slots = slots
        self._clock = clock
        self._seen: dict[str, AgentRun] = {}
        self._views: dict[str, RunView] = {}
        self._turns: Mapping[str, Turn] = {}
        self._controls: dict[str, Control] = {}
        self._lanes: dict[str, str] = {}
        self._carriers: dict[str, AgentRun] = {}
        """Runs that answer others' words too; kept when they are finished, for the others' sake."""

    def observe(self, run: AgentRun, *, gone: bool = False) -> None:
        """The watch, or an own write, showed the run. Wakes it, and those whose turn came by it."""
        uid = run.metadata.uid
        self._carry(run, gone=gone)
        if gone or c.is_true(run.status.conditions, c.RunCondition.FINISHED):
            self._seen.pop(uid, None)
            self._lanes.pop(uid, None)
            changed = self._views.pop(uid, None) is not None
        else:
            unknown = uid not in self._seen
            self._seen[uid] = run
            new = self._view(run)
            changed = self._views.get(uid) != new
            self._views[uid] = new
            if unknown:
                self._lanes[uid] = objects.lane(run)
                self._tell_older(run)
        if changed:
            self._grant()
        if control := self._controls.get(uid):
            control.deleted = control.deleted or gone or run.metadata.deleting
            control.cancelled = control.cancelled or control.deleted or run.spec.cancel
            control.wake.set()

    def _carry(self, run: AgentRun, *, gone: bool) -> None:
        """Keep in mind whose words the run answers, and tell those runs when that changes or is over."""
        before = self._carriers.pop(run.metadata.uid, None)
        if run.status.merged and not gone:
            self._carriers[run.metadata.uid] = run
        now = self._carriers.get(run.metadata.uid)
        if (before and _carrying(before)) == (now and _carrying(now)):
            return
        names = {*(before.status.merged if before else ()), *(now.status.merged if now else ())}
        for uid, other in self._seen.items():
            if other.metadata.name in names:
                self._views[uid] = self._view(other)
                if control := self._controls.get(uid):
                    control.wake.set()
        self._grant()

    def _view(self, run: AgentRun) -> RunView:
        return view(run, held=self._holds(run.metadata.uid), carried=self.carrier_of(run) is not None)

    def carrier_of(self, run: AgentRun) -> AgentRun | None:
        """The run that answers this one's words with its own."""
        for carrier in self._carriers.values():
            same = carrier.metadata.namespace == run.metadata.namespace and carrier.spec.session == run.spec.session
            if same and run.metadata.name in carrier.status.merged:
                return carrier
        return None

    def followers(self, uid: str) -> list[AgentRun]:
        """The waiting replies that this run may answer with its own, oldest first."""
        own = self._views.get(uid)
        free = (each for each in self._views.values() if not each.carried or self._carried_by(each.uid, uid))
        return [self._seen[view.uid] for view in together(own, free)] if own else []

    def _carried_by(self, uid: str, carrier: str) -> bool:
        found = self.carrier_of(self._seen[uid])
        return found is not None and found.metadata.uid == carrier

    def newer(self, run: AgentRun) -> AgentRun | None:
        """The latest automatic run of the same workflow and merge request that came after it, for another commit."""
        own, lane = self._views.get(run.metadata.uid), self._lanes.get(run.metadata.uid)
        if own is None or not own.automatic or not lane or settled(run, c.RunCondition.ANSWERED):
            return None
        later = [
            (theirs.created, theirs.uid)
            for theirs in self._views.values()
            if theirs.automatic
            and not theirs.ending
            and self._lanes[theirs.uid] == lane
            and theirs.uid != own.uid
            and theirs.created >= own.created
            and objects.commit(self._seen[theirs.uid]) not in ("", objects.commit(run))
        ]
        return self._seen[max(later)[1]] if later else None

    def _tell_older(self, run: AgentRun) -> None:
        for uid, control in self._controls.items():
            if uid in self._seen and self.newer(self._seen[uid]) is run:
                control.wake.set()

    def alive(self, uid: str) -> bool:
        """Whether a run of that uid is unfinished, as far as the watch has shown."""
        return uid in self._seen

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

    def phases(self) -> Mapping[str, int]:
        """Live runs by phase."""
        counts: dict[str, int] = {}
        for run in self._seen.values():
            phase = run.status.phase or "Pending"
            counts[phase] = counts.get(phase, 0) + 1
        return counts

    def _holds(self, uid: str) -> bool:
        """This process gave it the turn."""
        control = self._controls.get(uid)
        return control is not None and control.began is not None

    def _grant(self) -> None:
        before, self._turns = self._turns, grant(self._views.values(), slots=self._slots)
        for uid, turn in self._turns.items():
            if turn != before.get(uid) and (control := self._controls.get(uid)):
                control.wake.set()


def _carrying(run: AgentRun) -> tuple[tuple[str, ...], tuple[str, str] | None]:
    return run.status.merged, carried_outcome(run)
