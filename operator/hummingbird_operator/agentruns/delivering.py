"""The outcome in the run's note: edited in place, posted anew where somebody deleted it, tried for a day."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from hummingbird_operator.agentruns import objects
from hummingbird_operator.agentruns.facts import Facts
from hummingbird_operator.agentruns.noting import Noting
from hummingbird_operator.api import conditions as c
from hummingbird_operator.api.agentrun import Delivery, NoteStatus
from hummingbird_operator.delivery.refusals import Forbidden, InternalNoteRefused, TooLong
from hummingbird_operator.errors import Doubt, Invalid, NotFound, Unavailable

if TYPE_CHECKING:
    from hummingbird_operator.agentruns.control import Control
    from hummingbird_operator.agentruns.notebook import Note, Notebook, Pages
    from hummingbird_operator.agentruns.resolve import Order
    from hummingbird_operator.agentruns.status import StatusWriter
    from hummingbird_operator.agentruns.work import Conversation
    from hummingbird_operator.api.agentrun import AgentRun, AgentRunSpec, GitLabTarget

logger = logging.getLogger(__name__)

LONGEST_PAUSE = timedelta(minutes=10)


class Delivering:
    """What `keeping` writes into the note."""

    def __init__(
        self,
        status: StatusWriter,
        notebook: Notebook | None,
        pages: Pages,
        noting: Noting,
        visibility: Callable[[AgentRunSpec], bool | None],
        *,
        retry_seconds: int,
        clock: Callable[[], datetime],
    ) -> None:
        """`visibility`: whether a note must be internal, where the run itself cannot be resolved; None: no note."""
        self._status = status
        self._notebook = notebook
        self._pages = pages
        self._noting = noting
        self._visibility = visibility
        self._retry = timedelta(seconds=retry_seconds)
        self._clock = clock

    async def deliver(self, facts: Facts, said: Conversation | None, control: Control) -> None:
        """Put the outcome into the note; where the forge is away, come back later without sandbox or lane."""
        run, order, note = facts.run, facts.order, facts.run.status.note
        reason = _reason(run)
        if reason == c.Failure.INTERNAL_NOTE_REFUSED and note is not None:
            await self._settled(run, control, self._taken_back(run))
        elif reason == c.Success.MERGED and note is not None:
            await self._settled(run, control, self._removed(run))
        elif isinstance(order, Invalid) or (note is None and _owes_words(facts)):
            await self._settled(run, control, self._words(run, order, wanted=_owes_words(facts)), words=True)
        elif order.target is None or note is None:
            await self.settle(run, "True", c.Checkpoint.NOTHING_TO_DELIVER, "there is no note to write")
        elif order.notice is not None and note.id is not None:
            await self.settle(run, "True", c.Checkpoint.NOTE_WRITTEN, note.url or "")
        else:
            await self._settled(run, control, self._outcome(facts, order, said))

    async def _outcome(self, facts: Facts, order: Order, said: Conversation | None) -> NoteStatus | None:
        """The note with the outcome; None where none was posted and nobody wants one any more."""
        assert order.target is not None  # noqa: S101
        run, noting = facts.run, self._noting
        standing = await noting.standing(run, order.target, internal=order.internal)
        if standing is None and facts.cancelled:
            return None
        prompt = facts.stands(c.RunCondition.SESSION_SAVED)
        if standing is not None:
            try:
                return await self.write(run, order, standing, said, prompt=prompt)
            except NotFound:
                logger.info("the note is gone, and posted anew", extra={"run": run.metadata.name})
        body = self._pages.placeholder(run, order)
        standing = await noting.posted(run, order.target, body, internal=order.internal)
        return await self.write(run, order, standing, said, prompt=prompt)

    async def _words(self, run: AgentRun, order: Order | Invalid, *, wanted: bool) -> NoteStatus | None:
        """What became of a run without an order, or without a note; `wanted`: where none stands, one is posted.

        The note of a run whose workflow or project is configured no more must not say Running for ever, and whoever
        asked in a comment must not wait for ever.
        """
        target, internal = _target(run), self._visibility(run.spec)
        if target is None or self._notebook is None:
            return None
        body = self._pages.orphan(run, order)
        standing = await self._noting.standing(run, target, internal=bool(internal)) if run.status.note else None
        if standing is not None:
            try:
                return _edited(standing, await self._notebook.update(target, standing, body))
            except NotFound:
                logger.info("the note is gone", extra={"run": run.metadata.name})
        if not wanted or internal is None:
            return None
        return await self._noting.posted(run, target, body, internal=internal)

    async def _taken_back(self, run: AgentRun) -> None:
        """Nothing: what GitLab made public of an internal run is deleted, should that have failed before."""
        if (target := _target(run)) is not None:
            await self._noting.take_back(run, target)

    async def _removed(self, run: AgentRun) -> None:
        """Nothing: another run's note answers these words, and a placeholder that was posted meanwhile says no more."""
        target = _target(run)
        if target is not None and self._notebook is not None:
            standing = await self._noting.standing(run, target, internal=False)
            if standing is not None and standing.id is not None:
                await self._notebook.delete(target, standing.id)

    async def _settled(
        self, run: AgentRun, control: Control, writing: Awaitable[NoteStatus | None], *, words: bool = False
    ) -> None:
        """What came of writing the note, as the condition Delivered; `words`: the run failed before there was one."""
        try:
            note = await _nothing_public(self._noting, run, writing)
        except Doubt:
            raise
        except (Unavailable, Forbidden) as error:
            await self._later(run, control, error)
        except (Invalid, NotFound) as error:
            if words and _reason(run) != c.Checkpoint.COMPLETED:  # the failure itself is the news
                await self.settle(run, "True", c.Checkpoint.NOTHING_TO_DELIVER, str(error), note=None)
            else:
                await self.settle(run, "False", c.Failure.DELIVERY_FAILED, str(error))
        else:
            if note is None:
                await self.settle(run, "True", c.Checkpoint.NOTHING_TO_DELIVER, "no note is left there", note=None)
            else:
                await self.settle(run, "True", c.Checkpoint.NOTE_WRITTEN, note.url or "", note=note)

    async def write(
        self, run: AgentRun, order: Order, note: NoteStatus, said: Conversation | None, *, prompt: bool
    ) -> NoteStatus:
        """The outcome in that note; `prompt`: a reply would find the session. Raises NotFound when the note is gone."""
        assert self._notebook is not None  # noqa: S101
        assert order.target is not None  # noqa: S101
        head = await self._notebook.head(order.target)
        invited = prompt and run.spec.session is None
        body = self._pages.outcome(run, order, said, head, prompt=invited)
        try:
            return _edited(note, await self._notebook.update(order.target, note, body))
        except TooLong:  # of a proxy's limit only the proxy knows
            short = self._pages.short(run, order, said, head)
            return _edited(note, await self._notebook.update(order.target, note, short))

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
        pause = min(timedelta(seconds=5) * 2 ** min(control.deliveries, 10), LONGEST_PAUSE)
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


