"""The step that first writes to the merge request: the placeholder, posted once or found again.

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
from hummingbird_operator.delivery.refusals import Forbidden, InternalNoteRefused, Refused
from hummingbird_operator.errors import Invalid, NotFound, Unavailable
from hummingbird_operator.forges.gitlab import SERVICE

if TYPE_CHECKING:
    from hummingbird_operator.agentruns.control import Control
    from hummingbird_operator.agentruns.runner import Apply
    from hummingbird_operator.agentruns.status import StatusWriter
    from hummingbird_operator.api.agentrun import AgentRun, GitLabTarget

logger = logging.getLogger(__name__)

SETTLE = timedelta(seconds=60)
"""How long a POST of a dead process may still be under way: a successor posts anew only after that."""

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 5.0, 600.0
"""Between two tries of a note that GitLab refused."""


class Noting:
    """The step PLACEHOLDER; `delivering` puts the outcome into its note."""

    def __init__(
        self,
        status: StatusWriter,
        notebook: Notebook | None,
        pages: Pages,
        gating: Gating,
        *,
        clock: Callable[[], datetime],
    ) -> None:
        self._status = status
        self._notebook = notebook
        self._pages = pages
        self._gating = gating
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
            note = await self.standing(run, order.target, internal=order.internal) if run.status.note else None
            if note is None:
                found = await self._gating.look(run, order, order.target, control)
                if isinstance(found, Verdict):
                    await self._skip(run, found)
                    return
                note = await self._adopted(run, order, order.target, found) if found is not None else None
            if note is None:
                body = self._pages.placeholder(run, order)
                note = await self.posted(run, order.target, body, internal=order.internal)
        except (Refused, Forbidden) as error:  # a role that the bot lost may be given back
            await _bide(control, error)
            raise Unavailable(SERVICE, error.problem) from error
        except (Invalid, NotFound) as refusal:
            await self._refused(run, refusal)
            return
        start = control.began or self._clock()
        await self._status.write(
            run, objects.with_status(run, self._clock(), note=note, start_time=run.status.start_time or start)
        )

    async def _skip(self, run: AgentRun, verdict: Verdict) -> None:
        """It has nothing to say here, and that is no failure; where it had begun to post, nothing stands there."""
        status = objects.concluded(run, verdict.reason, verdict.message, self._clock(), note=None)
        await self._status.write(run, status)

    async def _refused(self, run: AgentRun, refusal: Invalid | NotFound) -> None:
        """No note may stand there, and the run ends with that."""
        now, public = self._clock(), isinstance(refusal, InternalNoteRefused)
        reason = c.Failure.INTERNAL_NOTE_REFUSED if public else c.Failure.DELIVERY_FAILED
        # of one that came out public it is not known whether it could be deleted again: delivery looks for it
        note = NoteStatus(attempted_at=now) if public else None
        await self._status.write(run, objects.concluded(run, reason, str(refusal), now, note=note))

    async def _adopted(self, run: AgentRun, order: Order, target: GitLabTarget, left: Note) -> NoteStatus | None:
        """The note of a run that was deleted at work, made this one's own: one event has one note."""
        assert self._notebook is not None  # noqa: S101
        run = await self._attempt(run)  # first: whoever dies behind the update must find it as its own
        try:
            note = await self._notebook.update(target, noted(run, left), self._pages.placeholder(run, order))
        except NotFound:
            return None
        return noted(run, note)

    async def standing(self, run: AgentRun, target: GitLabTarget, *, internal: bool) -> NoteStatus | None:
        """The note of this run that stands there, None when none was posted; Unavailable where one may still come.

        Of several the first is kept, for people may have seen it. One that is public and must not be is taken back.
        """
        assert self._notebook is not None  # noqa: S101
        note = run.status.note or NoteStatus()
        if note.id is not None and posted_once(run) and await self._is_there(run, target, note.id, internal=internal):
            return note
        found = await self._notebook.find(target, run.metadata.uid)
        fitting = [each for each in found if each.internal or not internal]
        for each in found:
            if each not in fitting[:1]:
                await self._notebook.delete(target, each.id)
        if fitting:
            return noted(run, fitting[0])
        if note.id is not None:
            return note  # its marker was edited away, or it is gone: the update shows
        posted = note.attempted_at
        if posted and not run.metadata.deleting and self._clock() - posted < SETTLE:
            raise Unavailable(SERVICE, "a note was being posted without an answer; it may still arrive", retry_after=5)
        return None

    async def _is_there(self, run: AgentRun, target: GitLabTarget, note_id: int, *, internal: bool) -> bool:
        """Whether that very note is still the run's, and may be: all others need not be read for it."""
        assert self._notebook is not None  # noqa: S101
        found = await self._notebook.one(target, note_id)
        mine = found is not None and found.marker.run == run.metadata.uid
        return mine and found is not None and (found.note.internal or not internal)

    async def take_back(self, run: AgentRun, target: GitLabTarget) -> None:
        """Delete what is public of an internal run's notes."""
        assert self._notebook is not None  # noqa: S101
        for each in await self._notebook.find(target, run.metadata.uid):
            if not each.internal:
                await self._notebook.delete(target, each.id)

    async def posted(self, run: AgentRun, target: GitLabTarget, body: str, *, internal: bool) -> NoteStatus:
        """Post the run's note: said in its status before, and taken back there where surely nothing was written."""
        before = run.status.note
        run = await self._attempt(run)
        try:
            return noted(run, await self._post(run, target, body, internal=internal))
        except (Refused, Forbidden):
            await self._status.write(run, objects.with_status(run, self._clock(), note=before))
            raise

    async def _attempt(self, run: AgentRun) -> AgentRun:
        """Say that a note is about to be posted, before it is."""
        attempted = NoteStatus(attempted_at=self._clock())
        return await self._status.write(run, objects.with_status(run, self._clock(), note=attempted))

    async def _post(self, run: AgentRun, target: GitLabTarget, body: str, *, internal: bool) -> Note:
        """Post in the thread of the question, or as a note of its own."""
        assert self._notebook is not None  # noqa: S101
        discussion = _thread(run, internal=internal)
        try:
            return await self._notebook.create(target, body, internal=internal, discussion=discussion)
        except NotFound:
            if discussion is None:
                raise
        # somebody deleted the thread meanwhile; whoever asked finds the answer below
        return await self._notebook.create(target, body, internal=internal, discussion=None)


