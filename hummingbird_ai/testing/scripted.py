"""A model that follows a script, in the process: for tests of whatever calls a model."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from hummingbird_ai.abort import Abort
from hummingbird_ai.canonical import Producer, message, repaired
from hummingbird_ai.errors import BadRequest, CallAborted, ModelError
from hummingbird_ai.messages import (
    DEFAULT_MAX_OUTPUT_TOKENS,
    Content,
    Finish,
    ModelResponse,
    ToolCall,
    ToolDef,
    Usage,
)
from hummingbird_ai.serialise import clean, encode


@dataclass(frozen=True, slots=True)
class Wait:
    """A step that does not answer until the call is aborted or the model is released; then `step` is given."""

    step: str | ModelResponse | ModelError = ""


Step = str | ToolCall | Sequence[ToolCall] | ModelResponse | ModelError | Wait
"""Text, one or more calls, a whole response, an error to raise, or a wait."""

StepSource = Step | Callable[[Sequence[Content]], Step]
"""A step, or what makes one from the conversation so far."""


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """What one `generate` was given, copied so that later changes do not show."""

    contents: list[Content]
    system: str
    tools: tuple[ToolDef, ...]
    ephemeral: tuple[str, ...]
    allow_tools: bool
    max_output_tokens: int


class ScriptedModel:
    """A ModelAdapter that takes one step of its script per call and records what it was asked in `calls`.

    `script` is a list of steps, or a callable that makes every step. Usage is estimated from the size of the
    conversation (four bytes to a token) where a step does not say it, and priced at `usd_per_million` tokens. A
    conversation that providers would refuse (results missing or out of order, no user turn first) is BadRequest here
    too, and so is a call after the script's end.
    """

    def __init__(
        self,
        script: Iterable[StepSource] | Callable[[Sequence[Content]], Step],
        *,
        name: str = "scripted-model",
        usd_per_million: Decimal | None = Decimal(1),
    ) -> None:
        self.name = name
        self.calls: list[ScriptedCall] = []
        self._steps: Iterator[StepSource] = _endless(script) if callable(script) else iter(script)
        self._rate = usd_per_million
        self._released = False
        self._wake = threading.Condition()
        self._producer = Producer("scripted", "in-process", name)

    def release(self) -> None:
        """Let every `Wait` answer, now and later."""
        with self._wake:
            self._released = True
            self._wake.notify_all()

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
        """The script's next step; see `ModelAdapter`."""
        if abort is not None and abort.is_set():
            raise CallAborted(str(abort.reason))
        asked = ScriptedCall(
            copy.deepcopy(list(contents)), system, tuple(tools), tuple(ephemeral), allow_tools, max_output_tokens
        )
        self.calls.append(asked)
        _refuse_what_providers_refuse(asked.contents)
        step = next(self._steps, None)
        if step is None:
            raise BadRequest(f"the script has no step for call {len(self.calls)}")
        if callable(step):
            step = step(asked.contents)
        if isinstance(step, Wait):
            step = self._waited(step, abort)
        if isinstance(step, ModelError):
            raise step
        return self._response(step, asked)

    def make_user_content(self, text: str) -> Content:
        """A user turn."""
        return message("user", [{"type": "text", "text": clean(text)}])

    def make_tool_responses(self, calls: Sequence[ToolCall], results: Sequence[Mapping[str, Any]]) -> Content:
        """All results in one user content."""
        return message(
            "user",
            [
                {"type": "tool_result", "id": call.id, "name": call.name, "result": clean(result)}
                for call, result in zip(calls, results, strict=True)
            ],
        )

    def to_canonical(self, contents: Sequence[Content]) -> list[dict[str, Any]]:
        """Its own form is the canonical one."""
        return copy.deepcopy(list(contents))

    def from_canonical(self, messages: Sequence[Mapping[str, Any]]) -> list[Content]:
        """Everything is kept as it stands; it reads every provider's messages."""
        return copy.deepcopy(repaired(messages))

    def _waited(self, step: Wait, abort: Abort | None) -> Step:
        def look_again() -> None:
            with self._wake:
                self._wake.notify_all()

        with abort.on_abort(look_again) if abort else nullcontext(), self._wake:
            self._wake.wait_for(lambda: self._released or (abort is not None and abort.is_set()))
        if abort is not None and abort.is_set():
            raise CallAborted(str(abort.reason))
        return step.step

    def _response(self, step: Step, asked: ScriptedCall) -> ModelResponse:
        if isinstance(step, ModelResponse):
            response = step
        elif isinstance(step, str):
            response = ModelResponse(text=step, finish=Finish.STOP if step.strip() else Finish.EMPTY)
        else:
            calls = (step,) if isinstance(step, ToolCall) else tuple(_calls(step))
            response = ModelResponse(tool_calls=calls, finish=Finish.TOOL_CALLS)
        if response.raw_content is None and response.usable:
            response = replace(response, raw_content=self._raw(response))
        if response.usage == Usage():
            response = replace(response, usage=_estimate(asked, response))
        if response.cost_usd is None and self._rate is not None:
            response = replace(response, cost_usd=self._rate * response.usage.total_tokens / 1_000_000)
        return replace(response, model_version=response.model_version or self.name)

    def _raw(self, response: ModelResponse) -> Content:
        parts: list[dict[str, Any]] = [{"type": "text", "text": response.text}] if response.text.strip() else []
        parts += [
            {"type": "tool_call", "id": call.id, "name": call.name, "arguments": dict(call.arguments)}
            for call in response.tool_calls
        ]
        return message("assistant", parts, self._producer.to_dict())


def _endless(make: Callable[[Sequence[Content]], Step]) -> Iterator[StepSource]:
    while True:
        yield make


def _calls(step: object) -> Iterator[ToolCall]:
    for item in step if isinstance(step, Sequence) else [step]:
        if not isinstance(item, ToolCall):
            raise BadRequest(f"a script's step is text, calls, a response, an error or a Wait, not {item!r}")
        yield item


def _estimate(asked: ScriptedCall, response: ModelResponse) -> Usage:
    prompt = len(encode(asked.contents)) + len(asked.system.encode()) + sum(len(text) for text in asked.ephemeral)
    output = len(encode(response.raw_content or {}))
    return Usage(input_tokens=prompt // 4 + 1, output_tokens=output // 4 + 1, context_tokens=(prompt + output) // 4 + 2)


def _refuse_what_providers_refuse(contents: Sequence[Content]) -> None:
    if not contents or contents[0]["role"] != "user":
        raise BadRequest("the first content must be a user turn")
    if repaired(contents) != list(contents):
        raise BadRequest("every call needs one result, in order, in the one content after it, and no text is blank")
    if contents[-1]["role"] != "user":
        raise BadRequest("the last content must be a user turn")
