"""What a stored message is, and the check at the border; `hummingbird_ai.canonical` describes the form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from hummingbird_ai.serialise import clean

VERSION = 1
Message = dict[str, Any]

_JsonObject = dict[str, Any]
_ABSENT: Any = Field(default=None)
"""May be left out, but is never null."""
OWN_KEYS: Mapping[str, frozenset[str]] = {
    "text": frozenset({"type", "text"}),
    "thinking": frozenset({"type", "text", "signature"}),
    "tool_call": frozenset({"type", "id", "name", "arguments"}),
    "tool_result": frozenset({"type", "id", "name", "result"}),
    "opaque": frozenset({"type", "data"}),
}
"""What a part of each type says in the same words to everybody; no key of its `extra` may be called so."""
_TYPES = {"user": "text, tool_result or opaque", "assistant": "text, thinking, tool_call or opaque"}


@dataclass(frozen=True, slots=True)
class Producer:
    """Who made an assistant turn: opaque parts are sent back only to an equal one."""

    provider: str
    transport: str
    model: str

    def to_dict(self) -> dict[str, str]:
        """As it is stored."""
        return asdict(self)


def message(
    role: str,
    parts: Sequence[Mapping[str, Any]],
    producer: Mapping[str, Any] | None = None,
    extra: Mapping[str, Any] | None = None,
) -> Message:
    """One stored message; an empty `producer` or `extra` is left out."""
    stored: Message = {"version": VERSION, "role": role, "parts": [dict(part) for part in parts]}
    if producer:
        stored["producer"] = dict(producer)
    if extra:
        stored["extra"] = dict(extra)
    return stored


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


def is_blank(part: Mapping[str, Any]) -> bool:
    """Text that says nothing, signs nothing and cites nothing: providers refuse it, in every later call too."""
    return part["type"] == "text" and not part["text"].strip() and "signature" not in part and "extra" not in part


def checked(messages: Sequence[Mapping[str, Any]]) -> list[Message]:
    """A copy of stored messages that is known to have the form: own keys in their order, lone surrogates and empty
    text gone. Blank text stays where another text of its message says something: there providers take it, and may
    have bound what follows to it.

    Raises ValueError naming the first place that is not the form and what would be right there.
    """
    if not isinstance(messages, list | tuple):
        raise ValueError("messages: must be a list of stored messages")
    return [_checked(stored, f"messages[{index}]") for index, stored in enumerate(messages)]


def _checked(stored: Any, place: str) -> Message:
    try:
        cleaned = clean(stored)
    except RecursionError:
        raise ValueError(f"{place}: is nested too deeply") from None
    except TypeError as error:
        raise ValueError(f"{place}: {error}") from None
    if not isinstance(cleaned, dict):
        raise ValueError(f"{place}: must be an object with version, role and parts")
    _check_version(cleaned, f"{place}.version")
    try:
        _MESSAGE.validate_python(cleaned)
    except ValidationError as error:
        raise ValueError(_in_words(error, place)) from None
    speaks = any(part["type"] == "text" and part["text"].strip() for part in cleaned["parts"])
    parts = [part for part in cleaned["parts"] if not is_blank(part) or (speaks and part["text"])]
    return {**cleaned, "parts": parts}


def _check_version(stored: Message, place: str) -> None:
    """Before everything else: another version may have another form."""
    if "version" not in stored:
        raise ValueError(f"{place}: is missing; this code reads version {VERSION}")
    version = stored["version"]
    if type(version) is not int or version != VERSION:
        raise ValueError(f"{place}: {_shown(version)} is not known here; this code reads version {VERSION}")


class _Shape(BaseModel):
    """Unknown keys are refused: whatever a producer adds stands in an `extra`."""

    model_config = ConfigDict(extra="forbid", strict=True)


class _Part(_Shape):
    type: str
    extra: _JsonObject = {}

    @model_validator(mode="after")
    def _beside_each_other(self) -> Self:
        """What a producer adds must not take the place of what everybody reads."""
        for name, taken in (("extra", OWN_KEYS[self.type]), ("payload_extra", {"id", "name"})):
            if clash := getattr(self, name, {}).keys() & taken:
                raise PydanticCustomError("taken", "{name}.{key}", {"name": name, "key": min(clash)})
        return self


class _Text(_Part):
    type: Literal["text"]
    text: str
    signature: str = ""


class _Thinking(_Part):
    type: Literal["thinking"]
    text: str
    signature: str = ""


class _ToolCall(_Part):
    type: Literal["tool_call"]
    id: str
    name: str
    arguments: _JsonObject
    signature: str = ""
    minted: bool = False
    payload_extra: _JsonObject = {}


class _ToolResult(_Part):
    type: Literal["tool_result"]
    id: str
    name: str
    result: _JsonObject
    signature: str = ""
    minted: bool = False
    payload_extra: _JsonObject = {}


class _Opaque(_Part):
    type: Literal["opaque"]
    data: _JsonObject
    text: str = ""


class _Producer(_Shape):
    provider: str
    transport: str
    model: str


class _Message(_Shape):
    version: int
    producer: _Producer = _ABSENT
    extra: _JsonObject = {}


class _User(_Message):
    role: Literal["user"]
    parts: list[Annotated[_Text | _ToolResult | _Opaque, Field(discriminator="type")]]


class _Assistant(_Message):
    role: Literal["assistant"]
    parts: list[Annotated[_Text | _Thinking | _ToolCall | _Opaque, Field(discriminator="type")]]


_MESSAGE: TypeAdapter[_User | _Assistant] = TypeAdapter(Annotated[_User | _Assistant, Field(discriminator="role")])


def _in_words(error: ValidationError, place: str) -> str:
    """`messages[3].parts[0].type: must be text, thinking, tool_call or opaque, not 'image'`."""
    first = error.errors(include_url=False)[0]
    kind, steps = first["type"], list(first["loc"])
    role = str(steps.pop(0)) if steps else ""  # pydantic names the branch of a union it took
    if steps[:1] == ["parts"]:
        del steps[2:3]
    where = place + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    if kind.startswith("union_tag"):
        name, right = ("type", _TYPES[role]) if role else ("role", "user or assistant")
        found = first["input"].get(name)
        return f"{where}.{name}: must be {right}" + ("" if found is None else f", not {_shown(found)}")
    if kind == "taken":
        return f"{where}.{first['msg']}: the part itself has this key"
    if kind == "model_type":
        return f"{where}: must be an object, not {_shown(first['input'])}"
    if kind == "missing":
        return f"{where}: is missing"
    if kind == "extra_forbidden":
        return f"{where}: no such key; what a producer adds stands in `extra`"
    return f"{where}: {first['msg'].replace('Input should be', 'must be')}, not {_shown(first['input'])}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
