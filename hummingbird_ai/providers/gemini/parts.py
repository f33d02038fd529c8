"""Gemini's parts and contents to and from the canonical form, one to one.

A part that passed through here once has a fixed order of keys, so that saving and loading a session gives the same
bytes. A model content also holds `producer` and perhaps `notes`, which never go out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from hummingbird_ai.canonical import OWN_KEYS, Producer, local_id, message, readable_by
from hummingbird_ai.messages import Content
from hummingbird_ai.providers.gemini.checks import part_problem
from hummingbird_ai.serialise import clean, to_json

# Google's own word for a call whose signature was lost or belongs to another model: accepted on both routes.
PLACEHOLDER_SIGNATURE = "skip_thought_signature_validator"

# What a model content holds beside what goes out: who made it, and what the adapter wants to know of it.
_BESIDE = {"producer": "producer", "extra": "notes"}
_REFERENCES = frozenset({"$ref", "$defs"})
_MARKS = frozenset({"signature", "extra"})
_CALLS = frozenset({"functionCall", "functionResponse"})
_WITHOUT_PAYLOAD = frozenset({"text", "thought", "partMetadata"})
_PAYLOADS = frozenset(
    {"functionCall", "inlineData", "fileData", "executableCode", "codeExecutionResult", "toolCall", "toolResponse"}
)


def is_before_3(model: str) -> bool:
    """Gemini 2 gives no ids and no signatures, takes no search beside functions, and bills searches by the prompt."""
    version = re.match(r"gemini-(\d+)", model.rpartition("/")[2])
    return version is not None and int(version.group(1)) < 3


def normalised(part: Mapping[str, Any]) -> dict[str, Any]:
    """A part as this module writes it; a field that is null, and a signature without a character, is none."""
    given = {key: value for key, value in part.items() if value is not None}
    if given.get("thoughtSignature") == "":
        del given["thoughtSignature"]
    return to_native(to_stored(given, ""))


def is_blank(part: Mapping[str, Any]) -> bool:
    """No payload, or text without a character to read, and no signature to carry: Gemini refuses to be sent it."""
    return not part.keys() - _WITHOUT_PAYLOAD and not str(part.get("text", "")).strip()


def to_stored(part: Mapping[str, Any], fallback_id: str, *, by_user: bool = False) -> dict[str, Any]:
    """The canonical part; `fallback_id` is for a call or response without an id.

    What stands on the wrong side, a model's response or a user's call or thought, is opaque.
    """
    rest = dict(part)
    signature = rest.pop("thoughtSignature", None)
    marks = {} if signature is None else {"signature": signature}
    if "functionCall" in part and not by_user:
        call = dict(rest.pop("functionCall"))
        stored = _with_id("tool_call", call, fallback_id)
        stored |= {"name": call.pop("name", None) or "", "arguments": clean(call.pop("args", None) or {})}
        return stored | marks | _extra("tool_call", rest, call)
    if "functionResponse" in part and by_user:
        response = dict(rest.pop("functionResponse"))
        stored = _with_id("tool_result", response, fallback_id)
        stored |= {"name": response.pop("name", None) or "", "result": clean(response.pop("response", None) or {})}
        return stored | marks | _extra("tool_result", rest, response)
    if "text" in part and not part.keys() & _CALLS and not (by_user and part.get("thought")):
        kind = "thinking" if rest.pop("thought", False) is True else "text"
        return {"type": kind, "text": clean(rest.pop("text"))} | marks | _extra(kind, rest, {})
    return {"type": "opaque", "data": clean(part)}


def _with_id(kind: str, payload: dict[str, Any], fallback_id: str) -> dict[str, Any]:
    given = payload.pop("id", None)
    return {"type": kind, "id": given} if given else {"type": kind, "id": fallback_id, "minted": True}


def _extra(kind: str, rest: dict[str, Any], payload: dict[str, Any]) -> dict[str, Any]:
    """What else there is; a field that nobody knows and that is called like one of the stored part's own is let go."""
    more = {key: value for key, value in rest.items() if key not in OWN_KEYS[kind]}
    extra = {"extra": clean(more)} if more else {}
    return {**extra, "payload_extra": clean(payload)} if payload else extra


