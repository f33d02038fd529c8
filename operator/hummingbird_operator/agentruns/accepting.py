"""The steps around the work: accept or refuse, take over, wait, conclude, finish. Each is one status write."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from hummingbird_operator.agentruns import objects
from hummingbird_operator.agentruns.decide import Decision, Step
from hummingbird_operator.agentruns.facts import Facts
from hummingbird_operator.agentruns.resolve import Order
from hummingbird_operator.api import conditions as c
from hummingbird_operator.api.agentrun import Notice
from hummingbird_operator.delivery.refusals import Forbidden
from hummingbird_operator.errors import Doubt, HummingbirdError, Invalid, NotFound, Unavailable
from hummingbird_operator.forges.gitlab import SERVICE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from hummingbird_operator.agentruns.control import Control
    from hummingbird_operator.agentruns.notebook import Notebook
    from hummingbird_operator.agentruns.runner import Apply
    from hummingbird_operator.agentruns.status import StatusWriter
    from hummingbird_operator.api.agentrun import AgentRun
    from hummingbird_operator.telemetry import Metrics

logger = logging.getLogger(__name__)

WELL, NOT_WELL = "white_check_mark", "x"
"""Reactions on the comment that asked, in GitLab's names."""
LONGEST_WAIT_SECONDS = 30.0
"""A waiting run looks again by itself after this long, should a wake-up ever be missed."""


class Recorder(Protocol):
    """Events for `kubectl describe`: on transitions only."""

    async def emit(self, run: AgentRun, type_: str, reason: str, message: str) -> None:
        """`type_` is Normal or Warning. Never raises: an Event that is lost costs nothing."""


