"""The prompt cache as Anthropic documents it: written at markers, read at most 19 blocks before one.

https://platform.claude.com/docs/en/build-with-claude/prompt-caching (2026-08). A token is four bytes. With a
marker present the service marks the results of its own web searches for five minutes, unasked; it does so for those
of the history here, while the real one begins inside the very answer that searches.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hummingbird_ai.serialise import encode
from hummingbird_ai.testing.claude.blocks import THINKING, Block, Conversation, block_bytes, is_said
from hummingbird_ai.testing.claude.models import Traits

BYTES_PER_TOKEN = 4
LOOKBACK = 20
_SECONDS = {"5m": 300.0, "1h": 3600.0}


@dataclass(frozen=True, slots=True)
class Counted:
    """The tokens of one prompt, in disjoint counts."""

    fresh: int
    read: int = 0
    written_5m: int = 0
    written_1h: int = 0

    @property
    def total(self) -> int:
        """The whole prompt."""
        return self.fresh + self.read + self.written_5m + self.written_1h


@dataclass(frozen=True, slots=True)
class _Step:
    """The prefix that ends with a block: its name, its size in tokens, and the marker on the block."""

    key: bytes
    tokens: int
    ttl: str


class PromptCache:
    """All entries of one server; `now` is in seconds, and an entry lives from the start of who wrote or read it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[bytes, tuple[float, str]] = {}

    def count(
        self, asked: Conversation, model: str, traits: Traits, now: float, dropped: Sequence[str] = ()
    ) -> Counted:
        """Read and write the entries of one request."""
        steps, size = _steps(asked.body, model, rendered(asked, traits, dropped))
        marked = [index for index, step in enumerate(steps) if step.ttl]
        with self._lock:
            hit = max((self._hit(steps, index, traits.cache_minimum, now) for index in marked), default=-1)
            boundary = read = steps[hit].tokens if hit >= 0 else 0
            written = {"5m": 0, "1h": 0}
            for index in marked:
                step = steps[index]
                if index > hit and step.tokens >= traits.cache_minimum:
                    self._entries[step.key] = (now + _SECONDS[step.ttl], step.ttl)
                    written[step.ttl] += step.tokens - boundary
                    boundary = step.tokens
        return Counted(_tokens(size) - boundary, read, written["5m"], written["1h"])

    def _hit(self, steps: Sequence[_Step], marker: int, minimum: int, now: float) -> int:
        """The last known prefix at a marker or up to 19 blocks before it, -1 without one; its life starts anew."""
        for index in range(marker, max(marker - LOOKBACK, -1), -1):
            step = steps[index]
            ends, ttl = self._entries.get(step.key, (now, ""))
            if ends > now and step.tokens >= minimum:
                self._entries[step.key] = (now + _SECONDS[ttl], ttl)
                return index
        return -1


def rendered(asked: Conversation, traits: Traits, dropped: Iterable[str] = ()) -> list[Block]:
    """The blocks that the model is shown: without cleared system messages, and old thoughts where they are stripped."""
    said = [message.index for message in asked.messages if is_said(message)] if traits.strips_thinking else []
    left_out = set(dropped)
    shown: list[Block] = []
    for block in asked.blocks:
        stripped = block.type in THINKING and bool(said) and block.message < said[-1]
        ignored = block.role == "system" and traits.system_messages == "ignored"
        if not (block.cleared or stripped or ignored or block.path in left_out):
            shown.append(block)
    return shown


def prompt_tokens(blocks: Iterable[Block]) -> int:
    """The size of a whole prompt."""
    return _tokens(sum(len(block_bytes(block)) for block in blocks))


def _tokens(size: int) -> int:
    """Of a whole prompt; the last token is never cached."""
    return size // BYTES_PER_TOKEN + 1


def _steps(body: Mapping[str, Any], model: str, blocks: Sequence[Block]) -> tuple[list[_Step], int]:
    """Every prefix, and the size of the longest in bytes.

    How Claude is to think and to choose tools goes into the prefixes that reach into the messages.
    """
    prefix = hashlib.sha256(model.encode())
    manner = encode([body.get("tool_choice"), body.get("thinking"), (body.get("output_config") or {}).get("effort")])
    size = 0
    in_messages = False
    marks_searches = any(block.marker is not None for block in blocks)
    steps: list[_Step] = []
    for block in blocks:
        if block.message >= 0 and not in_messages:
            in_messages = True
            prefix.update(manner)
        data = block_bytes(block)
        prefix.update(data)
        size += len(data)
        ttl = "5m" if marks_searches and block.type == "web_search_tool_result" else ""
        if block.marker is not None:
            ttl = block.marker.get("ttl") or "5m"
        steps.append(_Step(prefix.digest(), size // BYTES_PER_TOKEN, ttl))
    return steps, size
