"""Who may ask the bot for something: members from Developer up, and no other bot unless it is named."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from hummingbird_operator.errors import NotFound
from hummingbird_operator.forges.members import DEVELOPER

if TYPE_CHECKING:
    from hummingbird_operator.ingest.runs import Comment

REMEMBERED_SECONDS = 60.0

_MOST_REMEMBERED = 10_000
_ACCESS_TOKEN = re.compile(r"(?:project|group)_\d+_bot(?:_\w+|\d*)")
"""User names that GitLab gives to the accounts of project and group access tokens."""


class Standing(Enum):
    """What an author is to us."""

    MEMBER = "member"
    STRANGER = "stranger"
    BOT = "bot"


class Registry(Protocol):
    """What is asked of GitLab, by blocking calls."""

    def access_level(self, project: str, user_id: int) -> int:
        """The person's level in the project, 0 for who is no active member."""

    def is_bot(self, user_id: int) -> bool:
        """Whether the account is a program's. Raises NotFound."""


class People:
    """Looks authors up. What lets somebody in is remembered for a minute; a no never, for whoever is let in asks again.

    Two bots that answer each other would never end (openai/codex#37964), so a bot is not even told that it may not.
    """

    def __init__(
        self,
        registry: Registry,
        ask: Callable[..., Awaitable[Any]],
        allowed_bots: Sequence[str],
        clock: Callable[[], float],
    ) -> None:
        """`ask` makes a blocking call; `allowed_bots` are user names; `clock` is monotonic seconds."""
        self._registry = registry
        self._ask = ask
        self._allowed = frozenset(allowed_bots)
        self._clock = clock
        self._members: dict[tuple[str, int], float] = {}

    async def standing(self, comment: Comment) -> Standing:
        """What the author of a comment is in its project. Raises what the look-ups raise."""
        author, name = comment.origin.author_id, comment.origin.author
        if author is None:
            return Standing.STRANGER
        who, now = (comment.origin.project, author), self._clock()
        if self._members.get(who, now) > now:
            return Standing.MEMBER
        if name not in self._allowed and await self._is_bot(author, name):
            return Standing.BOT
        if await self._ask(self._registry.access_level, *who) < DEVELOPER:
            return Standing.STRANGER
        if len(self._members) >= _MOST_REMEMBERED:
            self._members.clear()
        self._members[who] = now + REMEMBERED_SECONDS
        return Standing.MEMBER

    async def _is_bot(self, author: int, name: str) -> bool:
        if _ACCESS_TOKEN.fullmatch(name):
            return True
        try:
            return bool(await self._ask(self._registry.is_bot, author))
        except NotFound:  # deleted meanwhile: no member either
            return False
