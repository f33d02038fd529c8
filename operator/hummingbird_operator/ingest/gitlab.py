"""What needs GitLab or the API server to decide an event, after every gate that needs neither.

Reactions and resolved threads are all that is written to GitLab here: notes are the operator's, so that two ingestors
never answer twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, TypeVar

from hummingbird_operator.api.agentrun import Notice
from hummingbird_operator.errors import HummingbirdError, Invalid, NotFound, Unavailable
from hummingbird_operator.ingest import commands, runs
from hummingbird_operator.ingest.away import GITLAB, Barred
from hummingbird_operator.ingest.believed import Believed, believed
from hummingbird_operator.ingest.forge import Forge
from hummingbird_operator.ingest.intake import Intake, NameTaken, Refused
from hummingbird_operator.ingest.people import People, Standing
from hummingbird_operator.ingest.pipelines import Pipelines
from hummingbird_operator.ingest.reasons import Outcome, Reason
from hummingbird_operator.ingest.route import SUCCESS, Asked, Ended, Proposed, Replied, Router, conversation

if TYPE_CHECKING:
    from hummingbird_operator.delivery.threads import Thread

SEEN = "eyes"
"""The reaction on a comment that the bot has taken up."""
NOT_NOW = "x"
"""The reaction on a comment that gets no answer of its own: one too many, or denied once more."""
WAITING = 20
"""Runs of one session that may wait; the operator drops the oldest one above it."""

REACTION_SECONDS = 3.0
"""How long a reaction may take: a webhook has ten seconds for everything, and this is the least of it."""

LAG_SECONDS = 1.0
"""After so long a note that GitLab does not find is asked for again: its replicas may be behind its events."""
COSTLY_SECONDS = 0.5
"""A thread that took so long and is none of ours is not looked at again for a while: anybody may write in it."""
QUIET_SECONDS = 60.0
_MOST_QUIET = 10_000
_log = logging.getLogger(__name__)
T = TypeVar("T")


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
        lag_seconds: float = LAG_SECONDS,
    ) -> None:
        self._router = router
        self._forge = forge
        self._intake = intake
        self._executor = executor
        self._clock = clock
        self._reaction_seconds = reaction_seconds
        self._lag_seconds = lag_seconds
        self._quiet: dict[tuple[str, str], float] = {}
        """Threads that cost much and hold nothing of the bot's, until when they are passed over."""
        self._pipelines = Pipelines(router, forge, self._ask)
        self._people = People(forge, self._ask, router.allowed_bots, clock)

    async def bot_id(self) -> int:
        """The bot's own account."""
        return await self._ask(self._forge.bot_id)

    async def is_ours(self, host: str) -> bool:
        """Whether a host is our GitLab, by the name that we call it or by the one that it gives itself."""
        return self._router.ours(host) or (await self._ask(self._forge.host)) in ("", host)

    def heard(self, project: str, discussion: str | None) -> None:
        """The bot wrote in that thread, or is about to."""
        self._quiet.pop((project, discussion or ""), None)

    async def proposed(self, event: Proposed) -> Outcome:
        """One run for each workflow that is to look at the merge request."""
        parts = (event.origin.iid, event.sha)
        orders = [runs.automatic(event.origin, name, event.sha, *parts, event.updated_at) for name in event.workflows]
        caught = [runs.automatic(event.origin, name, event.sha, *parts, runs.NO_MOMENT) for name in event.workflows]
        if event.updated_at != runs.NO_MOMENT:  # its webhook, late: the commit may have been found in the lists
            pairs = zip(orders, caught, strict=True)
            orders = [run for run, other in pairs if await self._intake.there(other) is None]
        if not orders:
            return Outcome(Reason.DUPLICATE, runs=tuple(run["metadata"]["name"] for run in caught))
        return await self._start(orders)

    async def ended(self, event: Ended) -> Outcome:
        """A pipeline's end: threads are resolved after a success, then one run for each workflow that wants it."""
        latest, resolved, refusal = True, 0, None
        if event.status == SUCCESS:
            latest = await self._pipelines.is_latest(event)
            resolved, refusal = await self._pipelines.resolve(event) if latest else (0, None)
        stale = Outcome(Reason.STALE_EVENT, f"pipeline {event.id} is not the latest")
        if not event.workflows:
            if refusal is not None:
                raise refusal
            return Outcome(Reason.RESOLVED, f"{resolved} threads") if latest else stale
        sha = await self._pipelines.commit(event)
        if sha is None:
            return stale
        parts = (event.id, event.status, event.finished_at)
        return await self._start([runs.automatic(event.origin, name, sha, *parts) for name in event.workflows])

    async def asked(self, event: Asked) -> Outcome:
        """A command. Everybody's is answered, but only a member's is done."""
        found = await self._confirmed(event.comment, event.words)
        if isinstance(found, Outcome):
            return found
        comment, command = found.comment, event.command
        if found.words != event.words:
            given = commands.parse(found.words)
            if given is None:
                return Outcome(Reason.NOT_FOR_US, "its words are others in GitLab")
            command = given
        refusal = await self._refusal(comment)
        if refusal is not None:
            return refusal
        if command.word == commands.HELP:
            return await self._order(comment, runs.notice(comment, Notice.HELP), Reason.NOTICE)
        workflow = commands.choose(command.word, self._router.admitted(comment.origin.project))
        if workflow is None:
            return await self._order(comment, runs.notice(comment, Notice.UNKNOWN_COMMAND, command.word), Reason.NOTICE)
        run = runs.command(comment, workflow, command.message)
        return await self._order(comment, run, Reason.FIRED, found.remark)

    async def replied(self, event: Replied) -> Outcome:
        """A comment in a thread. In one where the bot said nothing it is dropped, whoever wrote it.

        The run goes on with the workflow that its session names, also where the configuration has it no more: the
        operator ends it with that sentence. The oldest markers name none; then it is the only one that the project
        has, else the person gets the list.
        """
        thread = await self._thread(event)
        found = conversation(thread.notes, event.comment.id) if thread else None
        if thread is None or found is None:
            return Outcome(Reason.NO_SESSION)
        confirmed = await self._confirmed(event.comment, event.words)
        if isinstance(confirmed, Outcome):
            return confirmed
        if all(note.id != event.comment.id for note in thread.notes):
            return Outcome(Reason.NO_TARGET, f"note {event.comment.id} is not in its thread")
        comment = confirmed.comment.within(internal=thread.internal)
        refusal = await self._refusal(comment)
        if refusal is not None:
            return refusal
        session, workflow = found
        admitted = self._router.admitted(comment.origin.project)
        if workflow is None and len(admitted) != 1:
            return await self._order(comment, runs.notice(comment, Notice.HELP), Reason.NOTICE)
        run = runs.reply(comment, workflow or admitted[0], session, confirmed.words)
        return await self._order(comment, run, Reason.FIRED, confirmed.remark)

    async def _thread(self, event: Replied) -> Thread | None:
        """The thread of a reply, with the reply in it; None where it is gone, or known to be none of ours."""
        origin, now = event.comment.origin, self._clock()
        key = (origin.project, event.discussion)
        if self._quiet.get(key, now) > now:
            return None
        thread = None
        for last in (False, True):
            try:
                thread = await self._ask(self._forge.thread, origin.project, origin.iid, event.discussion)
            except NotFound:
                thread = None
            if last or (thread and any(note.id == event.comment.id for note in thread.notes)):
                break
            await asyncio.sleep(self._lag_seconds)
        if self._clock() - now >= COSTLY_SECONDS + self._lag_seconds:
            self._hush(key, thread)
        return thread

    def _hush(self, key: tuple[str, str], thread: Thread | None) -> None:
        if thread is None or any(note.by_bot for note in thread.notes):
            return
        if len(self._quiet) >= _MOST_QUIET:
            self._quiet.clear()
        self._quiet[key] = self._clock() + QUIET_SECONDS

    async def _confirmed(self, comment: runs.Comment, words: str) -> Believed | Outcome:
        """The comment as GitLab knows it. Raises NotFound where there is none: deleted since, or invented."""
        place = (comment.origin.project, comment.origin.iid, comment.id)
        try:
            said = await self._ask(self._forge.said, *place)
        except NotFound:
            await asyncio.sleep(self._lag_seconds)
            said = await self._ask(self._forge.said, *place)
        return believed(comment, words, said)

    async def _refusal(self, comment: runs.Comment) -> Outcome | None:
        """What becomes of a comment whose author may ask for nothing; None where he may.

        No failure of the look-up means that somebody is no member, nor that he never was one: it is asked again.
        """
        try:
            standing = await self._people.standing(comment)
        except Invalid as error:
            raise Unavailable(GITLAB, str(error)) from error
        if standing is Standing.BOT:
            return Outcome(Reason.BOT_SENDER, comment.origin.author)
        if standing is Standing.MEMBER:
            return None
        return await self._order(comment, runs.notice(comment, Notice.DENIED), Reason.NOTICE)

    async def _order(self, comment: runs.Comment, run: runs.Object, reason: Reason, remark: str = "") -> Outcome:
        """Create what answers a comment, and show that it was seen; at a second delivery too.

        One that is too many for the hour makes nothing: whatever talks to itself ends there. What was seen gets its
        end from its own run; a comment that has none, as another one's denial stands for it, gets that here.
        """
        before = await self._answered(comment, run)
        if before is not None:
            await self._acknowledge(comment)
            return Outcome(Reason.DUPLICATE, runs=(before["metadata"]["name"],))
        most = self._router.most_an_hour
        if await self._intake.asked_lately(run) >= most:
            await self._acknowledge(comment, NOT_NOW)
            return Outcome(Reason.LOOP_BUDGET, f"{most} within an hour")
        there = await self._intake.create(run)
        self.heard(comment.origin.project, comment.discussion)
        await self._acknowledge(comment, SEEN if there is None or _answers(there, comment) else NOT_NOW)
        session = run["spec"].get("session")
        # said with the reply's first delivery only: later ones know nothing of the queue as it was
        if session and there is None and await self._intake.waiting(session) > WAITING:
            await self._intake.create(runs.notice(comment, Notice.QUEUE_FULL))
        return Outcome(reason if there is None else Reason.DUPLICATE, remark, (run["metadata"]["name"],))

    async def _answered(self, comment: runs.Comment, run: runs.Object) -> runs.Object | None:
        """The other kind of answer, where the comment got that before its author became a member or was one no more."""
        if comment.denial == comment.key:
            return None
        if run["spec"].get("notice") == Notice.DENIED:
            return await self._intake.made(comment.key)
        denied = await self._intake.made(comment.denial)
        return denied if denied and _answers(denied, comment) else None

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


def _answers(run: runs.Object, comment: runs.Comment) -> bool:
    """Whether the run is this very comment's: it reacts on that one when it ends."""
    return (run["spec"].get("trigger") or {}).get("noteId") == comment.id
