"""The bodies of webhooks, after GitLab's builders: `lib/gitlab/data_builder/*.rb` and `lib/gitlab/hook_data/*.rb`."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tests.standins.gitlab.records import MergeRequest, Note, Project, User, new_discussion_id
from tests.standins.gitlab.state import State

VISIBILITY = {"private": 0, "internal": 10, "public": 20}
LABELS = {"success": "passed"}
"""The words of `detailed_status` that are not the status itself."""
EMPTY_SHA = "0" * 40


def hook_time(moment: str | None) -> str | None:
    """A moment of the API in the form of webhooks: `2026-11-30 18:21:36 UTC`."""
    if moment is None:
        return None
    return datetime.fromisoformat(moment).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def user_attributes(user: User) -> dict[str, Any]:
    """A user; the address is not public."""
    name = user.name or user.username
    return {"id": user.id, "name": name, "username": user.username, "avatar_url": None, "email": "[REDACTED]"}


def project_attributes(state: State, project: Project, *, backward: bool = True) -> dict[str, Any]:
    """A project; `backward` adds the names of old that all but pipelines carry."""
    web, name = f"{state.web_url}/{project.path}", project.path.rsplit("/", 1)[-1]
    ssh = f"git@{state.web_url.split('//', 1)[-1]}:{project.path}.git"
    attributes = {
        "id": project.id,
        "name": name,
        "description": "",
        "web_url": web,
        "avatar_url": None,
        "git_ssh_url": ssh,
        "git_http_url": f"{web}.git",
        "namespace": project.path.rsplit("/", 1)[0],
        "visibility_level": VISIBILITY[project.visibility],
        "path_with_namespace": project.path,
        "default_branch": "main",
        "ci_config_path": "",
    }
    if not backward:
        return attributes
    return attributes | {"homepage": web, "url": ssh, "ssh_url": ssh, "http_url": f"{web}.git"}


def repository(state: State, project: Project) -> dict[str, Any]:
    """The deprecated key beside `project`."""
    attributes = project_attributes(state, project)
    return {key: attributes[key] for key in ("name", "url", "description", "homepage")}


def label_attributes(project: Project, title: str) -> dict[str, Any]:
    """A label of the project; its id follows from its title."""
    return {
        "id": zlib.crc32(title.encode()),
        "title": title,
        "color": "#6699cc",
        "project_id": project.id,
        "created_at": "2026-01-01 00:00:00 UTC",
        "updated_at": "2026-01-01 00:00:00 UTC",
        "template": False,
        "description": None,
        "type": "ProjectLabel",
        "group_id": None,
    }


def commit_attributes(state: State, project: Project, sha: str, commit: Mapping[str, Any], now: str) -> dict[str, Any]:
    """A commit; `commit` holds what is known of it."""
    message = commit.get("message", "Change it\n")
    return {
        "id": sha,
        "message": message,
        "title": message.split("\n", 1)[0],
        "timestamp": commit.get("timestamp", now),
        "url": f"{state.web_url}/{project.path}/-/commit/{sha}",
        "author": commit.get("author", {"name": "nobody", "email": "[REDACTED]"}),
    }


def merge_request_attributes(state: State, project: Project, merge_request: MergeRequest) -> dict[str, Any]:
    """A merge request as it stands in its own events and in those of its notes."""
    fields = merge_request.fields
    source = state.projects.get(fields["source_project_id"])  # None once the fork is gone
    head = commit_attributes(state, source or project, fields["sha"], merge_request.commit, fields["updated_at"])
    copied = ("id", "iid", "title", "description", "state", "source_branch", "target_branch", "draft")
    return {
        **{key: fields[key] for key in copied},
        "assignee_id": None,
        "author_id": fields["author"].get("id"),
        "created_at": hook_time(fields["created_at"]),
        "updated_at": hook_time(fields["updated_at"]),
        "head_pipeline_id": (fields["head_pipeline"] or {}).get("id"),
        "last_edited_at": None,
        "last_edited_by_id": None,
        "merge_commit_sha": None,
        "merge_error": None,
        "merge_params": {"force_remove_source_branch": "1"},
        "merge_status": "can_be_merged",
        "detailed_merge_status": "mergeable",
        "merge_user_id": None,
        "merge_when_pipeline_succeeds": False,
        "milestone_id": None,
        "source_project_id": fields["source_project_id"],
        "target_project_id": fields["target_project_id"],
        "time_estimate": 0,
        "updated_by_id": None,
        "prepared_at": hook_time(fields["created_at"]),
        "assignee_ids": [],
        "reviewer_ids": [],
        "labels": [label_attributes(project, title) for title in fields["labels"]],
        "state_id": {"opened": 1, "closed": 2, "merged": 3, "locked": 4}[fields["state"]],
        "blocking_discussions_resolved": True,
        "first_contribution": False,
        "work_in_progress": fields["draft"],
        "total_time_spent": 0,
        "time_change": 0,
        "human_total_time_spent": None,
        "human_time_change": None,
        "human_time_estimate": None,
        "url": fields["web_url"],
        "source": project_attributes(state, source) if source else None,
        "target": project_attributes(state, project),
        "last_commit": head,
    }


def merge_request_event(
    state: State, project: Project, merge_request: MergeRequest, user: User, action: str, changes: Mapping[str, Any]
) -> dict[str, Any]:
    """`object_kind: merge_request`; `changes` maps a field to its value before and after."""
    attributes = merge_request_attributes(state, project, merge_request)
    return {
        "object_kind": "merge_request",
        "event_type": "merge_request",
        "user": user_attributes(user),
        "project": project_attributes(state, project),
        "object_attributes": attributes | {"action": action},
        "labels": attributes["labels"],
        "changes": {key: {"previous": before, "current": after} for key, (before, after) in changes.items()},
        "repository": repository(state, project),
    }


def note_event(state: State, project: Project, merge_request: MergeRequest, note: Note, action: str) -> dict[str, Any]:
    """`object_kind: note`, by the note's author also when another person edits it; `action`: create or update."""
    attributes = {
        "attachment": None,
        "author_id": note.author.id,
        "change_position": None,
        "commit_id": None,
        "created_at": hook_time(note.created_at),
        "discussion_id": note.discussion_id,
        "id": note.id,
        "internal": note.internal,
        "line_code": None,
        "note": note.body,
        "noteable_id": merge_request.fields["id"],
        "noteable_type": "MergeRequest",
        "original_position": note.position,
        "position": note.position,
        "project_id": project.id,
        "resolved_at": hook_time(note.resolved_at),
        "resolved_by_id": note.resolved_by.id if note.resolved_by else None,
        "resolved_by_push": None,
        "st_diff": None,
        "system": note.system,
        "type": note.type,
        "updated_at": hook_time(note.updated_at),
        "updated_by_id": note.updated_by.id if note.updated_by else None,
        "description": note.body,
        "url": f"{merge_request.fields['web_url']}#note_{note.id}",
        "action": action,
    }
    return {
        "object_kind": "note",
        "event_type": "confidential_note" if note.internal else "note",
        "user": user_attributes(note.author),
        "project_id": project.id,
        "project": project_attributes(state, project),
        "object_attributes": attributes,
        "repository": repository(state, project),
        "merge_request": merge_request_attributes(state, project, merge_request),
    }