async def _nothing_public(noting: Noting, run: AgentRun, writing: Awaitable[NoteStatus | None]) -> NoteStatus | None:
    """What was written. One that came out public and must not be is looked for again: its deletion may have failed."""
    try:
        return await writing
    except InternalNoteRefused:
        if (target := _target(run)) is not None:
            await noting.take_back(run, target)
        raise


def _owes_words(facts: Facts) -> bool:
    """Somebody asked for the run in a comment, and nothing there has told, or will tell, what became of it."""
    run, reason = facts.run, _reason(facts.run)
    told = {*c.Success, c.Failure.CANCELLED, c.Failure.DROPPED, c.Failure.INTERNAL_NOTE_REFUSED}
    asked = objects.asked_in_a_comment(run) and run.spec.delivery is not Delivery.NONE
    return asked and reason not in told and facts.carrier is None


def _reason(run: AgentRun) -> str:
    answered = c.find(run.status.conditions, c.RunCondition.ANSWERED)
    return answered.reason if answered else ""


def _target(run: AgentRun) -> GitLabTarget | None:
    return run.spec.target.gitlab if run.spec.target else None


def _edited(before: NoteStatus, note: Note) -> NoteStatus:
    return NoteStatus(id=note.id, discussion=note.discussion, url=note.url, attempted_at=before.attempted_at)
