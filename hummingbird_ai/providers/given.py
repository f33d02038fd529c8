"""What a caller hands to an adapter, checked before it is put into a provider's words.

A mistake here is told at once and by name: a provider would answer it with a 400 about fields that the caller never
wrote, and some mistakes no provider sees at all.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from jsonschema import Draft202012Validator, SchemaError

from hummingbird_ai.errors import BadRequest
from hummingbird_ai.messages import Content, ToolCall, ToolDef
from hummingbird_ai.serialise import clean, to_json


def conversation(contents: Sequence[Content], *, key: str) -> Sequence[Content]:
    """The contents of a family whose parts or blocks stand under `key`. Raises BadRequest."""
    if isinstance(contents, str | bytes | Mapping) or not isinstance(contents, Sequence):
        raise BadRequest(f"contents is a list of contents, not {_kind(contents)}")
    for number, content in enumerate(contents):
        if content is None:
            raise BadRequest(f"contents[{number}] is None: append `raw_content` only where there is one")
        if not isinstance(content, Mapping):
            raise BadRequest(f"contents[{number}] is {_kind(content)}: make it with `make_user_content`")
        if not isinstance(content.get(key), list):
            raise BadRequest(
                f"contents[{number}] was not made by this adapter: load it with `to_canonical` and `from_canonical`"
            )
    return contents


def passing_words(ephemeral: Sequence[str]) -> list[str]:
    """The ephemeral texts that say something. Raises BadRequest."""
    if isinstance(ephemeral, str | bytes) or not all(isinstance(text, str) for text in ephemeral):
        raise BadRequest("ephemeral is a list of texts")
    return [text for text in ephemeral if text.strip()]


def user_text(text: str) -> str:
    """Words of a user that every provider can carry. Raises BadRequest."""
    if not isinstance(text, str):
        raise BadRequest(f"a user's content is made of a text, not of {_kind(text)}")
    cleaned: str = clean(text)
    return cleaned


def pairs(calls: Sequence[ToolCall], results: Sequence[Mapping[str, Any]]) -> list[tuple[ToolCall, Mapping[str, Any]]]:
    """Every call with its result. Raises ValueError that names the call whose result is none."""
    if len(calls) != len(results):
        raise ValueError(f"{len(calls)} calls but {len(results)} results: every call gets one")
    for call, result in zip(calls, results, strict=True):
        if not isinstance(result, Mapping):
            raise ValueError(f'the result of {call.name} is {_kind(result)}: make it a dict such as {{"output": …}}')
        try:
            to_json(clean(result))
        except TypeError as error:
            raise ValueError(f"the result of {call.name} cannot be sent: {error}") from None
    return list(zip(calls, results, strict=True))


def tools(
    given: Sequence[ToolDef], *, names: re.Pattern[str], allowed: str, taken: Sequence[str] = ()
) -> list[tuple[ToolDef, dict[str, Any]]]:
    """Every tool with its schema: a valid JSON Schema of type object. Raises BadRequest that names the tool.

    `names` and `allowed` say what a name may be, `taken` which ones are in use already.
    """
    if isinstance(given, ToolDef | str) or not all(isinstance(tool, ToolDef) for tool in given):
        raise BadRequest("tools is a list of ToolDef")
    seen = set(taken)
    declared = []
    for tool in given:
        if not names.fullmatch(tool.name):
            raise BadRequest(f"the tool name {tool.name!r} must be {allowed}")
        if tool.name in seen:
            raise BadRequest(f"two tools have the name {tool.name!r}")
        seen.add(tool.name)
        declared.append((tool, _schema(tool)))
    return declared


def _schema(tool: ToolDef) -> dict[str, Any]:
    if not isinstance(tool.parameters, Mapping):
        raise BadRequest(f"the schema of the tool {tool.name!r} is {_kind(tool.parameters)}, it must be a dict")
    try:
        schema: dict[str, Any] = clean(tool.parameters)
    except TypeError as error:
        raise BadRequest(f"the schema of the tool {tool.name!r} cannot be sent: {error}") from None
    if schema.get("type", "object") != "object":
        raise BadRequest(f"the schema of the tool {tool.name!r} has the type {schema['type']!r}, it must be object")
    problem = _schema_problem(to_json(schema))
    if problem:
        raise BadRequest(f"the schema of the tool {tool.name!r} is no JSON Schema: {problem}")
    return {"type": "object", **{key: value for key, value in schema.items() if key != "type"}}


@functools.lru_cache(maxsize=1024)
def _schema_problem(written: str) -> str:
    """Tools are the same in every call of a conversation: each schema is checked once."""
    try:
        Draft202012Validator.check_schema(json.loads(written))
    except SchemaError as error:
        return f"{error.json_path.removeprefix('$.')}: {error.message}"[:300]
    return ""


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
