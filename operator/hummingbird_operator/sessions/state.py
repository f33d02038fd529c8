"""Where a run's conversation stands: the only mutable thing in the loop, and what is read from it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Protocol

from hummingbird_ai.messages import Content, Finish, ModelResponse, ToolCall, Usage
from hummingbird_operator.errors import SandboxLost
from hummingbird_operator.sessions.budget import Spent
from hummingbird_operator.sessions.outcomes import Outcome
from hummingbird_operator.sessions.prompts import EMPTY_RESPONSE_NUDGE, MALFORMED_CALL_NUDGE
from hummingbird_operator.sessions.records import Paid
from hummingbird_operator.sessions.turns import Answer

MAX_EMPTY_RETRIES = 2
"""Nudges after unusable answers in a row; a turn that ran tools makes them available again (seed 003 §6.4)."""

EPHEMERAL_BYTES = 2048
"""Room for warnings and a nudge in the bound on a request's size."""

MAX_INCOMPLETE = 20
"""How many gaps the result names; the rest are counted."""


class Responder(Protocol):
    """The part of `loop.Turns` that puts results into the history."""

    def respond(self, calls: Sequence[ToolCall], results: Sequence[dict[str, Any]]) -> Content:
        """The results as one content."""


@dataclass(frozen=True)
class Progress:
    """One turn, as status, logs and the command line tell it."""

    iterations: int
    usage: Usage
    cost_usd: Decimal
    tools: tuple[str, ...]
    replayed: bool
    line: str
    waiting: str = ""
    """What the next turn waits for: the model failed, and is asked again."""


@dataclass(frozen=True)
class LoopResult:
    """What a loop achieved, however it ended. `text` is the answer, or the last words before the end."""

    outcome: Outcome
    text: str
    contents: tuple[Content, ...]
    usage: Usage
    cost_usd: Decimal
    iterations: int
    message: str
    incomplete: tuple[str, ...]
    context_tokens: int
    lost: SandboxLost | None = None
    """The sandbox was lost: nothing else ended the loop, and with another one it can go on."""


