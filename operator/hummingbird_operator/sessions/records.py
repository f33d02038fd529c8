"""What stands in a journal's records, and how it is read back. `journal.RunJournal` says when each is written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from hummingbird_ai.messages import ModelResponse, ToolDef, Usage
from hummingbird_operator.errors import Invalid


@dataclass(frozen=True)
class Paid:
    """Tokens and the US dollars that they cost."""

    usage: Usage = field(default_factory=Usage)
    cost_usd: Decimal = Decimal(0)

    def __add__(self, later: Paid) -> Paid:
        return Paid(self.usage + later.usage, self.cost_usd + later.cost_usd)


@dataclass(frozen=True)
class Opening:
    """What a conversation is besides its turns: with it, a run's journal alone tells the whole of it.

    `base` is the run whose saved session was gone on with, empty for a new one; `system` and `tools` are given for a
    new one only, for another has its base's. `said` is the user turn that the run put in front of its first call.
    """

    name: str
    """The run's, for people."""
    workflow: str
    workflow_hash: str
    origin: str
    internal: bool
    model: str
    base: str
    said: str
    system: str = ""
    tools: Sequence[ToolDef] = ()


@dataclass(frozen=True)
class RecordedResponse:
    """An answer that is paid for. `final` says that the call was made without tools.

    `rejected` is what was paid on the way for answers that could not be used.
    """

    response: ModelResponse
    final: bool
    attempt: int
    rejected: Paid = field(default_factory=Paid)


@dataclass(frozen=True)
class RecordedAnswer:
    """How the run's loop ended: after this is written no model call is made for the run."""

    outcome: str
    text: str
    message: str = ""
    iterations: int = 0
    cost_usd: Decimal = Decimal(0)
    usage: Usage = field(default_factory=Usage)
    incomplete: tuple[str, ...] = ()


class Stored(BaseModel):
    """What is kept in a store: nothing is taken for something else, and what a later version adds is passed over."""

    model_config = ConfigDict(extra="ignore", strict=True)


class StoredTool(Stored):
    """A tool's definition."""

    name: str
    description: str
    parameters: dict[str, Any]

    def read(self) -> ToolDef:
        """As it was, to the byte."""
        return ToolDef(self.name, self.description, self.parameters)


class _StoredOpening(Stored):
    name: str
    workflow: str
    workflow_hash: str
    origin: str
    internal: bool
    model: str
    base: str
    said: str
    system: str
    tools: list[StoredTool]


def tool_records(tools: Sequence[ToolDef]) -> list[dict[str, Any]]:
    """What `StoredTool` reads; keys in their order, for a schema must come back byte for byte."""
    return [{"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)} for tool in tools]


def opening_record(opening: Opening) -> dict[str, Any]:
    """The opening as a part of turn 1's intent."""
    fields = {name: getattr(opening, name) for name in _StoredOpening.model_fields}
    return {**fields, "tools": tool_records(opening.tools)}


def opening_in(key: str, record: Mapping[str, Any]) -> Opening | None:
    """The opening in an intent; None where an older version wrote it. Raises Invalid."""
    if "opening" not in record:
        return None
    try:
        stored = _StoredOpening.model_validate(record["opening"])
    except ValidationError as error:
        raise Invalid(key, f"this record cannot be read: {error.errors()[0]['msg']}") from error
    fields = {name: getattr(stored, name) for name in _StoredOpening.model_fields}
    return Opening(**{**fields, "tools": tuple(tool.read() for tool in stored.tools)})


def response_record(recorded: RecordedResponse) -> dict[str, Any]:
    """What `response_in` reads."""
    rejected = recorded.rejected
    return {
        "attempt": recorded.attempt,
        "final": recorded.final,
        "rejected": {"usage": asdict(rejected.usage), "cost_usd": str(rejected.cost_usd)},
        "response": recorded.response.to_dict(),
    }


def response_in(key: str, record: Mapping[str, Any]) -> RecordedResponse:
    """Raises Invalid."""
    try:
        rejected = Paid(Usage(**record["rejected"]["usage"]), Decimal(record["rejected"]["cost_usd"]))
        response = ModelResponse.from_dict(record["response"])
        return RecordedResponse(response, bool(record["final"]), int(record["attempt"]), rejected)
    except (ArithmeticError, KeyError, TypeError, ValueError) as error:
        raise Invalid(key, f"this record cannot be read: {error}") from error


def answer_data(answer: RecordedAnswer) -> bytes:
    """What `answer_in` reads."""
    return dumped({**asdict(answer), "cost_usd": str(answer.cost_usd)})


def answer_in(key: str, data: bytes) -> RecordedAnswer:
    """Raises Invalid."""
    try:
        record = json.loads(data)
        record["cost_usd"] = Decimal(record["cost_usd"])
        record["usage"] = Usage(**record["usage"])
        record["incomplete"] = tuple(record["incomplete"])
        return RecordedAnswer(**record)
    except (ArithmeticError, KeyError, TypeError, ValueError) as error:
        raise Invalid(key, f"this record cannot be read: {error}") from error


def parsed(key: str, data: bytes) -> dict[str, Any]:
    """The JSON object in it. Raises Invalid."""
    try:
        record = json.loads(data)
    except ValueError as error:
        raise Invalid(key, f"this record is not JSON: {error}") from error
    if not isinstance(record, dict):
        raise Invalid(key, "this record is not a JSON object")
    return record


def dumped(record: Mapping[str, Any]) -> bytes:
    """Keys stay in their order: a call's arguments and a tool's result go to the model again, to the byte.

    ASCII: even half a surrogate pair comes back as it was.
    """
    return json.dumps(record).encode()