def to_native(part: Mapping[str, Any]) -> dict[str, Any]:
    """The Gemini part of a canonical one of our own."""
    return _with_one_payload(_as_stored(part))


def _with_one_payload(part: dict[str, Any]) -> dict[str, Any]:
    """Gemini gives some parts that it does not take back: it wants just one payload, and a signature alone is none.

    Such a signature stands beside an empty text. A session stored by an earlier version holds the parts as they came.
    """
    if "text" in part and part.keys() & _PAYLOADS:
        return {key: value for key, value in part.items() if key != "text"}
    if "thoughtSignature" in part and not part.keys() - _WITHOUT_PAYLOAD - {"thoughtSignature"}:
        first: dict[str, Any] = {key: part[key] for key in ("thought", "thoughtSignature") if key in part}
        return {"text": "", **first, **part}
    return part


def without_responses(parts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A model content's parts as they can be sent: function responses are the user's, Gemini takes none from here."""
    bare = [{key: value for key, value in part.items() if key != "functionResponse"} for part in parts]
    return [_with_one_payload(part) for part in bare]


def _as_stored(part: Mapping[str, Any]) -> dict[str, Any]:
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
    asked: list[dict[str, Any]] = []
    for turn, content in enumerate(contents):
        if content["role"] == "model":
            parts = [to_stored(part, local_id(turn, number)) for number, part in enumerate(content["parts"])]
            asked = [part for part in parts if part["type"] == "tool_call"]
            stored.append(message("assistant", parts, content.get("producer"), content.get("notes")))
        else:
            parts = [_answering(to_stored(part, "", by_user=True), asked) for part in content["parts"]]
            stored.append(message("user", parts, producer.to_dict() if any(map(_is_special, parts)) else None))
    return stored


def _is_special(part: Mapping[str, Any]) -> bool:
    """Whether something of a user's part is lost on others; a result always goes with its call."""
    return part["type"] == "opaque" or (part["type"] != "tool_result" and bool(_MARKS & part.keys()))


def _answering(part: dict[str, Any], asked: list[dict[str, Any]]) -> dict[str, Any]:
    """A result without an id gets that of the first open call of its name without one, as the request pairs them."""
    if part["type"] != "tool_result" or not part.get("minted"):
        return part
    for index, call in enumerate(asked):
        if call.get("minted") and call["name"] == part["name"]:
            return {**part, "id": asked.pop(index)["id"]}
    return part


def load(messages: Sequence[Mapping[str, Any]], producer: Producer) -> list[Content]:
    """Canonical messages as native contents for `producer`; what only others can read is dropped or flattened.

    Raises ValueError for what is not the stored form, and for an own part that a model cannot have written.
    """
    contents: list[Content] = []
    for turn, item in enumerate(readable_by(messages, producer)):
        content: Content = {
            "role": "user" if item["role"] == "user" else "model",
            "parts": [to_native(part) for part in item["parts"]],
        }
        for number, part in enumerate(content["parts"]):
            if problem := part_problem(part):
                raise ValueError(f"contents[{turn}].parts[{number}].{problem}")
        if item["role"] == "assistant":
            content |= {name: item[key] for key, name in _BESIDE.items() if key in item}
        contents.append(content)
    return contents


def with_signature(parts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A model content's parts in which the first call has a signature: Google's placeholder, if it has none.

    A later call of the same turn has none by right, and must not be given one.
    """
    first = next((index for index, part in enumerate(parts) if "functionCall" in part), None)
    if first is None or "thoughtSignature" in parts[first]:
        return list(parts)
    signed = {**parts[first], "thoughtSignature": PLACEHOLDER_SIGNATURE}
    return [signed if index == first else part for index, part in enumerate(parts)]


def without_signatures(parts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The parts as if another model had made them."""
    return [{key: value for key, value in part.items() if key != "thoughtSignature"} for part in parts]
