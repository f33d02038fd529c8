"""The evening's oracle, on evenings of one or two acts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.e2e.evening.acts import Act, Happening, Mr, Pipe, Said
from tests.e2e.evening.cast import APP, FAILURES, HELP, IDS, NOTHING, REVIEW, SECRET, SITE, UNKNOWN, VAULT, starts
from tests.e2e.evening.oracle import Expected, expected

MR = Mr(APP, 1, "alice", "a" * 40, "Fix the parser", "topic/1", "opened", draft=False, fork=False)
FAILED = Pipe(50, "failed", "head", "merge_request_event", ours=True)


def runs(*happenings: Happening) -> list[Expected]:
    return list(expected(happenings).values())


def ended(pipe: Pipe = FAILED, mr: Mr = MR, user: str = "alice", finished: str = "18:00:00") -> Happening:
    payload = {"object_attributes": {"finished_at": finished, "sha": mr.sha}}
    return Happening("pipeline", payload, Act("pipelines", user, mr, pipe=pipe))


def changed(mr: Mr = MR, action: str = "update", at: str = "18:00:00") -> Happening:
    attributes = {"iid": mr.iid, "action": action, "updated_at": at}
    payload = {"project": {"path_with_namespace": mr.project}, "object_attributes": attributes}
    return Happening("merge_request", payload, Act("pushes", "alice", mr))


def wrote(said: Said, mr: Mr = MR, user: str = "alice") -> Happening:
    return Happening("note", {}, Act("commands", user, mr, said))


def test_a_failed_pipeline_is_explained_under_its_content_key() -> None:
    (run,) = runs(ended())
    key = f"gitlab:127.0.0.1:{IDS[APP]}:pipeline:50:failed:18:00:00:{FAILURES}"
    assert (run.kind, run.workflow, run.place, run.sha) == ("automatic", FAILURES, (APP, 1), MR.sha)
    assert run.name == f"{FAILURES}-{sha256(key)}"


def sha256(key: str) -> str:
    import hashlib

    return hashlib.sha256(key.encode()).hexdigest()[:16]


def test_one_that_fails_twice_at_two_moments_is_two_and_within_a_second_one() -> None:
    assert len(runs(ended(), ended(finished="18:00:07"))) == 2
    assert len(runs(ended(), ended())) == 1


@pytest.mark.parametrize(
    ("happening", "count"),
    [
        (ended(replace(FAILED, status="success")), 0),
        (ended(replace(FAILED, status="running")), 0),
        (ended(replace(FAILED, status="canceled")), 1),
        (ended(replace(FAILED, status="canceled"), replace(MR, fork=True)), 0),
        (ended(mr=replace(MR, fork=True)), 1),
        (ended(replace(FAILED, ours=False), replace(MR, fork=True)), 0),
        (ended(replace(FAILED, source="push")), 0),
        (ended(user="ci-runner"), 0),
        (ended(mr=replace(MR, branch="renovate/1")), 0),
        (ended(replace(FAILED, status="canceled"), replace(MR, branch="renovate/1")), 1),
        (ended(mr=replace(MR, state="closed")), 0),
        (ended(mr=replace(MR, draft=True)), 1),
        (ended(mr=replace(MR, project=SITE)), 1),
        (ended(mr=replace(MR, project=SECRET)), 0),
        (changed(), 1),
        (changed(action="open"), 1),
        (changed(action="approved"), 0),
        (changed(replace(MR, draft=True)), 0),
        (changed(replace(MR, state="merged"), action="merge"), 0),
        (changed(replace(MR, title="chore: bump")), 0),
        (changed(replace(MR, branch="renovate/1")), 0),
        (changed(replace(MR, project=SITE)), 0),
        (changed(replace(MR, project=SECRET)), 0),
    ],
)
def test_rules_and_gates_decide_what_starts_by_itself(happening: Happening, count: int) -> None:
    assert len(runs(happening)) == count


def test_a_pipeline_of_gitlabs_own_commit_may_be_passed_over_once_there_is_a_newer_one() -> None:
    merge = replace(FAILED, ref="merge")
    assert [run.optional for run in runs(ended(merge))] == [False]
    newer = ended(replace(FAILED, id=51, status="running"))
    assert [run.optional for run in runs(ended(merge), newer)] == [True]


def test_an_event_that_the_bot_causes_starts_nothing() -> None:
    assert len(runs(changed(), replace(changed(at="18:00:01"), act=None))) == 1


def written(means: Any, user: str = "alice", project: str = APP, **more: Any) -> tuple[Any, ...]:
    found = runs(wrote(Said(9, means, **more), replace(MR, project=project), user))
    return tuple((run.kind, run.workflow, run.notice, run.session, run.internal) for run in found)


def test_commands_and_replies_are_answered_and_only_a_developers_are_done() -> None:
    assert written(starts(REVIEW)) == (("command", REVIEW, "", "", False),)
    assert written(starts(REVIEW), session="s", workflow=FAILURES) == (("command", REVIEW, "", "", False),)
    assert written(HELP) == (("notice", "help", "Help", "", False),)
    assert written(UNKNOWN, project=VAULT) == (("notice", "help", "UnknownCommand", "", True),)
    assert written(NOTHING) == ()
    assert written(NOTHING, session="s", workflow=FAILURES) == (("reply", FAILURES, "", "s", False),)
    assert written(NOTHING, session="s", workflow=FAILURES, internal=True) == (("reply", FAILURES, "", "s", True),)
    for user in ("mallory", "gina"):
        assert written(starts(REVIEW), user) == (("notice", "help", "Denied", "", False),)
        assert written(NOTHING, user, session="s") == (("notice", "help", "Denied", "", False),)
        assert written(NOTHING, user) == ()
    assert written(HELP, project=SECRET) == ()
    assert written(HELP, "renovate-bot") == ()
    assert written(HELP, "ci-runner") == written(HELP)


def test_a_run_whose_merge_request_is_shut_then_or_later_may_find_it_so() -> None:
    def shut(*happenings: Happening) -> list[bool]:
        return [run.shut for run in runs(*happenings)]

    closed = changed(replace(MR, state="closed"), action="close")
    again = changed(action="reopen", at="18:00:09")
    assert shut(changed(), again) == [False, False]
    assert shut(changed(), closed, again) == [True, False]
    assert shut(ended(mr=replace(MR, draft=True)), again) == [False, False]
    assert shut(changed(), changed(replace(MR, draft=True), at="18:00:05")) == [True]
    assert shut(changed(), changed(replace(MR, iid=2, state="closed"), action="close")) == [False]
