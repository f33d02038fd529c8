"""What a decision about a run asks GitLab: the merge request now, a pipeline, a person's level."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from hummingbird_operator.delivery.notes import Forbidden, MergeRequestHead, Notes, Pipeline
from hummingbird_operator.errors import NotFound, Unavailable
from tests.standins.gitlab import GitLabStandIn
from tests.unit.delivery.pens import WHERE, answers, pen

SHA = "9f2c" * 10
ALICE = 7
STRANGER = 8


def set_fields(gitlab: GitLabStandIn, **fields: Any) -> None:
    gitlab.state.projects[10].merge_requests[42].fields.update(fields)


def test_the_head_tells_all_that_a_gate_asks_for(gitlab: GitLabStandIn, notes: Notes) -> None:
    set_fields(
        gitlab,
        title="Draft: mend it",
        draft=True,
        source_branch="fix/it",
        source_project_id=11,
        head_pipeline={"id": 5, "status": "running", "sha": SHA, "ref": "fix/it"},
    )
    assert notes.head(*WHERE) == MergeRequestHead(
        sha=SHA,
        pipeline_status="running",
        pipeline_id=5,
        state="opened",
        draft=True,
        title="Draft: mend it",
        source_branch="fix/it",
        fork=True,
        author_id=ALICE,
        project_id=10,
    )


def test_the_head_of_an_older_or_emptier_server_is_read_as_well(gitlab: GitLabStandIn, notes: Notes) -> None:
    """sources.md §1.5: draft is younger than work_in_progress; a merge request without commits has no sha."""
    answers(gitlab, "/merge_requests/42", {"sha": None, "work_in_progress": True, "title": None, "author": None})
    head = notes.head(*WHERE)
    assert (head.sha, head.draft, head.title, head.author_id, head.fork) == ("", True, "", None, False)


def test_a_merge_request_whose_fork_is_gone_comes_from_a_fork(gitlab: GitLabStandIn, notes: Notes) -> None:
    set_fields(gitlab, source_project_id=None)
    assert notes.head(*WHERE).fork


@pytest.mark.parametrize(
    ("pipeline", "shown"),
    [
        (None, (None, None)),
        ({"id": 5, "status": "success", "sha": SHA, "ref": "topic"}, ("success", 5)),
        ({"id": 5, "status": "success", "sha": "0" * 40, "ref": "topic"}, (None, None)),
        ({"id": 5, "status": "failed", "sha": "0" * 40, "ref": "refs/merge-requests/42/head"}, (None, None)),
        ({"id": 5, "status": "failed", "sha": "0" * 40, "ref": "refs/merge-requests/42/merge"}, ("failed", 5)),
        ({"id": 5, "status": "failed", "sha": "0" * 40, "ref": "refs/merge-requests/42/train"}, ("failed", 5)),
    ],
)
def test_the_head_pipeline_counts_only_for_the_head(
    gitlab: GitLabStandIn, notes: Notes, pipeline: dict[str, Any] | None, shown: tuple[str | None, int | None]
) -> None:
    """sources.md §6 rows 10, 12 and 13."""
    set_fields(gitlab, head_pipeline=pipeline)
    head = notes.head(*WHERE)
    assert (head.pipeline_status, head.pipeline_id) == shown


def test_a_pipeline_says_of_which_kind_it_is(gitlab: GitLabStandIn, notes: Notes) -> None:
    """sources.md §1.5: only the pipeline's own ref tells a merged-results pipeline, the event's does not."""
    ref = "refs/merge-requests/42/merge"
    answers(
        gitlab,
        "/projects/group/app/pipelines/5",
        {"id": 5, "sha": SHA, "ref": ref, "status": "failed", "source": "merge_request_event", "user": None},
    )
    assert notes.pipeline("group/app", 5) == Pipeline(5, SHA, ref, "failed", "merge_request_event")


def test_a_pipeline_that_is_gone_is_not_found(gitlab: GitLabStandIn, notes: Notes) -> None:
    answers(gitlab, "/pipelines/6", {"message": "404 Not found"}, status=404)
    with pytest.raises(NotFound):
        notes.pipeline("group/app", 6)


@pytest.mark.parametrize("level", [5, 10, 15, 20, 25, 30, 40, 50])
def test_a_member_has_the_level_that_gitlab_says(gitlab: GitLabStandIn, notes: Notes, level: int) -> None:
    gitlab.state.projects[10].members[ALICE] = level
    assert notes.access_level("group/app", ALICE) == level


def test_who_is_no_member_has_no_access(notes: Notes) -> None:
    """sources.md §1.3: 404 is "not a member"."""
    assert notes.access_level("group/app", STRANGER) == 0
    assert notes.access_level("group/app", 999_999) == 0


@pytest.mark.parametrize(
    ("fields", "level"),
    [
        ({"state": "active", "expires_at": None}, 30),
        ({"state": "active"}, 30),
        ({"state": "blocked"}, 0),
        ({"state": "awaiting"}, 0),
        ({"state": "active", "membership_state": "awaiting"}, 0),
        ({"state": "active", "membership_state": None}, 30),
        ({"state": "active", "expires_at": "2026-11-30"}, 0),
        ({"state": "active", "expires_at": "2026-12-01"}, 0),
        ({"state": "active", "expires_at": "2026-12-02"}, 30),
        ({"state": "active", "expires_at": "2026-11-30T00:00:00.000Z"}, 0),
        ({"state": "active", "expires_at": "2026-12-02T00:00:00.000Z"}, 30),
    ],
)
def test_a_member_counts_while_active_and_until_the_day_the_membership_ends(
    gitlab: GitLabStandIn, fields: dict[str, Any], level: int
) -> None:
    """GitLab ends access at the beginning of that day (gitlab-org/gitlab#27138); the day is UTC's."""
    answers(gitlab, f"/members/all/{ALICE}", {"id": ALICE, "access_level": 30, **fields})
    just_after_midnight_in_utc = datetime(2026, 11, 30, 20, 1, tzinfo=timezone(timedelta(hours=-4)))
    with pen(gitlab, now=lambda: just_after_midnight_in_utc) as notes:
        assert notes.access_level("group/app", ALICE) == level


@pytest.mark.parametrize("fields", [{}, {"state": None}, {"state": "active", "expires_at": 7}])
def test_what_an_answer_does_not_say_about_a_member_is_not_guessed(
    gitlab: GitLabStandIn, fields: dict[str, Any]
) -> None:
    answers(gitlab, f"/members/all/{ALICE}", {"id": ALICE, "access_level": 30, **fields})
    with pen(gitlab) as notes, pytest.raises(Unavailable):
        notes.access_level("group/app", ALICE)


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (404, {"message": "404 Project Not Found"}, Forbidden),
        (404, "<html>no such route</html>", Unavailable),
        (404, "404 page not found\n", Unavailable),
        (403, {"message": "403 Forbidden"}, Forbidden),
        (403, "Forbidden", Unavailable),
        (401, {"message": "401 Unauthorized"}, Unavailable),
        (429, "Retry later", Unavailable),
        (500, {"message": "500 Internal Server Error"}, Unavailable),
        (200, "<html>Sign in</html>", Unavailable),
        (200, [], Unavailable),
        (200, {"access_level": None}, Unavailable),
        (200, {"access_level": 30, "expires_at": "one day"}, Unavailable),
    ],
)
def test_no_other_answer_means_that_somebody_is_no_member(
    gitlab: GitLabStandIn, notes: Notes, status: int, body: object, error: type[Exception]
) -> None:
    """DESIGN.md §9: any other error is retried, never "denied"."""
    for _ in range(4):  # reads are tried again
        answers(gitlab, "/members/all/", body, status)
    with pytest.raises(error) as caught:
        notes.access_level("group/app", ALICE)
    assert type(caught.value) is error


