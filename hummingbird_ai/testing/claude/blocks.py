"""A request as one row of blocks: tools, system, messages; the order of thinking's prefix and of the prompt cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hummingbird_ai.serialise import to_json

THINKING = ("thinking", "redacted_thinking")
WEB_SEARCH = "web_search_20250305"


@dataclass(frozen=True, slots=True)
class Block:
    """One block at its place; `data` is without its cache marker, `role` is "tools", "top" or a message's."""

    path: str
    role: str
    data: Mapping[str, Any]
    marker: Mapping[str, Any] | None = None
    message: int = -1
    cleared: bool = False
    """It stands in a system message that is no longer shown to the model."""

    @property
    def type(self) -> str:
        """The block's type; "" for a tool of one's own."""
        return str(self.data.get("type", ""))

    @property
    def is_blank(self) -> bool:
        """Text that says nothing and cites nothing."""
        return self.type == "text" and not self.data["text"].strip() and not self.data.get("citations")


@dataclass(frozen=True, slots=True)
class Message:
    """One message with its blocks."""

    index: int
    role: str
    blocks: tuple[Block, ...]
    clears: bool = False
    """A system message that is shown until the next user message only."""

    def of_type(self, *kinds: str) -> list[Block]:
        """The blocks of these types."""
        return [block for block in self.blocks if block.type in kinds]

    @property
    def path(self) -> str:
        """As error messages write it."""
        return f"messages.{self.index}"


@dataclass(frozen=True, slots=True)
class Conversation:
    """A well-shaped body, its messages, and all its blocks in the order in which Claude reads them."""

    body: Mapping[str, Any]
    messages: tuple[Message, ...]
    blocks: tuple[Block, ...]

    @property
    def thinking(self) -> Mapping[str, Any]:
        """The parameter, {} without it."""
        return self.body.get("thinking") or {}

    @property
    def lists_web_search(self) -> bool:
        """Whether Claude may search the web."""
        return any(tool.get("type") == WEB_SEARCH for tool in self.body.get("tools") or [])


def read(body: Mapping[str, Any]) -> Conversation:
    """Take a well-shaped body apart; string content is one text block."""
    ahead = [_block(f"tools.{index}", "tools", tool) for index, tool in enumerate(body.get("tools") or [])]
    ahead += [_block(f"system.{index}", "top", item) for index, item in enumerate(_listed(body.get("system") or []))]
    sent: Sequence[Mapping[str, Any]] = body["messages"]
    last_user = max((index for index, message in enumerate(sent) if message["role"] == "user"), default=-1)
    messages = tuple(_message(index, message, index < last_user) for index, message in enumerate(sent))
    return Conversation(body, messages, (*ahead, *(block for message in messages for block in message.blocks)))


def _message(index: int, message: Mapping[str, Any], before_user: bool) -> Message:
    clears = message.get("clear_at") == "next_user_message"
    blocks = [
        _block(f"messages.{index}.content.{number}", message["role"], item, index, clears and before_user)
        for number, item in enumerate(_listed(message["content"]))
    ]
    return Message(index, message["role"], tuple(blocks), clears)


def _block(path: str, role: str, item: Mapping[str, Any], message: int = -1, cleared: bool = False) -> Block:
    data = {key: value for key, value in item.items() if key != "cache_control"}
    return Block(path, role, data, item.get("cache_control"), message, cleared)


def _listed(content: Any) -> Sequence[Mapping[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def is_said(message: Message) -> bool:
    """Whether a user says something in it that is no tool's result."""
    return message.role == "user" and any(block.type != "tool_result" for block in message.blocks)


def latest_answer(sent: Sequence[Message]) -> frozenset[int]:
    """The indices of the last assistant turn, which may stand in several messages."""
    indices: list[int] = []
    for message in reversed(sent):
        if message.role == "assistant":
            indices.append(message.index)
        elif indices:
            break
    return frozenset(indices)


def owed_searches(sent: Sequence[Message]) -> list[str]:
    """The ids of searches that were asked for and whose results do not stand in the messages yet."""
    open_ids: list[str] = []
    for message in sent:
        for block in message.blocks:
            if block.type == "server_tool_use":
                open_ids.append(block.data["id"])
            elif block.type == "web_search_tool_result" and block.data["tool_use_id"] in open_ids:
                open_ids.remove(block.data["tool_use_id"])
    return open_ids


def block_bytes(block: Block) -> bytes:
    """What stands for the block in a prefix; the order of keys counts."""
    return to_json([block.role, block.data]).encode()
