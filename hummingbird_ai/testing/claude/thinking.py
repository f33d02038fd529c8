"""Signatures of thoughts: what each is bound to, and what Anthropic says when that has changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hummingbird_ai.testing.claude.blocks import THINKING, Block, Conversation, latest_answer
from hummingbird_ai.testing.claude.models import Traits
from hummingbird_ai.testing.claude.seals import digest, seal, unseal

_BOUND = (
    "The block is bound to a different conversation. Remove the block, or set "
    '`thinking.block_binding.prefix_mismatch_behavior` to "drop_block". That setting requires the '
    "`thinking-binding-controls-2026-08-01` value in the `anthropic-beta` header."
)
_MODIFIED = (
    "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These blocks must "
    "remain as they were in the original response."
)
_FIRST = (
    "When `thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the "
    "lastmost set of `tool_use` and `tool_result` blocks). To avoid this requirement, disable `thinking`."
)


@dataclass(slots=True)
class Prefix:
    """What stands before a thought: `whole` from the first tool on, `turn` since the last word of somebody else.

    Cache markers do not count; system messages that are cleared do, and so does the order of keys, of which nothing is
    published: the strict reading. In `turn` a blank text does not count either: some clients have to leave it out.
    """

    whole: Any = field(default_factory=hashlib.sha256)
    top: str = ""
    turn: str = ""

    def add(self, block: Block) -> None:
        """The next block."""
        written = json.dumps([block.role, block.data])
        self.whole.update(f"{written}\n".encode())
        if block.role in ("tools", "top"):
            self.top = digest(self.top, written)
        if block.role != "assistant":
            self.turn = ""
        elif not block.is_blank:
            self.turn = digest(self.turn, written)

    @property
    def name(self) -> str:
        """A short name of all of it."""
        return str(self.whole.hexdigest()[:24])

    def facts(self, model: str, text: str) -> tuple[str, ...]:
        """What a signature holds."""
        return (model, digest(text), self.turn, self.name, self.top)


def signed(block: Mapping[str, Any], prefix: Prefix, model: str) -> dict[str, Any]:
    """A thought with its signature; other blocks, and those that have one, as they are."""
    if block.get("type") == "thinking" and "signature" not in block:
        return {**block, "signature": seal("thinking", *prefix.facts(model, block["thinking"]))}
    if block.get("type") == "redacted_thinking" and "data" not in block:
        return {**block, "data": seal("redacted_thinking", *prefix.facts(model, ""))}
    return dict(block)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The first problem with a request's thoughts, "" for none, and the paths of those that are to be dropped."""

    problem: str = ""
    dropped: tuple[str, ...] = ()
    prefix: Prefix = field(default_factory=Prefix)
    """What stands before the answer to it."""


def judge(asked: Conversation, model: str, traits: Traits) -> Verdict:
    """Check every thought of a request; `model` is a name without its release."""
    binding = asked.thinking.get("block_binding") or {}
    drops = binding.get("prefix_mismatch_behavior") == "drop_block"
    latest = latest_answer(asked.messages)
    prefix = Prefix()
    dropped: list[str] = []
    dropping_in = -1
    for block in asked.blocks:
        if block.type in THINKING:
            problem, bound_elsewhere = _problem(block, prefix, model, traits, block.message in latest)
            if (bound_elsewhere and drops) or dropping_in == block.message:  # the rest of a turn goes with the first
                dropped.append(block.path)
                dropping_in = block.message
            elif problem:
                return Verdict(problem)
        prefix.add(block)
    return Verdict(_missing_thought(asked) if not dropped else "", tuple(dropped), prefix)


def _problem(block: Block, prefix: Prefix, model: str, traits: Traits, latest: bool) -> tuple[str, bool]:
    """The problem, and whether it is that the thought was made in another conversation."""
    name = "signature" if block.type == "thinking" else "data"
    invalid = f"{block.path}: Invalid `{name}` in `{block.type}` block"
    facts = unseal(block.data[name], block.type)
    if facts is None or facts[0] != model:
        return invalid, False
    _, text, turn, whole, top = facts
    if text != digest(block.data.get("thinking", "")):
        return (f"{block.path}: {_MODIFIED}" if latest else invalid), False
    if latest and turn != prefix.turn:
        return f"{block.path}: {_MODIFIED}", False
    if traits.prefix_bound and whole != prefix.name:
        why = "" if top == prefix.top else " The `system` prompt or `tools` differ from those it was created with."
        return f"{invalid}. {_BOUND}{why}", True
    return "", False


def _missing_thought(asked: Conversation) -> str:
    """With manual thinking the turn that is under way has to begin with its thought."""
    if asked.thinking.get("type") != "enabled":
        return ""
    sent = asked.messages
    latest = sorted(latest_answer(sent))
    if not latest or not sent[latest[0]].blocks or not any(sent[index].of_type("tool_use") for index in latest):
        return ""
    first = sent[latest[0]].blocks[0]
    if first.type in THINKING or not _is_under_way(sent[latest[-1] + 1 :]):
        return ""
    return f"{first.path}.type: Expected `thinking` or `redacted_thinking`, but found `{first.type}`. {_FIRST}"


def _is_under_way(after: Sequence[Any]) -> bool:
    return all(block.type == "tool_result" for message in after if message.role == "user" for block in message.blocks)