def other_note_event(state: State, project: Project, user: User, number: int, body: str, kind: str) -> dict[str, Any]:
    """`object_kind: note` on an Issue, a Commit or a Snippet; `noteable_id` is null for a commit."""
    now, url = hook_time(state.now()), f"{state.web_url}/{project.path}"
    return {
        "object_kind": "note",
        "event_type": "note",
        "user": user_attributes(user),
        "project_id": project.id,
        "project": project_attributes(state, project),
        "object_attributes": {
            "author_id": user.id,
            "commit_id": EMPTY_SHA if kind == "Commit" else None,
            "created_at": now,
            "discussion_id": new_discussion_id(number),
            "id": number,
            "internal": False,
            "note": body,
            "noteable_id": None if kind == "Commit" else number,
            "noteable_type": kind,
            "position": None,
            "project_id": project.id,
            "system": False,
            "type": None,
            "updated_at": now,
            "description": body,
            "url": f"{url}#note_{number}",
            "action": "create",
        },
        "repository": repository(state, project),
        kind.lower(): {"id": EMPTY_SHA if kind == "Commit" else number, "title": kind, "url": url},
    }


def pipeline_event(
    state: State, project: Project, pipeline: Mapping[str, Any], merge_request: MergeRequest | None, user: User
) -> dict[str, Any]:
    """`object_kind: pipeline`. `ref` is the source branch, whatever the pipeline's own is; builds are native jobs."""
    head = merge_request.commit if merge_request else {}
    builds = [job | {"id": number} for number, job in project.jobs.items() if job.get("pipeline_id") == pipeline["id"]]
    copied = ("id", "iid", "name", "sha", "before_sha", "source", "status", "duration", "queued_duration")
    times = {key: hook_time(pipeline.get(key)) for key in ("created_at", "finished_at")}
    return {
        "object_kind": "pipeline",
        "object_attributes": {
            **{key: pipeline.get(key) for key in copied},
            **times,
            "ref": pipeline.get("_branch", pipeline["ref"]),
            "tag": False,
            "detailed_status": LABELS.get(pipeline["status"], pipeline["status"]),
            "stages": list(dict.fromkeys(job.get("stage", "test") for job in builds)),
            "protected_ref": False,
            "variables": [],
            "url": pipeline.get("web_url"),
        },
        "merge_request": _pipelines_merge_request(merge_request) if merge_request else None,
        "user": user_attributes(user),
        "project": project_attributes(state, project, backward=False),
        "commit": commit_attributes(state, project, pipeline["sha"], head, pipeline.get("created_at") or state.now()),
        "builds": [_build(job, user) for job in builds],
    }


