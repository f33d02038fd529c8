"""What a caller hands to an adapter, checked before it is put into a provider's words.

A mistake here is told at once and by name: a provider would answer it with a 400 about fields that the caller never
wrote, and some mistakes no provider sees at all.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from jsonschema import Draft202012Validator, FormatChecker, SchemaError

from hummingbird_ai.errors import BadRequest
from hummingbird_ai.messages import Content, ToolCall, ToolDef
from hummingbird_ai.serialise import clean, to_json

_T = TypeVar("_T")
_NO_FORMATS = FormatChecker(formats=())
_UNSENDABLE = (TypeError, ValueError, RecursionError)  # no form in JSON; a number of thousands of digits; no end


def conversation(contents: Sequence[Content], *, key: str) -> Sequence[Content]:
    """The contents of a family whose parts or blocks stand under `key`. Raises BadRequest."""
    if isinstance(contents, str | bytes | Mapping) or not isinstance(contents, Sequence):
        raise BadRequest(f"contents is a list of contents, not {_kind(contents)}")
    for number, content in enumerate(contents):
        if content is None:
            raise BadRequest(f"contents[{number}] is None: append `raw_content` only where there is one")
        if not isinstance(content, Mapping):
            raise BadRequest(f"contents[{number}] is {_kind(content)}: make it with `make_user_content`")
        blocks = content.get(key)
        if "role" not in content or not isinstance(blocks, list) or not all(isinstance(item, dict) for item in blocks):
            raise BadRequest(
                f"contents[{number}] was not made by this adapter: load it with `to_canonical` and `from_canonical`"
            )
    return contents


def passing_words(ephemeral: Sequence[str]) -> list[str]:
    """The ephemeral texts that say something. Raises BadRequest."""
    texts = _listed(ephemeral, str, "ephemeral is a list of texts")
    return [text for text in texts if text.strip()]


def prompt(system: str | None) -> str:
    """The system prompt, "" for none or a blank one. Raises BadRequest."""
    if not isinstance(system, str | None):
        raise BadRequest(f"system is a text, not {_kind(system)}")
    return system if system and system.strip() else ""


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
        except _UNSENDABLE as error:
            raise ValueError(f"the result of {call.name} cannot be sent: {error}") from None
    return list(zip(calls, results, strict=True))


def tools(
    given: Sequence[ToolDef], *, names: re.Pattern[str], allowed: str, taken: Sequence[str] = ()
) -> list[tuple[ToolDef, dict[str, Any]]]:
    """Every tool with its schema: a valid JSON Schema of type object. Raises BadRequest that names the tool.

    `names` and `allowed` say what a name may be, `taken` which ones are in use already.
    """
    seen = set(taken)
    declared = []
    for tool in _listed(given, ToolDef, "tools is a list of ToolDef"):
        if not names.fullmatch(tool.name):
            raise BadRequest(f"the tool name {tool.name!r} must be {allowed}")
        if tool.name in seen:
            raise BadRequest(f"two tools have the name {tool.name!r}")
        if not isinstance(tool.description, str):
            raise BadRequest(
                f"the description of the tool {tool.name!r} is {_kind(tool.description)}, it must be a text"
            )
        seen.add(tool.name)
        declared.append((tool, _schema(tool)))
    return declared


def _listed(things: Any, kind: type[_T], wanted: str) -> list[_T]:
    """What can be gone through once or more, as a list; a text is no list of texts."""
    if isinstance(things, str | bytes) or not isinstance(things, Iterable):
        raise BadRequest(wanted)
    listed = list(things)
    if not all(isinstance(thing, kind) for thing in listed):
        raise BadRequest(wanted)
    return listed


def _schema(tool: ToolDef) -> dict[str, Any]:
    if not isinstance(tool.parameters, Mapping):
        raise BadRequest(f"the schema of the tool {tool.name!r} is {_kind(tool.parameters)}, it must be a dict")
    try:
        schema: dict[str, Any] = clean(tool.parameters)
        written = to_json(schema)
    except _UNSENDABLE as error:
        raise BadRequest(f"the schema of the tool {tool.name!r} cannot be sent: {error}") from None
    if schema.get("type", "object") != "object":
        raise BadRequest(f"the schema of the tool {tool.name!r} has the type {schema['type']!r}, it must be object")
    problem = _schema_problem(written)
    if problem:
        raise BadRequest(f"the schema of the tool {tool.name!r} is no JSON Schema: {problem}")
    return {"type": "object", **{key: value for key, value in schema.items() if key != "type"}}


@functools.lru_cache(maxsize=1024)
def _schema_problem(written: str) -> str:
    """Tools are the same in every call of a conversation: each schema is checked once."""
    try:
        # without its formats: a pattern is ECMA's, which Python's own engine would refuse
        Draft202012Validator.check_schema(json.loads(written), format_checker=_NO_FORMATS)
    except SchemaError as error:
        return f"{error.json_path.removeprefix('$.')}: {error.message}"[:300]
    except RecursionError:
        return "it is nested too deeply"
    return ""


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
