"""What all acts of the evening share: what is drawn, what was done, and a look at what stands in GitLab."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.e2e.evening.acts import Act, Happening, Mr, Pipe, Place, actor, marker
from tests.e2e.evening.cast import BOT
from tests.standins.gitlab import GitLabStandIn
from tests.standins.gitlab.records import MergeRequest, Note

Verb = Callable[[], Act | None]


class Crowd:
    """People and their record. One thread acts; the bot acts meanwhile through GitLab's API."""

    def __init__(self, gitlab: GitLabStandIn, seed: int) -> None:
        self._gitlab = gitlab
        self._people = gitlab.people
        self._draw = random.Random(seed)  # noqa: S311 - reproducible, not secret
        self._seed = seed
        self._number = 0
        self._mrs: dict[Place, Mr] = {}
        self._notes: list[tuple[Place, str, int]] = []
        """People's own: where, by whom, which."""
        self._pipes: list[tuple[Place, Pipe]] = []
        self._shas = 0
        self._tokens = 0
        self._acts: dict[int, Act] = {}
        """By position in GitLab's log of events."""
        self._burst: list[tuple[Place, str]] = []
        """Replies that follow at once: where, in which thread."""
        self.done: Counter[str] = Counter()
        self.events = 0
        """Events that people caused."""

    def _next(self) -> None:
        """Each act draws by itself: one for which there is no occasion this time changes none of the later ones."""
        self._number += 1
        self._draw = random.Random(f"{self._seed} {self._number}")  # noqa: S311

    def story(self) -> list[Happening]:
        """GitLab's events so far, with the acts that caused them."""
        log = self._gitlab.events
        return [Happening(event.kind, event.payload, self._acts.get(number)) for number, event in enumerate(log)]

    def _record(self, verb: Callable[[], Act | None]) -> None:
        before = len(self._gitlab.state.events.log)
        act = verb()
        if act is None:
            return
        if act.mr is not None:
            self._mrs[act.mr.place] = act.mr
        self.done[act.verb] += 1
        log = self._gitlab.events
        mine = [number for number in range(before, len(log)) if actor(log[number].payload) != BOT]
        self._acts |= dict.fromkeys(mine, act)
        self.events += len(mine)

    def _any(self) -> Mr:
        """Any, the first ones more often: on them runs wait for each other."""
        mrs = list(self._mrs.values())
        weights = [
            (3 if number < 3 else 1) * (3 if mr.open else 1) * (1 if mr.draft else 2) for number, mr in enumerate(mrs)
        ]
        return self._draw.choices(mrs, weights)[0]

    def _sha(self) -> str:
        self._shas += 1
        return hashlib.sha1(f"{self._seed} {self._shas}".encode(), usedforsecurity=False).hexdigest()

    def _token(self) -> str:
        self._tokens += 1
        return f"q-{self._tokens}"

    def _standing(self, place: Place) -> list[Note]:
        with self._gitlab.state.lock:
            return [note for note in self._record_of(place).notes.values() if not note.system]

    def _session(self, place: Place, reply: Note) -> tuple[str, str]:
        """Session and workflow of the bot's nearest note before the reply, in its thread."""
        thread = [note for note in self._standing(place) if note.discussion_id == reply.discussion_id]
        for note in sorted(thread, key=lambda each: each.id, reverse=True):
            said = marker(note.body) if note.author.username == BOT and note.id < reply.id else {}
            if "id" in said:
                return said["id"], said["wf"]
        return "", ""

    def _record_of(self, place: Place) -> MergeRequest:
        project = self._gitlab.state.project(place[0])
        assert project is not None
        return project.merge_requests[place[1]]

    def _seen(self, project: str, made: MergeRequest) -> Mr:
        fields: dict[str, Any] = made.fields
        return Mr(
            project,
            made.iid,
            fields["author"]["username"],
            fields["sha"],
            fields["title"],
            fields["source_branch"],
            fields["state"],
            fields["draft"],
            made.is_fork,
        )
