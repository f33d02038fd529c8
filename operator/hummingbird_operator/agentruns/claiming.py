"""The steps around a sandbox: claim one, and let it go."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from hummingbird_ai.abort import Abort
from hummingbird_operator.agentruns import objects
from hummingbird_operator.agentruns.decide import Decision, Step
from hummingbird_operator.agentruns.facts import Facts
from hummingbird_operator.agentruns.work import QUIET_SECONDS, reason_of
from hummingbird_operator.api import conditions as c
from hummingbird_operator.api.agentrun import AgentRun, SandboxStatus
from hummingbird_operator.errors import Aborted, HummingbirdError, Invalid, NotFound, SandboxLost, Unavailable

if TYPE_CHECKING:
    from hummingbird_operator.agentruns.accepting import Recorder
    from hummingbird_operator.agentruns.control import Control
    from hummingbird_operator.agentruns.runner import Apply
    from hummingbird_operator.agentruns.status import StatusWriter
    from hummingbird_operator.sessions.sandbox import Sandbox
    from hummingbird_operator.telemetry import Metrics

logger = logging.getLogger(__name__)

T = TypeVar("T")

NONE_FREE = "no sandbox is free and the pool may not make more (spec.maxSandboxes)"
NO_QUOTA = "no sandbox is free and a quota of the namespace of sandboxes lets no more be made: "
STARTING = "no sandbox is ready: one is being started for this run (its pod says what it waits for)"
NEVER_STARTED = ("StartTimeout", "ContainerExited")
"""Causes of a loss that another sandbox would meet as well."""
STARTING_SECONDS = 2.0
"""A claim that takes longer than this has met an empty pool, and the run says so."""
SANDBOX_RETRY_SECONDS = 5.0
"""A run without a sandbox looks again by itself after this long, should a wake-up ever be missed."""


class Member(Protocol):
    """A sandbox that the run holds."""

    @property
    def name(self) -> str:
        """Name of the pod."""

    @property
    def uid(self) -> str:
        """Its uid."""

    @property
    def namespace(self) -> str:
        """Where it is."""

    @property
    def backend(self) -> str:
        """Its kind."""

    @property
    def lingered(self) -> bool:
        """It was this session's own, with its files."""

    @property
    def cold(self) -> bool:
        """It was made for this run."""


class Sandboxes(Protocol):
    """Claims of sandboxes and the way into them."""

    async def find(self, run_uid: str) -> Member | None:
        """The sandbox that the run holds, by a live look."""

    async def claim(self, run: AgentRun, *, session: str, seconds: int) -> Member | None:
        """One for the run, the same when asked again; None while there is none to be had."""

    def shortage(self, run_uid: str) -> str:
        """Why the run's last claim gave None: a quota's refusal in its words, or nothing: the pool's own maximum."""

    async def let_go(self, run_uid: str, *, session: str | None) -> None:
        """Keep it for the session's next run, or (None) delete it. Safe to repeat."""

    async def lost(self, run_uid: str, name: str, uid: str) -> SandboxLost | None:
        """Why that sandbox is gone, by a live look; None while it is alive."""

    def open(self, member: Member, abort: Abort) -> Sandbox:
        """The engine's handle."""

    def changed(self) -> asyncio.Event:
        """Set when a sandbox may have become free since now: take one, look once more, wait for it."""


