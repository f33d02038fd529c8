"""The status: bounds that never stall a run, tolerance towards other versions, and the phase."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hummingbird_operator.api import conditions as c
from hummingbird_operator.api.agentrun import (
    AgentRunStatus,
    AnswerStatus,
    EffectiveLimits,
    Phase,
    RunnerRef,
    UsageStatus,
    phase,
)
from hummingbird_operator.errors import Invalid
from tests.unit.api import samples
from tests.unit.api.strategies import STATUSES

NOW = datetime(2026, 11, 30, 19, 29, tzinfo=UTC)


@given(STATUSES)
def test_a_status_is_read_and_printed_without_loss(raw: dict[str, Any]) -> None:
    status = AgentRunStatus.parse(raw)
    assert AgentRunStatus.parse(status.as_dict()) == status


def test_what_a_newer_version_wrote_is_tolerated() -> None:
    raw = {"usage": {"iterations": 3, "carbonGrams": 5}, "mood": "good", "resolved": {"limits": {"maxNotes": 1}}}
    status = AgentRunStatus.parse(raw)
    assert status.usage == UsageStatus(iterations=3)


def test_texts_that_are_too_long_are_cut_not_refused() -> None:
    status = AgentRunStatus(message="m" * 5000, target="t" * 5000)
    assert status.message == "m" * 1024
    assert AgentRunStatus().model_copy(update={"message": "m" * 5000}).message == "m" * 1024


def test_of_an_answer_the_first_8_kib_are_kept() -> None:
    answer = AnswerStatus(text="ü" * 5000, bytes=10_000)
    assert answer.text == "ü" * 4096


def test_a_changed_copy_is_checked() -> None:
    with pytest.raises(TypeError, match="AgentRunStatus has no attribute sesion"):
        AgentRunStatus().model_copy(update={"sesion": None})
    moment = datetime(2026, 11, 30, 20, 29, 1, 500, tzinfo=timezone(timedelta(hours=1)))
    assert AgentRunStatus().model_copy(update={"start_time": moment}).as_dict()["startTime"] == "2026-11-30T19:29:01Z"
    assert AgentRunStatus().model_copy(deep=True) == AgentRunStatus()


def test_conditions_are_the_dataclasses_of_the_contract() -> None:
    found = c.with_condition((), "Finished", "True", "Completed", "done", now=NOW, generation=1)
    status = AgentRunStatus(conditions=found)
    assert status.as_dict()["conditions"] == [found[0].as_dict()]
    assert AgentRunStatus.parse(status.as_dict()).conditions == found


@pytest.mark.parametrize("bad", ["x", 7])
def test_a_condition_that_is_no_object_is_refused(bad: object) -> None:
    with pytest.raises(Invalid, match=r"status.conditions\[0\]: must be a condition"):
        AgentRunStatus.parse({"conditions": [bad]}, "status")


@given(st.decimals(min_value=0, max_value=10**9, allow_nan=False, allow_infinity=False, places=12))
def test_money_spent_is_rounded_up_by_less_than_a_millionth(cost: Decimal) -> None:
    printed = UsageStatus(cost_usd=cost).as_dict()["costUSD"]
    assert 0 <= Decimal(printed) - cost < Decimal("0.000001")
    assert "E" not in printed


def test_money_that_is_no_number_is_refused() -> None:
    with pytest.raises(Invalid, match=r"usage.costUSD: must be a decimal number"):
        AgentRunStatus.parse({"usage": {"costUSD": "much"}})


def test_limits_in_force_may_be_wider_than_those_of_a_spec() -> None:
    wide = EffectiveLimits(max_iterations=5000, max_cost_usd=Decimal(10_000_000), timeout_seconds=10**6)
    assert wide.as_dict() == {"maxIterations": 5000, "maxCostUSD": "10000000", "timeoutSeconds": 1_000_000}


def test_runners_are_equal_by_value() -> None:
    assert RunnerRef.parse({"identity": "a", "epoch": 1, "since": "now"}) == RunnerRef(identity="a", epoch=1)


def succeeded(status: str, reason: str) -> tuple[c.Condition, ...]:
    return (c.Condition("Succeeded", status, reason, "", samples.TIME, 1),)


PHASES = [
    ((), Phase.PENDING),
    *((succeeded("Unknown", reason), Phase.WAITING) for reason in list(c.Working)[:4]),
    (succeeded("Unknown", "Running"), Phase.RUNNING),
    (succeeded("Unknown", "Delivering"), Phase.DELIVERING),
    (succeeded("Unknown", "OfANewerVersion"), Phase.RUNNING),
    (succeeded("True", "Completed"), Phase.SUCCEEDED),
    *((succeeded("True", reason), Phase.SKIPPED) for reason in c.Success if reason != "Completed"),
    (succeeded("False", "Cancelled"), Phase.CANCELLED),
    *((succeeded("False", reason), Phase.FAILED) for reason in c.Failure if reason != "Cancelled"),
]


@pytest.mark.parametrize(("conditions", "expected"), PHASES)
def test_the_phase_follows_from_the_condition_succeeded(conditions: tuple[c.Condition, ...], expected: Phase) -> None:
    assert phase(conditions) is expected


def test_every_working_reason_has_a_phase_of_its_own_choice() -> None:
    waiting = {reason for reason in c.Working if phase(succeeded("Unknown", reason)) is Phase.WAITING}
    assert set(c.Working) - waiting == {c.Working.RUNNING, c.Working.WAITING_FOR_MODEL, c.Working.DELIVERING}


@pytest.mark.parametrize(("exact", "shown"), [("0.00436500", "0.004365"), ("0.0043650001", "0.004366"), ("2", "2")])
def test_a_cost_has_at_most_six_places_and_is_never_understated(exact: str, shown: str) -> None:
    assert UsageStatus(cost_usd=Decimal(exact)).model_dump(by_alias=True)["costUSD"] == shown
