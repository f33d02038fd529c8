"""What the GitLab stand-in tells over the API, and how it fails on a bad day, asked with the real client."""

from __future__ import annotations

import io
import tarfile
import threading
from typing import Any

import gitlab
import pytest
import requests
from gitlab.exceptions import GitlabHttpError

from tests.standins.gitlab import ApiError, Emitted, GitLabStandIn, sample_fixture

PROJECT = "group/app"
HEAD = "9f2c" * 10
PUSHED = "ab12" * 10
NOTES = "/projects/group%2Fapp/merge_requests/42/notes"


def client(standin: GitLabStandIn) -> gitlab.Gitlab:
    return gitlab.Gitlab(standin.url, private_token="bot-token")


def project(standin: GitLabStandIn) -> Any:
    return client(standin).projects.get(10)


def load(standin: GitLabStandIn, **parts: Any) -> None:
    standin.state.load({"projects": [{"id": 10, "path": PROJECT, **parts}]})


def post(standin: GitLabStandIn, body: str = "hello") -> requests.Response:
    headers = {"PRIVATE-TOKEN": "bot-token"}
    return requests.post(f"{standin.url}/api/v4{NOTES}", headers=headers, json={"body": body}, timeout=10)


# --- what is told ---


def test_a_pipeline_tells_its_ref_which_no_event_does(standin: GitLabStandIn) -> None:
    number = standin.people.pipeline(PROJECT, 42, "alice", "failed", ref="train")
    found = project(standin).pipelines.get(number)
    assert (found.ref, found.source, found.status) == (
        "refs/merge-requests/42/train", "merge_request_event", "failed",
    )  # fmt: skip
    assert not [name for name in found.attributes if name.startswith("_")]
    with pytest.raises(GitlabHttpError):
        project(standin).manager.gitlab.http_get("/projects/10/pipelines/1")


def test_pipelines_of_a_fixture_are_found_wherever_they_stand(standin: GitLabStandIn) -> None:
    row = {"sha": HEAD, "ref": "topic", "source": "push", "status": "success"}
    merge_request = {"iid": 42, "sha": HEAD, "head_pipeline": {"id": 6, **row}, "pipelines": [{"id": 7, **row}]}
    load(standin, pipelines=[{"id": 5, **row}], merge_requests=[merge_request])
    pipelines = project(standin).pipelines
    assert [pipelines.get(number).id for number in (5, 6, 7)] == [5, 6, 7]
    assert [found.id for found in pipelines.list(get_all=True, sha=HEAD)] == [7, 6, 5]
    assert pipelines.list(get_all=True, status="failed") == []


def test_merge_requests_are_listed_newest_first_by_state_without_their_pipeline(standin: GitLabStandIn) -> None:
    standin.people.opens(PROJECT, 43, "alice", PUSHED, source_branch="other")
    standin.people.opens(PROJECT, 44, "alice", PUSHED)
    standin.people.closes(PROJECT, 43, "alice")
    listed = project(standin).mergerequests
    assert [found.iid for found in listed.list(get_all=True)] == [44, 43, 42]
    assert [found.iid for found in listed.list(get_all=True, state="opened")] == [44, 42]
    assert [found.iid for found in listed.list(get_all=True, state="closed", source_branch="other")] == [43]
    assert "head_pipeline" not in listed.list(get_all=True)[0].attributes


@pytest.mark.parametrize("level", [5, 10, 15, 20, 25, 30, 40, 50])
def test_a_member_has_one_of_gitlabs_levels(standin: GitLabStandIn, level: int) -> None:
    load(standin, members={"8": level})
    assert project(standin).members_all.get(8).access_level == level


def test_a_member_may_be_blocked_or_expired_and_is_told_of_all_the_same(standin: GitLabStandIn) -> None:
    load(standin, members={"8": {"access_level": 40, "expires_at": "2001-01-01"}})
    standin.state.users[7].state = "blocked"
    members = project(standin).members_all
    assert (members.get(7).state, members.get(7).expires_at) == ("blocked", None)
    assert (members.get(8).state, members.get(8).access_level, members.get(8).expires_at) == (
        "active", 40, "2001-01-01",
    )  # fmt: skip
    assert {member.id for member in members.list(get_all=True)} == {1, 2, 7, 8, 9}


def test_the_token_of_a_blocked_account_is_refused(standin: GitLabStandIn) -> None:
    standin.state.users[1].state = "blocked"
    assert post(standin).status_code == 403


def test_users_are_told_by_id(standin: GitLabStandIn) -> None:
    standin.state.users[1].bot = True
    assert client(standin).users.get(1).bot
    assert client(standin).users.get(7).username == "alice"
    with pytest.raises(GitlabHttpError, match="404"):
        client(standin).http_get("/users/99")


def test_an_archive_holds_the_files_of_a_ref(standin: GitLabStandIn) -> None:
    load(standin, files={"main": {"src/a.py": "print()"}})
    data = project(standin).repository_archive(sha="main", format="tar.gz")
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        assert archive.getnames() == ["app-main/src/a.py"]


