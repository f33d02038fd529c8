"""The outcome in the run's note: edited in place, posted anew where somebody deleted it, tried for a day."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from hummingbird_operator.agentruns import objects
from hummingbird_operator.agentruns.facts import Facts
from hummingbird_operator.agentruns.noting import Noting, noted
from hummingbird_operator.api import conditions as c
from hummingbird_operator.delivery.refusals import Forbidden, TooLong
from hummingbird_operator.errors import Doubt, Invalid, NotFound, Unavailable

if TYPE_CHECKING:
    from hummingbird_operator.agentruns.control import Control
    from hummingbird_operator.agentruns.notebook import Note, Notebook, Pages
    from hummingbird_operator.agentruns.resolve import Order
    from hummingbird_operator.agentruns.status import StatusWriter
    from hummingbird_operator.agentruns.work import Conversation
    from hummingbird_operator.api.agentrun import AgentRun, AgentRunSpec, NoteStatus

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
        run, order = facts.run, facts.order
        if facts.refused and objects.asked_in_a_comment(run):
            await self._refusal(run, control)
        elif isinstance(order, Invalid):
            await self._orphan(run, control)
        elif order.target is None or run.status.note is None:
            await self.settle(run, "True", c.Checkpoint.NOTHING_TO_DELIVER, "there is no note to write")
        elif order.notice is not None and run.status.note.id is not None:
            await self.settle(run, "True", c.Checkpoint.NOTE_WRITTEN, run.status.note.url or "")
        else:
            await self._settled(run, control, self._outcome(facts, order, said))

    async def _outcome(self, facts: Facts, order: Order, said: Conversation | None) -> Note | None:
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
        run = await noting.attempt(run)
        body = self._pages.placeholder(run, order)
        standing = noted(run, await noting.post(run, order.target, body, internal=order.internal))
        return await self.write(run, order, standing, said, prompt=prompt)

    async def _refusal(self, run: AgentRun, control: Control) -> None:
        """What is wrong with a run that somebody asked for in a comment: whoever asked must not wait for ever."""
        target = run.spec.target.gitlab if run.spec.target else None
        internal = self._visibility(run.spec)
        if target is None or internal is None or self._notebook is None:
            await self.settle(run, "True", c.Checkpoint.NOTHING_TO_DELIVER, "nothing may be written there")
            return
        try:
            note = await self._noting.standing(run, target, internal=internal) if run.status.note else None
            if note is None:
                run = await self._noting.attempt(run)
                note = noted(run, await self._noting.post(run, target, self._pages.orphan(run), internal=internal))
        except Doubt:
            raise
        except Unavailable as error:
            await self._later(run, control, error)
        except (Invalid, NotFound) as error:  # the refusal itself is the news
            await self.settle(run, "True", c.Checkpoint.NOTHING_TO_DELIVER, str(error), note=None)
        else:
            await self.settle(run, "True", c.Checkpoint.NOTE_WRITTEN, note.url or "", note=note)

    async def _orphan(self, run: AgentRun, control: Control) -> None:
        """The configuration no longer knows the run's workflow or project: its note must not say Running for ever."""
        target = run.spec.target.gitlab if run.spec.target else None
        note = run.status.note
        if target is None or note is None or note.id is None or self._notebook is None:
            await self.settle(run, "True", c.Checkpoint.NOTHING_TO_DELIVER, "there is no note to write")
            return
        await self._settled(run, control, self._notebook.update(target, note, self._pages.orphan(run)))

    async def _settled(self, run: AgentRun, control: Control, writing: Awaitable[Note | None]) -> None:
        """What came of writing the note, as the condition Delivered."""
        try:
            note = await writing
        except Doubt:
            raise
        except (Unavailable, Forbidden) as error:
            await self._later(run, control, error)
        except (Invalid, NotFound) as error:
            await self.settle(run, "False", c.Failure.DELIVERY_FAILED, str(error))
        else:
            if note is None:
                await self.settle(run, "True", c.Checkpoint.NOTHING_TO_DELIVER, "no note was posted")
            else:
                await self.settle(run, "True", c.Checkpoint.NOTE_WRITTEN, note.url, note=noted(run, note))

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
