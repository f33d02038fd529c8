"""Notes on a merge request: create, find again, edit in place, delete, react.

A POST is never repeated. After a create that failed or got no clear answer the caller looks for its marker with `find`.
Endpoints and rules: GitLab's notes and discussions API (`lib/api/notes.rb`, `lib/api/discussions.rb`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from hummingbird_operator.delivery import markers
from hummingbird_operator.delivery.connection import READ_RETRIES, Connection, translated
from hummingbird_operator.errors import Invalid, NotFound, Unavailable
from hummingbird_operator.forges.gitlab import SERVICE, Token

MAXIMUM_CHARACTERS = 1_000_000
_GENERATED_REF = re.compile(r"refs/merge-requests/\d+/(?:merge|train)")


class InternalNoteRefused(Invalid):
    """GitLab dropped the `internal` flag: the note was public, and was deleted again."""


@dataclass(frozen=True)
class Note:
    """One note; `discussion` is None where GitLab does not say it (a plain note just made)."""

    id: int
    discussion: str | None
    url: str
    internal: bool
    body: str


@dataclass(frozen=True)
class MarkedNote:
    """A note of the bot with the marker that stands in it."""

    note: Note
    marker: markers.Marker


@dataclass(frozen=True)
class MergeRequestHead:
    """A merge request as it is now.

    `pipeline_status` is GitLab's word for the head pipeline, None when there is none or when it belongs to an older
    commit.
    """

    sha: str
    pipeline_status: str | None


class Notes:
    """The bot's pen on one GitLab. `url` is its address, `token` a token with scope api or a function that reads one.

    Every method raises `Unavailable` (try again later), `NotFound` (it is gone) or `Invalid` (a person must mend
    something, and its text says what). May be used from several threads. `check` is called right before each write
    and raises where this process may not make it.
    """

    def __init__(
        self,
        url: str,
        token: Token,
        *,
        ca: str | None = None,
        timeout: tuple[float, float] = (10.0, 60.0),
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._connection = Connection(url, token, ca=ca, timeout=timeout, check=check)
        self._bot_id: int | None = None

    def close(self) -> None:
        """Give the sockets back."""
        self._connection.close()

    def bot_id(self) -> int:
        """The id of the account that the token belongs to, asked once."""
        if self._bot_id is None:
            self._bot_id = int(self._get("/user", "the bot's account")["id"])
        return self._bot_id

    def head(self, project: str, iid: int) -> MergeRequestHead:
        """The merge request now: read it again before the answer is delivered."""
        raw = self._get(_path(project, iid), f"{project}!{iid}")
        return MergeRequestHead(
            sha=raw.get("sha") or "",
            pipeline_status=_pipeline_status(raw),
        )

    def marked(self, project: str, iid: int) -> list[MarkedNote]:
        """All notes of the bot that carry a marker, lowest id first."""
        bot, found = self.bot_id(), []
        for discussion in self._list(f"{_path(project, iid)}/discussions", f"{project}!{iid}"):
            for raw in discussion.get("notes", []):
                marker = markers.parse(raw.get("body") or "") if raw.get("author", {}).get("id") == bot else None
                if marker is not None:
                    found.append(MarkedNote(self._note(project, iid, raw, discussion.get("id")), marker))
        return sorted(found, key=lambda entry: entry.note.id)

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
        path = f"{_path(project, iid)}/notes"
        fields: dict[str, Any] = {"body": _checked(body)}
        if discussion is not None:
            path = f"{_path(project, iid)}/discussions/{quote(discussion, safe='')}/notes"
        elif internal:
            fields["internal"] = True
        with translated(what):
            answer = self._connection.write.http_post(path, post_data=fields)
        note = self._note(project, iid, _with_id(answer, what), discussion)
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
        path = f"{_path(project, iid)}/notes/{note_id}"
        if discussion is not None:
            path = f"{_path(project, iid)}/discussions/{quote(discussion, safe='')}/notes/{note_id}"
        with translated(what):
            answer = self._connection.write.http_put(path, post_data={"body": _checked(body)})
        if isinstance(answer, Mapping) and "id" not in answer and "commands_changes" in answer:
            raise NotFound(f"{what}: GitLab took the whole text as quick actions and destroyed the note")
        return self._note(project, iid, _with_id(answer, what), discussion)

    def delete(self, project: str, iid: int, note_id: int) -> None:
        """Delete a note; one that is gone already counts as deleted."""
        try:
            with translated(f"note {note_id} on {project}!{iid}"):
                self._connection.write.http_delete(f"{_path(project, iid)}/notes/{note_id}")
        except NotFound:
            return

    def react(self, project: str, iid: int, emoji: str, *, note_id: int | None = None) -> None:
        """Put an emoji (GitLab's name, such as eyes) on a note or the merge request; twice is once."""
        target = _path(project, iid) if note_id is None else f"{_path(project, iid)}/notes/{note_id}"
        try:
            with translated(f"a reaction on {project}!{iid}"):
                self._connection.write.http_post(f"{target}/award_emoji", post_data={"name": emoji})
        except NotFound as error:
            if "already been taken" not in str(error):
                raise

    def _withdraw(self, project: str, iid: int, note_id: int) -> None:
        """Take back a note that came out public; its text is harmless, so a failure does not hide the refusal."""
        try:
            self.delete(project, iid, note_id)
        except (Unavailable, Invalid):
            return

    def _get(self, path: str, what: str) -> Mapping[str, Any]:
        with translated(what):
            answer = self._connection.read.http_get(path, max_retries=READ_RETRIES)
        if not isinstance(answer, dict):
            raise Unavailable(SERVICE, "it answered with something other than JSON (a proxy or a sign-in page?)")
        return answer

    def _list(self, path: str, what: str) -> Iterator[Mapping[str, Any]]:
        """Follow next links to their end: a page may be short or empty without being the last."""
        with translated(what):
            yield from self._connection.read.http_list(path, iterator=True, per_page=100, max_retries=READ_RETRIES)

    def _note(self, project: str, iid: int, raw: Mapping[str, Any], discussion: str | None) -> Note:
        url = f"{self._connection.url}/{quote(project)}/-/merge_requests/{iid}#note_{raw['id']}"
        return Note(int(raw["id"]), discussion, url, bool(raw.get("internal")), raw.get("body") or "")


def _path(project: str, iid: int) -> str:
    return f"/projects/{quote(project, safe='')}/merge_requests/{iid}"


def _checked(body: str) -> str:
    if not body.strip():
        raise Invalid("the note's text", "it is empty")
    if len(body) > MAXIMUM_CHARACTERS:
        raise Invalid("the note's text", f"{len(body)} characters, GitLab takes {MAXIMUM_CHARACTERS}")
    return body


def _with_id(answer: object, what: str) -> Mapping[str, Any]:
    """The note in an answer. A 202 has none: GitLab took the text as quick actions and made no note."""
    if isinstance(answer, Mapping) and "id" in answer:
        return answer
    if isinstance(answer, Mapping) and "commands_changes" in answer:
        raise Invalid(what, "GitLab took the whole text as quick actions and made no note")
    raise Unavailable(SERVICE, "its answer to a write does not hold the note: look for the marker")


def _pipeline_status(raw: Mapping[str, Any]) -> str | None:
    """The head pipeline's status, unless it is an older commit's; generated merge refs have a SHA of their own."""
    pipeline = raw.get("head_pipeline")
    if not isinstance(pipeline, dict):
        return None
    current = pipeline.get("sha") == raw.get("sha") or _GENERATED_REF.fullmatch(str(pipeline.get("ref")))
    return str(pipeline["status"]) if current and pipeline.get("status") else None
