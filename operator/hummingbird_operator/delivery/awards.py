"""Reactions on a note, and whether its words were changed: GitLab moves one date for both."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hummingbird_operator.delivery.answers import RawAward, read
from hummingbird_operator.delivery.reading import Reader, merge_request_path

SAME = timedelta(seconds=1)
"""GitLab writes a reaction down, then moves the note's date."""


@dataclass(frozen=True)
class Award:
    """A reaction: GitLab's name of the emoji, whose it is, and when it was given; None where GitLab does not say it."""

    name: str
    by: int | None
    at: datetime | None


class Awards(Reader):
    """Reads only."""

    def awards(self, project: str, iid: int, note_id: int) -> list[Award]:
        """The reactions on a note. Raises NotFound."""
        path = f"{merge_request_path(project, iid)}/notes/{note_id}/award_emoji"
        rows = [read(RawAward, raw) for raw in self._list(path, f"reactions on note {note_id} of {project}!{iid}")]
        return [Award(row.name, row.user.id if row.user else None, when(row.created_at)) for row in rows]


def edited(created: datetime | None, updated: datetime | None, others: Iterable[datetime | None]) -> bool:
    """Whether a note's words were changed, as far as its dates tell.

    A reaction and a thread that is resolved move the date as well (`AwardEmoji#expire_cache`, `Note.resolve!`):
    `others` are the moments of those, and one of them explains it.
    """
    if updated is None or created is None:
        return True
    return updated != created and not any(other and abs(updated - other) <= SAME for other in others)


def when(text: str) -> datetime | None:
    """A moment in the API's form; None for anything else."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
