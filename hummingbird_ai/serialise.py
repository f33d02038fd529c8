"""JSON as it goes out: valid for every provider, and the same bytes for the same value.

Tools return whatever the world contains. A lone surrogate or a NaN would be refused by the provider, and would stay
in the history to be refused in every later call.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def clean(value: Any) -> Any:
    """A copy that JSON and UTF-8 can carry: lone surrogates become U+FFFD, NaN and infinities their names.

    Mappings become dicts with string keys and sequences lists; anything else that JSON lacks raises TypeError.
    """
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, bool | int | None):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _name(value)
    if isinstance(value, Mapping):
        return {clean_text(str(key)): clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    raise TypeError(f"JSON has no form for a {type(value).__name__}")


def clean_text(text: str) -> str:
    """The text with every lone surrogate replaced by U+FFFD; a split pair is joined."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def encode(value: Any) -> bytes:
    """UTF-8 JSON of `clean(value)` in its own order of keys, without spaces."""
    return to_json(clean(value)).encode()


def to_json(value: Any) -> str:
    """One line of JSON for a value that is clean already."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _name(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
