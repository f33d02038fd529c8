"""What GitLab did not send to a hook that it had disabled, found in its own lists and handed to the handler.

For each project: comments of the merge requests that anything happened to, those that were opened, pushed to or made
ready, and the last pipeline of each that ended. Safe to repeat and to break off anywhere: comments and pipelines make
the names that their webhooks would make, and of commits the AgentRuns tell whether they were looked at.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Flag, auto
from itertools import islice
from typing import Any, TypeVar

import prometheus_client

from hummingbird_operator.delivery.awards import edited
from hummingbird_operator.errors import HummingbirdError, NotFound, Unavailable
from hummingbird_operator.forges.merge_requests import SHUT
from hummingbird_operator.ingest import commands
from hummingbird_operator.ingest.event import Event
from hummingbird_operator.ingest.gitlab import NOT_NOW, SEEN
from hummingbird_operator.ingest.hooks.moments import hook_time
from hummingbird_operator.ingest.missed import rebuilt, seen
from hummingbird_operator.ingest.missed.handing import Result, hand_in
from hummingbird_operator.ingest.missed.lists import Lists, MergeRequest, Note, Pipeline, Project
from hummingbird_operator.ingest.missed.patience import ASIDE_SECONDS, Patience
from hummingbird_operator.ingest.route import ENDED

logger = logging.getLogger(__name__)
Row = TypeVar("Row", MergeRequest, Pipeline)

YOUNG = timedelta(seconds=30)
"""A younger push is left to its webhook, if there is one."""
LEFT_OUT = "left_out"
MARKS = frozenset({SEEN, NOT_NOW, "white_check_mark"})
"""The bot's own reactions: on a comment with one of them it has done what was to be done."""
SYSTEM_CHARACTERS, ASKED_CHARACTERS = 200, 4000
"""Of a note that are held: enough for its first line. What it says is asked of GitLab again before anything is made."""
_TOO_OFTEN = 3
"""Merge requests that fail one after another, though nothing is away, before the project waits."""
_REF = re.compile(r"refs/merge-requests/(\d+)/(?:head|merge|train)")


@dataclass(frozen=True)
class Bounds:
    """Of one project in one look; the newest are read."""

    changes: int = 100
    """Merge requests."""
    notes: int = 300
    """Notes of one of them."""
    threaded: int = 1000
    """Notes of one of them, read from its oldest thread on, to find the threads of its comments."""
    pipelines: int = 200


class Left(Flag):
    """What is to be looked at again."""

    NOTHING = 0
    YOUNG = auto()
    """A push of this moment."""
    FAILED = auto()
    """What could not be read or handled, though GitLab and the API server answer."""


@dataclass(frozen=True)
class Found:
    """What came of a look; `newest` is when the last thing happened that the lists had."""

    left: Left
    newest: datetime | None


@dataclass
class _Look:
    """One look into one project."""

    project: Project
    since: datetime
    until: datetime | None
    actions: frozenset[str]
    bot: int
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    left: Left = Left.NOTHING
    failing: int = 0
    newest: datetime | None = None

    @property
    def path(self) -> str:
        """The project's."""
        return self.project.path_with_namespace

    def holds(self, when: datetime | None) -> bool:
        """Whether a moment is in the window; of one that is not known nothing is handed in."""
        return when is not None and self.since <= when and (self.until is None or when <= self.until)

    def count(self, event: str, result: str, times: int = 1) -> None:
        """More events of that kind that ended so."""
        if times:
            self.counts[event, result] += times
        self.left |= Left.FAILED if result == Result.PUT_OFF else Left.NOTHING

    def summary(self) -> str:
        """For the log."""
        told = ", ".join(f"{event} {result} {count}" for (event, result), count in sorted(self.counts.items()))
        return told or "nothing"


