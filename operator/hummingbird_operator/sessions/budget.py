"""What a run may use, as a value, and the plan for its next call: pure, no clock of its own, no state.

Every limit has two tiers (seed 003 §6.3): at 80 % the model is warned and keeps its tools; at 100 % one final turn
without tools is left. What that turn needs (turns, money, time) is held back from the beginning, so a run that
reaches a limit still answers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Protocol

from hummingbird_operator.sessions.outcomes import Outcome
from hummingbird_operator.sessions.prompts import CONTEXT_WARNING, FINAL_TURN_WARNING, ITERATION_WARNING

SOFT_SHARE = 0.8
"""Share of a limit at which the model is warned."""

RESUME_HEADROOM_TOKENS = 30_000
"""Room that a resumed conversation gets above what was restored, however large that is."""

RESULTS_ALLOWANCE_TOKENS = 8_192
"""What one turn's tool results are expected to add at most, when money for the answer is held back."""

ANSWER_SECONDS = 60.0
"""Time held back for the answer, or a tenth of what the run has if that is less."""


class WorstCase(Protocol):
    """The price of a call at its largest: `functools.partial(hummingbird_ai.models.worst_case_cost, model)`."""

    def __call__(self, *, input_tokens: int, max_output_tokens: int) -> Decimal:
        """US dollars."""


@dataclass(frozen=True)
class Spent:
    """Where a run stands before its next call."""

    iterations: int
    context_tokens: int
    """Size of the conversation as of the last pass, not what was billed."""
    next_input_tokens: int
    """Bound on the size of the next request."""
    cost_usd: Decimal
    started: float
    """When this process began with the run, on the clock of `Budget.deadline`."""
    now: float


@dataclass(frozen=True)
class Plan:
    """How the next call is made, or why it is not."""

    final: bool = False
    warnings: tuple[str, ...] = ()
    max_output_tokens: int = 0
    worst_case_usd: Decimal = Decimal(0)
    stop: Outcome | None = None
    message: str = ""


@dataclass(frozen=True)
class Budget:
    """Limits of one run; a resumed session has a new one. `deadline` is a moment on the loop's injected clock."""

    max_iterations: int = 30
    context_tokens: int = 60_000
    max_output_tokens: int = 8_192
    max_cost_usd: Decimal = Decimal("2.00")
    deadline: float = math.inf
    restored_tokens: int = 0

    def fitted(self, *, restored_tokens: int = 0, window: int) -> Budget:
        """With a context limit that leaves a resumed conversation room, within the model's window."""
        resumed = restored_tokens + RESUME_HEADROOM_TOKENS if restored_tokens else 0
        fits = min(max(self.context_tokens, resumed), window - self.max_output_tokens)
        return replace(self, context_tokens=fits, restored_tokens=restored_tokens)

    @property
    def answer_turns(self) -> int:
        """Turns held back for the answer: one, and where there are plenty one more for a nudge if it comes empty."""
        return 2 if self.max_iterations >= 10 else 1

    @property
    def _soft_context(self) -> float:
        """80 % of the room above what was restored: a resumed run is not warned for its own past."""
        return self.restored_tokens + SOFT_SHARE * (self.context_tokens - self.restored_tokens)

    def plan(self, spent: Spent, worst_case: WorstCase, *, final: bool = False) -> Plan:
        """The next call under these limits; `final` says that the final turn was begun before."""
        cost = worst_case(input_tokens=spent.next_input_tokens, max_output_tokens=self.max_output_tokens)
        left = self.max_cost_usd - spent.cost_usd
        if spent.now >= self.deadline:
            return Plan(stop=Outcome.TIMED_OUT, message="the run's time has passed")
        if spent.iterations >= self.max_iterations:
            message = f"all {self.max_iterations} turns were used without a final answer"
            return Plan(stop=Outcome.BUDGET_EXHAUSTED, message=message)
        if cost > left:
            message = f"${left:.4f} of ${self.max_cost_usd} is left, the next model call may cost ${cost:.4f}"
            return Plan(stop=Outcome.BUDGET_EXHAUSTED, message=message)
        last = final or self._is_last(spent, cost, left, worst_case)
        warnings = (FINAL_TURN_WARNING,) if last else self._soft_warnings(spent)
        return Plan(last, warnings, self.max_output_tokens, cost)

    def _is_last(self, spent: Spent, cost: Decimal, left: Decimal, worst_case: WorstCase) -> bool:
        """No more than the answer is left of turns, context, time or money."""
        grown = spent.next_input_tokens + self.max_output_tokens + RESULTS_ALLOWANCE_TOKENS
        answer = worst_case(input_tokens=grown, max_output_tokens=self.max_output_tokens)
        return (
            spent.iterations >= self.max_iterations - self.answer_turns
            or spent.context_tokens >= self.context_tokens
            or spent.now >= self.deadline - min(ANSWER_SECONDS, (self.deadline - spent.started) / 10)
            or cost + answer > left
        )

    def _soft_warnings(self, spent: Spent) -> tuple[str, ...]:
        used_turns = spent.iterations + 1 >= SOFT_SHARE * self.max_iterations
        used_context = spent.context_tokens >= self._soft_context
        return (ITERATION_WARNING,) * used_turns + (CONTEXT_WARNING,) * used_context
