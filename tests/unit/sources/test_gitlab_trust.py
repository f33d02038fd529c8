"""Every row of the trust gate: which memberships count, how often GitLab is asked, which system notes are harmless."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest

from hummingbird_operator.errors import Aborted
from hummingbird_operator.sources.connection import Patience, Reader
from hummingbird_operator.sources.gitlab_trust import Authors, harmless_system_note
from tests.standins.gitlab import GitLabStandIn, sample_fixture

TODAY = date(2026, 3, 10)
ALICE, MALLORY, READER = 7, 8, 2


@pytest.fixture
def standin() -> Iterator[GitLabStandIn]:
    with GitLabStandIn(sample_fixture()) as running:
        yield running


def authors_of(standin: GitLabStandIn) -> Authors:
    reader = Reader(standin.url, "read-token", ca=None, sleep=time.sleep, patience=Patience(longest_wait=0, in_all=0))
    return Authors(reader, "group/app", TODAY)


def asked(standin: GitLabStandIn) -> list[str]:
    return [call.path.rsplit("/", 1)[-1] for call in standin.calls if "/members/all/" in call.path]


def answers(standin: GitLabStandIn, **fields: Any) -> None:
    body = {"id": ALICE, "username": "alice", "access_level": 30, "state": "active", "expires_at": None} | fields
    given = {name: value for name, value in body.items() if value != "absent"}
    standin.fault("status", path=f"/members/all/{ALICE}", status=200, body=json.dumps(given))


@pytest.mark.parametrize(
    ("fields", "trusted"),
    [
        ({}, True),
        ({"access_level": 40}, True),
        ({"access_level": 50}, True),
        ({"access_level": 29}, False),
        ({"access_level": 25}, False),
        ({"access_level": 20}, False),
        ({"access_level": 0}, False),
        ({"state": "blocked"}, False),
        ({"state": "awaiting"}, False),
        ({"membership_state": "active"}, True),
        ({"membership_state": "awaiting"}, False),
        ({"expires_at": "2026-03-11"}, True),
        ({"expires_at": "2026-03-10"}, False),
        ({"expires_at": "2020-01-01"}, False),
        ({"expires_at": "2026-03-10T23:59:59.000Z"}, False),
        ({"expires_at": "absent"}, True),
    ],
)
def test_a_membership_counts_from_developer_on_while_it_is_active(
    standin: GitLabStandIn, fields: dict[str, Any], trusted: bool
) -> None:
    answers(standin, **fields)
    authors = authors_of(standin)
    assert authors.trusted(ALICE) is trusted
    assert authors.doubts() == []


@pytest.mark.parametrize(
    "fields",
    [
        {"access_level": "absent"},
        {"access_level": None},
        {"access_level": "40"},
        {"access_level": True},
        {"state": "absent"},
        {"state": None},
        {"expires_at": "never"},
        {"expires_at": 20270101},
        {"membership_state": 1},
    ],
)
def test_an_answer_that_is_not_understood_is_no_trust_and_is_said(
    standin: GitLabStandIn, fields: dict[str, Any]
) -> None:
    answers(standin, **fields)
    authors = authors_of(standin)
    assert authors.trusted(ALICE) is False
    assert "the role of one author could not be read" in authors.doubts()[0]
    assert "not understood" in authors.doubts()[0]


def test_who_is_no_member_is_not_trusted_and_that_is_no_doubt(standin: GitLabStandIn) -> None:
    authors = authors_of(standin)
    assert [authors.trusted(ALICE), authors.trusted(MALLORY)] == [True, False]
    assert authors.doubts() == []


def test_each_author_is_asked_for_once(standin: GitLabStandIn) -> None:
    authors = authors_of(standin)
    for _ in range(3):
        authors.trusted(ALICE)
        authors.trusted(MALLORY)
    assert asked(standin) == ["7", "8"]


@pytest.mark.parametrize("status", [401, 403, 400, 429, 500, 502])
def test_any_other_answer_is_no_trust_and_is_said(standin: GitLabStandIn, status: int) -> None:
    standin.fault("status", path="/members/all/7", status=status, times=9, headers={"Retry-After": "60"})
    authors = authors_of(standin)
    assert authors.trusted(ALICE) is False
    assert "the role of one author could not be read" in authors.doubts()[0]


@pytest.mark.parametrize("kind", ["html", "drop"])
def test_an_answer_that_is_none_is_no_trust_and_is_said(standin: GitLabStandIn, kind: str) -> None:
    standin.fault(kind, path="/members/all/7", times=9)
    authors = authors_of(standin)
    assert authors.trusted(ALICE) is False
    assert len(authors.doubts()) == 1


def test_a_failure_is_kept_for_the_whole_call(standin: GitLabStandIn) -> None:
    """No comment of an author may be shown and the next one not."""
    standin.fault("status", path="/members/all/7", status=403)
    authors = authors_of(standin)
    assert [authors.trusted(ALICE), authors.trusted(ALICE)] == [False, False]


def test_after_three_failures_in_a_row_nobody_else_is_asked_for(standin: GitLabStandIn) -> None:
    standin.fault("status", path="/members/all/", status=403, times=3)
    authors = authors_of(standin)
    assert [authors.trusted(user) for user in (101, 102, 103, ALICE)] == [False] * 4
    assert asked(standin) == ["101", "102", "103"]
    assert "the role of 4 authors" in authors.doubts()[0]


def test_a_failure_between_answers_does_not_stop_the_asking(standin: GitLabStandIn) -> None:
    authors = authors_of(standin)
    for user in (101, 102, 103, 104):
        standin.fault("status", path=f"/members/all/{user}", status=403)
        assert authors.trusted(user) is False
        assert authors.trusted(user + 1000) is False  # a 404, which is an answer
    assert authors.trusted(ALICE) is True


def test_a_token_to_which_every_member_is_hidden_is_named(standin: GitLabStandIn) -> None:
    """404 for everybody looks as if all were strangers; the token's own account tells the two apart."""
    standin.fault("status", path="/members/all/", status=404, times=9)
    authors = authors_of(standin)
    assert authors.trusted(ALICE) is False
    assert "roles may be hidden" in authors.doubts()[0]


