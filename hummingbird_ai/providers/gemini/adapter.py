"""Gemini, by the Gemini API with a key or by Vertex AI with Google credentials."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from hummingbird_ai.abort import Abort
from hummingbird_ai.canonical import Producer, is_local_id, local_id
from hummingbird_ai.errors import BadRequest, ModelError
from hummingbird_ai.http import CALL_SECONDS, cuttable, new_session, post
from hummingbird_ai.messages import (
    DEFAULT_MAX_OUTPUT_TOKENS,
    Content,
    Finish,
    ModelResponse,
    ToolCall,
    ToolDef,
    Usage,
)
from hummingbird_ai.pricing import Prices, estimate_cost, find_price
from hummingbird_ai.providers.gemini import parts as gemini_parts
from hummingbird_ai.providers.gemini import reply as gemini_reply
from hummingbird_ai.providers.gemini.schema import declarations
from hummingbird_ai.providers.google.endpoints import Endpoint
from hummingbird_ai.providers.google.errors import from_reply
from hummingbird_ai.serialise import clean, encode

MAX_PASSES = 10
"""Requests one answer may take when Gemini splits it (`CONTINUATION`); then what is there counts as cut."""

_log = logging.getLogger(__name__)


class GeminiModel:
    """The adapter of one conversation. `seconds` bounds one HTTP call from its first to its last byte."""

    def __init__(
        self,
        name: str,
        endpoint: Endpoint,
        *,
        labels: Mapping[str, str] | None = None,
        prices: Prices | None = None,
        seconds: float = CALL_SECONDS,
    ) -> None:
        self.name = name
        self._endpoint = endpoint
        self._labels = dict(labels or {}) if endpoint.takes_labels else {}
        self._prices = prices
        self._seconds = seconds
        self._session = new_session()
        self._producer = Producer("google", endpoint.transport, name)
        self._rerouted: set[str] = set()

    def __repr__(self) -> str:
        return f"GeminiModel({self.name!r}, {self._endpoint!r})"

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
        """One answer, over as many passes as Gemini needs for it; see `ModelAdapter`."""
        body = self._request(contents, system, tools, ephemeral, allow_tools, max_output_tokens)
        passes: list[gemini_reply.Pass] = []
        try:
            while True:
                passes.append(self._call(body, abort))
                token = passes[-1].continuation_token
                if passes[-1].reason != gemini_reply.CONTINUATION or not token or len(passes) == MAX_PASSES:
                    return self._response(passes, len(contents))
                body = {**body, "continuationToken": token}
        except ModelError as error:
            if passes:
                error.billed = replace(self._response(passes, len(contents)), raw_content=None)
            raise

    def make_user_content(self, text: str) -> Content:
        """A user turn."""
        return {"role": "user", "parts": [{"text": clean(text)}]}

    def make_tool_responses(self, calls: Sequence[ToolCall], results: Sequence[Mapping[str, Any]]) -> Content:
        """All results in one user content, in call order; an id is echoed only if Gemini gave it."""
        if len(calls) != len(results):
            raise ValueError(f"{len(calls)} calls but {len(results)} results: every call gets one")
        parts = []
        for call, result in zip(calls, results, strict=True):
            echoed = {} if is_local_id(call.id) else {"id": call.id}
            response = gemini_parts.without_references(clean(result))
            parts.append({"functionResponse": {**echoed, "name": call.name, "response": response}})
        return {"role": "user", "parts": parts}

    def to_canonical(self, contents: Sequence[Content]) -> list[dict[str, Any]]:
        """The stored form."""
        return gemini_parts.save(contents, self._producer)

    def from_canonical(self, messages: Sequence[Mapping[str, Any]]) -> list[Content]:
        """Own turns come back byte for byte; others' lose what only they can read."""
        return gemini_parts.load(messages, self._producer)

    def _request(
        self,
        contents: Sequence[Content],
        system: str,
        tools: Sequence[ToolDef],
        ephemeral: Sequence[str],
        allow_tools: bool,
        max_output_tokens: int,
    ) -> dict[str, Any]:
        """The request's body. Nothing in it depends on anything but the arguments and the adapter's settings."""
        signed = gemini_parts.needs_signatures(self.name)
        turns = [outgoing for content in contents if (outgoing := _outgoing(content, signed))["parts"]]
        if not turns:
            raise BadRequest("there is nothing to answer: the conversation has no text")
        words = [{"text": text} for text in ephemeral if text.strip()]
        if words:  # never beside function responses: Gemini would take the whole content for its own
            turns.append({"role": "user", "parts": words})
        body: dict[str, Any] = {"contents": _alternating(turns)}
        if system.strip():
            body["systemInstruction"] = {"parts": [{"text": system}]}
        if tools:
            body["tools"] = [{"functionDeclarations": declarations(tools)}]
            if not allow_tools:
                body["toolConfig"] = {"functionCallingConfig": {"mode": "NONE"}}
        body["generationConfig"] = {"maxOutputTokens": max_output_tokens}
        if self._labels:
            body["labels"] = self._labels
        return body

    def _call(self, body: Mapping[str, Any], abort: Abort | None) -> gemini_reply.Pass:
        data = encode(body)
        common = {"Content-Type": "application/json", "X-Server-Timeout": str(math.ceil(self._seconds))}
        for renew in (False, True):
            with cuttable(abort):  # credentials may have to be fetched first
                url, authorisation = self._endpoint.url(self.name), self._endpoint.headers(renew=renew)
            headers = {**common, **authorisation}
            reply = post(self._session, url, body=data, headers=headers, seconds=self._seconds, abort=abort)
            if reply.status != 401 or not self._endpoint.renewable:
                break
        if reply.status != 200:
            raise from_reply(reply, self._endpoint.secrets)
        return gemini_reply.read(reply, self._endpoint.secrets)

    def _response(self, passes: Sequence[gemini_reply.Pass], turn: int) -> ModelResponse:
        last = passes[-1]
        parts = [part for item in passes for part in item.parts]
        stored = [gemini_parts.to_stored(part, local_id(turn, number)) for number, part in enumerate(parts)]
        text = "".join(part["text"] for part in stored if part["type"] == "text")
        calls = tuple(
            ToolCall(part["id"], part["name"], part["arguments"]) for part in stored if part["type"] == "tool_call"
        )
        finish = gemini_reply.finish_of(last.reason, text=text, calls=len(calls))
        if any(not call.name for call in calls):
            finish = Finish.MALFORMED
        if finish is Finish.MALFORMED:  # a call that is broken or was not allowed must not stay in the history
            calls, parts = (), [part for part in parts if "functionCall" not in part]
        elif finish is Finish.REFUSED:  # a partial answer is to be thrown away
            text, calls, parts = "", (), []
        return ModelResponse(
            text=text,
            tool_calls=calls,
            raw_content=self._raw(parts) if text.strip() or calls else None,
            usage=sum((item.usage for item in passes), Usage()),
            finish=finish,
            finish_reason=": ".join(word for word in (last.reason, last.message) if word),
            model_version=last.model_version or self.name,
            cost_usd=self._cost(passes),
        )

    def _raw(self, parts: list[dict[str, Any]]) -> Content:
        return {"role": "model", "parts": parts, "producer": self._producer.to_dict()}

    def _cost(self, passes: Sequence[gemini_reply.Pass]) -> Decimal | None:
        """By the model that served, pass by pass: each is billed as a request of its own."""
        total = Decimal(0)
        for item in passes:
            served = self._served(item.model_version)
            cost = estimate_cost(served, item.usage, prices=self._prices, region=self._endpoint.region)
            if cost is None:
                return None
            total += cost
        return total

    def _served(self, version: str) -> str:
        """The name to price by; a person's own price for the name they configured stands for what it leads to."""
        if not version or (find_price(version, self._prices) is None and self.name in (self._prices or {})):
            return self.name
        if not version.startswith(self.name) and version not in self._rerouted:
            self._rerouted.add(version)
            _log.warning("%s was answered by %s, which is priced instead", self.name, version)
        return version


def _outgoing(content: Content, signed: bool) -> dict[str, Any]:
    """What is sent of a content: not who produced it, and no blank text, which Gemini refuses."""
    parts = [part for part in content["parts"] if not _is_blank(part)]
    if signed and content["role"] == "model":
        parts = gemini_parts.with_signature(parts)
    return {"role": content["role"], "parts": parts}


def _alternating(turns: Sequence[Content]) -> list[Content]:
    """The turns with a user's word after each model turn that has none: a nudge that was only seen once is not kept.

    Gemini refuses a call that does not follow a user turn, and newer models do not go on with their own turn.
    """
    result: list[Content] = []
    following = [turn["role"] for turn in turns[1:]] + ["model"]
    for turn, next_role in zip(turns, following, strict=True):
        result.append(turn)
        if turn["role"] == next_role == "model":
            result.append({"role": "user", "parts": [{"text": "Continue."}]})
    return result


def _is_blank(part: Mapping[str, Any]) -> bool:
    return "thoughtSignature" not in part and set(part) <= {"text", "thought"} and not str(part.get("text", "")).strip()
