"""The steps that write to the merge request: the placeholder, and the outcome in its place.

A POST is never repeated: the attempt is recorded first, and a successor looks for the note by its marker before it
posts anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from hummingbird_operator.agentruns import objects
from hummingbird_operator.agentruns.decide import Decision, Step
from hummingbird_operator.agentruns.facts import Facts
from hummingbird_operator.agentruns.gate import Verdict
from hummingbird_operator.agentruns.gating import Gating
from hummingbird_operator.agentruns.notebook import Note, Notebook, Pages
from hummingbird_operator.agentruns.resolve import Order
from hummingbird_operator.api import conditions as c
from hummingbird_operator.api.agentrun import NoteStatus
from hummingbird_operator.delivery.refusals import Forbidden, TooLong
from hummingbird_operator.errors import Doubt, Invalid, NotFound, Unavailable

if TYPE_CHECKING:
    from hummingbird_operator.agentruns.control import Control
    from hummingbird_operator.agentruns.runner import Apply
    from hummingbird_operator.agentruns.status import StatusWriter
    from hummingbird_operator.agentruns.work import Conversation
    from hummingbird_operator.api.agentrun import AgentRun, GitLabTarget

logger = logging.getLogger(__name__)

SETTLE_SECONDS = 60.0
"""How long a POST of a dead process may still be under way: a successor posts anew only after that."""
LONGEST_DELIVERY_PAUSE = timedelta(minutes=10)


class Noting:
    """The step PLACEHOLDER, and what `keeping` writes into the note afterwards."""

    def __init__(
        self,
        status: StatusWriter,
        notebook: Notebook | None,
        pages: Pages,
        gating: Gating,
        *,
        retry_seconds: int,
        clock: Callable[[], datetime],
    ) -> None:
        self._status = status
        self._notebook = notebook
        self._pages = pages
        self._gating = gating
        self._retry = timedelta(seconds=retry_seconds)
        self._clock = clock

    def steps(self) -> Mapping[Step, Apply]:
        """What this module does by itself; delivery is `keeping`'s, which has the conversation."""
        return {Step.PLACEHOLDER: self.placeholder}

    async def placeholder(self, facts: Facts, decision: Decision, control: Control) -> None:
        """Post the note that will carry the answer, or find the one that a dead process posted."""
        order, run = facts.order, facts.run
        assert isinstance(order, Order)  # noqa: S101 - decide asks for this step only then
        assert order.target is not None  # noqa: S101
        try:
            note = await self._standing(run, order, order.target) if run.status.note else None
            if note is None:
                found = await self._gating.look(run, order, order.target, control)
                if isinstance(found, Verdict):
                    await self._skip(run, found)
                    return
                note = await self._adopted(run, order, order.target, found) if found is not None else None
            if note is None:
                run = await self._attempt(run)
                note = _noted(run, await self._post(run, order, order.target))
        except (Invalid, NotFound) as refusal:
            reason = c.Failure.INTERNAL_NOTE_REFUSED if order.internal else c.Failure.DELIVERY_FAILED
            # nothing stands there: deliver must not look for it
            status = objects.concluded(run, reason, str(refusal), self._clock(), note=None)
            await self._status.write(run, status)
            return
        start = control.began or self._clock()
        await self._status.write(
            run, objects.with_status(run, self._clock(), note=note, start_time=run.status.start_time or start)
        )

    async def _skip(self, run: AgentRun, verdict: Verdict) -> None:
        """It has nothing to say here, and that is no failure; where it had begun to post, nothing stands there."""
        status = objects.concluded(run, verdict.reason, verdict.message, self._clock(), note=None)
        await self._status.write(run, status)

    async def _adopted(self, run: AgentRun, order: Order, target: GitLabTarget, left: Note) -> NoteStatus | None:
        """The note of a run that was deleted at work, made this one's own: one event has one note."""
        assert self._notebook is not None  # noqa: S101
        try:
            note = await self._notebook.update(target, _noted(run, left), self._pages.placeholder(run, order))
        except NotFound:
            return None
        return _noted(run, note)

    async def _standing(self, run: AgentRun, order: Order, target: GitLabTarget) -> NoteStatus | None:
        """The note of this run that stands there, None when none was posted; Unavailable where one may still come.

        Of several the first is kept, for people may have seen it. One that is public and must not be is taken back.
        """
        assert self._notebook is not None  # noqa: S101
        note = run.status.note or NoteStatus()
        found = await self._notebook.find(target, run.metadata.uid)
        fitting = [each for each in found if each.internal or not order.internal]
        for each in found:
            if each not in fitting[:1]:
                await self._notebook.delete(target, each.id)
        if fitting:
            return _noted(run, fitting[0])
        if note.id is not None:
            return note  # its marker was edited away, or it is gone: the update shows
        posted = note.attempted_at
        if posted and not run.metadata.deleting and self._clock() - posted < timedelta(seconds=SETTLE_SECONDS):
            raise Unavailable("GitLab", "a note was being posted without an answer; it may still arrive", retry_after=5)
        return None

    async def _attempt(self, run: AgentRun) -> AgentRun:
        """Say that a note is about to be posted, before it is."""
        attempted = NoteStatus(attempted_at=self._clock())
        return await self._status.write(run, objects.with_status(run, self._clock(), note=attempted))

    async def _post(self, run: AgentRun, order: Order, target: GitLabTarget) -> Note:
        assert self._notebook is not None  # noqa: S101
        body, discussion = self._pages.placeholder(run, order), _thread(run, order)
        try:
            return await self._notebook.create(target, body, internal=order.internal, discussion=discussion)
        except NotFound:
            if discussion is None:
                raise
        # somebody deleted the thread meanwhile; whoever asked finds the answer below
        return await self._notebook.create(target, body, internal=order.internal, discussion=None)

    async def deliver(self, facts: Facts, said: Conversation | None, control: Control) -> None:
        """Put the outcome into the note, anew where somebody deleted it; where the forge is away, come back later

        without sandbox or lane.
        """
        run, order = facts.run, facts.order
        if isinstance(order, Invalid):
            await self._deliver_orphan(run, control)
            return
        if order.target is None or run.status.note is None:
            await self.settle(run, "True", c.Checkpoint.NOTHING_TO_DELIVER, "there is no note to write")
            return
        if order.notice is not None and run.status.note.id is not None:
            await self.settle(run, "True", c.Checkpoint.NOTE_WRITTEN, run.status.note.url or "")
            return
        try:
            standing = await self._standing(run, order, order.target)
            if standing is None and facts.cancelled:
                await self.settle(run, "True", c.Checkpoint.NOTHING_TO_DELIVER, "no note was posted")
                return
            prompt = facts.stands(c.RunCondition.SESSION_SAVED)
            note = await self._edited(run, order, standing, said, prompt=prompt) if standing else None
            if note is None:
                run = await self._attempt(run)
                standing = _noted(run, await self._post(run, order, order.target))
                note = await self.write(run, order, standing, said, prompt=prompt)
        except Doubt:
            raise
        except (Unavailable, Forbidden) as error:
            await self._later(run, control, error)
        except (Invalid, NotFound) as error:
            await self.settle(run, "False", c.Failure.DELIVERY_FAILED, str(error))
        else:
            await self.settle(run, "True", c.Checkpoint.NOTE_WRITTEN, note.url, note=_noted(run, note))

    async def _deliver_orphan(self, run: AgentRun, control: Control) -> None:
        """The configuration no longer knows the run's workflow or project: its note must not say Running for ever."""
        target = run.spec.target.gitlab if run.spec.target else None
        note = run.status.note
        if target is None or note is None or note.id is None or self._notebook is None:
            await self.settle(run, "True", c.Checkpoint.NOTHING_TO_DELIVER, "there is no note to write")
            return
        try:
            written = await self._notebook.update(target, note, self._pages.orphan(run))
        except Doubt:
            raise
        except (Unavailable, Forbidden) as error:
            await self._later(run, control, error)
        except (Invalid, NotFound) as error:
            await self.settle(run, "False", c.Failure.DELIVERY_FAILED, str(error))
        else:
            await self.settle(run, "True", c.Checkpoint.NOTE_WRITTEN, written.url, note=_noted(run, written))

    async def _edited(
        self, run: AgentRun, order: Order, note: NoteStatus, said: Conversation | None, *, prompt: bool
    ) -> Note | None:
        try:
            return await self.write(run, order, note, said, prompt=prompt)
        except NotFound:
            return None

    async def write(
        self, run: AgentRun, order: Order, note: NoteStatus, said: Conversation | None, *, prompt: bool
    ) -> Note:
        """The outcome in that note; `prompt`: a reply would find the session. Raises NotFound when the note is gone."""
        assert self._notebook is not None  # noqa: S101
        assert order.target is not None  # noqa: S101
        head = await self._notebook.head(order.target)
        invited = prompt and run.spec.session is None
        body = self._pages.outcome(run, order, said, head, prompt=invited)
        try:
            return await self._notebook.update(order.target, note, body)
        except TooLong:  # of a proxy's limit only the proxy knows
            return await self._notebook.update(order.target, note, self._pages.short(run, order, said, head))

    async def give_up(self, run: AgentRun, control: Control) -> None:
        """Without an answer of the forge: the run was deleted, and nobody will come back to it."""
        await self._later(run, control, Unavailable("GitLab", "the run was deleted while its note was being written"))

    async def _later(self, run: AgentRun, control: Control, error: Unavailable | Forbidden) -> None:
        """Try again after a pause, for a day: an outage ends, and a role that the bot lost may be given back."""
        now = self._clock()
        answered = c.find(run.status.conditions, c.RunCondition.ANSWERED)
        since = datetime.fromisoformat(answered.last_transition_time) if answered else now
        if now - since >= self._retry:
            await self.settle(run, "False", c.Failure.DELIVERY_FAILED, f"{error}; tried since {since:%F %T}Z")
            return
        pause = min(timedelta(seconds=5) * 2 ** min(control.deliveries, 10), LONGEST_DELIVERY_PAUSE)
        hint = error.retry_after if isinstance(error, Unavailable) else None
        pause = max(pause, timedelta(seconds=hint or 0))
        control.deliveries += 1
        control.delivery_after = now + pause
        asyncio.get_running_loop().call_later(pause.total_seconds(), control.wake.set)
        logger.warning("%s; the note is tried again in %s", error, pause, extra={"run": control.name})
        await self.settle(run, "Unknown", c.Checkpoint.RETRYING, str(error))

    async def settle(self, run: AgentRun, status: c.Status, reason: str, message: str, **changes: object) -> None:
        """Write the condition Delivered."""
        delivered = (c.RunCondition.DELIVERED, status, reason, message)
        await self._status.write(run, objects.with_status(run, self._clock(), delivered, **changes))


def _thread(run: AgentRun, order: Order) -> str | None:
    """The discussion of the question. What must be internal cannot stand in a public one: then a note of its own."""
    trigger = run.spec.trigger
    if trigger is None or (order.internal and not trigger.internal):
        return None
    return trigger.discussion


def _noted(run: AgentRun, note: Note) -> NoteStatus:
    attempted = run.status.note.attempted_at if run.status.note else None
    return NoteStatus(id=note.id, discussion=note.discussion, url=note.url, attempted_at=attempted)