def posted_once(run: AgentRun) -> bool:
    """No second note of the run can have come: one process had it, and its first POST was answered within its time."""
    note, start = run.status.note, run.status.start_time
    if note is None or note.attempted_at is None or start is None:
        return False
    return run.status.attempts <= 1 and note.attempted_at - start < SETTLE


async def _bide(control: Control, error: Refused | Forbidden) -> None:
    """Wait as long as GitLab asked, else longer each time: our own writes about the refusal wake the run at once."""
    hint = error.retry_after if isinstance(error, Refused) else None
    pause = FIRST_PAUSE_SECONDS * 2 ** min(control.deliveries, 10) if hint is None else hint
    control.deliveries += 1
    loop = asyncio.get_running_loop()
    until = loop.time() + min(pause, LONGEST_PAUSE_SECONDS)
    while (left := until - loop.time()) > 0 and not (control.cancelled or control.leaving):
        control.wake.clear()
        await control.pause(left)


def _thread(run: AgentRun, *, internal: bool) -> str | None:
    """The discussion of the question. What must be internal cannot stand in a public one: then a note of its own."""
    trigger = run.spec.trigger
    if trigger is None or (internal and not trigger.internal):
        return None
    return trigger.discussion


def noted(run: AgentRun, note: Note) -> NoteStatus:
    """The note as the run's status has it."""
    attempted = run.status.note.attempted_at if run.status.note else None
    return NoteStatus(id=note.id, discussion=note.discussion, url=note.url, attempted_at=attempted)