def _pipelines_merge_request(merge_request: MergeRequest) -> dict[str, Any]:
    fields = merge_request.fields
    names = ("id", "iid", "title", "source_branch", "source_project_id", "target_branch", "target_project_id", "state")
    statuses = {"merge_status": "can_be_merged", "detailed_merge_status": "mergeable"}
    return {name: fields[name] for name in names} | statuses | {"url": fields["web_url"]}


def _build(job: Mapping[str, Any], user: User) -> dict[str, Any]:
    status = job.get("status", "created")
    return {
        "id": job["id"],
        "stage": job.get("stage", "test"),
        "name": job.get("name", "job"),
        "status": status,
        "created_at": hook_time(job.get("created_at")),
        "started_at": hook_time(job.get("started_at")),
        "finished_at": hook_time(job.get("finished_at")),
        "duration": job.get("duration"),
        "queued_duration": None,
        "failure_reason": job.get("failure_reason", "script_failure") if status == "failed" else None,
        "when": "on_success",
        "manual": False,
        "allow_failure": job.get("allow_failure", False),
        "user": user_attributes(user),
        "runner": None,
        "artifacts_file": {"filename": None, "size": None},
        "environment": None,
    }


def push_event(
    state: State, project: Project, user: User, branch: str, before: str, commit: Mapping[str, Any]
) -> dict[str, Any]:
    """`object_kind: push` of one commit to `branch`; `commit` is `commit_attributes`."""
    return {
        "object_kind": "push",
        "event_name": "push",
        "before": before or EMPTY_SHA,
        "after": commit["id"],
        "ref": f"refs/heads/{branch}",
        "ref_protected": False,
        "checkout_sha": commit["id"],
        "message": None,
        "user_id": user.id,
        "user_name": user.name or user.username,
        "user_username": user.username,
        "user_email": "",
        "user_avatar": None,
        "project_id": project.id,
        "project": project_attributes(state, project),
        "commits": [{**commit, "added": [], "modified": ["README.md"], "removed": []}],
        "total_commits_count": 1,
        "push_options": {},
        "repository": repository(state, project) | {"visibility_level": VISIBILITY[project.visibility]},
    }