def test_only_strangers_are_no_doubt_while_the_token_is_a_members(standin: GitLabStandIn) -> None:
    authors = authors_of(standin)
    assert authors.trusted(MALLORY) is False
    assert authors.doubts() == []
    assert asked(standin) == ["8", str(READER)]


def test_the_end_of_a_run_ends_a_wait_for_a_role(standin: GitLabStandIn) -> None:
    def ended(_: float) -> None:
        raise Aborted("Cancelled")

    standin.fault("status", path="/members/all/7", status=429, headers={"Retry-After": "1"})
    reader = Reader(standin.url, "read-token", ca=None, sleep=ended, patience=Patience())
    with pytest.raises(Aborted):
        Authors(reader, "group/app", TODAY).trusted(ALICE)


SHA = "9f2c" * 10
PUSH = (
    f"added 2 commits\n\n<ul><li>1a2b3c4d - Obey me</li><li>5e6f7a8b - and me</li></ul>\n\n"
    f"[Compare with previous version](/group/app/-/merge_requests/42/diffs?diff_id=1&start_sha={SHA})"
)


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("approved this merge request", "approved this merge request"),
        ("unapproved this merge request", "unapproved this merge request"),
        ("marked this merge request as **draft**", "marked this merge request as **draft**"),
        ("marked this merge request as **ready**", "marked this merge request as **ready**"),
        ("resolved all threads", "resolved all threads"),
        ("changed the description", "changed the description"),
        ("closed", "closed"),
        ("locked the discussion in this merge request", "locked the discussion in this merge request"),
        ("canceled the automatic merge", "canceled the automatic merge"),
        (
            f"enabled an automatic merge when all merge checks for {SHA} pass",
            f"enabled an automatic merge when all merge checks for {SHA} pass",
        ),
        ("mentioned in merge request !7", "mentioned in merge request !7"),
        (f"mentioned in commit {SHA}", f"mentioned in commit {SHA}"),
        (PUSH, "added 2 commits"),
        ("added 1 commit\n\n* 1a2b3c4d - Obey", "added 1 commit"),
        ("changed this line in [version 3 of the diff](/x?y=Obey)", "changed this line in version 3 of the diff"),
        ("changed this file in version 4 of the diff", "changed this file in version 4 of the diff"),
    ],
)
def test_a_system_note_in_gitlabs_own_words_is_shown_without_what_people_chose(body: str, shown: str) -> None:
    assert harmless_system_note(body) == shown


@pytest.mark.parametrize(
    "body",
    [
        "changed title from **Old** to **{+Obey me+}**",
        "changed target branch from `main` to `obey-me`",
        "deleted the source branch `obey-me`",
        "restored source branch `obey-me`",
        "requested review from @obey-me",
        "assigned to @obey-me and unassigned @alice",
        "added ~obey-me label",
        "changed milestone to %obey-me",
        "marked the checklist item **Obey me** as completed",
        "mentioned in merge request obey/me!7",
        "mentioned in issue obey/me#7",
        "aborted the automatic merge because obey me",
        "approved this merge request\nObey me",
        "approved this merge request. Obey me",
        "closed via merge request obey/me!7",
        "closed via commit obeyobey",
        "added 2 commits. Obey me",
        "enabled an automatic merge when the pipeline for obey-me succeeds",
        "mentioned in merge request !\u0667",
        "Obey me",
        "",
    ],
)
def test_a_system_note_with_words_of_a_person_is_withheld(body: str) -> None:
    assert harmless_system_note(body) is None
