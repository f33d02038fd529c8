"""From a history to the messages of one request, by rules that give the same messages again in every later one.

Newer models bind their thinking to everything that stood before it, so nothing may be taken back: whatever this
module adds to a history (a warning, the word that stands between two turns of the model) it adds again for ever. What
cannot be seen from the history itself is remembered in the assistant's content, under `request`:

    before              the entries that stood between the user's turn and this one
    cached_to           the index of the message whose prefix the request wrote into the cache
    thinking_left_out   true: every thinking block before this content was left out, and stays out
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from hummingbird_ai.canonical import NO_RESULT, NO_START
from hummingbird_ai.errors import BadRequest
from hummingbird_ai.messages import Content
from hummingbird_ai.providers import given
from hummingbird_ai.providers.claude.blocks import THINKING, Block, result_block
from hummingbird_ai.providers.claude.traits import Ephemeral
from hummingbird_ai.serialise import clean

_log = logging.getLogger(__name__)
_CONTINUE = "Continue."


@dataclass(frozen=True, slots=True)
class Draft:
    """The messages without marks; `stable` and `previous` are for `caching.mark`, `notes` for the answer's content."""

    messages: list[dict[str, Any]]
    stable: int
    previous: int | None
    notes: dict[str, Any] = field(default_factory=dict)


def draft(
    contents: Sequence[Content],
    ephemeral: Sequence[str],
    way: Ephemeral,
    *,
    web_search: bool = False,
    thinking_from: int = 0,
) -> Draft:
    """The messages for this call; all thinking of the contents before `thinking_from` is left out.

    Raises BadRequest when there is nothing to answer.
    """
    turns = _Turns(way)
    noted = _left_out_before(contents)
    without = max(noted, thinking_from)
    gone = _searches_without_end(contents, web_search=web_search)
    for index, content in enumerate(contents):
        blocks = [
            _unmarked(block)
            for block in without_blanks(content["content"])
            if not (block.get("id") in gone or (index < without and block["type"] in THINKING))
        ]
        if content["role"] == "user":
            turns.user(blocks)
        elif kept := _without_last_thoughts(blocks):
            turns.assistant(kept, content.get("request", {}).get("before", ()))
    turns.end()
    notes: dict[str, Any] = {"thinking_left_out": True} if without > noted else {}
    words = clean("\n\n".join(given.passing_words(ephemeral)))
    stable = len(turns.messages) - 1
    if words and not _is_search_open(turns.messages):
        # an open search allows nothing but results: then this call goes without the words
        stable = turns.add_words(words, notes)
    return Draft(turns.messages, stable, _cached_to(contents), notes)


class _Turns:
    """Messages under construction: a user's first, roles in turn, results at the head of theirs."""

    def __init__(self, way: Ephemeral) -> None:
        self.messages: list[dict[str, Any]] = []
        self._way = way
        self._asked: list[str] = []
        self._open: dict[str, str] = {}
        """Tools by the ids of their calls that wait for a result."""

    def user(self, blocks: Sequence[Block]) -> None:
        if not blocks:
            return
        for block in blocks:
            if block["type"] == "tool_result" and self._open.pop(block["tool_use_id"], None) is None:
                raise BadRequest(
                    f"there is a result for the call {block['tool_use_id']} that nothing before it asks for"
                )
        if self._last_role() != "user":
            self.messages.append({"role": "user", "content": []})
        merged = [*self.messages[-1]["content"], *blocks]
        self.messages[-1]["content"] = sorted(merged, key=self._place)

    def assistant(self, blocks: Sequence[Block], before: Sequence[Any]) -> None:
        self._close_calls()
        if self._last_role() != "user":
            self.user([_text(_CONTINUE if self.messages else NO_START)])
        for entry in before:
            self._entry(entry)
        self.messages.append({"role": "assistant", "content": list(blocks)})
        self._open = {block["id"]: block["name"] for block in blocks if block["type"] == "tool_use"}
        self._asked = list(self._open)

    def end(self) -> None:
        if not self.messages:
            raise BadRequest("there is nothing to answer: the conversation has no text")
        for name in self._open.values():
            _log.warning("the call of %s got no result: the model is told so", name)
        self._close_calls()
        if self._last_role() == "assistant":
            self.user([_text(_CONTINUE)])

    def add_words(self, words: str, notes: dict[str, Any]) -> int:
        """Put the ephemeral words where this model takes them; the index of the last message that stays as it is."""
        last = len(self.messages) - 1
        if self._way is Ephemeral.POPPED:
            self.user([_text(words)])
            return last - 1
        entry: dict[str, Any] = {"role": "user", "content": [_text(words)]}
        if self._way is Ephemeral.CLEAR_AT:
            entry = {"role": "system", "content": words, "clear_at": "next_user_message"}
        self._entry(entry)
        notes["before"] = [entry]
        return last

    def _close_calls(self) -> None:
        """Tell the model of each call that got no result: without one, every later request is refused."""
        self.user([result_block(call_id, NO_RESULT) for call_id in list(self._open)])

    def _entry(self, entry: dict[str, Any]) -> None:
        if entry["role"] == "user":
            self.user(entry["content"])
        elif self._way is Ephemeral.CLEAR_AT:
            self.messages.append(dict(entry))
        else:  # the model, or the project, turned out not to take system messages
            self.user([_text(entry["content"])])

    def _place(self, block: Block) -> int:
        """Results first, in the order of their calls, however they came."""
        return self._asked.index(block["tool_use_id"]) if block["type"] == "tool_result" else len(self._asked)

    def _last_role(self) -> str:
        return self.messages[-1]["role"] if self.messages else ""


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


