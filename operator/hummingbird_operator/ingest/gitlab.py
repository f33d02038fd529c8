"""What needs GitLab or the API server to decide an event, after every gate that needs neither.

Reactions and resolved threads are all that is written to GitLab here: notes are the operator's, so that two ingestors
never answer twice.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from hummingbird_operator.api.agentrun import Notice
from hummingbird_operator.errors import HummingbirdError, Invalid, NotFound
from hummingbird_operator.ingest import commands, runs
from hummingbird_operator.ingest.away import GITLAB, Barred
from hummingbird_operator.ingest.intake import Intake, NameTaken, Refused, finished
from hummingbird_operator.ingest.people import People, Standing
from hummingbird_operator.ingest.reasons import Outcome, Reason
from hummingbird_operator.ingest.route import SUCCESS, Asked, Ended, Proposed, Replied, Router, conversation

if TYPE_CHECKING:
    from hummingbird_operator.delivery.lookups import MergeRequestHead, Pipeline
    from hummingbird_operator.delivery.threads import Thread

SEEN = "eyes"
"""The reaction on a comment that the bot has taken up."""
NOT_NOW = "x"
"""The reaction on a comment that is one too many."""
WAITING = 20
"""Runs of one session that may wait; the operator drops the oldest one above it."""

REACTION_SECONDS = 3.0
"""How long a reaction may take: a webhook has ten seconds for everything, and this is the least of it."""

_GENERATED_REF = re.compile(r"refs/merge-requests/\d+/(?:merge|train)")
_log = logging.getLogger(__name__)
T = TypeVar("T")


class Forge(Protocol):
    """What is asked of GitLab, by blocking calls: `delivery.notes.Notes`.

    Each raises Unavailable (again later), NotFound, or Invalid (the bot lacks a right).
    """

    def probe(self) -> None:
        """Ask for the bot's account, now and once."""

    def bot_id(self) -> int:
        """The bot's own account."""

    def thread(self, project: str, iid: int, discussion: str) -> Thread:
        """One thread with all its notes."""

    def bot_threads(self, project: str, iid: int) -> Sequence[Thread]:
        """The threads that the bot began."""

    def resolve(self, project: str, iid: int, discussion: str) -> None:
        """Mark a thread as resolved; safe to repeat."""

    def access_level(self, project: str, user_id: int) -> int:
        """The person's level in the project, 0 for who is no active member."""

    def is_bot(self, user_id: int) -> bool:
        """Whether the account is a program's."""

    def pipeline(self, project: str, pipeline_id: int) -> Pipeline:
        """One pipeline."""

    def head(self, project: str, iid: int) -> MergeRequestHead:
        """The merge request now."""

    def react(self, project: str, iid: int, emoji: str, *, note_id: int | None = None) -> None:
        """Put an emoji on a note."""


