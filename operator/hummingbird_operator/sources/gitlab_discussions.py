"""The discussions of a merge request for the model, behind the trust gate (seed 000 §9.1).

A thread is kept when somebody trusted wrote in it; what others wrote there stands as a fixed text. Notes of ours lose
what only the machine needs. Internal notes are shown only where this run's own note is internal, since an answer may
quote them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hummingbird_operator.errors import Invalid, NotFound, Unavailable
from hummingbird_operator.forges.notes import has_marker, without_our_parts
from hummingbird_operator.sessions.tools import SourceResult, StreamingResponse
from hummingbird_operator.sources.connection import Reader, opened
from hummingbird_operator.sources.gitlab_scope import Scope, at
from hummingbird_operator.sources.gitlab_trust import Authors, harmless_system_note

REDACTED = "[redacted: non-member comment]"
"""Stands for a note whose author is not trusted (the words of seed 000 §9.1)."""

Bot = int | Callable[[], int] | None
"""The user id of the account that writes notes, what finds it out (it may raise a HummingbirdError), or unknown."""


def _utc_today() -> date:
    return datetime.now(UTC).date()


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class _Author(_Row):
    id: int
    username: str


class _Position(_Row):
    """Where in the diff a DiffNote stands; lines are missing for comments on files and images."""

    old_path: str | None = None
    new_path: str | None = None
    old_line: int | None = None
    new_line: int | None = None


class _Note(_Row):
    """A note of `GET …/discussions`. `confidential` is the older name of `internal`."""

    id: int
    author: _Author | None = None
    body: str = ""
    created_at: str
    system: bool
    internal: bool | None = None
    confidential: bool | None = None
    resolvable: bool | None = None
    resolved: bool | None = None
    position: _Position | None = None

    @property
    def is_internal(self) -> bool:
        return bool(self.internal or self.confidential)


class _Thread(_Row):
    id: str
    notes: list[_Note] = Field(default_factory=list)


@dataclass(frozen=True)
class _Seen:
    """A note after the gate: `body` None where it must be withheld."""

    note: _Note
    trusted: bool
    own: bool
    body: str | None

    def shown(self) -> dict[str, Any]:
        """For the model. A user name is a text that its bearer chose, so an untrusted author has none."""
        shown: dict[str, Any] = {
            "id": self.note.id,
            "author": self.note.author.username if self.trusted and self.note.author else None,
            "created_at": self.note.created_at,
            "body": REDACTED if self.body is None else self.body,
            "trusted": self.trusted,
        }
        flags = {"own": self.own, "system": self.note.system, "internal": self.note.is_internal}
        return shown | {name: True for name, value in flags.items() if value}


class Discussions:
    """The tool about what people, and we, said on a merge request."""

    def __init__(
        self, reader: Reader, scope: Scope, *, internal: bool, bot: Bot, today: Callable[[], date] = _utc_today
    ) -> None:
        self._reader = reader
        self._scope = scope
        self._internal = internal
        self._bot = bot
        self._today = today

    def mr_discussions(self, iid: int | None = None, project: str | None = None) -> SourceResult:
        """JSON Lines, one thread each, oldest first; counts of what was withheld beside them."""
        own, number = self._scope.own(project), self._scope.number(iid)
        rows = self._reader.rows(f"{at(own)}/merge_requests/{number}/discussions", f"the discussions of {own}!{number}")
        gate = _Gate(Authors(self._reader, own, self._today()), self._bot_id(), self._internal)
        metadata: dict[str, Any] = {"threads": 0, "untrusted_threads_left_out": 0, "redacted_notes": 0}
        metadata["incomplete"] = []
        return StreamingResponse(opened(_lines(rows, gate, metadata)), ".jsonl", metadata=metadata)

    def _bot_id(self) -> int | None:
        """Unknown where it cannot be read: the id only decides what is cut out of trusted notes, never who is."""
        try:
            return self._bot() if callable(self._bot) else self._bot
        except (Invalid, NotFound, Unavailable):
            return None


@dataclass(frozen=True)
class _Gate:
    authors: Authors
    bot: int | None
    internal: bool

    def pass_through(self, thread: _Thread) -> list[_Seen]:
        """The notes of a thread, judged; internal ones are gone where this run may not use them.

        A thread is internal as its first note is, whatever its replies say of themselves.
        """
        if not self.internal and thread.notes and min(thread.notes, key=lambda note: note.id).is_internal:
            return []
        return [self._judged(note) for note in thread.notes if self.internal or not note.is_internal]

    def _judged(self, note: _Note) -> _Seen:
        author = note.author.id if note.author else None
        trusted = author is not None and self.authors.trusted(author)
        if note.system:
            return _Seen(note, trusted, False, harmless_system_note(note.body))
        if not trusted:
            return _Seen(note, False, False, None)
        own = author == self.bot
        # with the bot's id unknown the marker has to do: it only takes text away from a note that is trusted anyway
        ours = own or (self.bot is None and has_marker(note.body))
        return _Seen(note, True, own, without_our_parts(note.body) if ours else note.body)


def _lines(rows: Iterator[Mapping[str, Any]], gate: _Gate, metadata: dict[str, Any]) -> Iterator[bytes]:
    """Fills `metadata` on the way. A first page that fails is raised, a later one is said under `incomplete`."""
    incomplete: list[str] = metadata["incomplete"]
    read = unreadable = 0
    try:
        for row in rows:
            read += 1
            try:
                thread = _Thread.model_validate(row)
            except ValidationError:
                unreadable += 1
                continue
            yield from _line(thread, gate.pass_through(thread), metadata)
    except (Unavailable, NotFound, Invalid) as error:
        if not read:
            raise
        incomplete.append(f"only the first {read} threads were read: {error}")
    if unreadable:
        incomplete.append(f"{unreadable} threads were left out: GitLab's answer is not understood")
    incomplete += gate.authors.doubts()


def _line(thread: _Thread, seen: list[_Seen], metadata: dict[str, Any]) -> Iterator[bytes]:
    if not seen:
        return
    if not _is_kept(seen):
        metadata["untrusted_threads_left_out"] += 1
        return
    metadata["threads"] += 1
    metadata["redacted_notes"] += sum(note.body is None for note in seen)
    resolvable = [note.note for note in seen if note.note.resolvable]
    shown = {
        "id": thread.id,
        "resolved": all(note.resolved for note in resolvable) if resolvable else None,
        **_place(seen),
        "notes": [note.shown() for note in seen],
    }
    yield json.dumps(shown, ensure_ascii=False).encode(errors="replace") + b"\n"


def _is_kept(seen: list[_Seen]) -> bool:
    """Somebody trusted said something. A thread of GitLab's own sentences only is kept for those that are harmless."""
    people = [note for note in seen if not note.note.system]
    return any(note.trusted for note in people) if people else any(note.body is not None for note in seen)


def _place(seen: list[_Seen]) -> dict[str, Any]:
    """File and line of a thread on the diff, taken from a trusted note: a path is a text too."""
    positions = (note.note.position for note in seen if note.trusted and not note.note.system)
    position = next((position for position in positions if position is not None), None)
    if position is None:
        return {}
    if position.new_line is None and position.old_line is not None:
        return {"file": position.old_path, "old_line": position.old_line}  # the line exists only before the change
    place = {"file": position.new_path or position.old_path, "line": position.new_line}
    return {name: value for name, value in place.items() if value is not None}
