"""Making stored messages fit to be sent: complete, in order, and free of what only another producer can read.

Every rule looks only at what stands before: loading a session that has grown gives the same beginning, which is what
providers' caches and the signatures of prefix-bound models hold on to.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from hummingbird_ai.canonical_form import Message, Producer, checked, is_own, message

_MAPPED_ID = re.compile(r"call_[0-9a-f]{24}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
"""A tool's name that every provider takes in a call."""
NO_RESULT = {"error": "no result was recorded for this call"}
"""What a model is told of a call that nobody answered."""
NO_START = "(the start of this conversation was not kept)"
"""What the user is taken to have said where a conversation begins with the model."""


def repaired(messages: Sequence[Mapping[str, Any]]) -> list[Message]:
    """The messages in an order every provider accepts; a well-formed list comes back equal.

    All results of an assistant turn stand in the one message after it, in the order of its calls and under their
    names; a missing one is said to be missing, one without a call is dropped; text that stood among results follows
    them. Calls at the very end stay open: their results are yet to come. Raises ValueError for what is not the stored
    form.
    """
    return _ordered(checked(messages))


def readable_by(messages: Sequence[Mapping[str, Any]], producer: Producer) -> list[Message]:
    """The messages as they can be sent to `producer`: checked, repaired, and without what only others can read.

    Its own messages stay as they are. Of others' there stay text (never blank), calls (`type`, `id`, `name`,
    `arguments`) and results (`type`, `id`, `name`, `result`); an opaque part becomes its `text` if it has one. So it is
    with the words of a user's message that names no producer; a result always goes with its call. Others' call ids
    become `[A-Za-z0-9_-]{1,64}`, pairwise, and unique in the conversation; a tool's name of theirs that is not
    `[A-Za-z_][A-Za-z0-9_-]{0,63}` becomes one that is, always the same.

    Equal input gives equal output, and a session cut before an assistant turn gives the beginning of the whole one's.
    Raises ValueError for what is not the stored form.
    """
    ordered = _ordered([_without_foreign_words(stored, producer) for stored in checked(messages)])
    ids = _Ids()
    return [
        _paired(stored, ordered[index - 1] if index else None, producer, ids) for index, stored in enumerate(ordered)
    ]


def _without_foreign_words(stored: Message, producer: Producer) -> Message:
    """All but the results, whose producer is that of the call before them."""
    if stored.get("producer") == producer.to_dict():
        return stored
    parts = [plain for part in stored["parts"] if (plain := _plain(part)) is not None]
    return {key: stored[key] for key in stored if key != "extra"} | {"parts": parts}


def _plain(part: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if part["type"] == "tool_result":
        return part
    if part["type"] == "tool_call":
        return {"type": "tool_call", "id": part["id"], "name": _usual(part["name"]), "arguments": part["arguments"]}
    if part["type"] != "thinking" and part.get("text", "").strip():
        return {"type": "text", "text": part["text"]}
    return None


def _usual(name: str) -> str:
    """A name that every provider takes; another one keeps what can be read of it and is told apart by a hash."""
    if _NAME.fullmatch(name):
        return name
    words = re.sub(r"[^A-Za-z0-9_]+", "_", name)[:40].strip("_") or "tool"
    return f"{'_' if words[0].isdigit() else ''}{words}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _paired(stored: Message, previous: Message | None, producer: Producer, ids: _Ids) -> Message:
    """With safe ids in foreign calls and in the results that answer them."""
    if stored["role"] == "assistant":
        calls = _of_type(stored, "tool_call")
        if is_own(stored, producer):
            ids.keep(calls)
            return stored
        return _renamed(stored, ids.made_for(calls)) if calls else stored
    if previous is None or previous["role"] == "user" or is_own(previous, producer):
        return stored
    results = _of_type(stored, "tool_result")
    return _renamed(stored, ids.latest) if results else stored


def _renamed(stored: Message, ids: Sequence[str]) -> Message:
    """`stored` with these ids on its calls, or on its results."""
    following = iter(ids)
    parts: list[Mapping[str, Any]] = []
    for part in stored["parts"]:
        if part["type"] == "tool_call":
            parts.append({**part, "id": next(following)})
        elif part["type"] == "tool_result":
            parts.append({"type": "tool_result", "id": next(following), "name": part["name"], "result": part["result"]})
        else:
            parts.append(part)
    return {**stored, "parts": parts}


class _Ids:
    """The call ids of one conversation, in its order.

    A foreign id is replaced even if it looks usual: the producer may give the same one in a later turn, which must
    stay as it is, and so must the beginning of the conversation. One that was made here before is left alone.
    """

    def __init__(self) -> None:
        self.latest: list[str] = []
        self._used: set[str] = set()
        self._times: Counter[str] = Counter()

    def keep(self, calls: Sequence[Mapping[str, Any]]) -> None:
        """Note the ids of own calls."""
        for call in calls:
            self._times[call["id"]] += 1
            self._used.add(call["id"])

    def made_for(self, calls: Sequence[Mapping[str, Any]]) -> list[str]:
        """Ids for foreign calls; `latest` holds them for the results that come next."""
        self.latest = [self._made_for(call["id"]) for call in calls]
        return self.latest

    def _made_for(self, call_id: str) -> str:
        made = call_id
        while made in self._used or not _MAPPED_ID.fullmatch(made):
            made = "call_" + hashlib.sha256(f"{self._times[call_id]} {call_id}".encode()).hexdigest()[:24]
            self._times[call_id] += 1
        self._used.add(made)
        return made


def _ordered(messages: Sequence[Message]) -> list[Message]:
    ordered: list[Message] = []
    pending: list[Mapping[str, Any]] = []
    users: list[Message] = []
    for stored in messages:
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
        ordered.insert(0, message("user", [{"type": "text", "text": NO_START}]))
    return ordered


def _of_type(stored: Mapping[str, Any], kind: str) -> list[Mapping[str, Any]]:
    return [part for part in stored["parts"] if part["type"] == kind]


def _answered(calls: Sequence[Mapping[str, Any]], users: Sequence[Message]) -> list[Message]:
    """The user messages between two assistant turns, results first."""
    results = [part for stored in users for part in _of_type(stored, "tool_result")]
    words: list[Message] = []
    for stored in users:
        parts = [part for part in stored["parts"] if part["type"] != "tool_result"]
        if parts:
            words.append({**stored, "parts": parts})
    if not calls:
        return words
    answers = [_result_of(call, results) for call in calls]
    whole = next((stored for stored in users if stored["parts"] == answers), None)
    return [whole or message("user", answers), *words]


def _result_of(call: Mapping[str, Any], results: list[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The result of a call, taken out of the list: in its name, and with an id for the provider if the call has one."""
    named = {"type": "tool_result", "id": call["id"], "name": call["name"]}
    for index, result in enumerate(results):
        if result["id"] == call["id"]:
            found = {**results.pop(index), **named}
            if bool(found.get("minted")) == bool(call.get("minted")):
                return found
            return {key: value for key, value in found.items() if key != "minted"} | _minted(call)
    return {**named, "result": dict(NO_RESULT), **_minted(call)}


def _minted(call: Mapping[str, Any]) -> dict[str, Any]:
    return {"minted": True} if call.get("minted") else {}