def test_an_emoji_is_given_to_a_note_inside_its_discussion(standin: GitLabStandIn) -> None:
    thread = project(standin).mergerequests.get(42).discussions.create({"body": "x"})
    note = thread.notes.get(thread.attributes["notes"][0]["id"])
    path = f"/projects/10/merge_requests/42/discussions/{thread.id}/notes/{note.id}/award_emoji"
    client(standin).http_post(path, post_data={"name": "eyes"})
    assert [row["name"] for row in client(standin).http_list(path, get_all=True)] == ["eyes"]


def test_a_thread_is_resolved_through_its_discussion_and_its_note(standin: GitLabStandIn) -> None:
    merge_request = project(standin).mergerequests.get(42)
    thread = merge_request.discussions.create({"body": "x"})
    thread.resolved = True
    thread.save()
    [note] = merge_request.discussions.get(thread.id).attributes["notes"]
    assert (note["resolved"], note["resolved_by"]["id"]) == (True, 1)
    found = merge_request.discussions.get(thread.id).notes.get(note["id"])
    found.manager.update(found.id, {"resolved": False})
    assert not merge_request.discussions.get(thread.id).attributes["notes"][0]["resolved"]


def test_right_after_a_push_the_api_may_still_show_the_old_head(standin: GitLabStandIn) -> None:
    """tektoncd/pipelines-as-code#2453."""
    standin.people.pushes(PROJECT, 42, "alice", PUSHED)
    standin.lags(PROJECT, 42, 2)
    shown = [project(standin).mergerequests.get(42) for _ in range(3)]
    assert [found.sha for found in shown] == [HEAD, HEAD, PUSHED]
    assert shown[0].diff_refs["head_sha"] == HEAD


# --- bad days ---


@pytest.mark.parametrize(
    ("form", "hint", "kind"),
    [
        ("seconds", "1", "application/json"),
        ("date", "Wed, 21 Oct 2015 07:28:00 GMT", "application/json"),
        ("fraction", "0.5", "application/json"),
        ("none", None, "application/json"),
        ("plain", None, "text/plain"),
    ],
)
def test_a_429_comes_in_all_of_its_forms(standin: GitLabStandIn, form: str, hint: str | None, kind: str) -> None:
    standin.limits(form, method="POST", path="/notes")
    answer = post(standin)
    assert (answer.status_code, answer.headers.get("Retry-After")) == (429, hint)
    assert answer.headers["Content-Type"] == kind
    assert ("Retry later" in answer.text) == (form == "plain")
    assert post(standin).status_code == 201


def test_a_502_may_come_after_the_note_was_written_and_told(standin: GitLabStandIn) -> None:
    standin.fault("status", method="POST", status=502, after_write=True)
    assert post(standin).status_code == 502
    assert post(standin).status_code == 201
    assert len(standin.state.projects[10].merge_requests[42].notes) == 2
    assert [event.kind for event in standin.events] == ["note", "note"]


def test_a_fault_before_the_write_changes_and_tells_nothing(standin: GitLabStandIn) -> None:
    standin.fault("status", method="POST", status=502)
    assert post(standin).status_code == 502
    assert (standin.state.projects[10].merge_requests[42].notes, standin.events) == ({}, [])


def test_a_202_has_no_id_and_no_event(standin: GitLabStandIn) -> None:
    answer = post(standin, "/approve")
    assert (answer.status_code, "id" in answer.json(), standin.events) == (202, False, [])


def test_the_limit_on_notes_is_each_persons_own(standin: GitLabStandIn) -> None:
    standin.state.notes_per_minute = 1
    assert [post(standin).status_code for _ in range(2)] == [201, 429]
    standin.people.comments(PROJECT, 42, "alice", "one")
    with pytest.raises(ApiError, match="429"):
        standin.people.comments(PROJECT, 42, "alice", "two")


# --- many at once ---


def test_people_at_once_each_get_their_note_and_listeners_one_order(standin: GitLabStandIn) -> None:
    heard: list[Emitted] = []
    standin.on_event(heard.append)

    def write(name: str) -> None:
        for number in range(20):
            assert standin.people.comments(PROJECT, 42, name, f"{name} {number}").body == f"{name} {number}"

    threads = [threading.Thread(target=write, args=(name,)) for name in ("alice", "reader", "maya")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert heard == standin.events
    numbers = [event.payload["object_attributes"]["id"] for event in heard]
    assert (numbers, len(numbers)) == (sorted(numbers), 60)


# --- as a command ---


def test_people_act_through_the_control_door_too() -> None:
    with GitLabStandIn(sample_fixture()) as standin:

        def act(verb: str, **arguments: Any) -> requests.Response:
            body = {"verb": verb, "arguments": {"project": PROJECT, "iid": 42, "user": "alice", **arguments}}
            return requests.post(f"{standin.url}/_standin/people", json=body, timeout=10)

        note = act("comments", body="hello").json()
        assert act("replies", discussion_id=note["discussion_id"], body="again").json()["id"] > note["id"]
        assert act("pipeline", status="failed").json()["id"]
        assert act("closes", user="reader").status_code == 403
        assert act("comments", body="/approve").status_code == 202
        assert act("flies").status_code == 404
        told = requests.get(f"{standin.url}/_standin/events", timeout=10).json()
        assert [event["kind"] for event in told] == ["note", "note", "pipeline"]
