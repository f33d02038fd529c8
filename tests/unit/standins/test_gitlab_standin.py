"""The GitLab stand-in keeps GitLab's rules: what it refuses, hides, runs and destroys, asked with the real client."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import gitlab
import pytest
import requests
from gitlab.exceptions import GitlabHttpError

from tests.standins.gitlab import GitLabStandIn, sample_fixture
from tests.standins.gitlab.markdown import extract, mentions

MR = "/projects/group%2Fapp/merge_requests/42"
BOT = "bot-token"
ROOT = Path(__file__).parents[3]


def client(standin: GitLabStandIn, token: str = BOT) -> gitlab.Gitlab:
    return gitlab.Gitlab(standin.url, private_token=token)


def post(standin: GitLabStandIn, path: str, token: str = BOT, **fields: Any) -> Any:
    return client(standin, token).http_post(f"{MR}{path}", post_data=fields)


def put(standin: GitLabStandIn, path: str, **fields: Any) -> Any:
    return client(standin).http_put(f"{MR}{path}", post_data=fields)


def first_discussion(standin: GitLabStandIn) -> dict[str, Any]:
    return next(iter(client(standin).http_list(f"{MR}/discussions", get_all=True)))


def refused(call: Any, *arguments: Any, **fields: Any) -> tuple[int, Any]:
    with pytest.raises(GitlabHttpError) as caught:
        call(*arguments, **fields)
    return caught.value.response_code or 0, caught.value.error_message


def test_a_token_works_in_both_headers_and_no_other_does(standin: GitLabStandIn) -> None:
    for headers in ({"PRIVATE-TOKEN": "bot-token"}, {"Authorization": "Bearer bot-token"}):
        assert requests.get(f"{standin.url}/api/v4/user", headers=headers, timeout=5).json()["id"] == 1
    for headers in ({"PRIVATE-TOKEN": "x"}, {}):
        assert requests.get(f"{standin.url}/api/v4/user", headers=headers, timeout=5).status_code == 401


def test_a_reading_token_may_not_write_and_a_stranger_sees_no_project(standin: GitLabStandIn) -> None:
    assert refused(post, standin, "/notes", token="read-token", body="x")[0] == 403
    assert refused(client(standin, "mallory-token").http_get, MR) == (404, "404 Project Not Found")


def test_a_project_is_found_by_id_and_by_path(standin: GitLabStandIn) -> None:
    for reference in ("10", "group%2Fapp"):
        answer = client(standin).http_get(f"/projects/{reference}/merge_requests/42")
        assert isinstance(answer, dict)
        assert answer["sha"] == "9f2c" * 10


def test_a_note_needs_a_body_that_is_neither_empty_nor_too_long(standin: GitLabStandIn) -> None:
    assert refused(post, standin, "/notes") == (400, "body is missing")
    assert "can't be blank" in refused(post, standin, "/notes", body=" ")[1]
    too_long = refused(post, standin, "/notes", body="x" * 1_000_001)[1]
    assert too_long == {"note": ["is too long (maximum is 1000000 characters)"]}
    assert post(standin, "/notes", body="ä" * 1_000_000)["id"]


def test_internal_is_honoured_only_on_notes_only_with_the_right_and_never_changed(standin: GitLabStandIn) -> None:
    note = post(standin, "/notes", body="x", internal=True)
    assert note["internal"]
    assert put(standin, f"/notes/{note['id']}", body="y", internal=False)["internal"]
    assert not post(standin, "/discussions", body="x", internal=True)["notes"][0]["internal"]
    standin.state.projects[10].internal_min_level = 50
    assert not post(standin, "/notes", body="x", internal=True)["internal"]


def test_a_reply_turns_a_plain_note_into_a_thread_and_inherits_internal(standin: GitLabStandIn) -> None:
    post(standin, "/notes", body="x", internal=True)
    plain = first_discussion(standin)
    assert plain["individual_note"]
    reply = post(standin, f"/discussions/{plain['id']}/notes", body="y", internal=False)
    assert (reply["internal"], reply["type"]) == (True, "DiscussionNote")
    thread = first_discussion(standin)
    assert (thread["individual_note"], len(thread["notes"])) == (False, 2)


def test_only_a_thread_can_be_resolved(standin: GitLabStandIn) -> None:
    post(standin, "/notes", body="x")
    plain = first_discussion(standin)
    assert refused(put, standin, f"/discussions/{plain['id']}", resolved=True)[0] == 400
    thread = post(standin, "/discussions", body="x")
    assert put(standin, f"/discussions/{thread['id']}", resolved=True)["notes"][0]["resolved"]
    assert post(standin, f"/discussions/{thread['id']}/notes", body="late")["resolved"]


def test_internal_notes_are_filtered_after_paging_so_a_page_may_be_short(standin: GitLabStandIn) -> None:
    standin.state.projects[10].visibility = "public"
    for number in range(4):
        post(standin, "/notes", body=str(number), internal=number < 2)
    answer = requests.get(
        f"{standin.url}/api/v4{MR}/notes?per_page=2&sort=asc", headers={"PRIVATE-TOKEN": "mallory-token"}, timeout=5
    )
    assert answer.json() == []
    assert "next" in answer.links


def test_only_its_author_or_a_maintainer_may_edit_a_note(standin: GitLabStandIn) -> None:
    note = post(standin, "/notes", token="alice-token", body="hers")
    assert refused(put, standin, f"/notes/{note['id']}", body="mine")[0] == 403
    standin.state.projects[10].members[1] = 40
    assert put(standin, f"/notes/{note['id']}", body="mine")["body"] == "mine"


def test_a_note_of_commands_only_runs_them_and_is_not_made_or_is_destroyed(standin: GitLabStandIn) -> None:
    """sources.md §1.3."""
    assert "id" not in post(standin, "/notes", body="/merge")
    note = post(standin, "/notes", body="text\n/approve\nmore @alice")
    assert note["body"] == "text\nmore @alice"
    put(standin, f"/notes/{note['id']}", body="\r/close\r\n")
    assert [entry["name"] for entry in standin.state.executed] == ["merge", "approve", "close"]
    assert standin.state.destroyed == [note["id"]]
    assert refused(client(standin).http_get, f"{MR}/notes/{note['id']}")[0] == 404
    assert [entry["name"] for entry in standin.state.mentions] == ["alice"]


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("/merge", ["merge"]),
        ("/MERGE now", ["merge"]),
        ("text\n/assign @bob", ["assign"]),
        ("\r/merge", ["merge"]),
        ("~~~\n/merge\n~~~", ["merge"]),
        ("````\n```\n/merge\n```\n````", []),
        ("```\n/merge\n```", []),
        ("`x\n/merge\n`", ["merge"]),
        (">>>\n/merge\n>>>", []),
        ("<div>\n/merge\n</div>", []),
        (" /merge", []),
        ("\\/merge", []),
        ("/merge/x", []),
        ("/mergeable", []),
        ("/usr/bin/make", []),
        ("a /merge", []),
    ],
)
def test_quick_actions_are_read_as_either_known_server_would(text: str, commands: list[str]) -> None:
    assert [command.name for command in extract(text)[1]] == commands


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("@alice and @group/sub.", ["alice", "group/sub."]),
        ("a@alice", []),
        ("`@alice`", []),
        ("```\n@alice\n```", []),
        ("&#64;alice", ["alice"]),
        ("@&#97;lice", ["alice"]),
        ("<div>\n`@alice`\n</div>", ["alice"]),
        ("`a\nb` @alice `c`", ["alice"]),
        ("| `a | @alice ` |", ["alice"]),
        ("$a`b$ @alice `c", ["alice"]),
        ("http://x`y @alice `z", ["alice"]),
        ("- x\n  ```\n@alice", ["alice"]),
        ("<!-- @alice -->", []),
        ("@\u2060alice", []),
    ],
)
def test_mentions_are_read_from_the_rendered_text(text: str, names: list[str]) -> None:
    assert mentions(text) == names


def test_an_emoji_given_twice_is_refused_as_gitlab_does(standin: GitLabStandIn) -> None:
    note = post(standin, "/notes", body="x")
    award = post(standin, f"/notes/{note['id']}/award_emoji", name="eyes")
    status, message = refused(post, standin, f"/notes/{note['id']}/award_emoji", name="eyes")
    assert (status, "already been taken" in message) == (404, True)
    client(standin).http_delete(f"{MR}/notes/{note['id']}/award_emoji/{award['id']}")
    assert client(standin).http_list(f"{MR}/notes/{note['id']}/award_emoji", get_all=True) == []


def test_a_member_has_a_level_and_anybody_else_is_not_found(standin: GitLabStandIn) -> None:
    project = client(standin).projects.get("group/app")
    assert project.members_all.get(7).access_level == 30
    assert refused(client(standin).http_get, "/projects/10/members/all/8")[0] == 404


def test_the_python_client_reads_statuses_job_logs_and_files(standin: GitLabStandIn) -> None:
    """The paths of sources.md §1.1, sent by python-gitlab's own objects."""
    sha = "9f2c" * 10
    statuses = [{"id": number, "name": "build", "status": "failed"} for number in (1, 2)]
    extra = {"statuses": {sha: statuses}, "jobs": {"5": {"log": "boom"}}, "files": {"main": {"a/b.txt": "hi"}}}
    standin.state.load({"projects": [{"id": 10, "path": "group/app", **extra}]})
    project = client(standin).projects.get("group/app")
    listed = project.commits.get(sha, lazy=True).statuses
    assert [row.id for row in listed.list(get_all=True)] == [2]
    assert [row.id for row in listed.list(get_all=True, query_parameters={"all": True})] == [1, 2]
    assert project.jobs.get(5, lazy=True).trace() == b"boom"
    assert project.files.raw("a/b.txt", ref="main") == b"hi"
    merge_request = project.mergerequests.get(42)
    assert merge_request.diffs.list(get_all=True) == []
    assert merge_request.pipelines.list(get_all=True) == []
    assert merge_request.notes.create({"body": "x", "internal": True}).internal