def test_levels_are_asked_for_each_time_and_only_for_that_account(gitlab: GitLabStandIn, notes: Notes) -> None:
    """sources.md §1.4: the list of all members has a limit of its own."""
    assert [notes.access_level("group/app", ALICE) for _ in range(2)] == [30, 30]
    assert [call.path for call in gitlab.calls] == [f"/api/v4/projects/group/app/members/all/{ALICE}"] * 2


def test_the_clock_is_the_real_one_where_none_is_given(gitlab: GitLabStandIn, notes: Notes) -> None:
    tomorrow = (datetime.now(UTC) + timedelta(days=2)).date().isoformat()
    answers(gitlab, "/members/all/", {"access_level": 30, "state": "active", "expires_at": tomorrow})
    assert notes.access_level("group/app", ALICE) == 30


def test_a_note_is_told_with_who_wrote_it_where_and_whether_it_was_edited(gitlab: GitLabStandIn, notes: Notes) -> None:
    written = gitlab.people.comments(*WHERE, "alice", "/hummingbird review")
    said = notes.said(*WHERE, written.id)
    assert (said.author_id, said.body, said.project_id) == (ALICE, "/hummingbird review", 10)
    assert (said.system, said.internal, said.edited) == (False, False, False)
    answers(gitlab, f"/notes/{written.id}", {"id": written.id, "confidential": True, "updated_at": "later"})
    changed = notes.said(*WHERE, written.id)
    assert (changed.author_id, changed.internal, changed.edited) == (None, True, True)
    with pytest.raises(NotFound):
        notes.said(*WHERE, 999_999)


