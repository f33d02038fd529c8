"""Gemini, by the Gemini API with a key or by Vertex AI with Google credentials."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hummingbird_ai.abort import Abort
from hummingbird_ai.canonical import Producer, is_local_id, local_id
from hummingbird_ai.errors import BadRequest, ModelError
from hummingbird_ai.http import CALL_SECONDS, new_session
from hummingbird_ai.messages import (
    DEFAULT_MAX_OUTPUT_TOKENS,
    Content,
    Finish,
    ModelResponse,
    ToolCall,
    ToolDef,
    Usage,
    each_once,
)
from hummingbird_ai.pricing import Prices
from hummingbird_ai.providers import given
from hummingbird_ai.providers.gemini import parts as gemini_parts
from hummingbird_ai.providers.gemini import reply as gemini_reply
from hummingbird_ai.providers.gemini.schema import declarations
from hummingbird_ai.providers.gemini.turns import in_order
from hummingbird_ai.providers.google.endpoints import Endpoint
from hummingbird_ai.providers.google.errors import from_reply
from hummingbird_ai.providers.google.exchange import exchange
from hummingbird_ai.providers.served import Tariff
from hummingbird_ai.serialise import clean, encode

MAX_PASSES = 10
"""Requests one answer may take when Gemini splits it (`CONTINUATION`); then what is there counts as cut."""

MAX_REQUEST_BYTES = 20 * 1024 * 1024
"""What the Gemini API takes; Vertex AI takes no less."""

_log = logging.getLogger(__name__)


class GeminiModel:
    """The adapter of one conversation. `seconds` bounds one HTTP call from its first to its last byte.

    With `web_search`, Gemini may search the web by itself; Gemini 2 cannot where tools are declared.
    """

    def __init__(
        self,
        name: str,
        endpoint: Endpoint,
        *,
        labels: Mapping[str, str] | None = None,
        web_search: bool = False,
        prices: Prices | None = None,
        seconds: float = CALL_SECONDS,
    ) -> None:
        self.name = name
        self._endpoint = endpoint
        self._labels = dict(labels or {}) if endpoint.takes_labels else {}
        self._web_search = web_search
        self._seconds = seconds
        self._session = new_session()
        self._producer = Producer("google", endpoint.transport, name)
        self._tariff = Tariff(name, endpoint.region, prices)
        self._signed = not gemini_parts.is_before_3(name)
        self._distrusted = 0

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
        given.conversation(contents, key="parts")
        asked = (contents, system, tools, ephemeral, allow_tools, max_output_tokens)
        body = self._request(*asked)
        passes: list[gemini_reply.Pass] = []
        try:
            while True:
                try:
                    passes.append(self._call(body, abort))
                except BadRequest as error:
                    if passes or not self._mend_signatures(error, contents):
                        raise
                    body = self._request(*asked)
                    continue
                token = passes[-1].continuation_token
                written = sum(item.usage.output_tokens for item in passes)
                enough = len(passes) == MAX_PASSES or written >= max_output_tokens
                if passes[-1].reason != gemini_reply.CONTINUATION or not token or enough:
                    return self._response(passes, contents)
                body = {**body, "continuationToken": token}
        except ModelError as error:
            if passes:
                error.billed = replace(self._response(passes, contents), raw_content=None)
            raise

    def make_user_content(self, text: str) -> Content:
        """A user turn."""
        return {"role": "user", "parts": [{"text": given.user_text(text)}]}

    def make_tool_responses(self, calls: Sequence[ToolCall], results: Sequence[Mapping[str, Any]]) -> Content:
        """All results in one user content, in call order; an id is echoed only if Gemini gave it."""
        parts = []
        for call, result in given.pairs(calls, results):
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
        turns = [outgoing for content in self._trusted(contents) if (outgoing := self._outgoing(content))["parts"]]
        if not turns:
            raise BadRequest("there is nothing to answer: the conversation has no text")
        words = [{"text": text} for text in given.passing_words(ephemeral)]
        if words:  # never beside function responses: Gemini would take the whole content for its own
            turns.append({"role": "user", "parts": words})
        body: dict[str, Any] = {"contents": in_order(turns)}
        if prompt := given.prompt(system):
            body["systemInstruction"] = {"parts": [{"text": prompt}]}
        body |= self._tools(tools, allow_tools)
        body["generationConfig"] = {"maxOutputTokens": max_output_tokens}
        if self._labels:
            body["labels"] = self._labels
        return body

    def _tools(self, tools: Sequence[ToolDef], allow_tools: bool) -> dict[str, Any]:
        """`tools` is the same whether they are allowed or not: the prefix cache begins with it."""
        functions = declarations(tools)
        declared: list[dict[str, Any]] = [{"functionDeclarations": functions}] if functions else []
        config: dict[str, Any] = {}
        if functions and not allow_tools:
            config["functionCallingConfig"] = {"mode": "NONE"}
        if self._web_search:
            declared.append({"googleSearch": {}})
            if functions and gemini_parts.is_before_3(self.name):
                raise BadRequest(f"{self.name} cannot search the web where tools are declared; take Gemini 3 or later")
            if functions and self._endpoint.shows_searches:
                config["includeServerSideToolInvocations"] = True
        return {key: value for key, value in (("tools", declared), ("toolConfig", config)) if value}

    def _trusted(self, contents: Sequence[Content]) -> Sequence[Content]:
        """The conversation with the signatures that Gemini did not take back left out, in every call alike."""
        start = max(self._distrusted, _distrusted_before(contents))
        return [
            {**content, "parts": gemini_parts.without_signatures(content["parts"])} if index < start else content
            for index, content in enumerate(contents)
        ]

    def _outgoing(self, content: Content) -> dict[str, Any]:
        """What is sent of a content: not who produced it, and no blank text, which Gemini refuses."""
        model = content["role"] == "model"
        parts = gemini_parts.without_responses(content["parts"]) if model else content["parts"]
        parts = [part for part in parts if not gemini_parts.is_blank(part)]
        if self._signed and model:
            parts = gemini_parts.with_signature(parts)
        return {"role": content["role"], "parts": parts}

    def _mend_signatures(self, error: BadRequest, contents: Sequence[Content]) -> bool:
        """Whether the request can be put so that its thought signatures are taken: one is missing or refused.

        That happens to a stored session when Google serves its model's name by another model.
        """
        problem = error.problem.lower().replace("_", " ")
        if "thought signature" not in problem or self._distrusted == len(contents):
            return False
        if not self._signed and "missing" in problem:
            self._signed = True
        else:
            self._signed, self._distrusted = True, len(contents)
        _log.warning("%s: %s; called again without what it does not take", self.name, error.problem)
        return True

    def _call(self, body: Mapping[str, Any], abort: Abort | None) -> gemini_reply.Pass:
        reply = exchange(
            self._session,
            self._endpoint,
            lambda: self._endpoint.url(self.name),
            encode(body),
            headers={"Content-Type": "application/json", "X-Server-Timeout": str(math.ceil(self._seconds))},
            seconds=self._seconds,
            max_bytes=MAX_REQUEST_BYTES,
            abort=abort,
        )
        if reply.status != 200:
            raise from_reply(reply, self._endpoint.secrets)
        return gemini_reply.read(reply, self._endpoint.secrets)

    def _response(self, passes: Sequence[gemini_reply.Pass], contents: Sequence[Content]) -> ModelResponse:
        last = passes[-1]
        everything = [part for item in passes for part in item.parts]
        text = "".join(part["text"] for part in everything if "text" in part and not part.get("thought"))
        parts = [part for part in everything if not gemini_parts.is_blank(part)]
        stored = [gemini_parts.to_stored(part, local_id(len(contents), number)) for number, part in enumerate(parts)]
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
            raw_content=self._raw(parts, contents) if text.strip() or calls else None,
            usage=sum((item.usage for item in passes), Usage()),
            finish=finish,
            finish_reason=": ".join(word for word in (last.reason, last.message) if word),
            model_version=last.model_version or self.name,
            cost_usd=self._tariff.cost((item.model_version, item.usage) for item in passes),
            sources=each_once(source for item in passes for source in item.sources),
        )

    def _raw(self, parts: list[dict[str, Any]], contents: Sequence[Content] = ()) -> Content:
        """The turn that follows on `contents`; it notes what it was made without, if no turn before it has."""
        content: Content = {"role": "model", "parts": parts, "producer": self._producer.to_dict()}
        noted = self._distrusted <= _distrusted_before(contents)
        return content if noted else {**content, "notes": {"distrusts_before": True}}


def _distrusted_before(contents: Sequence[Content]) -> int:
    """The index of the last turn that was made without the signatures of those before it; 0 for none."""
    marked = (index for index, content in enumerate(contents) if content.get("notes", {}).get("distrusts_before"))
    return max(marked, default=0)
