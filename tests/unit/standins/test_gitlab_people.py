"""What people do in the GitLab stand-in, and which events GitLab makes of it (sources.md §1.3, §1.5)."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import gitlab
import pytest

from tests.standins.gitlab import ApiError, Emitted, GitLabStandIn, NothingWritten, sample_fixture

PROJECT = "group/app"
HEAD = "9f2c" * 10
PUSHED = "ab12" * 10
MR = (PROJECT, 42)


def merge_request(standin: GitLabStandIn) -> Any:
    return gitlab.Gitlab(standin.url, private_token="bot-token").projects.get(PROJECT).mergerequests.get(42)


def kinds(standin: GitLabStandIn) -> list[str]:
    return [event.kind for event in standin.events]


def last(standin: GitLabStandIn) -> dict[str, Any]:
    return standin.events[-1].payload


def attributes(standin: GitLabStandIn) -> dict[str, Any]:
    found: dict[str, Any] = last(standin)["object_attributes"]
    return found


def system_notes(standin: GitLabStandIn) -> list[str]:
    return [note.body for note in standin.state.projects[10].merge_requests[42].notes.values() if note.system]


# --- notes ---


def test_a_comment_is_a_plain_note_and_its_event_has_what_the_documented_example_lacks(standin: GitLabStandIn) -> None:
    note = standin.people.comments(*MR, "alice", "/hummingbird help")
    event = standin.events[-1]
    assert (note.type, note.body) == (None, "/hummingbird help")
    assert (event.kind, event.project, event.headers["X-Gitlab-Event"]) == ("note", PROJECT, "Note Hook")
    assert event.payload["event_type"] == "note"
    assert attributes(standin) | {
        "id": note.id, "author_id": 7, "action": "create", "type": None, "internal": False, "system": False,
        "discussion_id": note.discussion_id, "noteable_type": "MergeRequest", "position": None, "note": note.body,
    } == attributes(standin)  # fmt: skip
    assert last(standin)["merge_request"]["last_commit"]["id"] == HEAD
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", attributes(standin)["created_at"])


def test_a_reply_turns_a_plain_note_into_a_thread_and_stays_as_internal_as_it(standin: GitLabStandIn) -> None:
    first = standin.people.comments(*MR, "alice", "secret", internal=True)
    reply = standin.people.replies(*MR, "reader", first.discussion_id, "indeed")
    assert (first.type, reply.type, reply.internal) == ("DiscussionNote", "DiscussionNote", True)
    assert (last(standin)["event_type"], last(standin)["object_kind"]) == ("confidential_note", "note")
    assert standin.events[-1].headers["X-Gitlab-Event"] == "Confidential Note Hook"


def test_internal_needs_the_right_and_an_internal_thread_is_not_there_for_a_guest(standin: GitLabStandIn) -> None:
    standin.state.projects[10].visibility = "public"
    internal = standin.people.comments(*MR, "alice", "secret", internal=True)
    assert not standin.people.comments(*MR, "mallory", "hello", internal=True).internal
    with pytest.raises(ApiError, match="404 Discussion Not Found"):
        standin.people.replies(*MR, "mallory", internal.discussion_id, "me too")


def test_who_cannot_see_a_private_project_cannot_comment_and_a_blocked_account_cannot_either(
    standin: GitLabStandIn,
) -> None:
    with pytest.raises(ApiError, match="404 Project"):
        standin.people.comments(*MR, "mallory", "hello")
    standin.state.users[7].state = "blocked"
    with pytest.raises(ApiError, match="blocked"):
        standin.people.comments(*MR, "alice", "hello")


def test_a_thread_on_the_diff_has_its_position_in_all_of_its_notes(standin: GitLabStandIn) -> None:
    position = {"position_type": "text", "new_path": "a.py", "new_line": 3, "head_sha": HEAD}
    first = standin.people.starts(*MR, "alice", "why?", position=position)
    reply = standin.people.replies(*MR, "reader", first.discussion_id, "because")
    assert (first.type, reply.type) == ("DiffNote", "DiffNote")
    assert attributes(standin)["position"] == position
    [thread] = merge_request(standin).discussions.list(get_all=True)
    assert thread.attributes["notes"][1]["position"] == position


def test_quick_actions_of_people_run_and_a_text_of_nothing_else_leaves_no_note(standin: GitLabStandIn) -> None:
    with pytest.raises(NothingWritten):
        standin.people.comments(*MR, "alice", "/close")
    assert merge_request(standin).state == "closed"
    assert attributes(standin)["action"] == "close"
    note = standin.people.comments(*MR, "alice", "again\n/reopen\n/label ~bug")
    assert [event.payload["object_attributes"].get("action") for event in standin.events] == [
        "close", "reopen", "update", "create",
    ]  # fmt: skip
    assert (note.body, merge_request(standin).labels) == ("again", ["bug"])


def test_an_edit_is_told_only_when_the_text_changed_and_in_the_name_of_the_author(standin: GitLabStandIn) -> None:
    note = standin.people.comments(*MR, "alice", "one")
    standin.people.edits(*MR, "alice", note.id, "one")
    assert len(standin.events) == 1
    standin.people.edits(*MR, "maya", note.id, "two")
    assert (attributes(standin)["action"], attributes(standin)["updated_by_id"]) == ("update", 9)
    assert last(standin)["user"]["username"] == "alice"
    standin.people.edits(*MR, "alice", note.id, "/approve")
    assert standin.state.destroyed == [note.id]
    assert len(standin.events) == 2


def test_the_notes_of_the_bot_come_back_as_events(standin: GitLabStandIn) -> None:
    note = merge_request(standin).notes.create({"body": "placeholder"})
    note.body = "answer"
    note.save()
    note.save()
    assert [event.payload["object_attributes"]["action"] for event in standin.events] == ["create", "update"]
    assert last(standin)["user"]["username"] == "hummingbird-bot"


def test_a_deleted_note_and_a_reaction_are_told_to_nobody(standin: GitLabStandIn) -> None:
    note = standin.people.comments(*MR, "alice", "one")
    standin.people.reacts(*MR, "reader", note.id, "eyes")
    standin.people.deletes(*MR, "alice", note.id)
    assert kinds(standin) == ["note"]


def test_a_reaction_and_resolving_move_the_date_of_a_note_as_an_edit_does(standin: GitLabStandIn) -> None:
    moments = iter(range(10_000))
    standin.state.clock = lambda: datetime(2030, 1, 10, tzinfo=UTC) + timedelta(seconds=next(moments))
    note = standin.people.starts(*MR, "alice", "a thread")
    dates = [note.updated_at]
    standin.people.reacts(*MR, "reader", note.id, "thumbsup")
    dates.append(note.updated_at)
    for resolved in (True, False):
        standin.people.resolves(*MR, "alice", note.discussion_id, resolved=resolved)
        dates.append(note.updated_at)
    assert dates == sorted(set(dates))
    (award,) = note.emoji
    assert award["created_at"] == award["updated_at"] == dates[1]


def test_the_last_thread_resolved_gives_a_system_note_and_an_event_without_changes(standin: GitLabStandIn) -> None:
    threads = [standin.people.starts(*MR, "alice", text) for text in ("one", "two")]
    for thread in threads:
        standin.people.resolves(*MR, "alice", thread.discussion_id)
    assert kinds(standin) == ["note", "note", "merge_request"]
    assert (last(standin)["changes"], attributes(standin)["action"]) == ({}, "update")
    assert system_notes(standin) == ["resolved all threads"]
    [shown, *_] = merge_request(standin).discussions.list(get_all=True)
    assert shown.attributes["notes"][0]["resolved_by"]["username"] == "alice"


@pytest.mark.parametrize("kind", ["Issue", "Commit", "Snippet"])
def test_a_note_elsewhere_names_no_merge_request(standin: GitLabStandIn, kind: str) -> None:
    number = standin.people.remarks(PROJECT, "alice", "/hummingbird", on=kind)
    assert (attributes(standin)["id"], attributes(standin)["noteable_type"]) == (number, kind)
    assert (kind.lower() in last(standin), "merge_request" in last(standin)) == (True, False)


# --- the merge request ---


def test_a_push_moves_the_head_and_says_so_with_the_words_of_the_commit(standin: GitLabStandIn) -> None:
    pipeline = standin.people.pipeline(*MR, "alice", "failed")
    standin.people.pushes(*MR, "alice", PUSHED, message="Fix @mallory\n\nmore")
    found = merge_request(standin)
    assert (found.sha, found.diff_refs["head_sha"], found.diffs.list(get_all=True)[0].head_commit_sha) == (PUSHED,) * 3
    assert found.head_pipeline["id"] == pipeline  # GitLab keeps the old one until a new one is made
    assert kinds(standin)[1:] == ["push", "merge_request"]
    shown = attributes(standin)
    assert (shown["action"], shown["oldrev"], shown["last_commit"]["id"]) == ("update", HEAD, PUSHED)
    assert shown["last_commit"]["title"] == "Fix @mallory"
    [note] = system_notes(standin)
    assert "Fix @mallory" in note


def test_an_event_holds_what_was_true_when_it_happened(standin: GitLabStandIn) -> None:
    standin.people.renames(*MR, "alice", "First")
    first = last(standin)
    standin.people.renames(*MR, "alice", "Second")
    assert first["object_attributes"]["title"] == "First"


def test_only_a_push_has_oldrev(standin: GitLabStandIn) -> None:
    standin.people.renames(*MR, "alice", "Other")
    standin.people.labels(*MR, "alice", ["bug"])
    standin.people.approves(*MR, "maya")
    standin.people.closes(*MR, "alice")
    assert not [event for event in standin.events if "oldrev" in event.payload["object_attributes"]]
    assert [event.payload["object_attributes"]["action"] for event in standin.events] == [
        "update", "update", "approved", "close",
    ]  # fmt: skip


def test_the_title_makes_a_draft_and_its_changes_name_both(standin: GitLabStandIn) -> None:
    standin.people.marks_draft(*MR, "alice")
    assert merge_request(standin).title == "Draft: Merge request 42"
    standin.people.marks_ready(*MR, "alice")
    assert last(standin)["changes"]["draft"] == {"previous": True, "current": False}
    assert last(standin)["changes"]["title"]["current"] == "Merge request 42"
    assert (attributes(standin)["draft"], attributes(standin)["work_in_progress"]) == (False, False)
    standin.people.renames(*MR, "alice", "Draft: @mallory /merge")
    assert system_notes(standin) == [
        "marked this merge request as **draft**",
        "marked this merge request as **ready**",
        "marked this merge request as **draft**",
        "changed title from **{-Merge request 42-}** to **{+Draft: @mallory /merge+}**",
    ]


def test_labels_are_told_before_and_after(standin: GitLabStandIn) -> None:
    standin.people.labels(*MR, "alice", ["bug"])
    standin.people.labels(*MR, "alice", ["late"])
    changed = last(standin)["changes"]["labels"]
    assert [[label["title"] for label in changed[key]] for key in ("previous", "current")] == [["bug"], ["late"]]
    assert [label["title"] for label in last(standin)["labels"]] == ["late"]
    assert system_notes(standin)[-1] == "added ~late and removed ~bug labels"


def test_one_that_is_closed_does_not_follow_its_branch_until_it_is_reopened(standin: GitLabStandIn) -> None:
    standin.people.closes(*MR, "alice")
    standin.people.pushes(*MR, "alice", PUSHED)
    assert (merge_request(standin).sha, kinds(standin)) == (HEAD, ["merge_request", "push"])
    standin.people.reopens(*MR, "alice")
    assert merge_request(standin).sha == PUSHED
    assert last(standin)["changes"]["state_id"] == {"previous": 2, "current": 1}


def test_nothing_that_changes_nothing_is_told(standin: GitLabStandIn) -> None:
    standin.people.reopens(*MR, "alice")
    standin.people.marks_ready(*MR, "alice")
    standin.people.renames(*MR, "alice", "Merge request 42")
    standin.people.labels(*MR, "alice", [])
    standin.people.pushes(*MR, "alice", HEAD)
    assert standin.events == []


def test_a_merge_request_is_changed_by_its_author_or_a_developer(standin: GitLabStandIn) -> None:
    with pytest.raises(ApiError, match="403 Forbidden"):
        standin.people.closes(*MR, "reader")
    standin.people.opens(PROJECT, 43, "mallory", PUSHED, fork_of=77)
    standin.people.closes(PROJECT, 43, "mallory")


def test_everything_that_happens_moves_updated_at_and_webhooks_know_it_by_the_second(standin: GitLabStandIn) -> None:
    moments = (datetime(2026, 11, 30, 18, 21, 36, tzinfo=UTC) + timedelta(seconds=0.5 * step) for step in range(100))
    standin.state.clock = lambda: next(moments)
    seen = []
    standin.people.comments(*MR, "alice", "one")
    seen.append(merge_request(standin).updated_at)
    standin.people.pushes(*MR, "alice", PUSHED)
    seen.append(merge_request(standin).updated_at)
    assert sorted(set(seen)) == seen
    assert attributes(standin)["updated_at"] == seen[-1][:19].replace("T", " ") + " UTC"


def test_a_fork_is_another_project_with_its_own_people(standin: GitLabStandIn) -> None:
    standin.people.opens(PROJECT, 43, "mallory", PUSHED, fork_of=77, title="From afar", draft=True)
    shown = attributes(standin)
    assert (shown["action"], shown["source_project_id"], shown["target_project_id"]) == ("open", 77, 10)
    assert (shown["source"]["path_with_namespace"], shown["title"]) == ("mallory/app", "Draft: From afar")
    assert (shown["draft"], shown["author_id"]) == (True, 8)
    del standin.state.projects[77]
    standin.people.closes(PROJECT, 43, "alice")
    assert attributes(standin)["source"] is None


# --- pipelines ---


def test_a_pipeline_tells_each_change_of_status_and_a_second_end_is_another_moment(standin: GitLabStandIn) -> None:
    moments = (datetime(2026, 11, 30, 18, 0, tzinfo=UTC) + timedelta(minutes=step) for step in range(100))
    standin.state.clock = lambda: next(moments)
    number = standin.people.pipeline(*MR, "alice", "running")
    for status in ("failed", "failed", "running", "failed"):
        assert standin.people.pipeline(*MR, "alice", status, pipeline_id=number) == number
    shown = [event.payload["object_attributes"] for event in standin.events]
    assert [row["status"] for row in shown] == ["running", "failed", "running", "failed"]
    assert shown[0]["finished_at"] is None
    assert shown[2]["finished_at"] == shown[1]["finished_at"] != shown[3]["finished_at"]
    assert shown[1]["ref"] == "topic"  # the source branch: the kind cannot be told from the event
    assert last(standin)["merge_request"]["iid"] == 42
    assert (merge_request(standin).head_pipeline["id"], merge_request(standin).head_pipeline["status"]) == (
        number, "failed",
    )  # fmt: skip


@pytest.mark.parametrize(("ref", "same"), [("head", True), ("merge", False), ("train", False)])
def test_a_merged_results_pipeline_runs_on_a_commit_of_gitlabs_own(
    standin: GitLabStandIn, ref: str, same: bool
) -> None:
    standin.people.pipeline(*MR, "alice", "failed", ref=ref)
    [row] = merge_request(standin).pipelines.list(get_all=True)
    assert (row.ref, row.sha == HEAD) == (f"refs/merge-requests/42/{ref}", same)
    assert merge_request(standin).head_pipeline["id"] == row.id


def test_a_pipeline_of_an_older_commit_does_not_become_the_head_pipeline(standin: GitLabStandIn) -> None:
    standin.people.pushes(*MR, "alice", PUSHED)
    standin.people.pipeline(*MR, "alice", "failed", sha=HEAD)
    assert merge_request(standin).head_pipeline is None


def test_a_branch_pipeline_names_no_merge_request_and_a_skipped_one_never_finished(standin: GitLabStandIn) -> None:
    standin.people.pipeline(*MR, "alice", "skipped", source="push")
    assert (last(standin)["merge_request"], attributes(standin)["source"]) == (None, "push")
    assert attributes(standin)["finished_at"] is None


def test_a_forks_pipeline_is_told_to_the_fork_unless_a_member_starts_it(standin: GitLabStandIn) -> None:
    standin.people.opens(PROJECT, 43, "mallory", PUSHED, fork_of=77)
    standin.people.pipeline(PROJECT, 43, "mallory", "failed")
    assert (standin.events[-1].project, last(standin)["project"]["id"]) == ("mallory/app", 77)
    standin.people.pipeline(PROJECT, 43, "alice", "failed")
    assert standin.events[-1].project == PROJECT


def test_a_pipeline_of_a_fixture_moves_too(standin: GitLabStandIn) -> None:
    row = {"id": 5, "sha": HEAD, "ref": "refs/merge-requests/42/head", "source": "merge_request_event"}
    found = {"iid": 42, "sha": HEAD, "pipelines": [{**row, "status": "running"}]}
    standin.state.load({"projects": [{"id": 10, "path": PROJECT, "merge_requests": [found]}]})
    standin.people.pipeline(*MR, "alice", "success", pipeline_id=5)
    assert (attributes(standin)["status"], attributes(standin)["detailed_status"]) == ("success", "passed")
    with pytest.raises(KeyError):
        standin.people.pipeline(*MR, "alice", "success", pipeline_id=6)


def test_builds_are_the_native_jobs_and_only_a_failed_one_has_a_reason(standin: GitLabStandIn) -> None:
    number = standin.people.pipeline(*MR, "alice", "running")
    jobs = {"5": {"name": "unit", "status": "failed"}, "6": {"name": "lint", "status": "success", "stage": "check"}}
    rows = {key: job | {"pipeline_id": number} for key, job in jobs.items()}
    standin.state.load({"projects": [{"id": 10, "path": PROJECT, "jobs": rows}]})
    standin.people.pipeline(*MR, "alice", "failed", pipeline_id=number)
    assert [(row["name"], row["failure_reason"]) for row in last(standin)["builds"]] == [
        ("unit", "script_failure"), ("lint", None),
    ]  # fmt: skip
    assert attributes(standin)["stages"] == ["test", "check"]


# --- events ---


def test_a_listener_gets_each_event_in_order_before_the_verb_returns_and_may_act_itself(
    standin: GitLabStandIn,
) -> None:
    heard: list[str] = []

    def listen(event: Emitted) -> None:
        heard.append(event.payload["object_attributes"].get("note", event.kind))
        if heard == ["one"]:
            standin.people.comments(*MR, "reader", "two")

    standin.on_event(listen)
    standin.people.comments(*MR, "alice", "one")
    standin.people.closes(*MR, "alice")
    assert heard == ["one", "two", "merge_request"]
    assert len({event.headers["Idempotency-Key"] for event in standin.events}) == 3


def test_a_listener_may_wait_for_a_call_that_causes_events_itself(standin: GitLabStandIn) -> None:
    heard: list[str] = []

    def listen(event: Emitted) -> None:
        heard.append(event.payload["object_attributes"]["note"])
        if heard == ["one"]:
            merge_request(standin).notes.create({"body": "by the bot"})

    standin.on_event(listen)
    standin.people.comments(*MR, "alice", "one")
    assert heard == ["one", "by the bot"]


def test_what_one_request_causes_shares_the_recursion_id(standin: GitLabStandIn) -> None:
    standin.people.pushes(*MR, "alice", PUSHED)
    standin.people.comments(*MR, "alice", "one")
    first, second, third = [event.headers["X-Gitlab-Event-UUID"] for event in standin.events]
    assert first == second != third


def test_a_fixture_tells_of_members_that_expired(standin: GitLabStandIn) -> None:
    members = {"7": {"access_level": 40, "expires_at": "2001-01-01"}}
    with GitLabStandIn(sample_fixture()) as other:
        other.state.load({"projects": [{"id": 10, "path": PROJECT, "members": members}]})
        with pytest.raises(ApiError, match="404 Project"):
            other.people.comments(*MR, "alice", "still here")
