"""A handler with a GitLab and an API server in memory."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hummingbird_operator.delivery.lookups import MergeRequestHead, Pipeline, Said
from hummingbird_operator.delivery.markers import Marker
from hummingbird_operator.delivery.threads import Thread, ThreadNote
from hummingbird_operator.errors import NotFound
from hummingbird_operator.ingest.handle import Handler, Outcome
from hummingbird_operator.ingest.metrics import IngestMetrics
from hummingbird_operator.kube.client import AGENT_RUNS
from hummingbird_operator.kube.testing import FakeKube
from tests.unit.ingest.samples import BOT, SHA, THREAD, configured, event

NAMESPACE = "hummingbird"


def said(number: int, marker: Marker | None = None, *, by_bot: bool = True) -> ThreadNote:
    return ThreadNote(number, BOT if by_bot else 7, by_bot, marker, internal=False, system=False)


def thread(*notes: ThreadNote, discussion: str = THREAD, **changes: Any) -> Thread:
    return Thread(
        **{"internal": False, "resolvable": True, "resolved": False, **changes}, discussion=discussion, notes=notes
    )


def written(number: int, body: str = "/hummingbird review", **changes: Any) -> Said:
    """A note as GitLab has it, and as `samples.note` tells of it."""
    fields = {"author_id": 7, "system": False, "internal": False, "created_at": "2026-11-30T10:00:00.000Z"}
    return Said(**{**fields, "project_id": 10, **changes}, id=number, body=body)


class FakeForge:
    """What was set is what it answers; `fail` may raise, by the method's name. `calls` counts."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.fail: Callable[[str], Exception | None] = lambda method: None
        self.threads: dict[str, Thread] = {}
        self.levels: dict[int, int] = {7: 30}
        self.bots: set[int] = set()
        self.ref = "refs/merge-requests/42/head"
        self.pipeline_sha = SHA
        self.now = MergeRequestHead(SHA, "failed", 31, "opened", False, "Add the cache", "cache", False, 7)
        self.notes: dict[int, Said] = {}
        """Notes as GitLab has them; others are taken for what their event says, in the thread that it names."""
        self.gone: set[int] = set()
        self.members: dict[str, list[int]] = {}
        """By thread: notes that people wrote in it."""
        self.calls_itself = "gitlab.example.com"
        self.resolved: list[str] = []
        self.reactions: list[tuple[str, int | None]] = []
        self.unhurried = threading.Event()
        """Cleared, a reaction takes its time."""
        self.unhurried.set()

    def _enter(self, method: str) -> None:
        self.calls[method] += 1
        error = self.fail(method)
        if error is not None:
            raise error

    def probe(self) -> None:
        self._enter("probe")

    def bot_id(self) -> int:
        self._enter("bot_id")
        return BOT

    def thread(self, project: str, iid: int, discussion: str) -> Thread:
        self._enter("thread")
        if discussion not in self.threads:
            raise NotFound(f"{project}!{iid} has no thread {discussion}")
        found = self.threads[discussion]
        there = {note.id for note in found.notes}
        others = [said(number, by_bot=False) for number in self.members.get(discussion, []) if number not in there]
        return replace(found, notes=(*found.notes, *others))

    def host(self) -> str:
        self._enter("host")
        return self.calls_itself

    def said(self, project: str, iid: int, note_id: int) -> Said:
        self._enter("said")
        if note_id in self.gone:
            raise NotFound(f"{project}!{iid} has no note {note_id}")
        return self.notes.get(note_id) or written(note_id, "", edited=True)

    def heard(self, payload: dict[str, Any]) -> None:
        """The note of the event is one that somebody really wrote."""
        one = payload.get("object_attributes")
        if payload.get("object_kind") != "note" or not isinstance(one, dict) or not isinstance(one.get("id"), int):
            return
        author, words, number = one.get("author_id"), str(one.get("note")), one["id"]
        self.notes.setdefault(number, written(number, words, author_id=author if isinstance(author, int) else None))
        self.members.setdefault(str(one.get("discussion_id")), []).append(number)

    def bot_threads(self, project: str, iid: int) -> list[Thread]:
        self._enter("bot_threads")
        return [found for found in self.threads.values() if found.notes[0].by_bot]

    def resolve(self, project: str, iid: int, discussion: str) -> None:
        self._enter("resolve")
        self.resolved.append(discussion)

    def access_level(self, project: str, user_id: int) -> int:
        self._enter("access_level")
        return self.levels.get(user_id, 0)

    def is_bot(self, user_id: int) -> bool:
        self._enter("is_bot")
        return user_id in self.bots

    def pipeline(self, project: str, pipeline_id: int) -> Pipeline:
        self._enter("pipeline")
        return Pipeline(pipeline_id, self.pipeline_sha, self.ref, "failed", "merge_request_event")

    def head(self, project: str, iid: int) -> MergeRequestHead:
        self._enter("head")
        return self.now

    def react(self, project: str, iid: int, emoji: str, *, note_id: int | None = None) -> None:
        self._enter("react")
        self.unhurried.wait(30)
        self.reactions.append((emoji, note_id))


class Desk:
    """One ingestor: hand events in with `see`, look at what it did."""

    def __init__(self, kube: FakeKube | None = None, forge: FakeForge | None = None, **changes: Any) -> None:
        self.kube = kube or FakeKube()
        self.forge = forge or FakeForge()
        self.metrics = IngestMetrics.on()
        self.time = 100.0
        seconds, lag = changes.pop("reaction_seconds", 3.0), 0.0
        config, workflows = configured(**changes)
        self.handler = Handler(
            config, workflows, self.forge, self.kube, NAMESPACE, self.metrics, None, lambda: self.time, seconds, lag
        )

    async def see(self, payload: dict[str, Any], kind: str = "", source: str = "gitlab") -> Outcome:
        self.forge.heard(payload)
        return await self.handler.handle(event(payload, kind, source))

    @property
    def runs(self) -> dict[str, Any]:
        return {run["metadata"]["name"]: run for run in self.kube.all(AGENT_RUNS)}

    @property
    def run(self) -> dict[str, Any]:
        (one,) = self.runs.values()
        return dict(one)

    def counted(self, reason: str, kind: str = "note") -> float:
        return float(self.metrics.events.labels("gitlab", kind, reason)._value.get())
