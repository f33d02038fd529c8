"""The steps after the answer: deliver it, and save the session that a reply continues."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextvars import copy_context
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from hummingbird_ai.abort import Abort
from hummingbird_operator.agentruns import objects
from hummingbird_operator.agentruns.decide import Decision, Step
from hummingbird_operator.agentruns.facts import Facts
from hummingbird_operator.agentruns.resolve import Order
from hummingbird_operator.agentruns.tasks import task_of
from hummingbird_operator.agentruns.work import Conversation, Saved, Worker
from hummingbird_operator.api import conditions as c
from hummingbird_operator.api.agentrun import AgentRun, SessionStatus, UsageStatus
from hummingbird_operator.errors import Conflict, Doubt, Invalid, NotFound, SandboxLost, Unavailable
from hummingbird_operator.sessions.outcomes import Outcome

if TYPE_CHECKING:
    from hummingbird_operator.agentruns.claiming import Sandboxes
    from hummingbird_operator.agentruns.control import Control
    from hummingbird_operator.agentruns.delivering import Delivering
    from hummingbird_operator.agentruns.runner import Apply
    from hummingbird_operator.agentruns.status import StatusWriter

logger = logging.getLogger(__name__)

T = TypeVar("T")

DELETED_SECONDS = 1.0
"""How much longer a deleted run waits for a forge that is writing its answer down."""


class Keeping:
    """The steps DELIVER and SAVE."""

    def __init__(
        self,
        status: StatusWriter,
        sandboxes: Sandboxes,
        worker: Worker,
        delivering: Delivering,
        executor: Executor,
        quick: Executor,
        *,
        retry_seconds: int,
        clock: Callable[[], datetime],
    ) -> None:
        """`retry_seconds`: how long a save is tried again before the run ends without one. `quick` has threads that no

        agent at work holds: a cancelled run that waits for a slot must not wait for one to say so.
        """
        self._quick = quick
        self._status = status
        self._sandboxes = sandboxes
        self._worker = worker
        self._delivering = delivering
        self._executor = executor
        self._retry_seconds = retry_seconds
        self._clock = clock

    def steps(self) -> Mapping[Step, Apply]:
        """What this module can do."""
        return {Step.DELIVER: self.deliver, Step.SAVE: self.save}

    async def admit(self, facts: Facts) -> None:
        """Raise Invalid where the run may not resume the session that it names. It may take long: to be accompanied."""
        if facts.run.spec.session is None:
            return
        over = Abort()
        try:  # in a thread of the run's own: it has its turn
            await self._in_thread(partial(self._worker.admit, task_of(facts, self._clock()), over), self._executor)
        finally:
            over.set(Outcome.SHUTTING_DOWN)  # nobody waits for the thread any more

    async def deliver(self, facts: Facts, decision: Decision, control: Control) -> None:
        """Put the outcome into the note; a decision with a reason says that it cannot be done."""
        if decision.reason:
            await self._delivering.settle(facts.run, "False", decision.reason, decision.message)
            return
        try:
            said = await self._conversation(facts, control)
        except Unavailable as error:
            if not self._patience_over(facts.run):
                raise
            logger.warning("delivered without the conversation: %s", error, extra={"run": control.name})
            said = None
        try:
            delivery = self._delivering.deliver(_accounted(facts, said), said, control)
            await control.unless_deleted(delivery, DELETED_SECONDS)
        except TimeoutError:  # the thread goes on by itself: the answer may still get into the note
            await self._delivering.give_up(facts.run, control)

    async def save(self, facts: Facts, decision: Decision, control: Control) -> None:
        """Store the session, then invite a reply; a run that never spoke to a model has nothing to store.

        A decision with a reason says that it cannot be done.
        """
        run = facts.run
        if decision.reason:
            await self._saved(run, "False", decision.reason, decision.message)
            return
        try:
            kept = await self._kept(facts, control)
        except (Conflict, Invalid, SandboxLost) as error:
            await self._saved(run, "False", c.Checkpoint.NOTHING_TO_SAVE, str(error))
            return
        except Doubt:
            raise
        except Unavailable as error:
            if not self._patience_over(run):
                raise
            await self._saved(run, "False", c.Failure.STORE_UNAVAILABLE, str(error))
            return
        if kept is None:
            await self._nothing_begun(run)
            await self._saved(run, "False", c.Checkpoint.NOTHING_TO_SAVE, "there is no conversation")
            return
        said, saved = kept
        await self._invite(facts, said)
        session = SessionStatus(id=objects.session_id(run), uri=saved.uri, transcript=saved.transcript)
        reason = c.Checkpoint.SAVED_WITHOUT_FILES if saved.problem else c.Checkpoint.SAVED
        await self._saved(run, "True", reason, saved.problem or saved.uri, session=session)

    async def _kept(self, facts: Facts, control: Control) -> tuple[Conversation, Saved] | None:
        try:
            return await self._keep(facts, control)
        except Doubt:
            raise
        except Unavailable as error:
            if not self._patience_over(facts.run):
                raise
            logger.warning("saved without the files: %s", error, extra={"run": control.name})
        return await self._keep(facts, control, files=False)  # better than no conversation

    async def _keep(self, facts: Facts, control: Control, *, files: bool = True) -> tuple[Conversation, Saved] | None:
        said = await self._conversation(facts, control)
        if said is None or isinstance(facts.order, Invalid) or not said.messages:
            return None
        member = await self._sandboxes.find(control.uid)
        sandbox = self._sandboxes.open(member, control.saving) if member is not None and files else None
        save = partial(self._worker.save, task_of(facts, self._clock()), said, sandbox)
        return said, await self._in_thread(save, self._executor)

    async def _nothing_begun(self, run: AgentRun) -> None:
        """For whoever replies to its note; where it cannot be kept, the reply is told that there is no session."""
        if run.spec.session is not None or run.spec.notice is not None or run.status.note is None:
            return
        try:
            await self._in_thread(partial(self._worker.unbegun, run.metadata.uid), self._quick)
        except Doubt:
            raise
        except Unavailable as error:
            logger.info("that no model was asked is not kept: %s", error, extra={"run": run.metadata.name})

    async def _invite(self, facts: Facts, said: Conversation) -> None:
        """The second update: the prompt to reply, now that a reply would find the session."""
        delivered = c.find(facts.run.status.conditions, c.RunCondition.DELIVERED)
        wanted = delivered is not None and delivered.reason == c.Checkpoint.NOTE_WRITTEN
        run, note = facts.run, facts.run.status.note
        if wanted and note is not None and isinstance(facts.order, Order) and run.spec.session is None:
            try:
                await self._delivering.write(run, facts.order, note, said, prompt=True)
            except Doubt:
                raise
            except (Unavailable, Invalid, NotFound) as error:
                logger.warning("the note has no prompt to reply: %s", error, extra={"run": run.metadata.name})

    async def _conversation(self, facts: Facts, control: Control) -> Conversation | None:
        begun = facts.settled(c.RunCondition.SANDBOX_READY)  # before that no model was asked
        if control.conversation is None and begun and isinstance(facts.order, Order):
            try:
                control.conversation = await self._in_thread(
                    partial(self._worker.recall, task_of(facts, self._clock())), self._quick
                )
            except Invalid as error:
                logger.warning("the conversation cannot be recalled: %s", error, extra={"run": control.name})
        return control.conversation

    async def _in_thread(self, call: Callable[[], T], executor: Executor) -> T:
        inside = copy_context()  # what the call says of itself for log lines must not stay with the thread
        return await asyncio.get_running_loop().run_in_executor(executor, partial(inside.run, call))

    def _patience_over(self, run: AgentRun) -> bool:
        answered = c.find(run.status.conditions, c.RunCondition.ANSWERED)
        if answered is not None and answered.reason == c.Failure.STORE_UNAVAILABLE:
            return True  # that long it was waited for already
        since = datetime.fromisoformat(answered.last_transition_time) if answered else self._clock()
        return (self._clock() - since).total_seconds() > self._retry_seconds

    async def _saved(self, run: AgentRun, status: c.Status, reason: str, message: str, **changes: object) -> None:
        saved = (c.RunCondition.SESSION_SAVED, status, reason, message)
        await self._status.write(run, objects.with_status(run, self._clock(), saved, **changes))


def _accounted(facts: Facts, said: Conversation | None) -> Facts:
    """With what the journal says was used: a run that was ended from outside the loop never told it to its status."""
    known = facts.run.status.usage
    if said is None or (known is not None and _told(known, said)):
        return facts
    status = facts.run.status.model_copy(update={"usage": objects.usage_of(said.result)})
    return replace(facts, run=facts.run.model_copy(update={"status": status}))


def _told(known: UsageStatus, said: Conversation) -> bool:
    """A call that was lost with its process adds to the cost, but is no turn."""
    return known.iterations >= said.result.iterations and (known.cost_usd or 0) >= said.result.cost_usd
