"""What each Claude model on Vertex AI takes: data, because it changes with every release.

Sources: platform.claude.com (2026-08 and later), the anthropic package 2.14, litellm 1.110.2 and pydantic-ai 2.68.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

_ADAPTIVE = frozenset({"adaptive"})
_ADAPTIVE_OR_OFF = frozenset({"adaptive", "disabled"})
_MANUAL = frozenset({"enabled", "disabled"})


@dataclass(frozen=True, slots=True)
class Traits:
    """One model. Sizes are tokens; the defaults are those of the newest generation."""

    thinking: frozenset[str] = _ADAPTIVE
    """The types of `thinking` it takes."""
    shows_thinking: bool = False
    """Whether the text of a thought is shown without `display: summarized`; its signature always is."""
    prefix_bound: bool = True
    """A thinking block is good only behind the very system prompt, tools and messages it was made behind."""
    strips_thinking: bool = False
    """Thoughts of earlier turns leave the prompt when a user says something that is no tool result."""
    sampling: bool = False
    """`temperature`, `top_p` and `top_k` may be set."""
    prefill: bool = False
    """The last message may be the assistant's."""
    forced_tools: bool = False
    """`tool_choice` may be `any` or `tool`."""
    system_messages: str = "all"
    """`role: "system"` inside `messages`: "all", "cleared" (with `clear_at` alone), "ignored" or "none"."""
    cache_minimum: int = 512
    context_window: int = 1_000_000
    max_output: int = 128_000
    date: str = ""
    """The release that Vertex AI wants behind an `@`."""


_NEWEST = Traits()
_FIVE = replace(_NEWEST, prefix_bound=False, forced_tools=True)
_OPUS_4_8 = replace(_FIVE, thinking=_ADAPTIVE_OR_OFF, cache_minimum=1024)
_OPUS_4_7 = replace(_OPUS_4_8, system_messages="none", cache_minimum=2048)
_OPUS_4_6 = replace(
    _OPUS_4_7,
    thinking=_MANUAL | _ADAPTIVE,
    shows_thinking=True,
    sampling=True,
    cache_minimum=4096,
)
_OPUS_4_5 = replace(
    _OPUS_4_6, thinking=_MANUAL, prefill=True, context_window=200_000, max_output=64_000, date="20251101"
)

MODELS = {
    "claude-fable-5-2": _NEWEST,
    "claude-mythos-5-2": _NEWEST,
    "claude-fable-5-1": _NEWEST,
    "claude-mythos-5-1": _NEWEST,
    "claude-fable-5": _FIVE,
    "claude-mythos-5": _FIVE,
    "claude-opus-5-5": _NEWEST,
    "claude-opus-5": replace(_FIVE, thinking=_ADAPTIVE_OR_OFF),
    "claude-opus-4-8": _OPUS_4_8,
    "claude-opus-4-7": _OPUS_4_7,
    "claude-opus-4-6": _OPUS_4_6,
    "claude-opus-4-5": _OPUS_4_5,
    "claude-sonnet-5-5": replace(_NEWEST, thinking=_ADAPTIVE | {"between_tools"}, system_messages="cleared"),
    "claude-sonnet-5": replace(_OPUS_4_8, system_messages="ignored"),
    "claude-sonnet-4-6": replace(_OPUS_4_6, cache_minimum=1024, max_output=64_000),
    "claude-sonnet-4-5": replace(_OPUS_4_5, strips_thinking=True, cache_minimum=1024, date="20250929"),
    "claude-haiku-5-5": replace(_NEWEST, thinking=_ADAPTIVE_OR_OFF, forced_tools=True, system_messages="cleared"),
    "claude-haiku-4-5": replace(_OPUS_4_5, strips_thinking=True, date="20251001"),
}


def find_model(name: str) -> Traits | None:
    """The model that Vertex AI serves under this name; None without the release it wants, or with one too many."""
    base, _, date = name.partition("@")
    traits = MODELS.get(base)
    return traits if traits is not None and traits.date == date else None