class Claiming:
    """The steps CLAIM and LET_GO."""

    def __init__(
        self,
        status: StatusWriter,
        sandboxes: Sandboxes,
        recorder: Recorder,
        metrics: Metrics,
        admit: Callable[[Facts], Awaitable[None]],
        clean: Callable[[str], str],
        clock: Callable[[], datetime],
    ) -> None:
        """`admit` raises Invalid where the run may not have the session that it names, before it gets its sandbox;

        `clean` redacts secrets from texts that leave the process.
        """
        self._clean = clean
        self._admit = admit
        self._status = status
        self._sandboxes = sandboxes
        self._recorder = recorder
        self._metrics = metrics
        self._clock = clock

    def steps(self) -> Mapping[Step, Apply]:
        """What this module can do."""
        return {Step.CLAIM: self.claim, Step.LET_GO: self.let_go}

    async def claim(self, facts: Facts, decision: Decision, control: Control) -> None:
        """Get a sandbox; where there is none, say so and look again when one may be free."""
        run, began = facts.run, asyncio.get_running_loop().time()
        resolved = run.status.resolved
        seconds = (resolved and resolved.limits and resolved.limits.timeout_seconds) or 1
        pool = (resolved and resolved.sandbox and resolved.sandbox.pool) or ""
        freed = self._sandboxes.changed()
        try:
            await self._accompanied(asyncio.ensure_future(self._admit(facts)), run, control, seconds)
        except Invalid as refusal:
            await self._conclude(run, reason_of(refusal), str(refusal))
            return
        try:
            claim = self._sandboxes.claim(run, session=objects.session_id(run), seconds=seconds)
            member = await self._accompanied(asyncio.ensure_future(claim), run, control, seconds, starts=True)
        except NotFound:
            text = f"spec.sandbox.pool: there is no SandboxPool {pool} (kubectl get sandboxpools says which there are)"
            await self._conclude(run, c.Failure.INVALID, text)
            return
        except Invalid as refusal:
            await self._conclude(run, c.Failure.INVALID, f"SandboxPool {pool} cannot make sandboxes: {refusal}")
            return
        except SandboxLost as lost:
            if lost.cause in NEVER_STARTED:
                await self._conclude(run, c.Failure.SANDBOX_LOST, str(lost))
            else:
                await self.replace(run, lost)
            return
        except Unavailable as error:  # may last: its time must run from here, or nothing would ever end the run
            await self._waiting(run, control, str(error))
            raise
        if member is None:
            await self._no_sandbox(run, control, freed)
            return
        await self._have(run, member, control, asyncio.get_running_loop().time() - began)

    async def _have(self, run: AgentRun, member: Member, control: Control, took: float) -> None:
        launch = _launch(member)
        self._metrics.claim.labels(launch).observe(took)
        lost = objects.loss(run)
        sandbox = SandboxStatus(backend=member.backend, name=member.name, uid=member.uid, lost=lost or None)
        reason = c.Checkpoint.REPLACED if lost else launch
        start = control.began or self._clock()
        run = await self._status.write(run, objects.sandbox_ready(run, sandbox, reason, start, self._clock()))
        await self._recorder.emit(run, "Normal", reason, f"{member.backend} {member.name} after {took:.2f} s")

    async def _accompanied(
        self, call: asyncio.Future[T], run: AgentRun, control: Control, seconds: int, *, starts: bool = False
    ) -> T:
        """The call's result; it ends with the run. Where a sandbox `starts` that takes minutes, it is said.

        Raises Aborted; what was made meanwhile carries the run's uid and is let go with it.
        """
        loop = asyncio.get_running_loop()
        tell_at = loop.time() + STARTING_SECONDS
        try:
            while not call.done():
                await _first({call, asyncio.ensure_future(control.wake.wait())}, keep=call, seconds=STARTING_SECONDS)
                control.wake.clear()
                start = run.status.start_time
                if (
                    control.cancelled
                    or control.leaving
                    or (start and self._clock() >= start + timedelta(seconds=seconds))
                ):
                    raise Aborted(
                        "its sandbox was still being started" if starts else "its session was still being read"
                    )
                if starts and not call.done() and loop.time() >= tell_at:
                    run = await self._waiting(run, control, STARTING)
            return call.result()
        finally:
            call.cancel()

    async def _no_sandbox(self, run: AgentRun, control: Control, freed: asyncio.Event) -> None:
        refusal = self._sandboxes.shortage(run.metadata.uid)
        await self._waiting(run, control, f"{NO_QUOTA}{refusal}" if refusal else NONE_FREE)
        await _first({asyncio.ensure_future(control.wake.wait()), asyncio.ensure_future(freed.wait())})

    async def _waiting(self, run: AgentRun, control: Control, text: str) -> AgentRun:
        status = objects.waiting(run, c.Working.WAITING_FOR_SANDBOX, text, self._clock())
        if status is None:
            return run
        began = run.status.start_time or control.began
        run = await self._status.write(run, status.model_copy(update={"start_time": began}))
        await self._recorder.emit(run, "Normal", c.Working.WAITING_FOR_SANDBOX, text)
        return run

    async def replace(self, run: AgentRun, lost: SandboxLost) -> None:
        """Let another sandbox take a lost one's place, once; whatever is left of it is deleted first, so that nothing

        that is still on its way into it can have an effect. The second loss ends the run.
        """
        why = self._clean(str(lost))
        held = run.status.sandbox.name if run.status.sandbox else ""
        logger.warning("%s: %s", held or "its sandbox", why, extra={"run": run.metadata.name})
        if before := objects.loss(run):
            await self._conclude(run, c.Failure.SANDBOX_LOST, f"{why}; and before that: {before}")
            return
        await self._sandboxes.let_go(run.metadata.uid, session=None)
        await self._status.write(run, objects.sandbox_lost(run, why, self._clock()))
        await self._recorder.emit(run, "Warning", c.Failure.SANDBOX_LOST, why)

    async def quiet(self, run: AgentRun) -> None:
        """End what runs in the run's sandbox, if that can be done soon; it is deleted or swept again later anyway."""
        with contextlib.suppress(HummingbirdError):
            if (member := await self._sandboxes.find(run.metadata.uid)) is not None:
                await asyncio.to_thread(self._sandboxes.open(member, Abort()).sweep, seconds=QUIET_SECONDS)

    async def let_go(self, facts: Facts, decision: Decision, control: Control) -> None:
        """Let the sandbox linger for a reply, or delete it where a reply could not use it.

        A decision with a reason says that it cannot be done: the sandbox's own deadline ends it then.
        """
        if decision.reason:
            logger.error("the sandbox is left to its deadline: %s", decision.message, extra={"run": control.name})
            control.let_go = True
            return
        answered = c.is_true(facts.run.status.conditions, c.RunCondition.ANSWERED)
        keep = answered and facts.stands(c.RunCondition.SESSION_SAVED) and not facts.cancelled
        if keep and not await self._at_rest(facts.run):
            logger.warning("the sandbox does not linger: what runs in it cannot be ended", extra={"run": control.name})
            keep = False
        await self._sandboxes.let_go(control.uid, session=objects.session_id(facts.run) if keep else None)
        control.let_go = True

    async def _at_rest(self, run: AgentRun) -> bool:
        """Nothing runs in it any more: packing its files ends everything first; where that failed it is done now."""
        saved = c.find(run.status.conditions, c.RunCondition.SESSION_SAVED)
        if saved is None or saved.reason == c.Checkpoint.SAVED:
            return True
        member = await self._sandboxes.find(run.metadata.uid)
        if member is None:
            return False
        try:
            await asyncio.to_thread(self._sandboxes.open(member, Abort()).sweep)
        except (SandboxLost, Unavailable) as error:
            logger.info("%s", error, extra={"run": run.metadata.name})
            return False
        return True

    async def _conclude(self, run: AgentRun, reason: str, message: str) -> None:
        await self._status.write(run, objects.concluded(run, reason, message, self._clock()))


async def _first(
    futures: set[asyncio.Future[Any]],
    *,
    keep: asyncio.Future[Any] | None = None,
    seconds: float = SANDBOX_RETRY_SECONDS,
) -> None:
    """Until one of them is done, or the time is over; all but `keep` end with it."""
    await asyncio.wait(futures, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for future in futures - {keep}:
        future.cancel()


def _launch(member: Member) -> str:
    if member.lingered:
        return c.Checkpoint.RECLAIMED
    return c.Checkpoint.COLD_STARTED if member.cold else c.Checkpoint.CLAIMED