class Desk:
    """Looks up, orders runs, acknowledges. Its methods may run many at once in one event loop; all are repeatable."""

    def __init__(
        self,
        router: Router,
        forge: Forge,
        intake: Intake,
        executor: Executor | None,
        clock: Callable[[], float],
        reaction_seconds: float = REACTION_SECONDS,
    ) -> None:
        self._router = router
        self._forge = forge
        self._intake = intake
        self._executor = executor
        self._clock = clock
        self._reaction_seconds = reaction_seconds
        self._people = People(forge, self._ask, router.allowed_bots, clock)

    async def bot_id(self) -> int:
        """The bot's own account."""
        return await self._ask(self._forge.bot_id)

    async def proposed(self, event: Proposed) -> Outcome:
        """One run for each workflow that is to look at the merge request."""
        parts = (event.origin.iid, event.sha, event.updated_at)
        return await self._start([runs.automatic(event.origin, name, event.sha, *parts) for name in event.workflows])

    async def ended(self, event: Ended) -> Outcome:
        """A pipeline's end: threads are resolved after a success, then one run for each workflow that wants it."""
        resolved, refusal = await self._resolve_threads(event) if event.status == SUCCESS else (0, None)
        if not event.workflows:
            if refusal is not None:
                raise refusal
            return Outcome(Reason.RESOLVED, f"{resolved} threads")
        sha = await self._head(event)
        if sha is None:
            return Outcome(Reason.STALE_EVENT, f"pipeline {event.id} is not the latest")
        parts = (event.id, event.status, event.finished_at)
        return await self._start([runs.automatic(event.origin, name, sha, *parts) for name in event.workflows])

    async def asked(self, event: Asked) -> Outcome:
        """A command. Everybody's is answered, but only a member's is done."""
        comment, word = event.comment, event.command.word
        standing = await self._people.standing(comment)
        if standing is Standing.BOT:
            return Outcome(Reason.BOT_SENDER, comment.origin.author)
        if standing is Standing.STRANGER:
            return await self._order(comment, runs.notice(comment, Notice.DENIED), Reason.NOTICE)
        if word == commands.HELP:
            return await self._order(comment, runs.notice(comment, Notice.HELP), Reason.NOTICE)
        workflow = commands.choose(word, self._router.admitted(comment.origin.project))
        if workflow is None:
            return await self._order(comment, runs.notice(comment, Notice.UNKNOWN_COMMAND, word), Reason.NOTICE)
        return await self._order(comment, runs.command(comment, workflow, event.command.message), Reason.FIRED)

    async def replied(self, event: Replied) -> Outcome:
        """A comment in a thread. In one where the bot said nothing it is dropped, whoever wrote it.

        The run goes on with the workflow that its session names, also where the configuration has it no more: the
        operator ends it with that sentence. The oldest markers name none; then it is the only one that the project
        has, else the person gets the list.
        """
        comment = event.comment
        place = (comment.origin.project, comment.origin.iid)
        try:
            thread = await self._ask(self._forge.thread, *place, event.discussion)
        except NotFound:
            return Outcome(Reason.NO_SESSION, "the thread does not exist any more")
        found = conversation(thread.notes, comment.id)
        if found is None:
            return Outcome(Reason.NO_SESSION)
        comment = comment.within(internal=thread.internal)
        standing = await self._people.standing(comment)
        if standing is Standing.BOT:
            return Outcome(Reason.BOT_SENDER, comment.origin.author)
        if standing is Standing.STRANGER:
            return await self._order(comment, runs.notice(comment, Notice.DENIED), Reason.NOTICE)
        session, workflow = found
        admitted = self._router.admitted(comment.origin.project)
        if workflow is None and len(admitted) != 1:
            return await self._order(comment, runs.notice(comment, Notice.HELP), Reason.NOTICE)
        run = runs.reply(comment, workflow or admitted[0], session, event.words)
        return await self._order(comment, run, Reason.FIRED)

    async def _order(self, comment: runs.Comment, run: runs.Object, reason: Reason) -> Outcome:
        """Create what answers a comment, and show that it was seen; at a second delivery too.

        One that is too many for the hour makes nothing: whatever talks to itself ends there.
        """
        most = self._router.most_an_hour
        if await self._intake.asked_lately(run) >= most:
            await self._acknowledge(comment, NOT_NOW)
            return Outcome(Reason.LOOP_BUDGET, f"{most} within an hour")
        there = await self._intake.create(run)
        await self._acknowledge(comment)
        session = run["spec"].get("session")
        if session and not (there and finished(there)) and await self._intake.waiting(session) > WAITING:
            await self._intake.create(runs.notice(comment, Notice.QUEUE_FULL))
        return Outcome(reason if there is None else Reason.DUPLICATE, runs=(run["metadata"]["name"],))

    async def _start(self, orders: Sequence[runs.Object]) -> Outcome:
        """Create them all before a refusal or a taken name is told: one workflow's trouble is not another's."""
        made, fault = 0, None
        for run in orders:
            try:
                made += await self._intake.create(run) is None
            except (NameTaken, Refused) as error:
                fault = fault or error
        if fault is not None:
            raise fault
        names = tuple(run["metadata"]["name"] for run in orders)
        return Outcome(Reason.FIRED if made else Reason.DUPLICATE, runs=names)

    async def _resolve_threads(self, event: Ended) -> tuple[int, Invalid | None]:
        """Resolve what the bot began about pipelines: how many it were, and why others were refused.

        A thread that is gone needs it no more. A refusal does not keep runs from being made.
        """
        place, count, refusal = (event.origin.project, event.origin.iid), 0, None
        for thread in await self._ask(self._forge.bot_threads, *place):
            if not self._settled_by_success(thread):
                continue
            try:
                await self._ask(self._forge.resolve, *place, thread.discussion)
                count += 1
            except NotFound:
                continue
            except Invalid as error:
                _log.error("a thread of %s!%s stays open: %s", *place, error)
                refusal = error
        return count, refusal

    def _settled_by_success(self, thread: Thread) -> bool:
        marker = thread.notes[0].marker if thread.notes else None
        return thread.resolvable and not thread.resolved and bool(marker and self._router.answers_pipelines(marker.wf))

    async def _head(self, event: Ended) -> str | None:
        """The commit of the merge request that the pipeline tested; None when a newer pipeline replaced it.

        That of a merged result or a train is GitLab's own, and in no event: the merge request's head stands for it.
        """
        pipeline = await self._ask(self._forge.pipeline, event.origin.project, event.id)
        if not _GENERATED_REF.fullmatch(pipeline.ref):
            return pipeline.sha
        head = await self._ask(self._forge.head, event.origin.project, event.origin.iid)
        return None if (head.pipeline_id or 0) > event.id else head.sha

    async def _acknowledge(self, comment: runs.Comment, emoji: str = SEEN) -> None:
        """A courtesy: without it the event is done all the same."""
        place = (comment.origin.project, comment.origin.iid)
        try:
            async with asyncio.timeout(self._reaction_seconds):
                await self._ask(lambda: self._forge.react(*place, emoji, note_id=comment.id))
        except (HummingbirdError, TimeoutError) as error:
            why = str(error) or f"GitLab has not answered for {self._reaction_seconds:.0f} s"
            _log.warning("no reaction on note %s of %s!%s: %s", comment.id, *place, why)

    async def _ask(self, function: Callable[..., T], *arguments: Any) -> T:
        """A blocking call in a thread. A fault of the token is no project's: Unavailable, until somebody renews it."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, function, *arguments)
        except Invalid as error:
            if error.where.startswith("gitlab."):
                raise Barred(GITLAB, str(error)) from error
            raise
