"""The agent loop: ask the model, run its tools, until it answers or a limit, an error or a person ends it.

It knows two things: the turns of a run, by Protocol (`turns.JournaledTurns`: model, tools and journal), and the
budget's plan for the next call. `state.State` is all that changes. Every path returns what was achieved so far; only
Conflict and LeadershipLost are raised: a process that no longer leads the run has no right to conclude it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Protocol

from hummingbird_ai.errors import ModelError
from hummingbird_ai.messages import Content, ToolCall
from hummingbird_operator.errors import HummingbirdError
from hummingbird_operator.sessions.budget import Budget, Plan, WorstCase
from hummingbird_operator.sessions.outcomes import outcome_of
from hummingbird_operator.sessions.records import Paid
from hummingbird_operator.sessions.state import LoopResult, Progress, State
from hummingbird_operator.sessions.turns import Answer


class Turns(Protocol):
    """What the loop needs of a run; `turns.JournaledTurns` says more."""

    worst_case: WorstCase
    unanswered: Paid

    def begin(self, contents: Sequence[Content]) -> int:
        """Take the history in; returns the bytes that every request carries beside it."""

    def recall(self, n: int) -> tuple[Decimal, Answer | None]:
        """What turn n's lost calls may have cost, and its answer if it was bought before."""

    def ask(
        self, n: int, contents: Sequence[Content], plan: Plan, nudge: str | None, waits: Callable[[str], None]
    ) -> Answer:
        """Buy turn n's answer; `waits` hears of each failure of the model that is waited out."""

    def act(self, n: int, calls: Sequence[ToolCall]) -> list[dict[str, Any]]:
        """Run turn n's calls, or recall their results."""

    def respond(self, calls: Sequence[ToolCall], results: Sequence[dict[str, Any]]) -> Content:
        """The results as one content."""


def run_agent_loop(
    turns: Turns,
    contents: Sequence[Content],
    budget: Budget,
    *,
    clock: Callable[[], float] = time.monotonic,
    progress: Callable[[Progress], None] = lambda _: None,
) -> LoopResult:
    """Run the agent from `contents` to its end. With an abort that is already set it only replays the journal."""
    started = clock()
    state = State.begin(contents, turns.begin(contents), budget.restored_tokens)
    try:
        while state.outcome is None:
            n = state.iterations + 1
            lost, answer = turns.recall(n)
            state.cost_usd += lost
            if answer is None:
                plan = budget.plan(state.spent(started, clock()), turns.worst_case, final=state.final)
                if plan.stop is not None:
                    state.end(plan.stop, plan.message)
                    continue
                answer = turns.ask(n, state.contents, plan, state.nudge, lambda why: progress(state.waits(why)))
            state.take(answer)
            progress(state.progress(answer))
            if state.calls:
                state.add(turns, turns.act(n, state.calls))
    except (ModelError, HummingbirdError) as error:
        state.fail(outcome_of(error), error, turns.unanswered)
    return state.result(turns)
