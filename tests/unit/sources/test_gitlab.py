"""The GitLab tools against the stand-in: what they give, what they refuse, and what they say when data is missing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from hummingbird_ai.messages import ToolCall
from hummingbird_operator.sources import gitlab, gitlab_repository
from hummingbird_operator.sources.connection import Patience
from tests.standins.gitlab import GitLabStandIn
from tests.unit.sources.tools import Tools

SHA = "9f2c" * 10
TOKEN = "read-token"


def status(number: int, name: str, state: str, **more: Any) -> dict[str, Any]:
    return {"id": number, "name": name, "status": state, "ref": "topic", **more}


def fixture() -> dict[str, Any]:
    job_url = "https://gitlab.example.com/group/app/-/jobs/501"
    return {
        "users": [
            {"id": 2, "username": "reader", "tokens": {TOKEN: ["read_api"], "files-token": ["read_repository"]}},
        ],
        "projects": [
            {
                "id": 10,
                "path": "group/app",
                "members": {"2": 20},
                "merge_requests": [
                    {
                        "iid": 42,
                        "sha": SHA,
                        "title": "Add a thing",
                        "author": {"username": "alice"},
                        "source_project_id": 77,
                        "target_project_id": 10,
                        "changes_count": "1000+",
                        "head_pipeline": {"id": 5, "status": "failed", "sha": "old" * 13, "ref": "topic"},
                        "diffs": [
                            {"old_path": f"f{i}.py", "new_path": f"f{i}.py", "diff": f"@@ -1 +1 @@\n-{i}\n+{i}!\n"}
                            for i in range(130)
                        ]
                        + [
                            {"old_path": "big.lock", "new_path": "big.lock", "diff": "", "too_large": True},
                            {"old_path": "gen.js", "new_path": "gen.js", "diff": "", "collapsed": True},
                            {"old_path": "new.py", "new_path": "new.py", "diff": "@@ -0,0 +1 @@\n+x", "new_file": True},
                        ],
                    },
                    {"iid": 43, "sha": "a" * 40},
                ],
                "statuses": {
                    SHA: [
                        status(500, "build", "failed", target_url=job_url.replace("501", "500")),
                        status(501, "build", "success", target_url=job_url),
                        status(502, "app / on-pull-request", "failed", target_url="https://konflux.example/ns/x"),
                        *[status(600 + i, f"job {i}", "success") for i in range(150)],
                    ]
                },
                "jobs": {"501": {"log": "\x1b[31mboom\x1b[0m\n"}, "502": {"log": ""}},
                "files": {"main": {"src/a.py": "print('hi')\n", "logo.png": b"\x89PNG\x00\x01"}},
            },
            {
                "id": 77,
                "path": "fork/app",
                "members": {"2": 20},
                "statuses": {SHA: [status(900, "fork-lint", "failed")]},
                "jobs": {"900": {"log": "fork log\n"}},
            },
            {"id": 88, "path": "other/secret", "members": {"2": 20}, "jobs": {"1": {"log": "secret"}}},
        ],
    }


@pytest.fixture
def standin() -> Iterator[GitLabStandIn]:
    with GitLabStandIn(fixture()) as running:
        yield running


@pytest.fixture
def sleeps() -> list[float]:
    return []


@pytest.fixture
def tools(standin: GitLabStandIn, sleeps: list[float]) -> Tools:
    return tools_of(standin, sleeps)


def tools_of(standin: GitLabStandIn, sleeps: list[float], token: str = TOKEN, merge_request: int | None = 42) -> Tools:
    registry = Tools()
    gitlab.register(
        registry,
        url=standin.url,
        token=token,
        project="group/app",
        merge_request=merge_request,
        patience=Patience(longest_wait=20, in_all=30),
        sleep=sleeps.append,
    )
    return registry


def test_details_name_the_fork_and_say_that_the_head_pipeline_is_of_an_older_commit(tools: Tools) -> None:
    """sources.md §6 row 10."""
    details = tools.call("get_mr_details")
    assert details["sha"] == SHA
    assert details["author"] == "alice"
    assert details["is_fork"] is True
    assert details["changes_count"] == "1000+"
    assert details["head_pipeline"]["of_an_older_commit"] is True


def test_a_pipeline_of_a_generated_ref_is_not_called_old(standin: GitLabStandIn, tools: Tools) -> None:
    """sources.md §6 rows 12 and 13."""
    for ref in ("refs/merge-requests/42/merge", "refs/merge-requests/42/train"):
        fields = standin.state.projects[10].merge_requests[42].fields
        fields["head_pipeline"] = {"id": 5, "status": "failed", "sha": "c" * 40, "ref": ref}
        assert tools.call("get_mr_details")["head_pipeline"]["of_an_older_commit"] is False


def test_statuses_come_from_both_projects_and_mark_what_was_run_again(standin: GitLabStandIn, tools: Tools) -> None:
    """sources.md §6 row 4 (`all` must reach the server) and §9 row 20 (statuses split over two projects)."""
    text, metadata = tools.streamed("get_commit_statuses", commit_sha=SHA)
    rows = {row["id"]: row for row in map(json.loads, text.splitlines())}
    assert len(rows) == metadata["statuses"] == 154
    assert [rows[500]["retried"], rows[501]["retried"]] == [True, False]
    assert rows[501]["job_id"] == 501
    assert "job_id" not in rows[502]
    assert rows[900]["project"] == "77"
    assert metadata["incomplete"] == []
    assert any("all=true" in call.query for call in standin.calls if call.path.endswith("/statuses"))


def test_a_fork_that_cannot_be_read_is_said_and_not_silently_missing(standin: GitLabStandIn, tools: Tools) -> None:
    standin.state.projects[77].members.clear()
    text, metadata = tools.streamed("get_commit_statuses", commit_sha=SHA)
    assert len(text.splitlines()) == 153
    assert "project 77" in metadata["incomplete"][0]


def test_a_page_that_fails_for_good_leaves_the_rows_before_it_and_a_word(standin: GitLabStandIn, tools: Tools) -> None:
    """sources.md §6 row 2: an iteration that fails is reported as partial."""
    standin.fault("status", path="/statuses", status=502, skip=3, times=100)
    text, metadata = tools.streamed("get_commit_statuses", commit_sha=SHA)
    assert len(text.splitlines()) == 100
    assert "502" in metadata["incomplete"][0]


def test_a_502_in_the_middle_of_a_list_is_read_again(standin: GitLabStandIn, tools: Tools) -> None:
    """sources.md §6 row 2."""
    standin.fault("status", path="/statuses", status=502, skip=3)
    text, metadata = tools.streamed("get_commit_statuses", commit_sha=SHA)
    assert (len(text.splitlines()), metadata["incomplete"]) == (154, [])


def test_a_list_without_totals_is_read_to_its_last_link(standin: GitLabStandIn, tools: Tools) -> None:
    standin.state.count_limit = 10
    assert len(tools.streamed("get_commit_statuses", commit_sha=SHA)[0].splitlines()) == 154


def test_a_diff_is_read_page_by_page_and_names_the_files_that_gitlab_hides(
    standin: GitLabStandIn, tools: Tools
) -> None:
    text, metadata = tools.streamed("get_mr_diff")
    assert metadata["files"] == 133
    assert text.count("diff --git") == 133
    assert text.endswith("--- /dev/null\n+++ b/new.py\n@@ -0,0 +1 @@\n+x\n")
    assert ["big.lock: too large" in metadata["incomplete"][0], "gen.js: collapsed" in metadata["incomplete"][1]]
    assert not any(call.path.endswith("/changes") for call in standin.calls)


def test_a_file_is_text_or_bytes_as_it_is(tools: Tools) -> None:
    assert tools.call("get_file_at_ref", file_path="src/a.py", ref="main") == "print('hi')\n"
    assert tools.call("get_file_at_ref", file_path="logo.png", ref="main") == b"\x89PNG\x00\x01"


def test_a_file_over_the_bound_is_cut_and_says_so(standin: GitLabStandIn, tools: Tools) -> None:
    standin.state.projects[10].files["main"]["big.txt"] = b"x" * (gitlab_repository.MAXIMUM_FILE + 10)
    text, metadata = tools.streamed("get_file_at_ref", file_path="big.txt", ref="main")
    assert len(text) == gitlab_repository.MAXIMUM_FILE
    assert "longer than" in metadata["incomplete"][0]


def test_a_missing_file_tells_the_model_what_to_check(tools: Tools) -> None:
    answer = tools.call("get_file_at_ref", file_path="nope.py", ref="main")
    assert "nope.py at main: GitLab does not find it (404)" in answer["error"]


@pytest.mark.parametrize("path", ["/etc/passwd", "a/../../b"])
def test_a_path_outside_the_repository_is_refused(tools: Tools, path: str) -> None:
    assert "repository's root" in tools.call("get_file_at_ref", file_path=path, ref="main")["error"]


def test_a_job_log_streams_clean(tools: Tools) -> None:
    assert tools.streamed("get_job_log", job_id=501) == ("boom\n", {"job_id": 501, "incomplete": []})


def test_a_job_without_a_log_is_an_empty_text(tools: Tools) -> None:
    assert tools.streamed("get_job_log", job_id=502)[0] == ""


def test_an_unknown_job_is_an_error_and_not_an_empty_log(tools: Tools) -> None:
    assert "job 7: GitLab does not find it" in tools.call("get_job_log", job_id=7)["error"]


@pytest.mark.parametrize("project", ["77", "fork/app"])
def test_the_fork_of_the_runs_own_merge_request_may_be_named(tools: Tools, project: str) -> None:
    assert tools.streamed("get_job_log", job_id=900, project=project)[0] == "fork log\n"


@pytest.mark.parametrize(
    "tool", ["get_job_log", "get_mr_diff", "get_mr_details", "get_commit_statuses", "get_file_at_ref"]
)
@pytest.mark.parametrize("project", ["other/secret", "88", "group/app/../../other/secret"])
def test_another_project_is_refused_whatever_the_token_could_see(
    standin: GitLabStandIn, tools: Tools, tool: str, project: str
) -> None:
    needed: dict[str, dict[str, Any]] = {
        "get_job_log": {"job_id": 1},
        "get_commit_statuses": {"commit_sha": SHA},
        "get_file_at_ref": {"file_path": "a", "ref": "main"},
    }
    answer = tools.call(tool, project=project, **needed.get(tool, {}))
    assert "group/app" in answer["error"]
    assert project in answer["error"]
    assert not any("other" in call.path or "/88" in call.path for call in standin.calls)


def test_a_log_that_breaks_off_keeps_its_beginning_and_says_where(standin: GitLabStandIn, tools: Tools) -> None:
    """sources.md §9 row 4, second half."""
    standin.state.projects[10].jobs[501] = {"log_repeat": {"line": "0123456789\n", "times": 100_000}}
    standin.fault("cut", path="/trace", bytes_sent=550_000)
    text, metadata = tools.streamed("get_job_log", job_id=501)
    assert 400_000 < len(text) <= 550_000
    assert "broke off after" in metadata["incomplete"][0]


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:  # noqa: PTH123 - a kernel file
        return int(file.read().split()[1]) * 4096


def test_a_log_of_200_megabytes_streams_in_little_memory(standin: GitLabStandIn, tools: Tools) -> None:
    """sources.md §6 row 1 and §9 row 4: resident memory grows by less than 20 MB (server in this process included)."""
    line = "a line of a build log that is neither short nor long, just usual\n"
    times = 200_000_000 // len(line)
    standin.state.projects[10].jobs[501] = {"log_repeat": {"line": line, "times": times}}
    tools.streamed("get_job_log", job_id=900, project="77")
    before, highest, received = resident_bytes(), 0, 0
    for count, chunk in enumerate(tools.call("get_job_log", job_id=501).chunks):
        received += len(chunk)
        if count % 200 == 0:
            highest = max(highest, resident_bytes())
    assert received == times * len(line)
    assert highest - before < 20_000_000


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": "1.5"}, 1.5),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
    ],
)
def test_a_rate_limit_with_a_hint_is_waited_for(
    standin: GitLabStandIn, tools: Tools, sleeps: list[float], headers: dict[str, str], expected: float
) -> None:
    """sources.md §6 row 5 and §9 row 2: seconds, a fraction, a date."""
    standin.fault("status", status=429, headers=headers)
    assert tools.call("get_mr_details")["sha"] == SHA
    assert sleeps == [expected]


def test_a_rate_limit_without_a_hint_is_waited_for_with_a_growing_pause(
    standin: GitLabStandIn, tools: Tools, sleeps: list[float]
) -> None:
    """sources.md §6 row 5 and §9 row 2."""
    standin.fault("status", status=429, times=3, body="Retry later")
    assert tools.call("get_mr_details")["sha"] == SHA
    assert len(sleeps) == 3
    assert 0.5 <= sleeps[0] <= 1.0 < sleeps[1] <= 2.0 < sleeps[2] <= 4.0


@pytest.mark.parametrize("hint", ["86400", "Wed, 21 Oct 2099 07:28:00 GMT", "25"])
def test_a_rate_limit_beyond_our_patience_is_told_and_not_slept_through(
    standin: GitLabStandIn, tools: Tools, sleeps: list[float], hint: str
) -> None:
    """sources.md §9 row 2: 86400 and dates far away."""
    standin.fault("status", status=429, headers={"Retry-After": hint}, times=5)
    assert "too many requests" in tools.call("get_mr_details")["error"]
    assert sleeps == []


@pytest.mark.parametrize("hint", ["86400", "Wed, 21 Oct 2099 07:28:00 GMT"])
def test_a_server_in_maintenance_is_believed_and_not_slept_through(
    standin: GitLabStandIn, tools: Tools, sleeps: list[float], hint: str
) -> None:
    """python-gitlab alone would sleep so long, and end with a ValueError at a date."""
    standin.fault("status", status=503, headers={"Retry-After": hint})
    assert "it answered 503; it asks to wait" in tools.call("get_mr_details")["error"]
    assert sleeps == []


def test_a_server_that_is_back_soon_is_waited_for(standin: GitLabStandIn, tools: Tools, sleeps: list[float]) -> None:
    standin.fault("status", status=503, headers={"Retry-After": "1.5"})
    assert tools.call("get_mr_details")["sha"] == SHA
    assert sleeps == [1.5]


@pytest.mark.parametrize("headers", [{"Retry-After": "soon"}, {"RateLimit-Reset": "99999999999"}])
def test_a_hint_that_is_none_is_neither_slept_off_nor_choked_on(
    standin: GitLabStandIn, tools: Tools, sleeps: list[float], headers: dict[str, str]
) -> None:
    standin.fault("status", status=502, headers=headers)
    assert tools.call("get_mr_details")["sha"] == SHA
    assert sleeps == []


@pytest.mark.parametrize("status", [429, 503])
def test_a_wait_of_nothing_without_end_comes_to_an_end(standin: GitLabStandIn, tools: Tools, status: int) -> None:
    standin.fault("status", status=status, headers={"Retry-After": "0"}, times=1000)
    assert "it asks to wait 0 s" in tools.call("get_mr_details")["error"]
    assert len(standin.calls) < 100


def test_a_next_link_to_another_host_never_gets_the_token(standin: GitLabStandIn, tools: Tools) -> None:
    """sources.md §9 row 3."""
    with GitLabStandIn(fixture()) as other:
        standin.fault(
            "next_link", path="/diffs", target=f"{other.url}/api/v4/projects/10/merge_requests/42/diffs?page=2"
        )
        tools.streamed("get_mr_diff")
        standin.fault("next_link", path="/diffs", target=f"{other.url}/elsewhere")
        _, metadata = tools.streamed("get_mr_diff")
        assert other.calls == []
    assert "another host" in metadata["incomplete"][0]


def test_a_web_page_in_place_of_json_is_an_error_that_says_so(standin: GitLabStandIn, tools: Tools) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("get_mr_details", {}),
        ("get_job_log", {"job_id": 501}),
        ("get_mr_diff", {}),
    ]
    for tool, arguments in calls:
        standin.fault("html")
        assert "sign-in page" in tools.call(tool, **arguments)["error"]


@pytest.mark.parametrize(
    ("token", "words"), [("wrong", "refused the reading token (401)"), ("files-token", "read_api")]
)
def test_a_token_that_does_not_suffice_names_what_is_missing(standin: GitLabStandIn, token: str, words: str) -> None:
    assert words in tools_of(standin, [], token).call("get_mr_details")["error"]


def test_a_run_without_a_merge_request_of_its_own_must_name_one(standin: GitLabStandIn) -> None:
    tools = tools_of(standin, [], merge_request=None)
    assert "name one" in tools.call("get_mr_details")["error"]
    assert tools.call("get_mr_details", iid=43)["iid"] == 43
    assert len(tools.streamed("get_commit_statuses", commit_sha=SHA, iid=42)[0].splitlines()) == 154
    assert "group/app only" in tools.call("get_job_log", job_id=900, project="77")["error"]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("gitlab_get_job_log", {"job_id": "1/../../x"}),
        ("gitlab_get_job_log", {"job_id": -1}),
        ("gitlab_get_commit_statuses", {"commit_sha": "main"}),
        ("gitlab_get_mr_diff", {"iid": 0}),
        ("gitlab_get_file_at_ref", {"file_path": "a", "ref": "a..b c"}),
        ("gitlab_get_mr_details", {"unknown": 1}),
    ],
)
def test_arguments_outside_their_bounds_never_reach_gitlab(
    standin: GitLabStandIn, tools: Tools, tool: str, arguments: dict[str, Any]
) -> None:
    answer = tools.execute(ToolCall("1", tool, arguments), command_id="run/1/1")
    assert "error" in answer
    assert standin.calls == []


def test_the_token_stands_in_no_definition_result_or_text(standin: GitLabStandIn, tools: Tools) -> None:
    shown = [repr(tools), repr(vars(tools)), repr(tools.get_tool_defs()), repr(tools.get_tool_notes())]
    standin.fault("status", status=500, times=20)
    shown.append(repr(tools.call("get_job_log", job_id=501)))
    shown.append(repr(tools.call("get_file_at_ref", file_path="nope", ref="main")))
    assert not any(TOKEN in text for text in shown)


def test_a_rotated_token_is_read_at_the_next_request(standin: GitLabStandIn) -> None:
    current = ["old"]
    registry = Tools()
    gitlab.register(registry, url=standin.url, token=lambda: current[0], project="group/app", merge_request=42)
    assert "401" in registry.call("get_mr_details")["error"]
    current[0] = TOKEN
    assert registry.call("get_mr_details")["sha"] == SHA