def test_a_reaction_and_a_thread_that_is_resolved_are_no_edit_and_cost_a_request_only_then(
    gitlab: GitLabStandIn, notes: Notes
) -> None:
    moments = iter(range(10_000))
    gitlab.state.clock = lambda: datetime(2030, 1, 10, tzinfo=UTC) + timedelta(minutes=next(moments))
    plain = gitlab.people.comments(*WHERE, "alice", "one")
    before = len(gitlab.calls)
    assert not notes.said(*WHERE, plain.id).edited
    assert len(gitlab.calls) == before + 1
    gitlab.people.reacts(*WHERE, "reader", plain.id, "thumbsup")
    assert not notes.said(*WHERE, plain.id).edited
    gitlab.people.edits(*WHERE, "alice", plain.id, "two")
    assert notes.said(*WHERE, plain.id).edited
    thread = gitlab.people.starts(*WHERE, "alice", "three")
    gitlab.people.resolves(*WHERE, "alice", thread.discussion_id)
    assert not notes.said(*WHERE, thread.id).edited


@pytest.mark.parametrize(
    ("address", "host"),
    [("https://Git.example.com/bot", "git.example.com"), (None, ""), ("https://[", ""), ("no address", "")],
)
def test_gitlab_s_own_name_is_that_of_the_bots_page(
    gitlab: GitLabStandIn, notes: Notes, address: str | None, host: str
) -> None:
    answers(gitlab, "/user", {"id": 1, "web_url": address})
    assert notes.host() == host
    assert notes.bot_id() == 1
    assert sum(call.path.endswith("/user") for call in gitlab.calls) == 1


def test_the_probe_asks_each_time_and_once(gitlab: GitLabStandIn, notes: Notes) -> None:
    notes.bot_id()
    gitlab.fault("status", path="/user", status=502, times=1)
    with pytest.raises(Unavailable):
        notes.probe()
    notes.probe()
    assert sum(call.path.endswith("/user") for call in gitlab.calls) == 3
    answers(gitlab, "/user", {"message": "403 Forbidden - accept the Terms of Service"}, status=403)
    with pytest.raises(Forbidden):
        notes.probe()
