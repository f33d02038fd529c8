"""What differs between the Claude models, as far as a request has to know it.

Sources: the platform's pages on mid-conversation system messages and on preserved thinking, of November 2026.
"""

from __future__ import annotations

import re
from enum import StrEnum

_NAME = re.compile(r"claude-(?P<family>[a-z]+)-(?P<major>\d+)(?:-(?P<minor>\d+))?(?:@|-|\Z)")
_NEWEST = (5, 5)


class Ephemeral(StrEnum):
    """How words that only this call needs reach a model."""

    CLEAR_AT = "clear_at"
    """A system message that the provider stops showing by itself. It stays in the array, so nothing ever changes."""
    KEPT = "kept"
    """User text that stays: costs a few tokens, breaks nothing. For models nobody has told us about."""
    POPPED = "popped"
    """User text that is gone in the next call: for models that neither bind their thinking nor know the first way."""


def ephemeral_of(model: str) -> Ephemeral:
    """The way for a model, by its name with or without `@date`."""
    match = _NAME.match(model)
    if match is None:
        return Ephemeral.POPPED if re.match(r"claude-[1-3]\b", model) else Ephemeral.KEPT
    family, version = match["family"], (int(match["major"]), _minor(match["minor"]))
    if version > _NEWEST:
        return Ephemeral.KEPT
    if family in ("fable", "mythos"):
        return Ephemeral.CLEAR_AT if version[0] == 5 else Ephemeral.KEPT
    if family == "opus":
        return Ephemeral.CLEAR_AT if version >= (4, 8) else Ephemeral.POPPED
    if family in ("sonnet", "haiku"):
        return Ephemeral.CLEAR_AT if version == _NEWEST else Ephemeral.POPPED
    return Ephemeral.KEPT


def _minor(digits: str | None) -> int:
    """`claude-opus-4-20250514` has a date where others have a minor version."""
    return int(digits) if digits and len(digits) < 8 else 0


def needs_release(model: str) -> bool:
    """Up to 4.5 Vertex AI knows a model by its release only: `claude-haiku-4-5@20251001`."""
    match = _NAME.match(model)
    old = match is None and model.startswith(("claude-1", "claude-2", "claude-3"))
    if match is not None:
        old = (int(match["major"]), _minor(match["minor"])) <= (4, 5)
    return old and "@" not in model
