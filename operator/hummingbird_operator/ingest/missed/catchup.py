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

from hummingbird_operator.errors import HummingbirdError, NotFound, Unavailable
from hummingbird_operator.forges.merge_requests import SHUT
from hummingbird_operator.ingest import commands
from hummingbird_operator.ingest.event import Event
from hummingbird_operator.ingest.hooks.moments import hook_time
from hummingbird_operator.ingest.missed import rebuilt, seen
from hummingbird_operator.ingest.missed.handing import Result, hand_in
from hummingbird_operator.ingest.missed.lists import Change, Home, Lists, Piped, Words
from hummingbird_operator.ingest.missed.patience import Patience
from hummingbird_operator.ingest.route import ENDED

logger = logging.getLogger(__name__)
T = TypeVar("T")

SETTLED = timedelta(seconds=30)
"""A younger push is left to its webhook, if there is one: two events of it would make two runs. The next look sees."""
LEFT_OUT = "left_out"
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
    threaded: int = 2000
    """Notes of one of them, read from its oldest thread on, to find the threads of its comments."""
    pipelines: int = 200


class Left(Flag):
    """What is to be looked at again."""

    NOTHING = 0
    YOUNG = auto()
    """A push of this moment."""
    FAILED = auto()
    """What could not be read or handled, though GitLab and the API server answer."""


@dataclass
class _Look:
    """One look into one project."""

    home: Home
    since: datetime
    actions: frozenset[str]
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    left: Left = Left.NOTHING
    failing: int = 0

    @property
    def path(self) -> str:
        """The project's."""
        return self.home.path_with_namespace

    def count(self, event: str, result: str) -> None:
        """One more event of that kind that ended so."""
        self.counts[event, result] += 1
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
    settled: timedelta = SETTLED
    bounds: Bounds = field(default_factory=Bounds)

    def __post_init__(self) -> None:
        name, text = "hummingbird_ingest_caught_up", "Events found in GitLab's lists, since no webhook may have come"
        self._counter = prometheus_client.Counter(name, text, ["event", "result"], registry=self.registry)

    async def project(self, name: str, since: datetime) -> Left:
        """Hand in what happened since; what of it needs another look.

        Raises Unavailable (look again later) and what else GitLab says of the project.
        """
        home = await self.patience.ask(self.lists.home, name)
        look = _Look(home, since, self.known.actions(home.path_with_namespace))
        try:
            changes = await self._some("merge_request", look, lambda: self.lists.changes(look.path, since))
            for change in changes:
                await self._guarded(look, f"{look.path}!{change.iid}", self._change(look, change))
            if "pipeline" in look.actions:
                await self._pipelines(look, {change.iid: change for change in changes})
        finally:
            for (event, result), count in look.counts.items():
                self._counter.labels(event, result).inc(count)
            text = "what GitLab may not have sent of %s since %s was looked for: %s"
            logger.info(text, look.path, hook_time(since), look.summary())
        return look.left

    async def _some(self, event: str, look: _Look, listed: Callable[[], Iterator[T]]) -> list[T]:
        """As many rows as are looked at; that there are more is said."""
        most = self.bounds.pipelines if event == "pipeline" else self.bounds.changes
        found = await self.patience.ask(lambda: list(islice(listed(), most + 1)))
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
            if look.failing >= _TOO_OFTEN:
                raise
        except HummingbirdError as error:
            look.count("merge_request", LEFT_OUT)
            logger.warning("what %s missed is left out: %s", what, error)
        else:
            look.failing = 0

    async def _change(self, look: _Look, change: Change) -> None:
        notes = await self._notes(look, change)
        if (
            "merge_request" in look.actions
            and change.state not in SHUT
            and not (change.draft or change.work_in_progress)
        ):
            await self._proposed(look, change, notes)
        asking = [note for note in reversed(notes) if rebuilt.asks(note)]
        if asking:
            await self._asked(look, change, asking)

    async def _notes(self, look: _Look, change: Change) -> list[Words]:
        """Those since, newest first."""

        def read() -> tuple[list[Words], bool]:
            found: list[Words] = []
            for note in self.lists.notes(look.path, change.iid):
                if note.created_at and note.created_at < look.since:
                    return found, False
                if len(found) >= self.bounds.notes:
                    return found, True
                found.append(note)
            return found, False

        found, more = await self.patience.ask(read)
        if more:
            look.count("note", LEFT_OUT)
            logger.warning(
                "%s!%d has more than %d new notes: older ones are left out", look.path, change.iid, len(found)
            )
        return found

    async def _proposed(self, look: _Look, change: Change, notes: list[Words]) -> None:
        versions = await self.patience.ask(lambda: list(islice(self.lists.versions(look.path, change.iid), 1)))
        what = rebuilt.news(change, versions, notes, look.since)
        if what is None:
            return
        if self.now() - what.at < self.settled:
            look.left |= Left.YOUNG
            return
        keys = await self.patience.until_done(lambda: self.known.keys(look.path, change.iid))
        if not seen.looked_at(keys, change.iid, change.sha, hook_time(what.at)):
            await self._hand(look, rebuilt.merge_request(look.home, change, what), f"{look.path}!{change.iid}")

    async def _asked(self, look: _Look, change: Change, notes: list[Words]) -> None:
        """Comments, oldest first. One that was edited since is left out: nobody knows what it said at first."""
        listed = self.bounds.threaded
        threads = await self.patience.ask(lambda: dict(islice(self.lists.threads(look.path, change.iid), listed)))
        for note in notes:
            what = f"note {note.id} of {look.path}!{change.iid}"
            if note.updated_at != note.created_at or note.author is None:
                look.count("note", LEFT_OUT)
                logger.info("%s was edited since it was written, and starts nothing", what)
            elif note.id not in threads and commands.parse(note.body) is None:
                look.count("note", LEFT_OUT)
                logger.warning("%s is left out: its thread is not among the first %d notes", what, listed)
            else:
                await self._hand(look, rebuilt.note(look.home, change, note, threads.get(note.id)), what)

    async def _pipelines(self, look: _Look, changes: dict[int, Change]) -> None:
        """The last one of each merge request, if it ended: an older one says nothing of the merge request as it is."""
        rows = await self._some("pipeline", look, lambda: self.lists.pipelines(look.path, look.since))
        last: dict[int, Piped] = {}
        for row in sorted(rows, key=lambda one: -one.id):
            ref = _REF.fullmatch(row.ref)
            if ref and row.source == "merge_request_event":
                last.setdefault(int(ref[1]), row)
        for iid, row in last.items():
            if row.status in ENDED and not (row.updated_at and row.updated_at < look.since):
                await self._guarded(look, f"{look.path}!{iid}", self._ended(look, iid, row.id, changes.get(iid)))

    async def _ended(self, look: _Look, iid: int, number: int, change: Change | None) -> None:
        ran = await self.patience.ask(self.lists.pipeline, look.path, number)
        if ran.status not in ENDED or (ran.finished_at and ran.finished_at < look.since):
            return
        if change is None:
            change = await self.patience.ask(self.lists.change, look.path, iid)
        event = rebuilt.pipeline(look.home, change, ran)
        finished = event["object_attributes"]["finished_at"] or ""
        keys = await self.patience.until_done(lambda: self.known.keys(look.path, iid))
        if not seen.ended(keys, number, ran.status, finished):
            await self._hand(look, event, f"pipeline {number} of {look.path}")

    async def _hand(self, look: _Look, payload: rebuilt.Payload, what: str) -> None:
        kind = str(payload["object_kind"])
        look.count(kind, await hand_in(self.patience, Event("gitlab", kind, payload), what))
