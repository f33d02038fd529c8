from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hummingbird_operator.sessions.budget import Budget, Plan, Spent
from hummingbird_operator.sessions.outcomes import Outcome
from hummingbird_operator.sessions.prompts import CONTEXT_WARNING, FINAL_TURN_WARNING, ITERATION_WARNING
from tests.unit.sessions.runs import cheap

NOTHING_SPENT = Spent(0, 0, 1000, Decimal(0), 0.0, 0.0)


def spent(**fields: Any) -> Spent:
    return replace(NOTHING_SPENT, **fields)


def test_a_fresh_run_has_its_tools_and_no_warning() -> None:
    plan = Budget().plan(NOTHING_SPENT, cheap)
    assert plan == Plan(max_output_tokens=8192, worst_case_usd=Decimal(1000 + 8192) / 1_000_000)


def test_both_soft_warnings_can_stand_together() -> None:
    plan = Budget().plan(spent(iterations=23, context_tokens=48_000), cheap)
    assert plan.warnings == (ITERATION_WARNING, CONTEXT_WARNING)


@pytest.mark.parametrize(("iterations", "final"), [(27, False), (28, True), (29, True)])
def test_two_of_thirty_turns_are_for_the_answer(iterations: int, final: bool) -> None:
    assert Budget().plan(spent(iterations=iterations), cheap).final is final


def test_a_budget_of_one_turn_is_a_final_turn() -> None:
    assert Budget(max_iterations=1).plan(NOTHING_SPENT, cheap).final


def test_after_the_last_turn_nothing_is_bought() -> None:
    plan = Budget(max_iterations=3).plan(spent(iterations=3), cheap, final=True)
    assert (plan.stop, plan.message) == (Outcome.BUDGET_EXHAUSTED, "all 3 turns were used without a final answer")


@pytest.mark.parametrize(
    ("now", "final", "stop"), [(89.9, False, None), (90.0, True, None), (100.0, False, "TimedOut")]
)
def test_a_tenth_of_a_short_time_is_for_the_answer(now: float, final: bool, stop: str | None) -> None:
    plan = Budget(deadline=100.0).plan(spent(now=now), cheap)
    assert (plan.final, plan.stop) == (final, stop)


def test_a_minute_of_a_long_time_is_for_the_answer() -> None:
    budget = Budget(deadline=1800.0)
    assert not budget.plan(spent(now=1739.0), cheap).final
    assert budget.plan(spent(now=1740.0), cheap).final


def test_a_resumed_run_gets_room_above_what_was_restored_within_the_window() -> None:
    assert Budget().fitted(window=200_000).context_tokens == 60_000
    assert Budget().fitted(restored_tokens=10_000, window=200_000).context_tokens == 60_000
    assert Budget().fitted(restored_tokens=55_000, window=200_000).context_tokens == 85_000
    assert Budget().fitted(restored_tokens=180_000, window=200_000).context_tokens == 200_000 - 8192
    assert Budget(context_tokens=500_000).fitted(window=128_000).context_tokens == 128_000 - 8192


def test_a_resumed_run_is_not_warned_for_its_own_past() -> None:
    budget = Budget().fitted(restored_tokens=100_000, window=1_000_000)
    assert budget.plan(spent(context_tokens=123_999), cheap).warnings == ()
    assert budget.plan(spent(context_tokens=124_000), cheap).warnings == (CONTEXT_WARNING,)
    assert budget.plan(spent(context_tokens=130_000), cheap).warnings == (FINAL_TURN_WARNING,)


@given(
    iterations=st.integers(0, 40),
    context=st.integers(0, 100_000),
    cost=st.decimals(0, 3, places=4),
    now=st.floats(0, 2000),
    final=st.booleans(),
)
def test_no_plan_costs_more_than_what_is_left_and_final_plans_are_said_to_be(
    iterations: int, context: int, cost: Decimal, now: float, final: bool
) -> None:
    budget = Budget(deadline=1800.0)
    plan = budget.plan(spent(iterations=iterations, context_tokens=context, cost_usd=cost, now=now), cheap, final=final)
    if plan.stop is None:
        assert cost + plan.worst_case_usd <= budget.max_cost_usd
        assert iterations < budget.max_iterations
        assert now < budget.deadline
        assert plan.final or not final
        assert (FINAL_TURN_WARNING in plan.warnings) is plan.final
    else:
        assert plan.message
