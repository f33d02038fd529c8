"""Notes on a merge request: create, find again, edit in place, delete, react.

A POST is never repeated. After a create that failed or got no clear answer the caller looks for its marker with `find`.
Endpoints and rules: GitLab's notes and discussions API (`lib/api/notes.rb`, `lib/api/discussions.rb`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from hummingbird_operator.delivery import markers
from hummingbird_operator.delivery.answers import NOT_GITLAB, RawAward, RawNote, read
from hummingbird_operator.delivery.connection import translated
from hummingbird_operator.delivery.lookups import Lookups, MergeRequestHead, Pipeline
from hummingbird_operator.delivery.reading import discussion_path, merge_request_path
from hummingbird_operator.delivery.refusals import Forbidden, InternalNoteRefused, Refused, TooLong
from hummingbird_operator.delivery.threads import Thread, ThreadNote, Threads, marker_of
from hummingbird_operator.errors import Invalid, NotFound, Unavailable
from hummingbird_operator.forges.gitlab import SERVICE

__all__ = [
    "MAXIMUM_CHARACTERS",
    "Forbidden",
    "InternalNoteRefused",
    "MarkedNote",
    "MergeRequestHead",
    "Note",
    "Notes",
    "Pipeline",
    "Refused",
    "Thread",
    "ThreadNote",
    "TooLong",
]

MAXIMUM_CHARACTERS = 1_000_000
GONE = 204


@dataclass(frozen=True)
class Note:
    """One note; `discussion` is None where GitLab does not say it (a plain note just made).

    `body` is what a write left there; of a note that was only found it is empty: many long ones need not be kept.
    """

    id: int
    discussion: str | None
    url: str
    internal: bool
    body: str = ""


@dataclass(frozen=True)
class MarkedNote:
    """A note of the bot with the marker that stands in it."""

    note: Note
    marker: markers.Marker


class Notes(Threads, Lookups):
    """The bot's pen on one GitLab. `url` is its address, `token` a token with scope api or a function that reads one.

    Every method raises `Unavailable` (try again later), `NotFound` (it is gone) or `Invalid` (a person must mend
    something, and its text says what; `Forbidden` where it is the bot's role). May be used from several threads.
    `check` is called right before each write and raises where this process may not make it.
    """

    def marked(self, project: str, iid: int) -> list[MarkedNote]:
        """All notes of the bot that carry a marker, lowest id first, without their texts."""
        bot = self.bot_id()
        found = [
            MarkedNote(self._note(project, iid, raw, discussion.id), marker)
            for discussion in self.discussions(project, iid)
            for raw in discussion.notes
            if (marker := marker_of(raw, bot)) is not None
        ]
        return sorted(found, key=lambda entry: entry.note.id)

    def one(self, project: str, iid: int, note_id: int) -> MarkedNote | None:
        """One note of the bot, without the others being listed; None where it is gone, or says nothing of itself."""
        path = f"{merge_request_path(project, iid)}/notes/{note_id}"
        try:
            raw = read(RawNote, self._get(path, f"note {note_id} on {project}!{iid}"))
        except NotFound:
            return None
        marker = marker_of(raw, self.bot_id())
        return MarkedNote(self._note(project, iid, raw, None), marker) if marker is not None else None

    def find(self, project: str, iid: int, *, run: str | None = None, key: str | None = None) -> list[Note]:
        """The bot's notes whose marker names this run's uid or this key, lowest id first."""
        return [
            entry.note
            for entry in self.marked(project, iid)
            if (run is not None and entry.marker.run == run) or (key is not None and entry.marker.key == key)
        ]

    def create(self, project: str, iid: int, body: str, *, internal: bool, discussion: str | None = None) -> Note:
        """Post a note: plain, or as a reply in `discussion` (which then decides alone whether it is internal).

        Raises `InternalNoteRefused` when `internal` was asked for and GitLab made a public note, which is deleted.
        """
        what = f"a note on {project}!{iid}"
        path = f"{merge_request_path(project, iid)}/notes"
        fields: dict[str, Any] = {"body": _checked(body)}
        if discussion is not None:
            path = f"{discussion_path(project, iid, discussion)}/notes"
        elif internal:
            fields["internal"] = True
        with translated(what, writing=True):
            answer = self._connection.write.http_post(path, post_data=fields)
        note = self._written(project, iid, _with_id(answer, what), discussion)
        if internal and not note.internal:
            self._withdraw(project, iid, note.id)
            raise InternalNoteRefused(
                what,
                "GitLab made the note public: an internal one needs the Reporter role, and no public thread",
            )
        return note

    def update(self, project: str, iid: int, note_id: int, body: str, discussion: str | None = None) -> Note:
        """Replace a note's text. `NotFound` when it is gone, also when GitLab destroyed it over this very update."""
        what = f"note {note_id} on {project}!{iid}"
        path = f"{merge_request_path(project, iid)}/notes/{note_id}"
        if discussion is not None:
            path = f"{discussion_path(project, iid, discussion)}/notes/{note_id}"
        with translated(what):
            answer = self._connection.write.http_put(path, post_data={"body": _checked(body)})
        if isinstance(answer, Mapping) and "id" not in answer and "commands_changes" in answer:
            raise NotFound(f"{what}: GitLab took the whole text as quick actions and destroyed the note")
        return self._written(project, iid, _with_id(answer, what), discussion)

    def delete(self, project: str, iid: int, note_id: int) -> None:
        """Delete a note; one that is gone already counts as deleted."""
        try:
            with translated(f"note {note_id} on {project}!{iid}"):
                answer = self._connection.write.http_delete(f"{merge_request_path(project, iid)}/notes/{note_id}")
        except NotFound:
            return
        if answer.status_code != GONE:
            raise Unavailable(SERVICE, NOT_GITLAB)

    def react(self, project: str, iid: int, emoji: str, *, note_id: int | None = None) -> None:
        """Put an emoji (GitLab's name, such as eyes) on a note or the merge request; twice is once."""
        target = merge_request_path(project, iid) + (f"/notes/{note_id}" if note_id is not None else "")
        try:
            with translated(f"a reaction on {project}!{iid}"):
                answer = self._connection.write.http_post(f"{target}/award_emoji", post_data={"name": emoji})
            read(RawAward, answer)
        except NotFound as error:
            if "already been taken" not in str(error):
                raise

    def _withdraw(self, project: str, iid: int, note_id: int) -> None:
        """Take back a note that came out public; its text is harmless, so a failure does not hide the refusal."""
        try:
            self.delete(project, iid, note_id)
        except (Unavailable, Invalid):
            return

    def _note(self, project: str, iid: int, raw: RawNote, discussion: str | None) -> Note:
        url = f"{self._connection.url}/{quote(project)}/-/merge_requests/{iid}#note_{raw.id}"
        return Note(raw.id, discussion, url, raw.internal)

    def _written(self, project: str, iid: int, raw: RawNote, discussion: str | None) -> Note:
        return replace(self._note(project, iid, raw, discussion), body=raw.body)


def _checked(body: str) -> str:
    if not body.strip():
        raise Invalid("the note's text", "it is empty")
    if len(body) > MAXIMUM_CHARACTERS:
        raise TooLong("the note's text", f"{len(body)} characters, GitLab takes {MAXIMUM_CHARACTERS}")
    return body


def _with_id(answer: object, what: str) -> RawNote:
    """The note in an answer. A 202 has none: GitLab took the text as quick actions and made no note."""
    if isinstance(answer, Mapping) and "id" in answer:
        return read(RawNote, answer)
    if isinstance(answer, Mapping) and "commands_changes" in answer:
        raise Invalid(what, "GitLab took the whole text as quick actions and made no note")
    raise Unavailable(SERVICE, "its answer to a write does not hold the note: look for the marker")