def test_totals_are_missing_above_the_limit(standin: GitLabStandIn) -> None:
    standin.state.count_limit = 1
    for _ in range(3):
        post(standin, "/notes", body="x")
    answer = requests.get(f"{standin.url}/api/v4{MR}/notes", headers={"PRIVATE-TOKEN": "bot-token"}, timeout=5)
    assert "X-Total" not in answer.headers
    assert len(answer.json()) == 3


def test_every_call_is_recorded_without_its_token(standin: GitLabStandIn) -> None:
    post(standin, "/notes", body="x")
    call = standin.calls[-1]
    assert (call.method, call.path, call.user, call.status) == (
        "POST", "/api/v4/projects/group/app/merge_requests/42/notes", "hummingbird-bot", 201,
    )  # fmt: skip
    assert "bot-token" not in repr(standin.calls)


def test_a_client_that_is_killed_in_between_leaves_no_traceback(
    standin: GitLabStandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    threads = set(threading.enumerate())
    address = standin.url.removeprefix("http://").split(":")
    with socket.create_connection((address[0], int(address[1]))) as killed:
        killed.sendall(b"GET /api/v4/user HTTP/1.1\r\nHost: x\r\n\r\n")
        assert killed.recv(12) == b"HTTP/1.1 401"
        [serving] = [thread for thread in threading.enumerate() if thread not in threads]
        killed.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closing resets it
    serving.join(10)
    assert not serving.is_alive()
    assert capsys.readouterr().err == ""


def test_as_a_command_it_takes_a_fixture_and_is_steered_over_http(tmp_path: Path) -> None:
    (tmp_path / "fixture.json").write_text(json.dumps(sample_fixture()))
    command = [sys.executable, "-m", "tests.standins.gitlab", "--fixture", str(tmp_path / "fixture.json")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            fault = {"kind": "status", "status": 503, "path": "/user"}
            assert requests.post(f"{url}/_standin/faults", json=fault, timeout=5).json() == {"faults": 1}
            headers = {"PRIVATE-TOKEN": "bot-token"}
            assert requests.get(f"{url}/api/v4/user", headers=headers, timeout=5).status_code == 503
            requests.post(f"{url}/api/v4{MR}/notes", headers=headers, json={"body": "hello\n/merge"}, timeout=5)
            state = requests.get(f"{url}/_standin/state", timeout=5).json()
            assert state["notes"]["group/app!42"][0]["body"] == "hello"
            assert state["executed"][0]["name"] == "merge"
            assert [call["status"] for call in state["calls"]] == [503, 201]
        finally:
            process.terminate()
