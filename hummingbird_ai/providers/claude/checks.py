"""What this package relies on in blocks and notes that it did not make itself: an answer's, or a stored session's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, TypeAdapter, ValidationError

from hummingbird_ai.providers.wire import first_problem

_CALL_ID = re.compile(r"[A-Za-z0-9_-]+")
_LONGEST_NAME = 200


class _Block(BaseModel):
    """Fields that nobody knows yet are kept: the API gets some every month."""

    model_config = ConfigDict(extra="allow", strict=True)


class _Text(_Block):
    text: str
    citations: list[dict[str, Any]] | None = None


class _Thinking(_Block):
    thinking: str
    signature: str


class _Redacted(_Block):
    data: str


class _Search(_Block):
    id: str = Field(pattern=r"^[A-Za-z0-9_-]+$")


class _Found(_Block):
    tool_use_id: str
    content: list[dict[str, Any]] | dict[str, Any]


_KNOWN: Mapping[str, type[_Block]] = {
    "text": _Text,
    "thinking": _Thinking,
    "redacted_thinking": _Redacted,
    "server_tool_use": _Search,
    "web_search_tool_result": _Found,
}


def block_problem(block: Mapping[str, Any]) -> str:
    """What is wrong with a block, "" if it can be kept and sent again. Of unknown types only the type is asked for."""
    kind = block.get("type")
    if not isinstance(kind, str) or not kind:
        return "type: a block has one"
    if kind == "tool_result":
        return "type: a model writes no tool_result"
    try:
        _KNOWN.get(kind, _Block).model_validate(dict(block))
    except ValidationError as error:
        return first_problem(error)
    return ""


def has_broken_calls(kept: Sequence[Mapping[str, Any]]) -> bool:
    """A call that cannot be answered, or that Claude would refuse to read again: it stays out of the history."""
    made = [block for block in kept if block["type"] == "tool_use"]
    ids = [block["id"] for block in made]
    return len({str(call_id) for call_id in ids}) < len(ids) or not all(
        isinstance(block["id"], str)
        and _CALL_ID.fullmatch(block["id"])
        and isinstance(block["name"], str)
        and 0 < len(block["name"]) <= _LONGEST_NAME
        and isinstance(block["input"], dict)
        for block in made
    )


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _SystemEntry(_Entry):
    role: Literal["system"]
    content: str = Field(min_length=1)
    clear_at: Literal["next_user_message"]


class _Words(_Entry):
    type: Literal["text"]
    text: str = Field(min_length=1)


class _UserEntry(_Entry):
    role: Literal["user"]
    content: list[_Words] = Field(min_length=1)


class _Notes(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    before: list[Annotated[_SystemEntry | _UserEntry, Discriminator("role")]] = Field(default=[], max_length=1)
    cached_to: int | None = Field(default=None, ge=0)
    thinking_left_out: bool = False


_NOTES = TypeAdapter(_Notes)


def notes_problem(notes: Mapping[str, Any]) -> str:
    """What is wrong with what an assistant's content remembers of its request, "" for nothing."""
    try:
        _NOTES.validate_python(notes)
    except ValidationError as error:
        return first_problem(error)
    return ""
