"""What stands in a journal's records, and how it is read back. `journal.RunJournal` says when each is written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from hummingbird_ai.messages import Finish, ModelResponse, ToolDef, Usage
from hummingbird_operator.errors import Invalid
from hummingbird_operator.sessions.outcomes import Outcome


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
    new one only, for another has its base's. `said` is the user turn that the run put in front of its first call,
    behind the `before` messages of its base.
    """

    name: str
    """The run's, for people."""
    workflow: str
    workflow_hash: str
    origin: str
    model: str
    base: str
    said: str
    before: int = 0
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
    model: str
    base: str
    said: str
    before: int = Field(ge=0)
    system: str
    tools: list[StoredTool]


def _money(value: object) -> object:
    try:
        return Decimal(value) if isinstance(value, str) else value
    except InvalidOperation:
        return value  # the field says what is wrong with it


_Usd = Annotated[Decimal, BeforeValidator(_money)]


class _StoredUsage(Stored):
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    context_tokens: int = 0
    cache_write_1h_tokens: int = 0
    web_searches: int = 0


class _StoredPaid(Stored):
    usage: _StoredUsage
    cost_usd: _Usd


class _StoredCall(Stored):
    id: str
    name: str
    arguments: dict[str, Any]


class _StoredSource(Stored):
    url: str
    title: str = ""


class _StoredModelResponse(Stored):
    """What `ModelResponse.from_dict` takes on trust."""

    text: str
    tool_calls: list[_StoredCall]
    raw_content: dict[str, Any] | None
    usage: _StoredUsage
    finish: Annotated[Finish, Field(strict=False)]
    finish_reason: str
    model_version: str
    cost_usd: _Usd | None
    sources: list[_StoredSource] = []


class _StoredIntent(Stored):
    worst_case_usd: _Usd
    opening: _StoredOpening | None = None


class _StoredResponse(Stored):
    attempt: int
    final: bool
    rejected: _StoredPaid
    response: _StoredModelResponse


class _StoredResults(Stored):
    results: list[dict[str, Any]]


class _StoredQuestion(Stored):
    text: str
    cut: bool
    runs: list[str]


class _StoredAnswer(Stored):
    outcome: Annotated[Outcome, Field(strict=False)]
    text: str
    message: str = ""
    iterations: int = 0
    cost_usd: _Usd = Decimal(0)
    usage: _StoredUsage = _StoredUsage()
    incomplete: list[str] = []


def tool_records(tools: Sequence[ToolDef]) -> list[dict[str, Any]]:
    """What `StoredTool` reads; keys in their order, for a schema must come back byte for byte."""
    return [{"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)} for tool in tools]


def opening_record(opening: Opening) -> dict[str, Any]:
    """The opening as a part of turn 1's intent."""
    fields = {name: getattr(opening, name) for name in _StoredOpening.model_fields}
    return {**fields, "tools": tool_records(opening.tools)}


def opening_in(key: str, record: Mapping[str, Any]) -> Opening | None:
    """The opening in an intent; None where an older version wrote it. Raises Invalid."""
    stored = _checked(_StoredIntent, key, record).opening
    if stored is None:
        return None
    fields = {name: getattr(stored, name) for name in _StoredOpening.model_fields}
    return Opening(**{**fields, "tools": tuple(tool.read() for tool in stored.tools)})


def worst_case_in(key: str, record: Mapping[str, Any]) -> Decimal:
    """What the call of an intent may cost, in US dollars. Raises Invalid."""
    return _checked(_StoredIntent, key, record).worst_case_usd


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
    stored = _checked(_StoredResponse, key, record)
    rejected = Paid(_usage(stored.rejected.usage), stored.rejected.cost_usd)
    try:
        response = ModelResponse.from_dict(record["response"])
    except ValueError as error:
        raise Invalid(key, f"this record cannot be read: {error}") from error
    return RecordedResponse(response, stored.final, stored.attempt, rejected)


def results_in(key: str, record: Mapping[str, Any], calls: int | None) -> list[dict[str, Any]]:
    """The results of a turn, of so many calls if that is known. Raises Invalid."""
    results = _checked(_StoredResults, key, record).results
    if calls is not None and len(results) != calls:
        raise Invalid(key, f"this record cannot be read: it has {len(results)} results for {calls} calls")
    return results


def question_in(key: str, record: Mapping[str, Any]) -> dict[str, Any]:
    """Raises Invalid."""
    return _checked(_StoredQuestion, key, record).model_dump()


def answer_data(answer: RecordedAnswer) -> bytes:
    """What `answer_in` reads."""
    return dumped({**asdict(answer), "cost_usd": str(answer.cost_usd)})


def answer_in(key: str, data: bytes) -> RecordedAnswer:
    """Raises Invalid."""
    stored = _checked(_StoredAnswer, key, parsed(key, data))
    fields = {name: getattr(stored, name) for name in _StoredAnswer.model_fields}
    return RecordedAnswer(**{**fields, "usage": _usage(stored.usage), "incomplete": tuple(stored.incomplete)})


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


_S = TypeVar("_S", bound=Stored)


def _checked(kind: type[_S], key: str, record: Mapping[str, Any]) -> _S:
    try:
        return kind.model_validate(record)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise Invalid(key, f"this record cannot be read: {where}: {first['msg']}") from error


def _usage(stored: _StoredUsage) -> Usage:
    return Usage(**stored.model_dump())
