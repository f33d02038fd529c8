"""The step WORK: the agent loop in a thread, accompanied from the event loop."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from hummingbird_ai.abort import Abort
from hummingbird_operator.agentruns import objects
from hummingbird_operator.agentruns.decide import Decision, Step, deleted_or_cancelled, out_of_time, superseded_by
from hummingbird_operator.agentruns.facts import Facts
from hummingbird_operator.agentruns.following import question_of
from hummingbird_operator.agentruns.tasks import Task, task_of
from hummingbird_operator.agentruns.work import Conversation, Worker, reason_of
from hummingbird_operator.api import conditions as c
from hummingbird_operator.api.agentrun import AgentRun, AgentRunStatus, AnswerStatus
from hummingbird_operator.errors import (
    HummingbirdError,
    Invalid,
    LeadershipLost,
    NotFound,
    SandboxLost,
    Unavailable,
)
from hummingbird_operator.sessions.outcomes import Outcome
from hummingbird_operator.sessions.state import LoopResult, Progress

if TYPE_CHECKING:
    from hummingbird_operator.agentruns.claiming import Member, Sandboxes
    from hummingbird_operator.agentruns.control import Control
    from hummingbird_operator.agentruns.runner import Apply
    from hummingbird_operator.agentruns.status import StatusWriter
    from hummingbird_operator.telemetry import Metrics

logger = logging.getLogger(__name__)

PROGRESS_SECONDS = 1.0
"""Usage goes into the status at most this often: more writes would starve kopf's own on the object."""


class Others(Protocol):
    """What the watch has shown of other runs."""

    def followers(self, uid: str) -> Sequence[AgentRun]:
        """The waiting replies that this run may answer with its own, oldest first."""


