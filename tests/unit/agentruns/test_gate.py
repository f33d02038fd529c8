"""The gate: which notes of the bot keep a run that came from an event from speaking at all."""

from __future__ import annotations

from typing import Any

import pytest

from hummingbird_operator.agentruns.gate import Scan, gate
from hummingbird_operator.api.conditions import Success
from hummingbird_operator.delivery.markers import Marker
from tests.unit.agentruns.builders import SHA, run

OLD = "1111" * 10
EVENT = {"source": "gitlab", "event": "pipeline", "key": "k", "automatic": True}
COMMAND = {"source": "gitlab", "event": "note", "key": "k"}


def mark(state: str = "done", sha: str | None = SHA, **changes: Any) -> Marker:
    fields = {"id": "s1", "wf": "analyze-failures", "run": "other", "key": "other"} | changes
    return Marker(**fields, sha=sha, state=state)


def verdict(
    *marks: Marker, trigger: dict[str, Any] | None = None, head: str = SHA, limit: int = 5, shut: str = ""
) -> str | None:
    status = {"resolved": {"headSha": SHA}}
    alive = {"alive": "", "superseded": "Superseded", "failed": "ModelError", "done": "Completed"}
    scan = Scan(run({"trigger": trigger or EVENT}, status), marks, head, limit, alive.get, shut)
    found = gate(scan)
    return found.reason if found else None


def test_where_the_bot_said_nothing_a_run_may_speak() -> None:
    assert verdict() is None


@pytest.mark.parametrize(
    ("state", "counts"), [("done", True), ("cancelled", True), ("failed", False), ("superseded", False)]
)
def test_a_commit_counts_as_reviewed_when_it_was_answered_or_cancelled(state: str, *, counts: bool) -> None:
    assert verdict(mark(state)) == (Success.ALREADY_REVIEWED if counts else None)


@pytest.mark.parametrize(("uid", "counts"), [("alive", True), ("dead", False)])
def test_a_note_that_says_running_counts_only_while_its_run_lives(uid: str, *, counts: bool) -> None:
    assert verdict(mark("running", run=uid)) == (Success.ALREADY_REVIEWED if counts else None)


@pytest.mark.parametrize(("uid", "counts"), [("done", True), ("superseded", False), ("failed", False)])
def test_a_run_whose_note_still_waits_for_gitlab_counts_by_its_outcome(uid: str, *, counts: bool) -> None:
    assert verdict(mark("running", run=uid)) == (Success.ALREADY_REVIEWED if counts else None)


def test_a_superseded_run_whose_note_still_waits_does_not_count_for_the_limit() -> None:
    assert verdict(mark("running", sha=OLD, run="superseded"), limit=1) is None
    assert verdict(mark("running", sha=OLD, run="failed"), limit=1) == Success.RUN_LIMIT_REACHED


@pytest.mark.parametrize("shut", ["merged", "closed", "a draft"])
def test_nothing_starts_by_itself_on_a_merge_request_that_is_shut_by_now(shut: str) -> None:
    assert verdict(shut=shut) == Success.SUPERSEDED
    assert verdict(shut=shut, trigger=COMMAND) is None


def test_another_workflow_or_commit_is_no_review_of_this_one() -> None:
    assert verdict(mark(wf="review"), mark(sha=OLD)) is None


def test_a_note_without_a_commit_is_no_review_for_an_answer_to_words_speaks_for_none() -> None:
    assert verdict(mark(sha=None)) is None


def test_the_limit_counts_conversations_of_the_workflow_and_not_notes() -> None:
    replies = [mark(sha=OLD), mark(sha=None), mark("failed", sha=None)]
    assert verdict(*replies, limit=2) is None
    assert verdict(*replies, mark(sha=OLD, id="s2"), limit=2) == Success.RUN_LIMIT_REACHED


def test_superseded_conversations_other_workflows_and_legacy_markers_are_not_counted() -> None:
    marks = [mark("superseded", id="a"), mark(id="b", wf="review"), Marker("c"), Marker(None, run="x", key="y")]
    assert verdict(*marks, limit=1) is None


def test_a_head_that_moved_on_supersedes_a_run_before_it_began() -> None:
    assert verdict(head=OLD) == Success.SUPERSEDED


@pytest.mark.parametrize("trigger", [EVENT, COMMAND])
@pytest.mark.parametrize("state", ["done", "failed", "cancelled", "superseded"])
def test_an_event_that_was_answered_by_a_deleted_run_is_not_answered_again(trigger: Any, state: str) -> None:
    assert verdict(mark(state, sha=None, key="why"), trigger=trigger) == Success.DUPLICATE


def test_a_note_of_the_same_event_that_says_running_was_never_finished() -> None:
    assert verdict(mark("running", key="why", run="dead"), trigger=COMMAND) is None


def test_what_a_person_asked_for_is_held_against_its_own_event_only() -> None:
    marks = [mark(), mark(id="b"), mark(id="c")]
    assert verdict(*marks, trigger=COMMAND, head=OLD, limit=1) is None


def test_the_name_of_a_run_made_by_hand_says_nothing_about_an_event() -> None:
    by_hand = {"source": "gitlab", "event": "note"}
    assert verdict(mark(key="why"), trigger=by_hand) is None
