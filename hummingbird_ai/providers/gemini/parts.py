"""Gemini's parts and contents to and from the canonical form, one to one.

A part that passed through here once has a fixed order of keys, so that saving and loading a session gives the same
bytes. A model content also holds `producer`, which never goes out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hummingbird_ai.canonical import Producer, local_id, message, readable_by
from hummingbird_ai.messages import Content
from hummingbird_ai.serialise import clean, to_json

# Google's own word for a call whose signature was lost or belongs to another model: accepted on both routes.
PLACEHOLDER_SIGNATURE = "skip_thought_signature_validator"

_REFERENCES = frozenset({"$ref", "$defs"})
_MARKS = frozenset({"signature", "extra"})


def needs_signatures(model: str) -> bool:
    """Gemini 3 and later refuse a function call of the current turn without its thought signature."""
    version = re.match(r"gemini-(\d+)", model.rpartition("/")[2])
    return version is None or int(version.group(1)) >= 3


def normalised(part: Mapping[str, Any]) -> dict[str, Any]:
    """A part as this module writes it."""
    return to_native(to_stored(part, ""))


def to_stored(part: Mapping[str, Any], fallback_id: str) -> dict[str, Any]:
    """The canonical part; `fallback_id` is for a call or response without an id."""
    rest = dict(part)
    signature = rest.pop("thoughtSignature", None)
    marks = {} if signature is None else {"signature": signature}
    if isinstance(part.get("functionCall"), Mapping):
        call = dict(rest.pop("functionCall"))
        stored = _with_id("tool_call", call, fallback_id)
        stored |= {"name": call.pop("name", ""), "arguments": clean(call.pop("args", None) or {})}
        return stored | marks | _extra(rest, call)
    if isinstance(part.get("functionResponse"), Mapping):
        response = dict(rest.pop("functionResponse"))
        stored = _with_id("tool_result", response, fallback_id)
        stored |= {"name": response.pop("name", ""), "result": clean(response.pop("response", None) or {})}
        return stored | marks | _extra(rest, response)
    if isinstance(part.get("text"), str):
        thinking = rest.pop("thought", False) is True
        return {"type": "thinking" if thinking else "text", "text": clean(rest.pop("text"))} | marks | _extra(rest, {})
    return {"type": "opaque", "data": clean(part)}


def _with_id(kind: str, payload: dict[str, Any], fallback_id: str) -> dict[str, Any]:
    given = payload.pop("id", None)
    return {"type": kind, "id": given} if given else {"type": kind, "id": fallback_id, "minted": True}


def _extra(rest: dict[str, Any], payload: dict[str, Any]) -> dict[str, Any]:
    extra = {"extra": clean(rest)} if rest else {}
    return {**extra, "payload_extra": clean(payload)} if payload else extra


def to_native(part: Mapping[str, Any]) -> dict[str, Any]:
    """The Gemini part of a canonical one of our own."""
    tail = {"thoughtSignature": part["signature"]} if "signature" in part else {}
    tail |= part.get("extra", {})
    number = {} if part.get("minted") else {"id": part.get("id")}
    more = part.get("payload_extra", {})
    match part["type"]:
        case "text":
            return {"text": part["text"], **tail}
        case "thinking":
            return {"text": part["text"], "thought": True, **tail}
        case "tool_call":
            return {"functionCall": {**number, "name": part["name"], "args": part["arguments"], **more}, **tail}
        case "tool_result":
            response = without_references(part["result"])
            return {"functionResponse": {**number, "name": part["name"], "response": response, **more}, **tail}
        case _:
            return dict(part["data"])


def without_references(result: Mapping[str, Any]) -> dict[str, Any]:
    """A tool's result in which no JSON reference is left: Gemini 3 follows `$ref` inside it and answers 400.

    A value that contains one travels as JSON text.
    """
    if _REFERENCES & result.keys():
        return {"output": to_json(clean(result))}
    return {key: to_json(clean(value)) if _has_reference(value) else value for key, value in result.items()}


def _has_reference(value: Any) -> bool:
    if isinstance(value, Mapping):
        return bool(_REFERENCES & value.keys()) or any(_has_reference(item) for item in value.values())
    return isinstance(value, list | tuple) and any(_has_reference(item) for item in value)


def save(contents: Sequence[Content], producer: Producer) -> list[dict[str, Any]]:
    """Native contents as canonical messages; a user's names `producer` if it holds what only Gemini can read."""
    stored: list[dict[str, Any]] = []
    for turn, content in enumerate(contents):
        if content["role"] == "model":
            parts = [to_stored(part, local_id(turn, number)) for number, part in enumerate(content["parts"])]
            stored.append(message("assistant", parts, content.get("producer")))
        else:
            ids = _ids_of_calls(stored)
            responses = (next(ids, "") if "functionResponse" in part else "" for part in content["parts"])
            parts = [to_stored(part, number) for part, number in zip(content["parts"], responses, strict=True)]
            stored.append(message("user", parts, producer.to_dict() if any(map(_is_special, parts)) else None))
    return stored


def _is_special(part: Mapping[str, Any]) -> bool:
    """Whether something of a user's part is lost on others; a result always goes with its call."""
    return part["type"] == "opaque" or (part["type"] != "tool_result" and bool(_MARKS & part.keys()))


def _ids_of_calls(stored: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    previous = stored[-1]["parts"] if stored else []
    return iter([part["id"] for part in previous if part["type"] == "tool_call"])


def load(messages: Sequence[Mapping[str, Any]], producer: Producer) -> list[Content]:
    """Canonical messages as native contents for `producer`; what only others can read is dropped or flattened."""
    contents: list[Content] = []
    for item in readable_by(messages, producer):
        content: Content = {
            "role": "user" if item["role"] == "user" else "model",
            "parts": [to_native(part) for part in item["parts"]],
        }
        if item["role"] == "assistant" and "producer" in item:
            content["producer"] = item["producer"]
        contents.append(content)
    return contents


def with_signature(parts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A model content's parts in which the first call has a signature: Google's placeholder, if it has none.

    A later call of the same turn has none by right, and must not be given one.
    """
    first = next((index for index, part in enumerate(parts) if "functionCall" in part), None)
    if first is None or parts[first].get("thoughtSignature"):
        return list(parts)
    signed = {**parts[first], "thoughtSignature": PLACEHOLDER_SIGNATURE}
    return [signed if index == first else part for index, part in enumerate(parts)]
