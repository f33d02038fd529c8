"""Drives one run: gather, decide, apply, until it is finished. Nothing here decides and nothing here does.

An error that a service caused is waited out; one that nobody expected is tried a few times, then it becomes the run's
outcome: every run ends in one that people can see.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from hummingbird_operator.agentruns.decide import Decision, Step, decide
from hummingbird_operator.agentruns.facts import Facts
from hummingbird_operator.agentruns.resolve import Order, resolve
from hummingbird_operator.api import conditions as c
from hummingbird_operator.api.labels import FINALIZER
from hummingbird_operator.errors import (
    Aborted,
    Conflict,
    HummingbirdError,
    Invalid,
    LeadershipLost,
    NotFound,
    Unavailable,
)

if TYPE_CHECKING:
    from hummingbird_operator.agentruns.accepting import Recorder
    from hummingbird_operator.agentruns.control import Control
    from hummingbird_operator.agentruns.runs import Runs
    from hummingbird_operator.agentruns.status import StatusWriter
    from hummingbird_operator.api.agentrun import AgentRun
    from hummingbird_operator.config import Limits
    from hummingbird_operator.settings import Settings
    from hummingbird_operator.telemetry import Metrics
    from hummingbird_operator.workflows import Workflows

logger = logging.getLogger(__name__)

Apply = Callable[[Facts, Decision, "Control"], Awaitable[None]]

SURPRISES = 5
"""Times that one step of a run may meet an error which nobody expected."""
LONGEST_HINT_SECONDS = 600.0
"""A service that asks for more than this is asked again all the same."""
FINALIZER_PAUSE_SECONDS = 0.5
UNHELD_LOOKS = 6
"""Looks after which a run that has no finalizer yet is given one by us."""
BACK_OFF_SECONDS = 30.0
"""Longest pause between two tries of a step whose service is away."""


class Runner:
    """The loop of a run, with the steps of this process."""

    def __init__(
        self,
        *,
        settings: Settings,
        workflows: Workflows,
        runs: Runs,
        status: StatusWriter,
        steps: Mapping[Step, Apply],
        recorder: Recorder,
        metrics: Metrics,
        clock: Callable[[], datetime],
    ) -> None:
        self._settings = settings
        self._workflows = workflows
        self._runs = runs
        self._status = status
        self._steps = steps
        self._recorder = recorder
        self._metrics = metrics
        self._clock = clock

    async def drive(self, control: Control) -> None:
        """Step until the run is finished or gone, or this process leaves or no longer leads."""
        outages = _Outages(self._clock)
        while not control.leaving:
            control.wake.clear()
            try:
                if not await self._step(control, outages):
                    return
                outages.over()
            except (_Gone, LeadershipLost) as end:
                logger.info("run left alone: %s", end, extra={"run": control.name})
                return
            except (Conflict, Aborted):
                continue  # somebody wrote, or the end was asked for: the next facts say so
            except Unavailable as error:
                await self._wait_out(control, outages, error)
            except NotFound as missing:  # of the forge's or a pool's; a run that is gone shows at the next look
                logger.warning("a step failed: %s", missing, extra={"run": control.name})
                outages.surprised()
                await control.pause(outages.delay())
            except Exception:
                logger.exception("a step failed", extra={"run": control.name})
                outages.surprised()
                await control.pause(outages.delay())

    async def acknowledge(self, run: AgentRun) -> None:
        """Say that the present spec of a finished run was seen; `kubectl wait` and GitOps tools hang otherwise."""
        generation = run.metadata.generation
        finished = c.is_true(run.status.conditions, c.RunCondition.FINISHED)
        if not finished or run.status.observed_generation >= generation or run.metadata.deleting:
            return
        try:
            await self._status.take_over(run, run.status.model_copy(update={"observed_generation": generation}))
        except HummingbirdError as error:  # its next event, or the next leader's list, brings it here again
            logger.info("an edit was not acknowledged: %s", error, extra={"run": run.metadata.name})

    async def _step(self, control: Control, outages: _Outages) -> bool:
        """Apply the next step; False when there is none."""
        outages.step = None
        facts = await self._gather(control)
        outages.run = facts.run
        decision = outages.verdict(facts, decide(facts), self._settings.config.limits)
        if decision.step is Step.DONE:
            return False
        if FINALIZER not in facts.run.metadata.finalizers and not facts.run.metadata.deleting:
            await self._held(control, facts.run)
            return True
        logger.debug("step", extra={"run": control.name, "step": decision.step})
        outages.step = decision.step
        with _counted(self._metrics, decision.step):
            await self._steps[decision.step](facts, decision, control)
        return True

    async def _held(self, control: Control, run: AgentRun) -> None:
        """kopf starts us before its finalizer is stored, without which a deletion would not wait for our cleaning up.

        Where its patch was refused, it would not look again before the run's next event.
        """
        await control.pause(FINALIZER_PAUSE_SECONDS)
        control.unheld += 1
        if control.unheld >= UNHELD_LOOKS:
            control.unheld = 0
            await self._status.hold(run)

    async def _gather(self, control: Control) -> Facts:
        try:
            run = await self._status.read(control.namespace, control.name, control.uid)
        except NotFound as gone:
            self._runs.forget(control.uid)  # its event may have been missed, and others wait for it
            # told from what a step does not find: a merge request that is gone must not leave its run without an end
            raise _Gone(str(gone)) from gone
        self._runs.observe(run)
        control.wake.clear()
        accepted = c.is_true(run.status.conditions, c.RunCondition.ACCEPTED)
        return Facts(
            now=self._clock(),
            me=self._status.me,
            run=run,
            order=self._order(run),
            turn=self._runs.turn(control.uid),
            max_attempts=self._settings.config.limits.max_attempts,
            sandbox_held=accepted and not control.let_go and run.spec.notice is None,
            delivery_after=control.delivery_after,
            carrier=self._runs.carrier_of(run),
            newer=self._runs.newer(run, control.refuted),
            head_now=control.head_now,
        )

    def _order(self, run: AgentRun) -> Order | Invalid:
        try:
            return resolve(run.spec, self._settings.config, self._workflows)
        except Invalid as refusal:
            return refusal

    async def _wait_out(self, control: Control, outages: _Outages, error: Unavailable) -> None:
        if outages.away(error) and outages.run is not None:
            await self._recorder.emit(outages.run, "Warning", c.Checkpoint.RETRYING, str(error))
        logger.warning("%s; tried again in %.1f s", error, outages.delay(), extra={"run": control.name})
        await control.pause(min(error.retry_after or outages.delay(), LONGEST_HINT_SECONDS))


class _Gone(HummingbirdError):
    """The run itself is not there any more."""


class _Outages:
    """What stood in the way of one run, since when, and what to make of it when it does not end."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._since: datetime | None = None
        self._service = ""
        self._problem = ""
        self._tries = 0
        self._surprises: Counter[Step | None] = Counter()
        self.run: AgentRun | None = None
        self.step: Step | None = None
        """What was tried last."""

    def over(self) -> None:
        """A step went through."""
        self._since, self._tries = None, 0

    def away(self, error: Unavailable) -> bool:
        """A service did not answer; whether that is news."""
        news = self._since is None or self._service != error.service
        self._since = self._clock() if news else self._since  # one service's outage is no part of another's
        self._service, self._problem = error.service, str(error)
        self._tries += 1
        return news

    def surprised(self) -> None:
        """The step met an error that nobody expected."""
        self._surprises[self.step] += 1
        self._tries += 1

    def delay(self) -> float:
        """Seconds until the next try: doubling from half a second, jittered lest many runs march in step."""
        longest = min(BACK_OFF_SECONDS, 0.5 * 2.0 ** min(self._tries, 10))
        return longest * random.uniform(0.5, 1)  # noqa: S311 - no secret

    def verdict(self, facts: Facts, decided: Decision, limits: Limits) -> Decision:
        """The step that was decided, or how to get past it when it cannot be done."""
        if (failed := self._surprises[decided.step]) >= SURPRISES:
            text = f"{decided.step} failed {failed} times in a way that nobody expected; see the operator's log"
            return _without(decided, facts, text)
        if facts.settled(c.RunCondition.ANSWERED) or not facts.settled(c.RunCondition.ACCEPTED) or not self._since:
            return decided
        patience, reason = {
            "the session store": (limits.retry_seconds, c.Failure.STORE_UNAVAILABLE),
            "GitLab": (limits.delivery_retry_seconds, c.Failure.DELIVERY_FAILED),  # it holds a place in its lane
        }.get(self._service, (None, ""))
        waited = (self._clock() - self._since).total_seconds()
        if patience is None or waited < patience:
            return decided
        return Decision(Step.CONCLUDE, reason, f"{self._problem} (for {waited:.0f} s)")


GIVEN_UP = {
    Step.DELIVER: c.Failure.DELIVERY_FAILED,
    Step.SAVE: c.Checkpoint.NOTHING_TO_SAVE,
    Step.LET_GO: "GivenUp",
}
"""The reason with which a step behind the answer is settled without being done."""


def _without(decided: Decision, facts: Facts, text: str) -> Decision:
    """Past a step that fails whatever is tried: before the answer the run ends, behind it only that step is left."""
    if facts.settled(c.RunCondition.ANSWERED):
        reason = GIVEN_UP.get(decided.step)
        return Decision(decided.step, reason, text) if reason else decided
    if facts.run.status.runner != facts.me:
        return Decision(Step.TAKE_OVER)
    return Decision(Step.CONCLUDE, c.Failure.ATTEMPTS_EXHAUSTED, text)


class _counted:  # noqa: N801 - reads as a statement
    """Count a step by how it ended."""

    def __init__(self, metrics: Metrics, step: Step) -> None:
        self._metrics = metrics
        self._step = step

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        again = kind is not None and issubclass(kind, (Conflict, LeadershipLost, Aborted, Unavailable))
        result = "ok" if kind is None else "again" if again else "error"
        self._metrics.steps.labels(self._step, result).inc()
