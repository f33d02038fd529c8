"""Where the prompt cache is written and read: `cache_control` on copies of blocks, never in the history.

An entry is written only at a mark, and read at a mark or up to 19 blocks before it. Two marks slide along the
messages: B2 writes the newest stable prefix, B1 reads the one that the last request wrote (seed 002, T1 to T5). A
third stands on the system prompt, so that a new conversation finds what another one with the same prompt and tools
has written. Four are allowed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MARK = {"type": "ephemeral"}
_MARKABLE = frozenset({"text", "tool_use", "tool_result", "server_tool_use", "image", "document"})
Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Marked:
    """The messages of one request; `written` is the index of the message whose prefix is in the cache afterwards."""

    messages: list[dict[str, Any]]
    written: int | None


def mark(messages: Sequence[Message], *, stable: int, previous: int | None) -> Marked:
    """Put B2 on the message `stable` and B1 on `previous`.

    `stable` is the last message that the next request will repeat, -1 if there is none; `previous` what the last
    request wrote, None when nobody remembers: then the user message before the stable one is the best guess. Without a
    block that may be marked a message gets none, and nothing moves.
    """
    marked = [dict(message) for message in messages]
    if previous is None:
        previous = _user_before(messages, stable)
    wrote = stable >= 0 and _mark_last_block(marked[stable])
    if previous is not None and 0 <= previous < (stable if wrote else len(marked)):
        _mark_last_block(marked[previous])
    return Marked(marked, stable if wrote else previous)


def mark_system(text: str) -> list[dict[str, Any]]:
    """The system prompt as the block list that can carry a mark."""
    return [{"type": "text", "text": text, "cache_control": dict(MARK)}]


def _user_before(messages: Sequence[Message], stable: int) -> int | None:
    return next((index for index in range(stable - 1, -1, -1) if messages[index]["role"] == "user"), None)


def _mark_last_block(message: dict[str, Any]) -> bool:
    """Thinking blocks and blank text cannot carry a mark; one that stands further ahead in the message can."""
    if message["role"] == "system":
        return False
    blocks = list(message["content"])
    for index in range(len(blocks) - 1, -1, -1):
        if blocks[index]["type"] in _MARKABLE and blocks[index].get("text", "x").strip():
            blocks[index] = {**blocks[index], "cache_control": dict(MARK)}
            message["content"] = blocks
            return True
    return False
