"""Gemini's parts and contents to and from the canonical form, one to one.

A part that passed through here once has a fixed order of keys, so that saving and loading a session gives the same
bytes. A model content also holds `producer`, which never goes out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hummingbird_ai.canonical import Producer, is_own, local_id, message, repaired, with_safe_ids
from hummingbird_ai.messages import Content
from hummingbird_ai.serialise import clean, to_json

# Google's own word for a call whose signature was lost or belongs to another model: accepted on both routes.
PLACEHOLDER_SIGNATURE = "skip_thought_signature_validator"

_REFERENCES = frozenset({"$ref", "$defs"})


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
        case "opaque":
            return dict(part["data"])
        case kind:
            raise ValueError(f"a stored part has the type {kind!r}, which this version does not know")


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


def save(contents: Sequence[Content]) -> list[dict[str, Any]]:
    """Native contents as canonical messages."""
    stored: list[dict[str, Any]] = []
    for turn, content in enumerate(contents):
        if content["role"] == "model":
            parts = [to_stored(part, number) for part, number in zip(content["parts"], _local_ids(turn), strict=False)]
            stored.append(message("assistant", parts, content.get("producer", {})))
        else:
            ids = _ids_of_calls(stored)
            responses = (next(ids, "") if "functionResponse" in part else "" for part in content["parts"])
            parts = [to_stored(part, number) for part, number in zip(content["parts"], responses, strict=True)]
            stored.append(message("user", parts))
    return stored


def _local_ids(turn: int) -> Iterator[str]:
    number = 0
    while True:
        yield local_id(turn, number)
        number += 1


def _ids_of_calls(stored: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    previous = stored[-1]["parts"] if stored else []
    return iter([part["id"] for part in previous if part["type"] == "tool_call"])


def load(messages: Sequence[Mapping[str, Any]], producer: Producer) -> list[Content]:
    """Canonical messages as native contents for `producer`; what only others can read is dropped or flattened."""
    ordered = repaired([item if is_own(item, producer) else _flattened(item, producer.model) for item in messages])
    if any(not is_own(item, producer) for item in ordered):
        ordered = with_safe_ids(ordered, producer)
    contents: list[Content] = []
    for item in ordered:
        parts = [to_native(part) for part in item["parts"]]
        if item["role"] == "user":
            contents.append({"role": "user", "parts": parts})
        else:
            contents.append({"role": "model", "parts": parts, "producer": dict(item.get("producer", {}))})
    return contents


def _flattened(stored: Mapping[str, Any], model: str) -> dict[str, Any]:
    """Another producer's turn: its words and calls stay, its thoughts, signatures and server blocks do not."""
    parts: list[dict[str, Any]] = []
    signed = not needs_signatures(model)
    for part in stored["parts"]:
        if part["type"] == "text":
            parts.append({"type": "text", "text": part["text"]})
        elif part["type"] == "tool_call":
            call = {key: part[key] for key in ("type", "id", "name", "arguments")}
            parts.append(call if signed else {**call, "signature": PLACEHOLDER_SIGNATURE})
            signed = True  # the first call of a turn only
        elif part["type"] == "tool_result":
            parts.append({key: part[key] for key in ("type", "id", "name", "result", "minted") if key in part})
        elif part["type"] == "opaque" and part.get("text"):
            parts.append({"type": "text", "text": part["text"]})
    return {**stored, "parts": parts}