class Accepting:
    """Steps that touch nothing but the status, and the forge for one look."""

    def __init__(
        self,
        status: StatusWriter,
        notebook: Notebook | None,
        recorder: Recorder,
        check: Callable[[Order], None],
        quiet: Callable[[AgentRun], Awaitable[None]],
        metrics: Metrics,
        clock: Callable[[], datetime],
        *,
        retry_seconds: int = 86_400,
    ) -> None:
        """`check` raises Invalid where a secret or a model that the order needs is not to be had.

        `quiet` ends what runs in the run's sandbox, as far as that can be done soon. `retry_seconds`: how long a
        role that the bot lost is waited for.
        """
        self._patience = timedelta(seconds=retry_seconds)
        self._status = status
        self._notebook = notebook
        self._recorder = recorder
        self._check = check
        self._quiet = quiet
        self._metrics = metrics
        self._clock = clock

    def steps(self) -> Mapping[Step, Apply]:
        """What this module can do."""
        return {
            Step.ACCEPT: self.accept,
            Step.REFUSE: self.refuse,
            Step.TAKE_OVER: self.take_over,
            Step.CONCLUDE: self.conclude,
            Step.WAIT: self.wait,
            Step.FINISH: self.finish,
        }

    async def accept(self, facts: Facts, decision: Decision, control: Control) -> None:
        """Resolve, look at the merge request once, and write what is in force."""
        assert isinstance(facts.order, Order)  # noqa: S101 - decide refuses the other case
        try:
            if facts.order.notice is None:
                await asyncio.to_thread(self._check, facts.order)  # it reads secrets from files
            sha = await self._head_sha(facts.order)
        except Forbidden as refusal:  # it may be given back
            if self._patience_over(facts.run):
                await self.refuse(facts, Decision(Step.REFUSE, c.Failure.INVALID, str(refusal)), control)
                return
            await self._held_up(facts, f"{refusal}; tried again for {self._patience}")
            raise Unavailable(SERVICE, str(refusal)) from refusal
        except Invalid as refusal:
            await self.refuse(facts, Decision(Step.REFUSE, c.Failure.INVALID, str(refusal)), control)
            return
        except Unavailable as error:
            await self._held_up(facts, f"{error}; tried again until it answers")
            raise
        status = objects.accepted(facts.run, facts.me, facts.order, sha, self._clock())
        await self._status.take_over(facts.run, status)

    async def _held_up(self, facts: Facts, why: str) -> None:
        status = objects.held_up(facts.run, facts.me, why, self._clock())
        if status is not None:  # or kubectl would show a run that nobody looks at
            await self._status.take_over(facts.run, status)

    def _patience_over(self, run: AgentRun) -> bool:
        held = c.find(run.status.conditions, c.RunCondition.ACCEPTED)
        return held is not None and self._clock() - datetime.fromisoformat(held.last_transition_time) >= self._patience

    async def _head_sha(self, order: Order) -> str | None:
        if order.target is None or self._notebook is None or order.notice is not None:
            return None
        try:
            head = await self._notebook.head(order.target)
        except NotFound as error:
            name = f"{order.target.project}!{order.target.merge_request}"
            text = f"merge request {name} is not there, or the bot may not see it ({error})"
            raise Invalid("spec.target.gitlab", text) from error
        return order.target.sha or head.sha

    async def refuse(self, facts: Facts, decision: Decision, control: Control) -> None:
        """Say what must be mended, and end; where a person asked, the merge request is told first."""
        run = await self._status.take_over(
            facts.run, objects.refused(facts.run, facts.me, decision.message, self._clock())
        )
        if c.is_true(run.status.conditions, c.RunCondition.FINISHED):
            await self._ended(run)

    async def take_over(self, facts: Facts, decision: Decision, control: Control) -> None:
        """Fence off whoever had the run."""
        await self._status.take_over(facts.run, objects.taken_over(facts.run, facts.me, self._clock()))
        logger.info("run taken over", extra={"run": control.name})

    async def conclude(self, facts: Facts, decision: Decision, control: Control) -> None:
        """Settle the outcome; note and session follow."""
        control.abort.set(decision.reason)
        if facts.stands(c.RunCondition.SANDBOX_READY):  # a process that died may have left a command at work
            await self._quiet(facts.run)
        await self._status.write(
            facts.run, objects.concluded(facts.run, decision.reason, decision.message, self._clock())
        )

    async def wait(self, facts: Facts, decision: Decision, control: Control) -> None:
        """Say why nothing moves, then sleep until something changes."""
        status = objects.waiting(facts.run, decision.reason, decision.message, self._clock())
        if status is not None:
            await self._status.write(facts.run, status)
        await control.pause(LONGEST_WAIT_SECONDS)

    async def finish(self, facts: Facts, decision: Decision, control: Control) -> None:
        """The outcome, as the very last write; whoever asked sees it in a reaction."""
        await self._react(facts)
        await self._ended(await self._status.write(facts.run, objects.finished(facts.run, self._clock())))

    async def _react(self, facts: Facts) -> None:
        """On the comment that asked. One that fails is not tried again: it decides nothing."""
        run, trigger = facts.run, facts.run.spec.trigger
        target = run.spec.target.gitlab if run.spec.target else None
        if self._notebook is None or target is None or trigger is None or trigger.note_id is None:
            return
        if run.spec.notice is Notice.QUEUE_FULL:  # the comment has a run of its own, which reacts
            return
        reason, _ = objects.outcome(run)
        well = reason in set(c.Success) and run.spec.notice in (None, Notice.HELP)
        try:
            await self._notebook.react(target, trigger.note_id, WELL if well else NOT_WELL)
        except Doubt:
            raise
        except HummingbirdError as error:
            logger.info("no reaction was left: %s", error, extra={"run": run.metadata.name})

    async def _ended(self, run: AgentRun) -> None:
        succeeded = c.find(run.status.conditions, c.RunCondition.SUCCEEDED)
        assert succeeded is not None  # noqa: S101 - it was just written
        # a name that somebody made up must not become a series of its own for ever
        known = run.spec.workflow if c.is_true(run.status.conditions, c.RunCondition.ACCEPTED) else "unknown"
        self._metrics.outcomes.labels(known, succeeded.reason).inc()
        if (created := run.metadata.creation_timestamp) is not None:
            age = max(self._clock() - created, timedelta())
            self._metrics.duration.labels(known).observe(age.total_seconds())
        failed = succeeded.status == "False" and succeeded.reason != c.Failure.CANCELLED  # that a person wanted
        level, type_ = (logging.WARNING, "Warning") if failed else (logging.INFO, "Normal")
        said = {"run": run.metadata.name}
        logger.log(level, "run finished: %s: %s", succeeded.reason, succeeded.message, extra=said)
        await self._recorder.emit(run, type_, succeeded.reason, succeeded.message)