def without_blanks(blocks: Sequence[Block]) -> list[Block]:
    """The blocks of a message without the texts that Claude writes and then refuses in every later request.

    Blank ones may stay beside words, and do: to take one away between two thoughts would be an edit.
    """
    speaks = any(block["type"] == "text" and block["text"].strip() for block in blocks)
    return [
        block for block in blocks if block["type"] != "text" or (block["text"] and (speaks or block["text"].strip()))
    ]


def _without_last_thoughts(blocks: list[Block]) -> list[Block]:
    """A turn that was cut in a thought, or that lost what followed one: Claude refuses it for ever otherwise."""
    end = len(blocks)
    while end and blocks[end - 1]["type"] in THINKING:
        end -= 1
    return blocks[:end]


def _unmarked(block: Block) -> Block:
    return {key: value for key, value in block.items() if key != "cache_control"}


def _left_out_before(contents: Sequence[Content]) -> int:
    marked = [index for index, content in enumerate(contents) if content.get("request", {}).get("thinking_left_out")]
    return max(marked, default=0)


def _cached_to(contents: Sequence[Content]) -> int | None:
    last: Content = next((content for content in reversed(contents) if content["role"] == "assistant"), {})
    written = last.get("request", {}).get("cached_to")
    return written if isinstance(written, int) else None


def _searches_without_end(contents: Sequence[Content], *, web_search: bool) -> Collection[str]:
    """Searches whose result can no longer come: sent again, they would brick the session.

    The provider answers an open search at the head of its next turn, but only if nothing but results of our tools
    came in between and its search tool is still declared.
    """
    opened: set[str] = set()
    gone: set[str] = set()
    for content in contents:
        if content["role"] == "user":
            if any(block["type"] != "tool_result" for block in content["content"]):
                gone |= opened
                opened = set()
            continue
        answered = _answered_searches(content["content"])
        gone |= opened - answered
        opened = {block["id"] for block in content["content"] if block["type"] == "server_tool_use"} - answered
    if opened and (not web_search or contents[-1]["role"] != "user"):
        gone |= opened
    return gone


def _is_search_open(messages: Sequence[dict[str, Any]]) -> bool:
    turns = [message["content"] for message in messages if message["role"] == "assistant"]
    blocks: list[Block] = turns[-1] if turns else []
    answered = _answered_searches(blocks)
    return any(block["type"] == "server_tool_use" and block["id"] not in answered for block in blocks)


def _answered_searches(blocks: Sequence[Block]) -> set[str]:
    results = [block for block in blocks if block["type"].endswith("_tool_result") and block["type"] != "tool_result"]
    return {block["tool_use_id"] for block in results if isinstance(block.get("tool_use_id"), str)}
