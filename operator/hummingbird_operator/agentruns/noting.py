"""The step that first writes to the merge request: the placeholder, posted once or found again.

A POST is never repeated: the attempt is recorded first, and a successor looks for the note by its marker before it
posts anew.
"""

from __future__ import annotations

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
from hummingbird_operator.errors import Invalid, NotFound, Unavailable

if TYPE_CHECKING:
    from hummingbird_operator.agentruns.control import Control
    from hummingbird_operator.agentruns.runner import Apply
    from hummingbird_operator.agentruns.status import StatusWriter
    from hummingbird_operator.api.agentrun import AgentRun, GitLabTarget

logger = logging.getLogger(__name__)

SETTLE_SECONDS = 60.0
"""How long a POST of a dead process may still be under way: a successor posts anew only after that."""


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
                run = await self.attempt(run)
                body = self._pages.placeholder(run, order)
                note = noted(run, await self.post(run, order.target, body, internal=order.internal))
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
        if posted and not run.metadata.deleting and self._clock() - posted < timedelta(seconds=SETTLE_SECONDS):
            raise Unavailable("GitLab", "a note was being posted without an answer; it may still arrive", retry_after=5)
        return None

    async def attempt(self, run: AgentRun) -> AgentRun:
        """Say that a note is about to be posted, before it is."""
        attempted = NoteStatus(attempted_at=self._clock())
        return await self._status.write(run, objects.with_status(run, self._clock(), note=attempted))

    async def post(self, run: AgentRun, target: GitLabTarget, body: str, *, internal: bool) -> Note:
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
