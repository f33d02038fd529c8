"""What the ingestors ask of GitLab."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from hummingbird_operator.delivery.lookups import MergeRequestHead, Pipeline, Said
    from hummingbird_operator.delivery.threads import Thread


class Forge(Protocol):
    """What is asked of GitLab, by blocking calls: `delivery.notes.Notes`.

    Each raises Unavailable (again later), NotFound, or Invalid (the bot lacks a right).
    """

    def probe(self) -> None:
        """Ask for the bot's account, now and once."""

    def bot_id(self) -> int:
        """The bot's own account."""

    def host(self) -> str:
        """The name that GitLab gives itself; empty where it says none."""

    def said(self, project: str, iid: int, note_id: int) -> Said:
        """One note as it is now."""

    def thread(self, project: str, iid: int, discussion: str) -> Thread:
        """One thread with all its notes."""

    def bot_threads(self, project: str, iid: int) -> Sequence[Thread]:
        """The threads that the bot began."""

    def resolve(self, project: str, iid: int, discussion: str) -> None:
        """Mark a thread as resolved; safe to repeat."""

    def access_level(self, project: str, user_id: int) -> int:
        """The person's level in the project, 0 for who is no active member."""

    def is_bot(self, user_id: int) -> bool:
        """Whether the account is a program's."""

    def pipeline(self, project: str, pipeline_id: int) -> Pipeline:
        """One pipeline."""

    def head(self, project: str, iid: int) -> MergeRequestHead:
        """The merge request now."""

    def react(self, project: str, iid: int, emoji: str, *, note_id: int | None = None) -> None:
        """Put an emoji on a note."""
