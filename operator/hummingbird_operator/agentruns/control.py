"""What this process holds in memory of a run that it drives. All of it may be lost at any line."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from hummingbird_ai.abort import Abort

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from hummingbird_operator.agentruns.work import Conversation
    from hummingbird_operator.errors import SandboxLost

T = TypeVar("T")


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
    head_now: str = ""
    """The merge request's head, once it is sure that it is not the run's commit any more."""
    refuted: set[str] = field(default_factory=set)
    """Later runs (by uid) that do not supersede this one: the merge request's head is this one's commit."""
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
