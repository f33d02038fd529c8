"""The next status for each checkpoint, and the names that a run goes by."""

from __future__ import annotations

from datetime import timedelta

import pytest

from hummingbird_operator.agentruns import objects
from hummingbird_operator.agentruns.resolve import resolve
from hummingbird_operator.api import conditions as c
from hummingbird_operator.api import labels
from hummingbird_operator.api.agentrun import AgentRunStatus, RunnerRef, SandboxStatus
from tests.unit.agentruns.builders import CONFIG, ME, NOW, SHA, UID, WORKFLOWS, mine, run

LATER = NOW + timedelta(minutes=5)


def states(status: AgentRunStatus | None) -> dict[str, tuple[str, str]]:
    assert status is not None
    return {condition.type: (condition.status, condition.reason) for condition in status.conditions}


def test_a_session_is_the_run_s_own_uid_unless_it_names_one() -> None:
    assert objects.session_id(run()) == UID
    assert objects.session_id(run({"session": "3f0c4b8e-51f2-4c7d-9a43-0b6c1f0e7d55"})).startswith("3f0c4b8e")


def test_a_lane_is_one_workflow_on_one_target() -> None:
    other = {"target": {"gitlab": {"project": "group/app", "mergeRequest": 43}}}
    assert objects.lane(run()) == objects.lane(run({"message": "again"}))
    assert len({objects.lane(run()), objects.lane(run(other)), objects.lane(run({"workflow": "short"}))}) == 3
    assert objects.lane(run({"target": None})) == ""


def test_accepted_takes_over_and_says_what_is_in_force() -> None:
    subject = run({"limits": {"maxIterations": 99}})
    status = objects.accepted(subject, ME, resolve(subject.spec, CONFIG, WORKFLOWS), SHA, NOW)
    assert (status.runner, status.attempts, status.target) == (ME, 1, "group/app!42")
    assert status.resolved is not None
    assert status.resolved.head_sha == SHA
    assert (status.session and status.session.id) == UID
    assert states(status) == {"Accepted": ("True", "Accepted"), "Succeeded": ("Unknown", "Queued")}
    accepted = c.find(status.conditions, "Accepted")
    assert accepted is not None
    assert accepted.message == "spec.limits.maxIterations: 99 is above the ceiling, 30 is in force"
    assert status.phase == "Waiting"


def test_accepting_twice_by_one_process_is_one_attempt() -> None:
    subject = run(status=mine())
    order = resolve(subject.spec, CONFIG, WORKFLOWS)
    assert objects.accepted(subject, ME, order, None, NOW).attempts == 1
    assert objects.accepted(subject, RunnerRef(identity="next", epoch=4), order, None, NOW).attempts == 2


def test_refused_ends_the_run_in_one_write() -> None:
    status = objects.refused(run(), ME, "spec.workflow: there is none", NOW)
    assert states(status) == dict.fromkeys(("Accepted", "Succeeded"), ("False", "Invalid")) | {
        "Finished": ("True", "Invalid")
    }
    assert (status.completion_time, status.phase, status.message) == (NOW, "Failed", "spec.workflow: there is none")


def test_taken_over_counts_the_attempt_and_keeps_every_checkpoint() -> None:
    subject = run(status=mine(Accepted="True", SandboxReady="True"))
    status = objects.taken_over(subject, RunnerRef(identity="next", epoch=4), NOW)
    assert (status.attempts, status.runner and status.runner.epoch) == (2, 4)
    assert status.conditions == subject.status.conditions


def test_waiting_is_written_once_for_one_reason() -> None:
    subject = run(status=mine(Accepted="True"))
    status = objects.waiting(subject, c.Working.QUEUED, "full", NOW)
    assert states(status)["Succeeded"] == ("Unknown", "Queued")
    assert status is not None
    again = run(status=status.as_dict())
    assert objects.waiting(again, c.Working.QUEUED, "full", LATER) is None
    assert objects.waiting(again, c.Working.QUEUED, "fuller", LATER) is not None


def test_the_start_is_kept_once_it_is_written() -> None:
    sandbox = SandboxStatus(backend="k8spool", name="pod", uid="u")
    begun = run(status=mine())
    assert objects.sandbox_ready(begun, sandbox, "Claimed", LATER, LATER).start_time == begun.status.start_time
    assert objects.sandbox_ready(run(), sandbox, "Claimed", LATER, LATER).start_time == LATER


@pytest.mark.parametrize(
    ("found", "end"),
    [
        ({"Answered": "True/Completed", "Delivered": "True"}, ("True", "Completed")),
        ({"Answered": "False/ModelError", "Delivered": "True"}, ("False", "ModelError")),
        ({"Answered": "True/Completed", "Delivered": "False/DeliveryFailed"}, ("False", "DeliveryFailed")),
        ({"Answered": "False/Cancelled", "Delivered": "Unknown/Retrying"}, ("False", "Cancelled")),
        ({"Answered": "True/Completed", "SessionSaved": "False/StoreUnavailable"}, ("True", "Completed")),
        ({}, ("True", "Completed")),
    ],
)
def test_the_outcome_is_the_first_thing_that_went_wrong_for_people(found: dict[str, str], end: tuple[str, str]) -> None:
    status = objects.finished(run(status=mine(**found)), NOW)
    assert states(status)["Succeeded"] == end
    assert states(status)["Finished"] == ("True", end[1])
    assert status.completion_time == NOW


def test_the_transition_time_moves_only_with_the_status() -> None:
    first = run(status=objects.concluded(run(), "ModelError", "a", NOW).as_dict())
    second = objects.concluded(first, "ModelError", "b", LATER)
    answered = c.find(second.conditions, "Answered")
    assert answered is not None
    assert (answered.last_transition_time, answered.message) == (c.rfc3339(NOW), "b")


def test_an_error_of_any_length_fits_into_the_status() -> None:
    status = objects.concluded(run(), "ModelError", "x" * 100_000, NOW)
    assert len(status.message or "") == 1024
    assert AgentRunStatus.parse(status.as_dict()) == status


def test_conditions_carry_no_generation_so_that_an_edited_ttl_does_not_hang_kubectl_wait() -> None:
    status = objects.finished(run(status=mine()), NOW)
    assert all("observedGeneration" not in entry for entry in status.as_dict()["conditions"] if entry["type"] != "x")
    assert status.observed_generation == 1


def test_a_run_made_by_hand_gets_the_labels_that_people_select_by_and_keeps_those_it_has() -> None:
    bare = run()
    assert objects.missing_labels(bare) == {
        labels.WORKFLOW: "analyze-failures",
        labels.SESSION: bare.metadata.uid,
        labels.LANE: objects.lane(bare),
    }
    assert labels.WORKFLOW not in objects.missing_labels(run(labels={labels.WORKFLOW: "analyze-failures"}))
    assert labels.LANE not in objects.missing_labels(run({"target": None}))
