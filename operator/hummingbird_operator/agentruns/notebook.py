"""What the steps need of a forge: Protocols of a few methods, and the thread that every call goes through."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from hummingbird_operator.agentruns.gate import Mark
    from hummingbird_operator.agentruns.resolve import Order
    from hummingbird_operator.agentruns.work import Conversation
    from hummingbird_operator.api.agentrun import AgentRun, GitLabTarget, NoteStatus
    from hummingbird_operator.errors import Invalid

T = TypeVar("T")


class Head(Protocol):
    """A merge request as it is now."""

    @property
    def sha(self) -> str:
        """Its head commit."""

    @property
    def pipeline_status(self) -> str | None:
        """GitLab's word for the head pipeline."""

    @property
    def state(self) -> str:
        """GitLab's word for the merge request: opened, closed, merged or locked."""

    @property
    def draft(self) -> bool:
        """Whether it is a draft."""


class Note(Protocol):
    """A note as the forge has it."""

    @property
    def id(self) -> int:
        """Its number."""

    @property
    def discussion(self) -> str | None:
        """Its thread."""

    @property
    def url(self) -> str:
        """Its address."""

    @property
    def internal(self) -> bool:
        """Whether only members see it."""


class Marked(Protocol):
    """A note of the bot, and what it says of itself."""

    @property
    def note(self) -> Note:
        """The note."""

    @property
    def marker(self) -> Mark:
        """Its marker."""


class Forge(Protocol):
    """The bot's pen; synchronous, called in threads."""

    def head(self, project: str, iid: int) -> Head:
        """The merge request. Raises NotFound."""

    def find(self, project: str, iid: int, *, run: str | None = None, key: str | None = None) -> Sequence[Note]:
        """The bot's notes with that run in their marker, lowest id first."""

    def one(self, project: str, iid: int, note_id: int) -> Marked | None:
        """One note of the bot; None where it is gone, or has no marker."""

    def marked(self, project: str, iid: int) -> Sequence[Marked]:
        """All of the bot's notes that carry a marker, lowest id first."""

    def react(self, project: str, iid: int, emoji: str, *, note_id: int | None = None) -> None:
        """Put an emoji on a note; twice is once."""

    def create(self, project: str, iid: int, body: str, *, internal: bool, discussion: str | None = None) -> Note:
        """Post. An internal note that came out public raises Invalid and is taken back."""

    def update(self, project: str, iid: int, note_id: int, body: str, discussion: str | None = None) -> Note:
        """Edit in place. Raises NotFound when the note is gone."""

    def delete(self, project: str, iid: int, note_id: int) -> None:
        """Take back. Safe to repeat."""


class Pages(Protocol):
    """Renders the bodies of a run's note, inert and with its marker."""

    def orphan(self, run: AgentRun, order: Order | Invalid) -> str:
        """What is known of a run whose order cannot be resolved any more, or that ended before it had a note."""

    def placeholder(self, run: AgentRun, order: Order) -> str:
        """What stands there while the agent works; of a notice, all that there is to say."""

    def outcome(self, run: AgentRun, order: Order, said: Conversation | None, head: Head, *, prompt: bool) -> str:
        """The answer, or why there is none; `prompt` invites a reply."""

    def short(self, run: AgentRun, order: Order, said: Conversation | None, head: Head) -> str:
        """The outcome where the whole of it is refused as too long."""


class Notebook:
    """Forge calls of the steps, each in a thread."""

    def __init__(self, forge: Forge, executor: Executor) -> None:
        self._forge = forge
        self._executor = executor

    async def head(self, target: GitLabTarget) -> Head:
        """The merge request now."""
        return await self._call(lambda: self._forge.head(target.project, target.merge_request))

    async def find(self, target: GitLabTarget, run: str) -> Sequence[Note]:
        """The notes of that run, lowest id first."""
        return await self._call(lambda: self._forge.find(target.project, target.merge_request, run=run))

    async def one(self, target: GitLabTarget, note_id: int) -> Marked | None:
        """One note, without the others being listed."""
        return await self._call(lambda: self._forge.one(target.project, target.merge_request, note_id))

    async def marked(self, target: GitLabTarget) -> Sequence[Marked]:
        """All of the bot's notes with a marker, lowest id first."""
        return await self._call(lambda: self._forge.marked(target.project, target.merge_request))

    async def react(self, target: GitLabTarget, note_id: int, emoji: str) -> None:
        """Put an emoji on somebody's note."""
        await self._call(lambda: self._forge.react(target.project, target.merge_request, emoji, note_id=note_id))

    async def create(self, target: GitLabTarget, body: str, *, internal: bool, discussion: str | None) -> Note:
        """Post a note."""
        return await self._call(
            lambda: self._forge.create(
                target.project, target.merge_request, body, internal=internal, discussion=discussion
            )
        )

    async def update(self, target: GitLabTarget, note: NoteStatus, body: str) -> Note:
        """Edit a note in place."""
        number = note.id or 0
        return await self._call(
            lambda: self._forge.update(target.project, target.merge_request, number, body, note.discussion)
        )

    async def delete(self, target: GitLabTarget, note_id: int) -> None:
        """Take a note back."""
        await self._call(lambda: self._forge.delete(target.project, target.merge_request, note_id))

    async def _call(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)
