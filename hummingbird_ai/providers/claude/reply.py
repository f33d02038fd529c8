"""Reading what `rawPredict` answers: blocks, usage and the reason it stopped."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from hummingbird_ai.http import HttpReply
from hummingbird_ai.messages import Finish, Source, Usage, each_once
from hummingbird_ai.providers.claude.blocks import Block, normalised
from hummingbird_ai.providers.claude.checks import block_problem
from hummingbird_ai.providers.claude.errors import from_error, own_error
from hummingbird_ai.providers.google.errors import SHOWN_BODY, redacted, unreadable
from hummingbird_ai.providers.wire import NULL_IS_EMPTY, NULL_IS_NO_LIST, Count, first_problem

PAUSED = "pause_turn"
SHOWN_WORD = 100
"""A word of the provider becomes a label and a part of a message: so many characters of it."""
WINDOW_FULL = "model_context_window_exceeded"

_FINISH: Mapping[str, Finish] = {
    "end_turn": Finish.STOP,
    "stop_sequence": Finish.STOP,
    "tool_use": Finish.STOP,
    "max_tokens": Finish.MAX_TOKENS,
    WINDOW_FULL: Finish.MAX_TOKENS,
    PAUSED: Finish.MAX_TOKENS,
    "refusal": Finish.REFUSED,
}


class _Wire(BaseModel):
    """Fields that this version does not know are let through: the API gets some every month."""

    model_config = ConfigDict(extra="ignore")


class _CacheCreation(_Wire):
    ephemeral_1h_input_tokens: Count = 0


class _Searches(_Wire):
    web_search_requests: Count = 0


class _Counters(_Wire):
    input_tokens: Count = 0
    output_tokens: Count = 0
    cache_read_input_tokens: Count = 0
    cache_creation_input_tokens: Count = 0

    @property
    def context(self) -> int:
        return self.input_tokens + self.cache_read_input_tokens + self.cache_creation_input_tokens + self.output_tokens


class _Iteration(_Counters):
    type: Any = None


class _Usage(_Counters):
    cache_creation: Annotated[_CacheCreation, NULL_IS_EMPTY] = _CacheCreation()
    server_tool_use: Annotated[_Searches, NULL_IS_EMPTY] = _Searches()
    iterations: Annotated[list[_Iteration], NULL_IS_NO_LIST] = []


class _StopDetails(_Wire):
    category: str | None = None
    explanation: str | None = None


class _Reply(_Wire):
    content: Annotated[list[dict[str, Any]], NULL_IS_NO_LIST]
    stop_reason: str | None = None
    stop_details: Annotated[_StopDetails, NULL_IS_EMPTY] = _StopDetails()
    model: str | None = None
    usage: Annotated[_Usage, NULL_IS_EMPTY] = _Usage()


@dataclass(frozen=True, slots=True)
class Pass:
    """One HTTP answer: its blocks, Claude's word for its end, and what it is billed."""

    blocks: tuple[Block, ...]
    reason: str
    message: str
    usage: Usage
    model_version: str


def read(reply: HttpReply, secrets: Sequence[str] = ()) -> Pass:
    """Read a 200; raises MalformedReply, or the error that came in its body."""
    document = _document(reply, secrets)
    own = own_error(document)
    if own is not None:
        raise from_error(own, reply.status, reply.headers, secrets)
    answer, blocks = _parsed(document, reply, secrets)
    details = answer.stop_details
    return Pass(
        blocks,
        (answer.stop_reason or "")[:SHOWN_WORD],
        ": ".join(redacted(word, secrets)[:SHOWN_BODY] for word in (details.category, details.explanation) if word),
        _usage(answer.usage, unbilled=answer.stop_reason == "refusal" and not blocks),
        (answer.model or "")[:SHOWN_WORD],
    )


def _document(reply: HttpReply, secrets: Sequence[str]) -> Any:
    try:
        return json.loads(reply.body)
    except (ValueError, RecursionError) as error:
        broken = type(error).__name__
    raise unreadable(reply, f"not JSON ({broken})", secrets)  # outside: the parser's error holds the whole body


def _parsed(document: Any, reply: HttpReply, secrets: Sequence[str]) -> tuple[_Reply, tuple[Block, ...]]:
    try:
        answer = _Reply.model_validate(document)
        problem = next(filter(None, map(block_problem, answer.content)), "")
        if not problem:
            return answer, tuple(normalised(block) for block in answer.content)
    except ValidationError as error:
        problem = first_problem(error)
    except RecursionError:
        problem = "nested too deeply"
    raise unreadable(reply, f"not an answer of Claude ({problem})", secrets)


def _usage(counted: _Usage, *, unbilled: bool) -> Usage:
    """Four disjoint counters of one answer; a refusal before the first word is counted by the API and not billed.

    Where the provider's own tools ran, the counters are sums over several looks at the conversation; its size is that
    of the last one.
    """
    looks = [look for look in counted.iterations if look.type == "message"]
    context = looks[-1].context if looks else counted.context
    if unbilled:
        return Usage(context_tokens=context)
    return Usage(
        input_tokens=counted.input_tokens,
        output_tokens=counted.output_tokens,
        cache_read_tokens=counted.cache_read_input_tokens,
        cache_write_tokens=counted.cache_creation_input_tokens,
        context_tokens=context,
        cache_write_1h_tokens=min(
            counted.cache_creation.ephemeral_1h_input_tokens, counted.cache_creation_input_tokens
        ),
        web_searches=counted.server_tool_use.web_search_requests,
    )


def finish_of(reason: str, *, text: str, calls: int) -> Finish:
    """The class of Claude's word, given what came with it; a word nobody knows is UNKNOWN, never an error."""
    finish = _FINISH.get(reason, Finish.UNKNOWN)
    if finish is not Finish.STOP:
        return finish
    if calls:
        return Finish.TOOL_CALLS
    return Finish.STOP if text.strip() else Finish.EMPTY


def text_of(blocks: Sequence[Block]) -> str:
    """The words of an answer: cited pieces of one sentence stand together, what a search came between stands apart."""
    pieces: list[str] = []
    apart = False
    for block in blocks:
        if block["type"] != "text":
            apart = bool(pieces)
            continue
        pieces.append(f"\n\n{block['text']}" if apart and block["text"].strip() else block["text"])
        apart = False
    return "".join(pieces)


def sources_of(blocks: Sequence[Block]) -> tuple[Source, ...]:
    """The pages that the words cite, each once."""
    return each_once(_cited(blocks))


def _cited(blocks: Sequence[Block]) -> Iterator[Source]:
    for block in blocks:
        for citation in block.get("citations") or ():
            if isinstance(citation, Mapping) and citation.get("url"):
                yield Source(str(citation["url"]), str(citation.get("title") or ""))
