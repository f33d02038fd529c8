"""The provider-neutral types: what an agent hands to a model and what it gets back.

Content is opaque on purpose: only the adapter that made it knows its shape, so that signatures and ids of a
provider survive untouched. Everything here is JSON-able and frozen; nothing here talks to a network.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Any, Protocol

from hummingbird_ai.abort import Abort

Content = dict[str, Any]
"""One turn in a provider's own shape: callers append it, store it, and never look into it or change it."""

DEFAULT_MAX_OUTPUT_TOKENS = 8192


class Finish(StrEnum):
    """Why a model stopped, in classes a caller acts on; `ModelResponse.finish_reason` keeps the provider's word."""

    STOP = "stop"
    TOOL_CALLS = "tool_calls"
    MAX_TOKENS = "max_tokens"
    MALFORMED = "malformed"
    """The model produced a broken call or message: a nudge helps, the same request may too."""
    REFUSED = "refused"
    """The provider's policy: the same request is refused again."""
    EMPTY = "empty"
    """A normal end with nothing in it."""
    UNKNOWN = "unknown"
    """A reason this version does not know; whatever came with it is handed on."""


@dataclass(frozen=True, slots=True)
class ToolDef:
    """A tool as the model sees it; `parameters` is a JSON Schema of type object.

    `notes` are words for the system prompt and are not sent with the declaration.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    notes: str | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call the model asks for; `id` is unique within its turn (minted locally if the provider gave none)."""

    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens billed, as four disjoint counters (output includes thoughts), and the size of the conversation.

    `context_tokens` is the prompt (cached part included) plus the output of the last pass. It is kept apart because an
    answer that took several passes is billed for each of them, while the conversation has grown only once.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    context_tokens: int = 0
    cache_write_1h_tokens: int = 0
    """How many of `cache_write_tokens` are kept for an hour, which costs more."""
    web_searches: int = 0
    """Searches the provider made and bills by the piece."""

    @property
    def total_input_tokens(self) -> int:
        """Everything that went in: fresh, read from a cache, written to a cache."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens

    @property
    def total_tokens(self) -> int:
        """All four counters."""
        return self.total_input_tokens + self.output_tokens

    def __add__(self, later: Usage) -> Usage:
        return Usage(
            self.input_tokens + later.input_tokens,
            self.output_tokens + later.output_tokens,
            self.cache_read_tokens + later.cache_read_tokens,
            self.cache_write_tokens + later.cache_write_tokens,
            later.context_tokens,
            self.cache_write_1h_tokens + later.cache_write_1h_tokens,
            self.web_searches + later.web_searches,
        )


@dataclass(frozen=True, slots=True)
class Source:
    """A page on the web that an answer rests on, as the provider names it."""

    url: str
    title: str = ""


def each_once(sources: Iterable[Source]) -> tuple[Source, ...]:
    """The pages in their order, each under the title it was first named with."""
    found: dict[str, Source] = {}
    for source in sources:
        found.setdefault(source.url, source)
    return tuple(found.values())


@dataclass(frozen=True, slots=True)
class ModelResponse:
    """One answer. `raw_content` is what a caller appends to its history, None if there is nothing worth keeping.

    `finish_reason` is the provider's own word and message; `model_version` the model that really served;
    `cost_usd` is None when that model has no known price; `sources` are pages of the provider's web search, each once.
    """

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    raw_content: Content | None = None
    usage: Usage = field(default_factory=Usage)
    finish: Finish = Finish.STOP
    finish_reason: str = ""
    model_version: str = ""
    cost_usd: Decimal | None = None
    sources: tuple[Source, ...] = ()

    @property
    def usable(self) -> bool:
        """There is text or a tool call in it."""
        return bool(self.text.strip() or self.tool_calls)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able record; `from_dict` gives back an equal response."""
        return {
            "text": self.text,
            "tool_calls": [
                {"id": call.id, "name": call.name, "arguments": dict(call.arguments)} for call in self.tool_calls
            ],
            "raw_content": self.raw_content,
            "usage": asdict(self.usage),
            "finish": self.finish.value,
            "finish_reason": self.finish_reason,
            "model_version": self.model_version,
            "cost_usd": None if self.cost_usd is None else str(self.cost_usd),
            "sources": [asdict(source) for source in self.sources],
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> ModelResponse:
        """Read what `to_dict` wrote; raises ValueError for anything else."""
        try:
            cost = record["cost_usd"]
            return cls(
                text=record["text"],
                tool_calls=tuple(
                    ToolCall(call["id"], call["name"], call["arguments"]) for call in record["tool_calls"]
                ),
                raw_content=record["raw_content"],
                usage=Usage(**record["usage"]),
                finish=Finish(record["finish"]),
                finish_reason=record["finish_reason"],
                model_version=record["model_version"],
                cost_usd=None if cost is None else Decimal(cost),
                sources=tuple(Source(**source) for source in record.get("sources", ())),
            )
        except (KeyError, TypeError, ValueError, InvalidOperation) as error:
            raise ValueError(f"not a recorded model response: {error!r}") from error


class ModelAdapter(Protocol):
    """One conversation's way to one model. Synchronous; an instance serves one call at a time.

    No method changes what it is given. `ephemeral` texts are seen by the model in this call only; the adapter decides
    where they may stand. `allow_tools=False` forbids calls but keeps the declarations, so that prefix caches hold.
    """

    name: str

    def generate(
        self,
        contents: Sequence[Content],
        *,
        system: str,
        tools: Sequence[ToolDef],
        ephemeral: Sequence[str] = (),
        allow_tools: bool = True,
        max_output_tokens: int = DEFAULT_MAX_OUTPUT_TOKENS,
        abort: Abort | None = None,
    ) -> ModelResponse:
        """Call the model once; raises ModelError (CallAborted within a second of `abort.set`)."""
        ...

    def make_user_content(self, text: str) -> Content:
        """A user turn."""
        ...

    def make_tool_responses(self, calls: Sequence[ToolCall], results: Sequence[Mapping[str, Any]]) -> Content:
        """All results of one assistant turn in one content, in the order of its calls."""
        ...

    def to_canonical(self, contents: Sequence[Content]) -> list[dict[str, Any]]:
        """The stored form, readable by every adapter (see `hummingbird_ai.canonical`)."""
        ...

    def from_canonical(self, messages: Sequence[Mapping[str, Any]]) -> list[Content]:
        """Load stored messages; what only another provider, route or model can read is dropped."""
        ...
