"""The stored form of a conversation, readable by every adapter.

A message is `{"version": 1, "role": "user" | "assistant", "parts": […]}`; an assistant one also names its `producer`
(`provider`, `transport`, `model`), because signatures and server-side blocks mean something only to that one. Parts:

    {"type": "text", "text", "signature"?}
    {"type": "thinking", "text", "signature"?}                    only its producer can read it
    {"type": "tool_call", "id", "name", "arguments", "signature"?, "minted"?}
    {"type": "tool_result", "id", "name", "result", "minted"?}     `minted`: the provider gave no id, none is sent back
    {"type": "opaque", "data", "text"?}                           only its producer can read it; `text` is for others

A part may carry `extra` keys of its producer. Signatures and ids are strings that nobody decodes or changes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

VERSION = 1
Message = dict[str, Any]

_SAFE_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NO_RESULT = {"error": "no result was recorded for this call"}


@dataclass(frozen=True, slots=True)
class Producer:
    """Who made an assistant turn: opaque parts are sent back only to an equal one."""

    provider: str
    transport: str
    model: str

    def to_dict(self) -> dict[str, str]:
        """As it is stored."""
        return asdict(self)


def message(role: str, parts: Sequence[Mapping[str, Any]], producer: Mapping[str, Any] | None = None) -> Message:
    """One stored message."""
    stored: Message = {"version": VERSION, "role": role, "parts": [dict(part) for part in parts]}
    return stored if producer is None else {**stored, "producer": dict(producer)}


def is_own(stored: Mapping[str, Any], producer: Producer) -> bool:
    """Whether this very provider, route and model made the message; a user's without a producer is everybody's."""
    if stored["role"] == "user" and "producer" not in stored:
        return True
    return bool(stored.get("producer") == producer.to_dict())


def local_id(turn: int, number: int) -> str:
    """The id of a call that came without one: `turn` is its message's index, so it is unique in a conversation."""
    return f"hb-local-{turn}-{number}"


def is_local_id(call_id: str) -> bool:
    """Whether `local_id` made it: the provider must not get to see it."""
    return call_id.startswith("hb-local-")


def repaired(messages: Sequence[Mapping[str, Any]]) -> list[Message]:
    """The messages in an order every provider accepts; a well-formed list comes back equal.

    All results of an assistant turn stand in the one message after it, in the order of its calls; a missing one is
    said to be missing, one without a call is dropped; text that stood among results follows them. Calls at the very
    end stay open: their results are yet to come. Raises ValueError for a version or shape this code does not know.
    """
    ordered: list[Message] = []
    pending: list[Mapping[str, Any]] = []
    users: list[Message] = []
    for stored in [_checked(item) for item in messages]:
        if stored["role"] == "user":
            users.append(stored)
            continue
        ordered += _answered(pending, users)
        users = []
        pending = _of_type(stored, "tool_call")
        if stored["parts"]:
            ordered.append(stored)
    ordered += _answered(pending if users else [], users)
    if ordered and ordered[0]["role"] != "user":
        ordered.insert(0, message("user", [{"type": "text", "text": "(the start of this conversation was not kept)"}]))
    return ordered


def with_safe_ids(messages: Sequence[Mapping[str, Any]], producer: Producer) -> list[Message]:
    """Other producers' call ids, mapped pairwise where they are unusual or used twice; `repaired` comes first."""
    seen = {part["id"] for stored in messages if is_own(stored, producer) for part in _of_type(stored, "tool_call")}
    mapped: list[Message] = []
    renamed: list[str] | None = None
    for stored in messages:
        kind = "tool_call" if stored["role"] == "assistant" else "tool_result"
        if kind == "tool_call":
            foreign = not is_own(stored, producer)
            renamed = [_safe_id(part["id"], seen) for part in _of_type(stored, kind)] if foreign else None
        mapped.append({**stored, "parts": _renamed(stored["parts"], kind, renamed)} if renamed else dict(stored))
    return mapped


def _renamed(parts: Sequence[Mapping[str, Any]], kind: str, ids: Sequence[str]) -> list[Mapping[str, Any]]:
    following = iter(ids)
    return [
        {**{key: part[key] for key in part if key != "minted"}, "id": next(following)} if part["type"] == kind else part
        for part in parts
    ]


def _safe_id(call_id: str, seen: set[str]) -> str:
    safe = call_id
    attempt = 0
    while safe in seen or not _SAFE_ID.fullmatch(safe):
        safe = "call_" + hashlib.sha256(f"{attempt} {call_id}".encode()).hexdigest()[:24]
        attempt += 1
    seen.add(safe)
    return safe


def _checked(stored: Mapping[str, Any]) -> Message:
    if stored.get("version") != VERSION:
        raise ValueError(f"a stored message has version {stored.get('version')!r}; this code reads {VERSION}")
    if stored.get("role") not in ("user", "assistant") or not isinstance(stored.get("parts"), list):
        raise ValueError("a stored message has no role or no parts")
    parts = [part for part in stored["parts"] if not is_blank(part)]
    return {**stored, "parts": parts}


def is_blank(part: Mapping[str, Any]) -> bool:
    """Text that says nothing and signs nothing: providers refuse it, in every later call too."""
    return part["type"] == "text" and not part["text"].strip() and "signature" not in part


def _of_type(stored: Mapping[str, Any], kind: str) -> list[Mapping[str, Any]]:
    return [part for part in stored["parts"] if part["type"] == kind]


def _answered(calls: list[Mapping[str, Any]], users: list[Message]) -> list[Message]:
    """The user messages between two assistant turns, results first."""
    results = [part for stored in users for part in _of_type(stored, "tool_result")]
    words: list[Message] = []
    for stored in users:
        parts = [part for part in stored["parts"] if part["type"] != "tool_result"]
        if parts:
            words.append({**stored, "parts": parts})
    if not calls:
        return words
    return [message("user", [_result_of(call, results) for call in calls]), *words]


def _result_of(call: Mapping[str, Any], results: list[Mapping[str, Any]]) -> Mapping[str, Any]:
    for index, result in enumerate(results):
        if result["id"] == call["id"]:
            return results.pop(index)
    marks = {"minted": True} if call.get("minted") else {}
    return {"type": "tool_result", "id": call["id"], "name": call["name"], "result": dict(_NO_RESULT), **marks}
