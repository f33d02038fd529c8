"""Claude's content blocks to and from the canonical form, one to one.

A block that passed through here once has a fixed order of keys, so that saving and loading a session gives the same
bytes. An assistant content also holds `producer`, and `request`: what stood in the request that it answered and has
to stand there again (see `hummingbird_ai.providers.claude.request`). Neither goes out.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any

from hummingbird_ai.canonical import OWN_KEYS, Producer, is_own, message, readable_by
from hummingbird_ai.messages import Content
from hummingbird_ai.providers.claude.checks import block_problem, notes_problem
from hummingbird_ai.serialise import clean, to_json

Block = dict[str, Any]
THINKING = frozenset({"thinking", "redacted_thinking"})


def normalised(block: Mapping[str, Any]) -> Block:
    """A block as this module writes it."""
    return to_native(to_stored(block, {}))


def result_block(call_id: str, result: Mapping[str, Any]) -> Block:
    """A tool's result as JSON text; one with an `error` is marked as such."""
    failed = {"is_error": True} if "error" in result else {}
    return {"type": "tool_result", "tool_use_id": call_id, "content": to_json(clean(result)), **failed}


def to_stored(block: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """The canonical part; `names` are the tools by the ids of their calls, which a result does not repeat."""
    rest: Block = clean({key: value for key, value in block.items() if key != "citations" or value})
    match rest.pop("type", None):
        case "text" if isinstance(rest.get("text"), str):
            return _part("text", rest, {"text": rest.pop("text")})
        case "thinking" if {"thinking", "signature"} <= rest.keys():
            kept = {"text": rest.pop("thinking"), "signature": rest.pop("signature")}
            return _part("thinking", rest, kept)
        case "tool_use":
            call = {key: rest.pop(key, "") for key in ("id", "name")}
            return _part("tool_call", rest, {**call, "arguments": rest.pop("input", {})})
        case "tool_result":
            call_id = rest["tool_use_id"]
            return {
                "type": "tool_result",
                "id": call_id,
                "name": names.get(call_id, ""),
                "result": json.loads(rest["content"]),
            }
        case "web_search_tool_result":
            return {"type": "opaque", "data": clean(block), "text": _found(rest.get("content"))}
    return {"type": "opaque", "data": clean(block)}


def _part(kind: str, rest: Block, kept: Mapping[str, Any]) -> dict[str, Any]:
    """A key that nobody knows yet and that the canonical part has for another meaning is not kept: it could not be."""
    extra = {key: value for key, value in rest.items() if key not in OWN_KEYS[kind]}
    return {"type": kind, **kept, **({"extra": extra} if extra else {})}


def _found(content: Any) -> str:
    """What was found, for a model that cannot read the encrypted results."""
    pages = [page for page in content if isinstance(page, Mapping)] if isinstance(content, list) else []
    lines = [f"- {page.get('title') or 'page'}: {page.get('url', '')}" for page in pages]
    return "\n".join(["Found on the web:", *lines]) if lines else ""


def to_native(part: Mapping[str, Any]) -> Block:
    """The block of a canonical part that this model may read."""
    more = part.get("extra", {})
    match part["type"]:
        case "text":
            return {"type": "text", "text": part["text"], **more}
        case "thinking":
            return {"type": "thinking", "thinking": part["text"], "signature": part["signature"], **more}
        case "tool_call":
            return {"type": "tool_use", "id": part["id"], "name": part["name"], "input": part["arguments"], **more}
        case "tool_result":
            return result_block(part["id"], part["result"])
        case _:
            return dict(part["data"])


def save(contents: Sequence[Content]) -> list[dict[str, Any]]:
    """Native contents as canonical messages."""
    stored: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    for content in contents:
        if content["role"] == "user":
            stored.append(message("user", [to_stored(block, names) for block in content["content"]]))
            continue
        names |= {block["id"]: block["name"] for block in content["content"] if block["type"] == "tool_use"}
        parts = [to_stored(block, {}) for block in content["content"]]
        notes = copy.deepcopy(content["request"]) if "request" in content else None
        stored.append(message("assistant", parts, content.get("producer", {}), notes))
    return stored


def load(messages: Sequence[Mapping[str, Any]], producer: Producer) -> list[Content]:
    """Canonical messages as native contents for `producer`; what only others can read is dropped or flattened.

    Raises ValueError that names the place of what is not the stored form.
    """
    contents: list[Content] = []
    readable = readable_by(messages, producer)
    _check_own(messages, producer)
    for stored in readable:
        parts = [part for part in stored["parts"] if part["type"] != "thinking" or "signature" in part]
        content: Content = {"role": stored["role"], "content": [to_native(part) for part in parts]}
        if "producer" in stored:
            content["producer"] = dict(stored["producer"])
        if "extra" in stored:
            content["request"] = copy.deepcopy(stored["extra"])
        contents.append(content)
    return contents


def _check_own(messages: Sequence[Mapping[str, Any]], producer: Producer) -> None:
    """What the canonical form leaves to the producer: blocks of its own kinds, and its notes."""
    for number, stored in enumerate(messages):
        if not is_own(stored, producer):
            continue
        opaque = [(index, part["data"]) for index, part in enumerate(stored["parts"]) if part["type"] == "opaque"]
        for index, data in opaque:
            problem = block_problem(data)
            if problem:
                raise ValueError(f"messages[{number}].parts[{index}].data.{problem}")
        problem = notes_problem(stored.get("extra", {}))
        if problem:
            raise ValueError(f"messages[{number}].extra.{problem}")
