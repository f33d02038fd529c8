"""Threads of a merge request: who wrote in them, which are the bot's, and resolving those."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from hummingbird_operator.delivery import markers
from hummingbird_operator.delivery.answers import RawDiscussion, RawNote, read
from hummingbird_operator.delivery.awards import when
from hummingbird_operator.delivery.connection import translated
from hummingbird_operator.delivery.reading import Reader, discussion_path, merge_request_path
from hummingbird_operator.errors import Invalid

PAGE = 20
"""Threads that are asked for at once: each may be long."""


@dataclass(frozen=True)
class ThreadNote:
    """One note in a thread. `author_id` is 0 where GitLab does not say it; `marker` only in what the bot wrote."""

    id: int
    author_id: int
    by_bot: bool
    marker: markers.Marker | None
    internal: bool
    system: bool


@dataclass(frozen=True)
class Thread:
    """A thread, or a plain note alone in one; `notes` by id. It is `internal` as its first note is.

    `resolved`: it can be resolved, and all of it is. `touched`: when somebody last wrote in it, resolved it or opened
    it again; None where GitLab does not say it.
    """

    discussion: str
    internal: bool
    resolvable: bool
    resolved: bool
    notes: tuple[ThreadNote, ...]
    touched: datetime | None = None


class Threads(Reader):
    """Reads threads, and resolves them."""

    def thread(self, project: str, iid: int, discussion: str) -> Thread:
        """One thread, without its texts. Raises NotFound, and TooLarge: GitLab gives a thread only as a whole."""
        bot = self.bot_id()
        with self._connection.turns.scope():
            answer = self._get(discussion_path(project, iid, discussion), f"a thread on {project}!{iid}")
            return _thread(read(RawDiscussion, answer), bot)

    def bot_threads(self, project: str, iid: int) -> list[Thread]:
        """The threads that the bot began, oldest first. Raises TooLarge."""
        bot = self.bot_id()
        with self._connection.turns.scope():
            threads = (_thread(raw, bot) for raw in self.discussions(project, iid))
            began = [thread for thread in threads if thread.notes and thread.notes[0].by_bot]
        return sorted((thread for thread in began if not thread.notes[0].system), key=lambda one: one.notes[0].id)

    def discussions(self, project: str, iid: int) -> Iterator[RawDiscussion]:
        """Every thread and plain note of a merge request, as GitLab lists them; only one page is held at a time."""
        path = f"{merge_request_path(project, iid)}/discussions"
        for raw in self._list(path, f"{project}!{iid}", page=PAGE):
            yield read(RawDiscussion, raw)

    def resolve(self, project: str, iid: int, discussion: str) -> None:
        """Resolve a thread. Safe to repeat; nothing happens to one that cannot be resolved, such as a plain note.

        Raises NotFound, and Forbidden without the Developer role.
        """
        try:
            with translated(f"resolving a thread on {project}!{iid}"):
                path = discussion_path(project, iid, discussion)
                self._connection.write.http_put(path, post_data={"resolved": True})
        except Invalid:
            # GitLab answers 403 also for a thread that nobody may resolve (lib/api/helpers/notes_helpers.rb).
            thread = self.thread(project, iid, discussion)
            if thread.resolvable and not thread.resolved:
                raise


def marker_of(note: RawNote, bot: int) -> markers.Marker | None:
    """The marker of a note that the bot wrote; GitLab's own notes in its name quote other people."""
    return markers.parse(note.body) if note.author and note.author.id == bot and not note.system else None


def _thread(raw: RawDiscussion, bot: int) -> Thread:
    ordered = sorted(raw.notes, key=lambda note: note.id)
    resolvable = [note for note in ordered if note.resolvable]
    return Thread(
        discussion=raw.id,
        internal=bool(ordered) and ordered[0].internal,
        resolvable=bool(resolvable),
        resolved=bool(resolvable) and all(note.resolved for note in resolvable),
        notes=tuple(_note(note, bot) for note in ordered),
        touched=_touched(ordered),
    )


def _touched(notes: Sequence[RawNote]) -> datetime | None:
    """Who opens a thread again moves `updated_at` of its notes; of the later ones a reaction moves it as often."""
    moments = [when(note.created_at) for note in notes] + [when(note.updated_at) for note in notes[:1]]
    return max(filter(None, moments), default=None)


def _note(raw: RawNote, bot: int) -> ThreadNote:
    author = raw.author.id if raw.author and raw.author.id else 0
    return ThreadNote(raw.id, author, author == bot, marker_of(raw, bot), raw.internal, raw.system)
