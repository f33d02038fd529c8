"""The life of a run as a table, and the laws that hold at every point of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hummingbird_operator.agentruns.decide import Decision, Step, decide
from hummingbird_operator.agentruns.turns import Turn
from hummingbird_operator.api.conditions import Checkpoint, Failure, Working
from tests.unit.agentruns.builders import NOW, facts, mine, run

WAITS = Turn(granted=False, reason=Working.QUEUED, message="full")
DONE = {"Accepted": "True", "SandboxReady": "True", "Answered": "True", "Delivered": "True", "SessionSaved": "True"}


def some(count: int) -> dict[str, str]:
    return dict(list(DONE.items())[:count])


@pytest.mark.parametrize(
    ("found", "note", "step"),
    [
        (some(0), False, Step.ACCEPT),
        (some(1), False, Step.PLACEHOLDER),
        (some(1), True, Step.CLAIM),
        (some(2), True, Step.WORK),
        (some(3), True, Step.DELIVER),
        (some(4), True, Step.SAVE),
        (some(5), True, Step.FINISH),
        ({**DONE, "Finished": "True"}, True, Step.DONE),
    ],
)
def test_each_checkpoint_leads_to_the_next_step(found: dict[str, str], note: bool, step: Step) -> None:
    assert decide(facts(run(status=mine(note=note, **found)))).step is step


def test_a_run_that_another_process_had_is_taken_over_before_anything_else() -> None:
    status = mine(**some(2))
    status["runner"] = {"identity": "dead", "epoch": 2}
    assert decide(facts(run({"cancel": True}, status))).step is Step.TAKE_OVER


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ({"workflow": "unknown"}, "spec.workflow"),
        ({"target": {"gitlab": {"project": "other/app", "mergeRequest": 1}}}, "spec.target.gitlab.project"),
        (
            {"notice": "Help", "target": {"gitlab": {"project": "other/app", "mergeRequest": 1}}},
            "spec.target.gitlab.project",
        ),
        ({"sandbox": {"backend": "kubevirt"}}, "spec.sandbox.backend"),
    ],
)
def test_a_spec_that_cannot_be_carried_out_is_refused_with_the_field(spec: dict[str, Any], named: str) -> None:
    decision = decide(facts(run(spec)))
    assert (decision.step, decision.reason) == (Step.REFUSE, Failure.INVALID)
    assert decision.message.startswith(f"{named}: ")


def test_a_run_without_its_turn_waits_and_says_why() -> None:
    assert decide(facts(run(status=mine(**some(1))), turn=WAITS)) == Decision(Step.WAIT, Working.QUEUED, "full")


@pytest.mark.parametrize("count", [1, 2])
def test_cancel_ends_a_run_that_is_not_answered(count: int) -> None:
    decision = decide(facts(run({"cancel": True}, mine(**some(count)))))
    assert decision == Decision(Step.CONCLUDE, Failure.CANCELLED, "spec.cancel was set")


def test_cancel_before_it_was_accepted_does_not_accept_it() -> None:
    assert decide(facts(run({"cancel": True}, mine()))).step is Step.CONCLUDE


@pytest.mark.parametrize(("count", "step"), [(3, Step.DELIVER), (4, Step.SAVE)])
def test_an_answer_that_is_paid_for_is_delivered_whatever_is_cancelled(count: int, step: Step) -> None:
    assert decide(facts(run({"cancel": True}, mine(**some(count))))).step is step


def test_a_deleted_run_is_concluded_as_cancelled_and_says_that_it_was_deleted() -> None:
    decision = decide(facts(run(status=mine(**some(2)), deletionTimestamp="2026-11-30T10:00:00Z")))
    assert decision == Decision(Step.CONCLUDE, Failure.CANCELLED, "the run was deleted")


def test_nobody_can_reply_to_a_deleted_run_so_its_conversation_is_not_stored() -> None:
    decision = decide(facts(run(status=mine(**some(4)), deletionTimestamp="2026-11-30T10:00:00Z")))
    assert decision == Decision(Step.SAVE, Checkpoint.NOTHING_TO_SAVE, "the run was deleted")


def test_a_run_past_its_time_is_concluded_once_and_not_after_its_answer() -> None:
    late = NOW + timedelta(hours=1)
    assert decide(facts(run(status=mine(**some(2))), now=late)).reason == Failure.TIMED_OUT
    assert decide(facts(run(status=mine(**some(3))), now=late)).step is Step.DELIVER


def test_a_run_that_ended_every_process_that_had_it_is_given_up() -> None:
    status = mine(**some(2)) | {"attempts": 51}
    assert decide(facts(run(status=status))).reason == Failure.ATTEMPTS_EXHAUSTED


def test_without_a_target_there_is_no_note() -> None:
    subject = run({"target": None}, mine(note=False, **some(1)))
    assert decide(facts(subject)).step is Step.CLAIM


def test_with_the_forge_away_the_session_is_saved_and_the_sandbox_let_go_before_the_run_waits() -> None:
    soon = NOW + timedelta(seconds=9)
    answered = mine(**some(3))
    assert decide(facts(run(status=answered), delivery_after=soon, sandbox_held=True)).step is Step.SAVE
    saved = mine(**some(3), SessionSaved="True")
    assert decide(facts(run(status=saved), delivery_after=soon, sandbox_held=True)).step is Step.LET_GO
    assert decide(facts(run(status=saved), delivery_after=soon)).reason == Working.DELIVERING
    assert decide(facts(run(status=saved), delivery_after=NOW)).step is Step.DELIVER


def test_a_deleted_run_does_not_wait_for_its_forge() -> None:
    saved = mine(**some(3), SessionSaved="True")
    subject = run(status=saved, deletionTimestamp="2026-11-30T10:00:00Z")
    assert decide(facts(subject, delivery_after=NOW + timedelta(seconds=9))).step is Step.FINISH


states = st.fixed_dictionaries(
    {},
    optional={name: st.sampled_from(["True", "False", "Unknown"]) for name in (*DONE, "Finished")},
)


@given(states, st.booleans(), st.booleans(), st.booleans(), st.booleans())
def test_no_paid_answer_leads_back_to_the_model_and_nothing_is_done_to_a_finished_run(
    found: dict[str, str], note: bool, cancel: bool, held: bool, granted: bool
) -> None:
    turn = Turn(granted, Working.QUEUED, "")
    step = decide(facts(run({"cancel": cancel}, mine(note=note, **found)), turn=turn, sandbox_held=held)).step
    if found.get("Answered") in ("True", "False"):
        assert step not in (Step.WORK, Step.CLAIM, Step.PLACEHOLDER, Step.CONCLUDE, Step.ACCEPT)
    if found.get("Finished") == "True":
        assert step is Step.DONE
    if step is Step.FINISH:
        assert not held
        assert all(found.get(name) in ("True", "False") for name in ("Answered", "Delivered", "SessionSaved"))
