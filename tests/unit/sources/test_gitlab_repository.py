"""The archive tool: a stream into the sandbox, within a bound, of the run's own project or its fork."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hummingbird_ai.messages import ToolCall
from hummingbird_operator.sessions.testing import FakeSandbox
from hummingbird_operator.sessions.tools import StreamingResponse, ToolRegistry
from hummingbird_operator.sources import gitlab
from hummingbird_operator.sources.connection import CHUNK, Patience, Reader
from hummingbird_operator.sources.gitlab_repository import Repository
from hummingbird_operator.sources.gitlab_scope import Scope
from tests.standins.gitlab import GitLabStandIn, sample_fixture

SHA = "9f2c" * 10


@pytest.fixture
def standin() -> Iterator[GitLabStandIn]:
    fixture = sample_fixture()
    files = {"src/a.py": "print('hi')\n", "noise.bin": bytes(range(256)) * 2000}
    fixture["projects"][0]["files"] = {SHA: files}
    fixture["projects"][0]["merge_requests"][0]["source_project_id"] = 77
    fixture["projects"].append({"id": 77, "path": "fork/app", "members": {"2": 20}, "files": {SHA: {"fork.py": "f\n"}}})
    with GitLabStandIn(fixture) as running:
        yield running


def registry_of(standin: GitLabStandIn, folder: Path) -> ToolRegistry:
    registry = ToolRegistry(FakeSandbox(folder))
    gitlab.register(
        registry,
        url=standin.url,
        token="read-token",
        project="group/app",
        merge_request=42,
    )
    return registry


def repository_of(standin: GitLabStandIn, maximum: int) -> Repository:
    reader = Reader(standin.url, "read-token", ca=None, sleep=lambda _: None, patience=Patience())
    return Repository(reader, Scope(reader, "group/app", 42), maximum_archive=maximum)


def archive(repository: Repository, **arguments: Any) -> StreamingResponse:
    response = repository.repo_archive(SHA, **arguments)
    assert isinstance(response, StreamingResponse)
    return response


def names(data: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return [name.split("/", 1)[1] for name in tar.getnames()]


def test_the_archive_lands_in_the_sandbox_as_a_file_without_a_preview(standin: GitLabStandIn, tmp_path: Path) -> None:
    registry = registry_of(standin, tmp_path)
    result = registry.execute(ToolCall("1", "gitlab_get_repo_archive", {"ref": SHA}), "run/1/1")
    assert set(result) == {"ref", "saved_to", "bytes"}
    assert result["saved_to"].endswith(".tar.gz")
    command = f"mkdir -p /tmp/data/repo && tar -xzf {result['saved_to']} -C /tmp/data/repo --strip-components=1 && "
    shown = registry.execute(
        ToolCall("2", "sandbox_exec", {"command": command + "cat /tmp/data/repo/src/a.py"}), "run/1/2"
    )
    assert shown["stdout"] == "print('hi')\n"


def test_it_is_asked_for_without_lfs_objects_and_may_be_one_folder_only(standin: GitLabStandIn) -> None:
    b"".join(archive(repository_of(standin, 10**7), path="src").chunks)
    (call,) = [call for call in standin.calls if call.path.endswith("/repository/archive.tar.gz")]
    assert call.query == f"sha={SHA}&include_lfs_blobs=false&path=src"


def test_the_fork_of_the_runs_merge_request_may_be_named(standin: GitLabStandIn) -> None:
    assert names(b"".join(archive(repository_of(standin, 10**7), project="77").chunks)) == ["fork.py"]


def test_an_archive_over_the_bound_is_cut_and_says_so(standin: GitLabStandIn) -> None:
    files = standin.state.projects[10].files[SHA]
    files["noise.bin"] = b"".join((number * 2654435761 % 2**32).to_bytes(4, "big") for number in range(100_000))
    response = archive(repository_of(standin, CHUNK + 100))
    assert len(b"".join(response.chunks)) == CHUNK + 100
    assert "its end is missing; name a path" in response.metadata["incomplete"][0]


def test_an_archive_of_just_the_bound_is_whole(standin: GitLabStandIn) -> None:
    size = len(b"".join(archive(repository_of(standin, 10**7)).chunks))
    response = archive(repository_of(standin, size))
    assert (len(b"".join(response.chunks)), response.metadata["incomplete"]) == (size, [])


def test_an_archive_that_breaks_off_keeps_what_came_and_says_so(standin: GitLabStandIn, tmp_path: Path) -> None:
    files = standin.state.projects[10].files[SHA]
    files["noise.bin"] = b"".join((number * 2654435761 % 2**32).to_bytes(4, "big") for number in range(100_000))
    standin.fault("cut", path="/archive", bytes_sent=100_000)
    result = registry_of(standin, tmp_path).execute(ToolCall("1", "gitlab_get_repo_archive", {"ref": SHA}), "run/1/1")
    assert 0 < result["bytes"] <= 100_000
    assert "broke off" in result["incomplete"][0]


def test_an_unknown_commit_is_a_plain_error(standin: GitLabStandIn, tmp_path: Path) -> None:
    result = registry_of(standin, tmp_path).execute(
        ToolCall("1", "gitlab_get_repo_archive", {"ref": "nope"}), "run/1/1"
    )
    assert "the archive at nope: GitLab does not find it (404)" in result["error"]


@pytest.mark.parametrize("arguments", [{"ref": SHA, "path": "../x"}, {"ref": "-x"}, {"ref": SHA, "project": "88"}, {}])
def test_arguments_out_of_bounds_ask_for_no_archive(
    standin: GitLabStandIn, tmp_path: Path, arguments: dict[str, Any]
) -> None:
    result = registry_of(standin, tmp_path).execute(ToolCall("1", "gitlab_get_repo_archive", arguments), "run/1/1")
    assert "error" in result
    assert not any("/archive" in call.path for call in standin.calls)
