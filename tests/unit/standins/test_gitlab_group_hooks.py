"""Hooks of groups in the GitLab stand-in, and the lists that tell what no hook was told."""

from __future__ import annotations

from typing import Any

import gitlab
import pytest
from gitlab.exceptions import GitlabError

from tests.standins.gitlab import GitLabStandIn, sample_fixture
from tests.unit.standins.test_gitlab_hooks import ALL, MR, Clock, Receiver, served

OWNER = {"id": 5, "username": "olga", "tokens": {"owner-token": ["api"]}}


def fixture(**changes: Any) -> dict[str, Any]:
    """A project in a group, one in a group below it, and one elsewhere."""
    made = sample_fixture()
    made["users"].append(OWNER)
    one = made["projects"][0]
    made["projects"] += [{**one, "id": 11, "path": "group/sub/lib"}, {**one, "id": 12, "path": "groups/other"}]
    return {**made, "groups": [{"id": 3, "path": "group", "members": {"5": 50, "9": 40}}], **changes}


def client(standin: GitLabStandIn, token: str = "owner-token") -> gitlab.Gitlab:  # noqa: S107 - a stand-in's
    return gitlab.Gitlab(standin.url, private_token=token)


def refusal(call: Any, *arguments: Any, **fields: Any) -> int:
    with pytest.raises(GitlabError) as caught:
        call(*arguments, **fields)
    return caught.value.response_code or 0


def test_only_an_owner_has_hooks_of_a_group_and_only_with_a_licence() -> None:
    with GitLabStandIn(fixture()) as standin:
        made = client(standin).http_post("/groups/group/hooks", post_data={"url": "https://a.example", **ALL})
        assert isinstance(made, dict)
        assert (made["group_id"], made["alert_status"], "project_id" in made) == (3, "executable", False)
        assert refusal(client(standin, "maintainer-token").http_get, "/groups/group/hooks") == 403
        assert refusal(client(standin, "alice-token").http_get, "/groups/group/hooks") == 404
        assert refusal(client(standin).http_get, "/groups/alice/hooks") == 404
        standin.state.premium = False
        assert refusal(client(standin).http_get, "/groups/3/hooks") == 404


def test_a_groups_hook_gets_the_events_of_every_project_below_it_is_disabled_and_tried_like_any_other() -> None:
    with served() as receiver, GitLabStandIn(fixture(hook_timeout_seconds=5)) as standin:
        clock = Clock(standin)
        made = client(standin).http_post("/groups/group/hooks", post_data={"url": receiver.url, **ALL})
        assert isinstance(made, dict)
        path = f"/groups/group/hooks/{made['id']}"
        receiver.answers = [200, 200, 500, 500, 500, 401]
        for number, project in enumerate(["group/app", "group/sub/lib", "groups/other", *["group/app"] * 5]):
            standin.people.comments(project, 42, "alice", str(number))
            assert standin.hooks_wait(20)
        assert receiver.notes == ["0", "1", "3", "4", "5", "6"]
        shown = client(standin).http_get(path)
        assert isinstance(shown, dict)
        assert (shown["alert_status"], shown["disabled_until"]) == ("temporarily_disabled", "2026-11-30T18:01:00.000Z")
        rows = list(client(standin).http_list(f"{path}/events", iterator=True))
        assert [row["response_status"] for row in rows] == ["401", "500", "500", "500", "200", "200"]
        assert client(standin).http_post(f"{path}/test/merge_requests_events") == {"message": "201 Created"}
        shown = client(standin).http_get(path)
        assert isinstance(shown, dict)
        assert shown["alert_status"] == "executable"
        clock.skip(seconds=1)


def test_a_group_without_anything_to_send_cannot_be_tried(standin: GitLabStandIn) -> None:
    standin.state.load({"users": [OWNER], "groups": [{"id": 4, "path": "empty", "members": {"5": 50}}]})
    made = client(standin).http_post("/groups/empty/hooks", post_data={"url": "https://a.example"})
    assert isinstance(made, dict)
    assert refusal(client(standin).http_post, f"/groups/empty/hooks/{made['id']}/test/push_events") == 422


@pytest.fixture
def standin() -> Any:
    with GitLabStandIn(fixture()) as running:
        yield running


@pytest.fixture
def receiver() -> Any:
    with served() as made:
        yield made


def listed(standin: GitLabStandIn, path: str, **query: str) -> list[Any]:
    return list(client(standin, "maintainer-token").http_list(path, query_data=query, iterator=True))


def test_merge_requests_and_pipelines_are_listed_by_when_they_changed(standin: GitLabStandIn) -> None:
    clock = Clock(standin)
    standin.people.opens("group/app", 50, "alice", "ab12" * 10)
    number = standin.people.pipeline("group/app", 50, "alice", "running")
    clock.skip(hours=1)
    standin.people.comments(*MR, "alice", "hello")
    since = {"updated_after": "2026-11-30T18:30:00Z", "order_by": "updated_at", "sort": "desc"}
    rows = listed(standin, "/projects/10/merge_requests", **since)
    assert [row["iid"] for row in rows if row["iid"] != 42] == []
    assert listed(standin, "/projects/10/pipelines", **since) == []
    clock.skip(hours=1)
    standin.people.pipeline("group/app", 50, "alice", "failed", pipeline_id=number)
    [row] = listed(standin, "/projects/10/pipelines", **since, source="merge_request_event")
    assert (row["status"], row["ref"], "finished_at" in row, "user" in row) == (
        "failed",
        "refs/merge-requests/50/head",
        False,
        False,
    )
    assert listed(standin, "/projects/10/pipelines", source="push") == []
    assert refusal(listed, standin, "/projects/10/pipelines", updated_after="yesterday") == 400
    assert refusal(listed, standin, "/projects/10/pipelines", order_by="weather") == 400


def test_projects_are_listed_for_their_members_by_their_last_activity(standin: GitLabStandIn) -> None:
    clock = Clock(standin)
    clock.now = clock.now.replace(year=2031)
    standin.people.comments("group/sub/lib", 42, "alice", "hello")
    query = {"membership": "true", "min_access_level": "40", "order_by": "last_activity_at"}
    rows = listed(standin, "/projects", **query)
    assert rows[0]["path_with_namespace"] == "group/sub/lib"
    assert {row["id"] for row in rows} == {10, 11, 12}
    [row] = listed(standin, "/projects", **query, last_activity_after="2031-01-01T00:00:00Z")
    assert row["web_url"] == "https://gitlab.example.com/group/sub/lib"
    assert list(client(standin).http_list("/projects", iterator=True)) == [], "private, and olga is no member"


def test_what_a_disabled_hook_was_not_told_is_in_the_lists(standin: GitLabStandIn, receiver: Receiver) -> None:
    standin.state.projects[10].hooks.clear()
    hook = client(standin, "maintainer-token").http_post("/projects/10/hooks", post_data={"url": receiver.url, **ALL})
    assert isinstance(hook, dict)
    receiver.answers = [503] * 4
    for text in "abcd":
        standin.people.comments(*MR, "alice", text)
        assert standin.hooks_wait(20)
    standin.people.comments(*MR, "alice", "never sent")
    standin.people.pushes(*MR, "alice", "ab12" * 10)
    assert standin.hooks_wait(20)
    assert receiver.notes == list("abcd")
    events = listed(standin, f"/projects/10/hooks/{hook['id']}/events")
    assert len(events) == 4
    assert "never sent" in [row["body"] for row in listed(standin, "/projects/10/merge_requests/42/notes")]
    assert listed(standin, "/projects/10/merge_requests/42/versions")[0]["head_commit_sha"] == "ab12" * 10
