"""Claude on Vertex AI, by `rawPredict`."""

from __future__ import annotations

import base64
import copy
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hummingbird_ai.abort import Abort
from hummingbird_ai.canonical import Producer
from hummingbird_ai.errors import ContextOverflow, ModelError, Unfinished
from hummingbird_ai.http import CALL_SECONDS, new_session
from hummingbird_ai.messages import (
    DEFAULT_MAX_OUTPUT_TOKENS,
    Content,
    Finish,
    ModelResponse,
    ToolCall,
    ToolDef,
    Usage,
)
from hummingbird_ai.pricing import Prices, minimum_cacheable_tokens
from hummingbird_ai.providers import given
from hummingbird_ai.providers.claude import blocks as claude_blocks
from hummingbird_ai.providers.claude import caching, reply
from hummingbird_ai.providers.claude.checks import has_broken_calls
from hummingbird_ai.providers.claude.errors import from_reply, is_prefix_changed, is_system_refused
from hummingbird_ai.providers.claude.request import Draft, draft, without_blanks
from hummingbird_ai.providers.claude.tools import declarations
from hummingbird_ai.providers.claude.traits import Ephemeral, ephemeral_of
from hummingbird_ai.providers.google.endpoints import VertexEndpoint
from hummingbird_ai.providers.google.exchange import exchange
from hummingbird_ai.providers.served import Tariff
from hummingbird_ai.serialise import encode

MAX_PASSES = 11
"""Requests one answer may take when Claude pauses to go on with its searches: ten continuations."""

MAX_REQUEST_BYTES = 30_000_000
"""What Vertex AI takes for Claude."""

