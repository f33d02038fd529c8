"""Pipelines: where they are made, what they are called, and the event of each change of status (`ci/pipeline.rb`)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from tests.standins.gitlab import payloads
from tests.standins.gitlab.records import MergeRequest, Project, User, new_sha
from tests.standins.gitlab.state import State

MAY_CREATE = 30
FINISHED = frozenset({"success", "failed", "canceled"})
"""Statuses that set `finished_at`; a skipped pipeline has none, and one that runs again keeps the old one."""
GENERATED = frozenset({"merge", "train"})
"""Refs whose pipelines run on a commit of GitLab's own."""


def start(
    state: State, project: Project, merge_request: MergeRequest, user: User, sha: str, ref: str, source: str
) -> dict[str, Any]:
    """Make a pipeline, as `created`: in the fork, unless its starter may make pipelines in the target project."""
    fork = state.projects.get(merge_request.fields["source_project_id"])
    home = fork if merge_request.is_fork and fork and project.level(user) < MAY_CREATE else project
    number, now = state.next_id(), state.now()
    for_merge_request = source == "merge_request_event"
    branch = merge_request.fields["source_branch"]
    row = {
        "id": number,
        "iid": len(home.pipelines) + 1,
        "project_id": home.id,
        "name": None,
        "sha": new_sha(f"{ref} of {sha} {number}") if ref in GENERATED else sha,
        "before_sha": payloads.EMPTY_SHA,
        "ref": f"refs/merge-requests/{merge_request.iid}/{ref}" if for_merge_request else branch,
        "status": "created",
        "source": source,
        "created_at": now,
        "updated_at": now,
        "started_at": None,
        "finished_at": None,
        "duration": None,
        "queued_duration": None,
        "web_url": f"{state.web_url}/{home.path}/-/pipelines/{number}",
        "user": user.public(),
        "_branch": branch,
        "_source_sha": sha,
        "_merge_request": for_merge_request,
    }
    home.pipelines[number] = row
    merge_request.pipelines.insert(0, row)
    if sha == merge_request.fields["sha"]:
        merge_request.fields["head_pipeline"] = row
    return row


def of(project: Project, merge_request: MergeRequest, number: int) -> dict[str, Any]:
    """A pipeline of the merge request, also one that a fixture made; KeyError if there is none."""
    found = next((row for row in merge_request.pipelines if row["id"] == number), None)
    if found is None:
        raise KeyError(f"no pipeline {number} of merge request {merge_request.iid}")
    found.setdefault("project_id", project.id)
    return found


def move(state: State, merge_request: MergeRequest, user: User, row: dict[str, Any], status: str) -> None:
    """Take it to `status`; the event goes to the project of the pipeline. No change, no event."""
    if row["status"] == status:
        return
    now = state.now()
    row |= {"status": status, "updated_at": now}
    if status == "running":
        row["started_at"] = row.get("started_at") or now
    if status in FINISHED:
        row["finished_at"] = now
        row["duration"] = _seconds(row.get("started_at") or row.get("created_at") or now, now)
    home = state.projects[row["project_id"]]
    event = payloads.pipeline_event(state, home, row, merge_request if row.get("_merge_request", True) else None, user)
    state.events.emit("pipeline_hooks", home.path, event)


def known(project: Project) -> Iterator[dict[str, Any]]:
    """All rows of pipelines of the project that the stand-in knows, those of a fixture's merge requests included."""
    yield from project.pipelines.values()
    for merge_request in project.merge_requests.values():
        head = merge_request.fields.get("head_pipeline")
        yield from ([head] if head else [])
        yield from merge_request.pipelines


def _seconds(begin: str, end: str) -> int:
    return int((datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds())