class Working:
    """The step WORK."""

    def __init__(
        self,
        status: StatusWriter,
        sandboxes: Sandboxes,
        worker: Worker,
        executor: Executor,
        replaced: Callable[[AgentRun, SandboxLost], Awaitable[None]],
        metrics: Metrics,
        clean: Callable[[str], str],
        clock: Callable[[], datetime],
        others: Others,
        outdated: Callable[[AgentRun, Control], Awaitable[str]],
    ) -> None:
        """`replaced` lets another sandbox take a lost one's place; `clean` redacts secrets from texts.

        `outdated` returns once the run was overtaken by a newer commit, and says which.
        """
        self._others = others
        self._outdated = outdated
        self._clean = clean
        self._status = status
        self._sandboxes = sandboxes
        self._worker = worker
        self._executor = executor
        self._replace = replaced
        self._metrics = metrics
        self._clock = clock

    def steps(self) -> Mapping[Step, Apply]:
        """What this module can do."""
        return {Step.WORK: self.work}

    async def work(self, facts: Facts, decision: Decision, control: Control) -> None:
        """Run the agent in a thread, and end it when somebody wants that or the time is up."""
        run = facts.run
        member = await self._member(run)
        lost = control.lost or (await self._lost(run) if member is None else None)
        await self._label(run)
        reached = Reached(control.name)
        sandbox = self._sandboxes.open(member, control.abort) if member is not None else None
        run, task = await self._joined(run, task_of(facts, self._clock()))
        call = asyncio.get_running_loop().run_in_executor(
            self._executor, partial(self._worker.work, task, sandbox, control.abort, reached.tell)
        )
        try:
            run = await self._accompany(call, run, facts, control, reached)
            said = await call
        except SandboxLost as error:
            control.lost = lost or error  # kept until it is written down: what is left of the sandbox is deleted first
            await self._replace(run, control.lost)
            control.lost = None
            return
        except Invalid as error:
            await self._conclude(run, reason_of(error), str(error))
            return
        if said.result.outcome is Outcome.SHUTTING_DOWN:
            return
        control.conversation = said
        await self._answered(run, facts, said, control)

    async def _joined(self, run: AgentRun, task: Task) -> tuple[AgentRun, Task]:
        """The run with the waiting replies that it answers too: said in its status before its first call.

        Where the question is settled, it stays what it was: the model's answers are about that one.
        """
        if not run.spec.session or not (run.spec.trigger and run.spec.trigger.discussion):
            return run, task
        question = await asyncio.to_thread(self._worker.asked, task)
        if question is None:
            question = question_of(run, self._others.followers(run.metadata.uid))
            task = replace(task, question=question)
        if run.status.merged != question.runs:
            status = objects.with_status(run, self._clock(), merged=question.runs)
            run = await self._status.write(run, status)
        return run, task

    async def _member(self, run: AgentRun) -> Member | None:
        """The very sandbox that its checkpoint names: in another one, what came before never happened."""
        member, held = await self._sandboxes.find(run.metadata.uid), run.status.sandbox
        if member is not None and held is not None and held.uid and member.uid != held.uid:
            return None
        return member

    async def _lost(self, run: AgentRun) -> SandboxLost | None:
        """Why the run's sandbox is not there. Raises Unavailable while it is alive and only not Ready for now."""
        held = run.status.sandbox
        if held is None:
            return None
        lost = await self._sandboxes.lost(run.metadata.uid, held.name, held.uid or "")
        if lost is None:
            raise Unavailable("the sandbox", f"{held.name} is not Ready for now")
        return lost

    async def _label(self, run: AgentRun) -> None:
        """Labels for people; a run can do without them."""
        if not (missing := objects.missing_labels(run)):
            return
        try:
            await self._status.label(run, missing)
        except HummingbirdError as error:
            logger.info("labels were not written: %s", error, extra={"run": run.metadata.name})

    async def _accompany(
        self, call: asyncio.Future[Conversation], run: AgentRun, facts: Facts, control: Control, reached: Reached
    ) -> AgentRun:
        """Until the thread is through: pass on cancel, deadline and a newer commit, and write the progress down."""
        overtaken = asyncio.ensure_future(self._end_when_outdated(run, control))
        try:
            return await self._watch(call, run, facts, control, reached)
        except Exception:
            control.abort.set(Outcome.SHUTTING_DOWN)
            await asyncio.wait({call})  # never two threads for one run
            control.abort = Abort()
            raise
        finally:
            overtaken.cancel()
            if not call.done():  # nobody waits for the thread any more: it must not go on buying answers
                control.abort.set(Outcome.SHUTTING_DOWN)

    async def _end_when_outdated(self, run: AgentRun, control: Control) -> None:
        await self._outdated(run, control)
        control.abort.set(c.Success.SUPERSEDED)

    async def _watch(
        self, call: asyncio.Future[Conversation], run: AgentRun, facts: Facts, control: Control, reached: Reached
    ) -> AgentRun:
        loop = asyncio.get_running_loop()
        due = loop.time() + PROGRESS_SECONDS
        while not call.done():
            woken = asyncio.create_task(control.wake.wait())
            either: set[asyncio.Future[Any]] = {call, woken}
            await asyncio.wait(either, timeout=PROGRESS_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            woken.cancel()
            control.wake.clear()
            if control.cancelled:
                control.abort.set(c.Failure.CANCELLED)
            elif facts.deadline is not None and self._clock() >= facts.deadline:
                control.abort.set(c.Failure.TIMED_OUT)
            # every write of ours wakes us again: the time decides, or one would follow the other
            if call.done() or control.leaving or loop.time() < due:
                continue
            due = loop.time() + PROGRESS_SECONDS
            if (last := reached.take()) is not None:
                status = objects.progressed(run, last, self._clean(last.waiting), self._clock())
                run = await self._written(run, status, control)
        return run

    async def _written(self, run: AgentRun, status: AgentRunStatus, control: Control) -> AgentRun:
        """A progress write: one that fails is dropped, the next one says more anyway."""
        try:
            return await self._status.write(run, status)
        except (LeadershipLost, NotFound):
            raise
        except HummingbirdError as error:
            logger.warning("progress was not written: %s", error, extra={"run": control.name})
            return run

    async def _answered(self, run: AgentRun, facts: Facts, said: Conversation, control: Control) -> None:
        result = said.result
        completed = result.outcome is Outcome.COMPLETED
        answered = f"answered in {_turns(result.iterations)} for ${result.cost_usd:.4f}"
        message = self._clean(_ended_by(facts, control, result) or result.message) or answered
        size = len(result.text.encode(errors="replace"))
        answer = AnswerStatus(text=self._clean(result.text), bytes=size, uri=said.answer_uri or None)
        model = (run.status.resolved and run.status.resolved.model) or ""
        self._metrics.turns.labels(run.spec.workflow).inc(result.iterations)
        self._metrics.cost.labels(run.spec.workflow, model).inc(float(result.cost_usd))
        reason = c.Checkpoint.COMPLETED if completed else str(result.outcome)
        usage = objects.usage_of(result)
        status = objects.concluded(
            run, reason, message, self._clock(), usage=usage, answer=answer if result.text else None
        )
        await self._status.write(run, status)

    async def _conclude(self, run: AgentRun, reason: str, message: str) -> None:
        await self._status.write(run, objects.concluded(run, reason, message, self._clock()))


class Reached:
    """The newest progress of a thread, taken by the event loop at its own pace."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._last: Progress | None = None

    def tell(self, progress: Progress) -> None:
        """Called by the thread after each turn."""
        logger.info(progress.line, extra={"run": self._run, "turn": progress.iterations})
        with self._lock:
            self._last = progress

    def take(self) -> Progress | None:
        """What came since the last time."""
        with self._lock:
            last, self._last = self._last, None
        return last


def _ended_by(facts: Facts, control: Control, result: LoopResult) -> str:
    """In the words that a run gets which is ended before its work."""
    if result.outcome is Outcome.CANCELLED:
        return deleted_or_cancelled(deleted=control.deleted)
    if result.outcome is Outcome.SUPERSEDED:
        return superseded_by(control.head_now)
    if result.outcome is Outcome.SANDBOX_LOST:
        return f"{result.message}; and before that: {objects.loss(facts.run)}"
    return out_of_time(facts) if result.outcome is Outcome.TIMED_OUT else ""


def _turns(number: int) -> str:
    return "1 turn" if number == 1 else f"{number} turns"
