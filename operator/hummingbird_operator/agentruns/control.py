"""What this process holds in memory of live runs. All of it may be lost at any line: the cluster has the truth."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from hummingbird_ai.abort import Abort
from hummingbird_operator.agentruns.facts import view
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

    def observe(self, run: AgentRun, *, gone: bool = False) -> None:
        """The watch, or an own write, showed the run. Wakes it, and those whose turn came by it."""
        uid = run.metadata.uid
        if gone or c.is_true(run.status.conditions, c.RunCondition.FINISHED):
            self._seen.pop(uid, None)
            changed = self._views.pop(uid, None) is not None
        else:
            self._seen[uid] = run
            new = view(run, held=self._holds(uid))
            changed = self._views.get(uid) != new
            self._views[uid] = new
        if changed:
            self._grant()
        if control := self._controls.get(uid):
            control.deleted = control.deleted or gone or run.metadata.deleting
            control.cancelled = control.cancelled or control.deleted or run.spec.cancel
            control.wake.set()

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
        control = self._controls.get(uid)
        return control is not None and control.began is not None

    def _grant(self) -> None:
        before, self._turns = self._turns, grant(self._views.values(), slots=self._slots)
        for uid, turn in self._turns.items():
            if turn != before.get(uid) and (control := self._controls.get(uid)):
                control.wake.set()