@dataclass
class State:
    """Where a run stands: all that changes while it is looped. `contents` is replaced, never changed in place."""

    contents: tuple[Content, ...]
    context_tokens: int
    new_bytes: int
    """Of the next request, what `context_tokens` does not count yet."""
    outcome: Outcome | None = None
    message: str = ""
    text: str = ""
    usage: Usage = field(default_factory=Usage)
    cost_usd: Decimal = Decimal(0)
    iterations: int = 0
    final: bool = False
    nudge: str | None = None
    nudges: int = 0
    pending: ModelResponse | None = None
    """An answer that is not in the history yet: calls without results, or the end."""
    incomplete: list[str] = field(default_factory=list)
    lost: SandboxLost | None = None
    broken_off: bool = False
    """The loop ended while the calls of the pending answer were under way: some of them may have run."""

    @classmethod
    def begin(cls, contents: Sequence[Content], request_bytes: int, restored_tokens: int) -> State:
        """A fresh conversation is bounded by all its bytes, a resumed one by what it was plus its new turn."""
        fresh = contents[-1:] if restored_tokens else contents
        new_bytes = sum(map(_size, fresh)) + (0 if restored_tokens else request_bytes)
        return cls(tuple(contents), restored_tokens, new_bytes)

    @property
    def next_input_tokens(self) -> int:
        """Bound on the next request: on the whole a tokenizer takes more than two bytes of JSON for a token."""
        return self.context_tokens + (self.new_bytes + EPHEMERAL_BYTES) // 2

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls to run before the next turn; none once the loop ends."""
        return self.pending.tool_calls if self.pending is not None and self.outcome is None else ()

    def spent(self, started: float, now: float) -> Spent:
        """As the budget reads it."""
        return Spent(self.iterations, self.context_tokens, self.next_input_tokens, self.cost_usd, started, now)

    def take(self, answer: Answer) -> None:
        """Count the answer, then sort it: tools to run, the end, or nothing usable."""
        response = answer.response
        self.context_tokens = response.usage.context_tokens or self.next_input_tokens
        self.new_bytes, self.nudge = 0, None
        self.iterations += 1
        self.usage += answer.usage
        self.cost_usd += answer.cost_usd
        self.final = self.final or answer.final
        self.text = response.text if response.text.strip() else self.text
        cut = response.finish is Finish.MAX_TOKENS
        if response.finish is Finish.REFUSED:
            self.end(Outcome.REFUSED, f"the model declined: {response.finish_reason}")
        elif response.finish is Finish.MALFORMED or (cut and response.tool_calls):
            self._unusable(response, MALFORMED_CALL_NUDGE)
        elif response.tool_calls and not self.final:
            self.pending = response
        elif response.text.strip():
            self.pending = response
            self.incomplete += ["the answer was cut at the model's output limit"] * cut
            self.end(Outcome.COMPLETED, "")
        else:
            self._unusable(response, EMPTY_RESPONSE_NUDGE)

    def add(self, turns: Responder, results: Sequence[dict[str, Any]]) -> None:
        """The pending calls' results: the two contents enter the history together, so that it never breaks off."""
        self.nudges = 0
        for result in results:
            gaps = result.get("incomplete") or []
            self.incomplete += [str(gap)[:300] for gap in (gaps if isinstance(gaps, list) else [gaps])]
        self._append(turns, results)

    def end(self, outcome: Outcome, message: str) -> None:
        """The loop ends after this turn."""
        self.outcome, self.message = outcome, message

    def fail(self, outcome: Outcome, error: Exception, paid: Paid) -> None:
        """The loop ends by an error; what was paid before it counts."""
        self.usage += replace(paid.usage, context_tokens=self.usage.context_tokens)
        self.cost_usd += paid.cost_usd
        self.lost = error if isinstance(error, SandboxLost) else None
        self.broken_off = self.pending is not None
        self.end(outcome, str(error))

    def progress(self, answer: Answer) -> Progress:
        """The turn that was just taken."""
        tools = tuple(call.name for call in answer.response.tool_calls)
        what = ", ".join(tools) or answer.response.finish.value
        line = f"turn {self.iterations}: {what} - {self.context_tokens:,} tokens, ${self.cost_usd:.4f}"
        line += " (replayed)" * answer.replayed
        return Progress(self.iterations, self.usage, self.cost_usd, tools, answer.replayed, line)

    def waits(self, why: str) -> Progress:
        """Between two turns: the model does not answer for now."""
        line = f"turn {self.iterations + 1} waits: {why}"
        return Progress(self.iterations, self.usage, self.cost_usd, (), False, line, waiting=why)

    def result(self, turns: Responder) -> LoopResult:
        """Everything so far. Calls that have no results get an error each: a resumed history must be whole."""
        why = f"not run: {self.message or 'this was the final turn'}"
        if self.broken_off:
            why = f"no result: {self.message}; what it had done by then stands"
        self._append(turns, [{"error": why}] * (len(self.pending.tool_calls) if self.pending else 0))
        gaps = list(dict.fromkeys(self.incomplete))
        if len(gaps) > MAX_INCOMPLETE:
            gaps = [*gaps[:MAX_INCOMPLETE], f"and {len(gaps) - MAX_INCOMPLETE} more gaps"]
        return LoopResult(
            outcome=self.outcome or Outcome.MODEL_ERROR,
            text=self.text,
            contents=self.contents,
            usage=self.usage,
            cost_usd=self.cost_usd,
            iterations=self.iterations,
            message=self.message,
            incomplete=tuple(gaps),
            context_tokens=self.context_tokens,
            lost=self.lost,
        )

    def _append(self, turns: Responder, results: Sequence[dict[str, Any]]) -> None:
        """Move the pending answer, with the results of its calls, into the history."""
        response, self.pending = self.pending, None
        if response is None or response.raw_content is None:
            return
        added: tuple[Content, ...] = (response.raw_content,)
        if response.tool_calls:
            added += (turns.respond(response.tool_calls, results),)
        self.contents += added
        self.new_bytes += sum(map(_size, added[1:]))  # the answer itself is in its usage

    def _unusable(self, response: ModelResponse, nudge: str) -> None:
        """Nothing of it is kept; the model is nudged, twice in a row at most."""
        if self.nudges == MAX_EMPTY_RETRIES:
            reason = response.finish_reason or response.finish.value
            self.end(Outcome.MODEL_ERROR, f"the model gave no usable answer {self.nudges + 1} times ({reason})")
        else:
            self.nudges += 1
            self.nudge = nudge


def _size(content: Content) -> int:
    return len(json.dumps(content, ensure_ascii=False).encode(errors="replace"))