@dataclass
class Catchup:
    """One per process; projects are looked at one after another, by one request at a time."""

    lists: Lists
    known: seen.Known
    patience: Patience
    registry: prometheus_client.CollectorRegistry = field(default_factory=prometheus_client.CollectorRegistry)
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    young: timedelta = YOUNG
    bounds: Bounds = field(default_factory=Bounds)

    def __post_init__(self) -> None:
        name, text = "hummingbird_ingest_caught_up", "Events found in GitLab's lists, since no webhook may have come"
        self._counter = prometheus_client.Counter(name, text, ["event", "result"], registry=self.registry)

    async def project(self, name: str, since: datetime, until: datetime | None = None) -> Found:
        """Hand in what happened between the two; what of it needs another look.

        Raises Unavailable (look again later) and what else GitLab says of the project.
        """
        project = await self.patience.ask(self.lists.project, name)
        bot = await self.patience.ask(self.known.bot_id)
        look = _Look(project, since, until, self.known.actions(project.path_with_namespace), bot)
        try:
            requests = await self._some("merge_request", look, lambda: self.lists.merge_requests(look.path, since))
            for request in requests:
                await self._guarded(look, f"{look.path}!{request.iid}", self._merge_request(look, request))
            if "pipeline" in look.actions:
                await self._pipelines(look, {request.iid: request for request in requests})
        finally:
            look.count("merge_request", LEFT_OUT, self.lists.dropped())
            for (event, result), count in look.counts.items():
                self._counter.labels(event, result).inc(count)
            text = "what GitLab did not send of %s since %s was looked for: %s"
            logger.info(text, look.path, hook_time(since), look.summary())
        return Found(look.left, look.newest)

    async def _some(self, event: str, look: _Look, listed: Callable[[], Iterator[Row]]) -> list[Row]:
        """As many rows as are looked at; that there are more is said."""
        most = self.bounds.pipelines if event == "pipeline" else self.bounds.changes
        found: list[Row] = await self.patience.ask(lambda: list(islice(listed(), most + 1)))
        look.newest = max(filter(None, (look.newest, *(row.updated_at for row in found))), default=None)
        if len(found) > most:
            look.count(event, LEFT_OUT)
            logger.warning("more than %d of %s changed: what the older ones missed is left out", most, look.path)
        return found[:most]

    async def _guarded(self, look: _Look, what: str, work: Coroutine[Any, Any, None]) -> None:
        """One merge request that GitLab cannot show holds back no other."""
        try:
            await work
        except NotFound:
            return
        except Unavailable as error:
            look.left, look.failing = look.left | Left.FAILED, look.failing + 1
            logger.warning("what %s missed is looked for again later: %s", what, error)
            if look.failing >= _TOO_OFTEN or (error.retry_after or 0) > ASIDE_SECONDS:
                raise
        except HummingbirdError as error:
            look.count("merge_request", LEFT_OUT)
            logger.warning("what %s missed is left out: %s", what, error)
        else:
            look.failing = 0

    async def _merge_request(self, look: _Look, request: MergeRequest) -> None:
        notes = await self._notes(look, request)
        if "merge_request" in look.actions and request.state not in SHUT and not request.draft:
            await self._proposed(look, request, notes)
        asking = [note for note in reversed(notes) if rebuilt.asks(note)]
        if asking:
            await self._asked(look, request, asking)

    async def _notes(self, look: _Look, request: MergeRequest) -> list[Note]:
        """Those of the window that ask for something and GitLab's own, newest first, cut to what is read of them."""

        def read() -> tuple[list[Note], bool]:
            found: list[Note] = []
            with self.lists.turns.scope():
                for count, note in enumerate(self.lists.notes(look.path, request.iid)):
                    if note.created_at and note.created_at < look.since:
                        return found, False
                    if count >= self.bounds.notes:
                        return found, True
                    if look.holds(note.created_at) and (note.system or rebuilt.asks(note)):
                        most = SYSTEM_CHARACTERS if note.system else ASKED_CHARACTERS
                        found.append(note.model_copy(update={"body": note.body[:most]}))
            return found, False

        found, more = await self.patience.ask(read)
        if more:
            look.count("note", LEFT_OUT)
            text = "%s!%d has more than %d new notes: older ones are left out"
            logger.warning(text, look.path, request.iid, self.bounds.notes)
        return found

    async def _proposed(self, look: _Look, request: MergeRequest, notes: list[Note]) -> None:
        listed = self.lists.versions
        versions = await self.patience.ask(lambda: list(islice(listed(look.path, request.iid), 1)))
        what = rebuilt.news(request, versions, notes, look.since, look.until)
        if what is None:
            return
        if self.now() - what.at < self.young:
            look.left |= Left.YOUNG
            return
        keys = await self.patience.until_done(lambda: self.known.keys(look.path, request.iid))
        if not seen.looked_at(keys, request.iid, request.sha):
            await self._hand(look, rebuilt.merge_request(look.project, request, what), f"{look.path}!{request.iid}")

    async def _asked(self, look: _Look, request: MergeRequest, notes: list[Note]) -> None:
        """Comments, oldest first. One that was edited since is left out: nobody knows what it said at first."""
        new = [note for note in notes if await self._is_new(look, request, note)]
        if not new:
            return
        listed, place = self.bounds.threaded, (look.path, request.iid)

        def read() -> dict[int, str]:
            wanted = {note.id for note in new}
            with self.lists.turns.scope():
                return {one: where for one, where in islice(self.lists.threads(*place), listed) if one in wanted}

        threads = await self.patience.ask(read)
        for note in new:
            what = f"note {note.id} of {look.path}!{request.iid}"
            if note.id not in threads and commands.parse(note.body) is None:
                look.count("note", LEFT_OUT)
                logger.warning("%s is left out: its thread is not among the first %d notes", what, listed)
            else:
                await self._hand(look, rebuilt.note(look.project, request, note, threads.get(note.id)), what)

    async def _is_new(self, look: _Look, request: MergeRequest, note: Note) -> bool:
        if note.author is None or note.author.id == look.bot:
            return False
        awards = await self.patience.ask(self.lists.awards, look.path, request.iid, note.id)
        if any(award.by == look.bot and award.name in MARKS for award in awards):
            look.count("note", Result.NOTHING)
            return False
        if edited(note.created_at, note.updated_at, [note.resolved_at, *(award.at for award in awards)]):
            look.count("note", LEFT_OUT)
            logger.info("note %d of %s!%d was edited, and starts nothing", note.id, look.path, request.iid)
            return False
        return True

    async def _pipelines(self, look: _Look, requests: dict[int, MergeRequest]) -> None:
        """The last one of each merge request, if it ended: an older one says nothing of the merge request as it is."""
        rows = await self._some("pipeline", look, lambda: self.lists.pipelines(look.path, look.since))
        last: dict[int, Pipeline] = {}
        for row in sorted(rows, key=lambda one: -one.id):
            ref = _REF.fullmatch(row.ref)
            if ref and row.source == "merge_request_event":
                last.setdefault(int(ref[1]), row)
        for iid, row in last.items():
            if row.status in ENDED:
                await self._guarded(look, f"{look.path}!{iid}", self._ended(look, iid, row.id, requests.get(iid)))

    async def _ended(self, look: _Look, iid: int, number: int, request: MergeRequest | None) -> None:
        ran = await self.patience.ask(self.lists.pipeline, look.path, number)
        if ran.status not in ENDED or not look.holds(ran.finished_at or ran.updated_at):
            return
        if request is None:
            request = await self.patience.ask(self.lists.merge_request, look.path, iid)
        event = rebuilt.pipeline(look.project, request, ran)
        finished = event["object_attributes"]["finished_at"] or ""
        keys = await self.patience.until_done(lambda: self.known.keys(look.path, iid))
        if not seen.ended(keys, number, ran.status, finished):
            await self._hand(look, event, f"pipeline {number} of {look.path}")

    async def _hand(self, look: _Look, payload: rebuilt.Payload, what: str) -> None:
        kind = str(payload["object_kind"])
        look.count(kind, await hand_in(self.patience, Event("gitlab", kind, payload), what))