DEFAULT_VERSION = "vertex-2023-10-16"
CLEAR_AT_BETA = "mid-conversation-system-clear-at-2026-08-21"
WEB_SEARCH_BETA = "web-search-2025-03-05"
"""Needed on Vertex AI only: without it the search tool is an unknown tag (ax-llm/ax#457, BerriAI/litellm#16269)."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Ask:
    """What `generate` was given, with the tools as they are declared."""

    contents: Sequence[Content]
    system: str
    tools: tuple[dict[str, Any], ...]
    ephemeral: Sequence[str]
    allow_tools: bool
    max_output_tokens: int


class AnthropicVertexModel:
    """The adapter of one conversation. `seconds` bounds one HTTP call from its first to its last byte.

    `version` is the body's `anthropic_version`.
    """

    def __init__(
        self,
        name: str,
        endpoint: VertexEndpoint,
        *,
        labels: Mapping[str, str] | None = None,
        web_search: bool = False,
        prices: Prices | None = None,
        version: str = DEFAULT_VERSION,
        seconds: float = CALL_SECONDS,
    ) -> None:
        self.name = name
        self._endpoint = endpoint
        self._labels = dict(labels or {})
        self._web_search = web_search
        self._version = version
        self._seconds = seconds
        self._session = new_session()
        self._producer = Producer("anthropic", endpoint.transport, name)
        self._tariff = Tariff(name, endpoint.region, prices)
        self._way = ephemeral_of(name)
        self._cached = False
        self._thinking_from = 0

    def __repr__(self) -> str:
        return f"AnthropicVertexModel({self.name!r}, {self._endpoint!r})"

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
        """One answer, over as many passes as Claude's own searches need for it; see `ModelAdapter`."""
        given.conversation(contents, key="content")
        declared = tuple(declarations(tools, web_search=self._web_search))
        ask = _Ask(contents, system, declared, ephemeral, allow_tools, max_output_tokens)
        passes: list[reply.Pass] = []
        try:
            body, notes = self._body(ask)
            while True:
                try:
                    passes.append(self._call(_continued(body, passes), abort))
                except ModelError as error:
                    if passes:
                        raise
                    self._repair(ask, error, body)
                    body, notes = self._body(ask)
                    continue
                if passes[-1].reason != reply.PAUSED:
                    return self._answer(passes, notes)
                if len(passes) == MAX_PASSES:
                    raise Unfinished(f"the provider paused {MAX_PASSES} times and is not done")
        except ModelError as error:
            if passes:
                error.billed = replace(self._response(passes, {}), raw_content=None)
            raise

    def make_user_content(self, text: str) -> Content:
        """A user turn."""
        return {"role": "user", "content": [{"type": "text", "text": given.user_text(text)}]}

    def make_tool_responses(self, calls: Sequence[ToolCall], results: Sequence[Mapping[str, Any]]) -> Content:
        """All results in one user content, in call order."""
        answered = [claude_blocks.result_block(call.id, result) for call, result in given.pairs(calls, results)]
        return {"role": "user", "content": answered}

    def to_canonical(self, contents: Sequence[Content]) -> list[dict[str, Any]]:
        """The stored form."""
        return claude_blocks.save(contents)

    def from_canonical(self, messages: Sequence[Mapping[str, Any]]) -> list[Content]:
        """Own turns come back byte for byte; others' lose what only they can read."""
        return claude_blocks.load(messages, self._producer)

    def _body(self, ask: _Ask) -> tuple[dict[str, Any], dict[str, Any]]:
        """The request's body, and what the answer's content has to remember of it.

        Nothing in it depends on anything but the arguments and the adapter's settings.
        """
        drafted: Draft = draft(
            ask.contents,
            ask.ephemeral,
            self._way,
            web_search=self._web_search,
            thinking_from=self._thinking_from,
        )
        marked = caching.mark(drafted.messages, stable=drafted.stable, previous=drafted.previous)
        body: dict[str, Any] = {"anthropic_version": self._version, "max_tokens": ask.max_output_tokens}
        if system := given.prompt(ask.system):
            body["system"] = caching.mark_system(system)
        if ask.tools:
            body["tools"] = list(ask.tools)
            if not ask.allow_tools:
                body["tool_choice"] = {"type": "none"}
        body["messages"] = marked.messages
        written = {} if marked.written is None else {"cached_to": marked.written}
        return body, {**drafted.notes, **written}

    def _repair(self, ask: _Ask, error: ModelError, body: Mapping[str, Any]) -> None:
        """Put the conversation, from now on, so that it is taken; raises `error` itself if nothing is left to do."""
        if is_prefix_changed(error):
            if self._thinking_from == len(ask.contents):
                raise error
            _log.warning("%s: its old thinking is left out, for it is refused: %s", self.name, error.problem)
            self._thinking_from = len(ask.contents)
            return
        if is_system_refused(error) and self._way is Ephemeral.CLEAR_AT and _has_system_messages(body):
            _log.warning("%s takes no system messages here: warnings stay in the conversation", self.name)
            self._way = Ephemeral.KEPT
            return
        raise error

    def _call(self, body: Mapping[str, Any], abort: Abort | None) -> reply.Pass:
        answer = exchange(
            self._session,
            self._endpoint,
            lambda: self._endpoint.url(self.name, publisher="anthropic", method="rawPredict"),
            encode(body),
            headers=self._headers(body),
            seconds=self._seconds,
            max_bytes=MAX_REQUEST_BYTES,
            abort=abort,
        )
        if answer.status != 200:
            raise from_reply(answer, self._endpoint.secrets)
        return reply.read(answer, self._endpoint.secrets)

    def _headers(self, body: Mapping[str, Any]) -> dict[str, str]:
        headers = {"Content-Type": "application/json"}
        betas = [WEB_SEARCH_BETA] if self._web_search else []
        if _has_system_messages(body):
            betas.append(CLEAR_AT_BETA)
        if betas:
            headers["anthropic-beta"] = ",".join(betas)
        if self._labels:
            headers["X-Vertex-AI-Labels"] = base64.b64encode(encode(self._labels)).decode()
        return headers

    def _answer(self, passes: Sequence[reply.Pass], notes: Mapping[str, Any]) -> ModelResponse:
        if passes[-1].reason == reply.WINDOW_FULL:
            raise ContextOverflow("the answer filled the model's context window and was cut")
        return self._response(passes, notes)

    def _response(self, passes: Sequence[reply.Pass], notes: Mapping[str, Any]) -> ModelResponse:
        last = passes[-1]
        self._look_at_cache(passes[0].usage)
        kept = [block for item in passes for block in item.blocks]
        cut = last.reason == "max_tokens" and bool(kept) and kept[-1]["type"] == "tool_use"
        if cut:
            kept.pop()  # what is there of it is not what the model meant
        calls = tuple(_calls(kept))
        text = reply.text_of(kept)
        finish = reply.finish_of(last.reason, text=text, calls=len(calls))
        if finish is Finish.REFUSED:  # a partial answer is to be thrown away
            text, calls, kept = "", (), []
        elif has_broken_calls(kept):
            finish = Finish.MALFORMED
            calls, kept = (), [block for block in kept if block["type"] != "tool_use"]
        elif cut and not calls:  # the words before it are not the answer
            finish = Finish.MALFORMED
        return ModelResponse(
            text=text,
            tool_calls=calls,
            raw_content=self._raw(kept, notes) if text.strip() or calls or _searched(kept) else None,
            usage=sum((item.usage for item in passes), Usage()),
            finish=finish,
            finish_reason=": ".join(word for word in (last.reason, last.message) if word),
            model_version=last.model_version or self.name,
            cost_usd=self._tariff.cost((item.model_version, item.usage) for item in passes),
            sources=reply.sources_of(kept),
        )

    def _look_at_cache(self, usage: Usage) -> None:
        """Say once that a prompt which is long enough was not cached: providers change what is enough, in silence."""
        enough = usage.total_input_tokens > minimum_cacheable_tokens(self.name)
        if usage.cache_read_tokens or usage.cache_write_tokens:
            self._cached = True
        elif enough and not self._cached:
            self._cached = True
            _log.warning("%s cached nothing of a prompt of %d tokens", self.name, usage.total_input_tokens)

    def _raw(self, kept: list[dict[str, Any]], notes: Mapping[str, Any]) -> Content:
        content: Content = {"role": "assistant", "content": kept, "producer": self._producer.to_dict()}
        return {**content, "request": dict(notes)} if notes else content


def _continued(body: Mapping[str, Any], passes: Sequence[reply.Pass]) -> dict[str, Any]:
    """The body with what came so far as the model's own beginning: it goes on from there."""
    begun = without_blanks([block for item in passes for block in item.blocks])
    more = [{"role": "assistant", "content": begun}] if begun else []
    return {**body, "messages": [*body["messages"], *more]}


def _calls(kept: Sequence[Mapping[str, Any]]) -> Iterator[ToolCall]:
    for block in kept:
        if block["type"] == "tool_use":
            yield ToolCall(block["id"], block["name"], copy.deepcopy(block["input"]))


def _searched(kept: Sequence[Mapping[str, Any]]) -> bool:
    return any(block["type"] == "web_search_tool_result" for block in kept)


def _has_system_messages(body: Mapping[str, Any]) -> bool:
    return any(message["role"] == "system" for message in body["messages"])
