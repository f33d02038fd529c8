"""What the stand-in only tells: users, projects, merge requests, diffs, statuses, files, job logs, members."""

from __future__ import annotations

from typing import Any

from tests.standins.gitlab import notes
from tests.standins.gitlab.records import MergeRequest, Project, shown
from tests.standins.gitlab.state import State, log_stream
from tests.standins.gitlab.wire import ApiError, Request, Response, as_json, flag, not_found, paged

MAY_READ_CODE = 20


def route(request: Request, state: State) -> Response:
    """Dispatch one authenticated call."""
    match request.segments:
        case ("user",) if request.method == "GET":
            return as_json(request.user.public())
        case ("projects", reference, *rest):
            return _project(request, state, find_project(request, state, reference), tuple(rest))
    raise not_found()


def find_project(request: Request, state: State, reference: str) -> Project:
    """A project that the user may not see is one that does not exist."""
    project = state.project(reference)
    if project is None or (project.visibility == "private" and project.level(request.user) < MAY_READ_CODE):
        raise not_found("Project")
    return project


def _project(request: Request, state: State, project: Project, rest: tuple[str, ...]) -> Response:
    if rest[:1] == ("merge_requests",) and len(rest) > 1:
        return _merge_request(request, state, project, rest[1:])
    if request.method != "GET":
        raise ApiError(405, {"error": "405 Not Allowed"})
    match rest:
        case ():
            names = {"name": project.path.rsplit("/", 1)[-1], "path_with_namespace": project.path}
            return as_json({"id": project.id, "visibility": project.visibility, **names})
        case ("repository", "commits", sha, "statuses"):
            return paged(request, _statuses(request, project, sha), state.count_limit)
        case ("repository", "files", path, "raw"):
            return _raw_file(project, request.query.get("ref", "HEAD"), path)
        case ("jobs", job_id):
            return as_json(_public_job(_job(project, job_id)))
        case ("jobs", job_id, "trace"):
            length, chunks = log_stream(_job(project, job_id))
            return Response(200, chunks, "text/plain", length=length)
        case ("members", "all", user_id):
            return _member(state, project, user_id)
        case ("pipelines", pipeline_id, "jobs"):
            rows = [_public_job(job) for job in project.jobs.values() if str(job.get("pipeline_id")) == pipeline_id]
            return paged(request, rows, state.count_limit)
    raise not_found()


def _merge_request(request: Request, state: State, project: Project, rest: tuple[str, ...]) -> Response:
    merge_request = project.merge_requests.get(int(rest[0])) if rest[0].isdigit() else None
    if merge_request is None:
        raise not_found()
    if rest[1:2] and rest[1] in {"notes", "discussions", "award_emoji"}:
        return notes.route(request, state, project, merge_request, rest[1:])
    if request.method != "GET":
        raise ApiError(405, {"error": "405 Not Allowed"})
    match rest[1:]:
        case ():
            return as_json(_details(merge_request))
        case ("diffs",):
            return paged(request, merge_request.diffs, state.count_limit)
        case ("versions",):
            return paged(request, merge_request.versions, state.count_limit)
        case ("raw_diffs",):
            return _raw_diffs(merge_request)
        case ("pipelines",):
            return paged(request, [shown(row) for row in merge_request.pipelines], state.count_limit)
    raise not_found()


def _details(merge_request: MergeRequest) -> dict[str, Any]:
    head = merge_request.fields["head_pipeline"]
    return merge_request.fields | {"head_pipeline": shown(head) if head else head}


def _raw_diffs(merge_request: MergeRequest) -> Response:
    text = "".join(
        f"diff --git a/{row['old_path']} b/{row['new_path']}\n{row.get('diff', '')}" for row in merge_request.diffs
    )
    return Response(200, text.encode(), "text/plain")


def _statuses(request: Request, project: Project, sha: str) -> list[dict[str, Any]]:
    """By default only the latest per name and ref, as GitLab gives them; `all=true` adds the older ones."""
    rows = [{"sha": sha, "allow_failure": False, **row} for row in project.statuses.get(sha, [])]
    rows = [row for row in rows if all(row.get(key) == request.query.get(key, row.get(key)) for key in ("ref", "name"))]
    if flag(request.query.get("all")):
        return rows
    latest: dict[tuple[Any, Any], dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: int(row["id"])):
        latest[(row["name"], row.get("ref"))] = row
    return list(latest.values())


def _raw_file(project: Project, ref: str, path: str) -> Response:
    files = project.files.get(ref)
    if files is None:
        raise not_found("Commit")
    if path not in files:
        raise not_found("File")
    return Response(200, files[path], "text/plain", headers={"X-Gitlab-Size": str(len(files[path]))})


def _job(project: Project, job_id: str) -> dict[str, Any]:
    job = project.jobs.get(int(job_id)) if job_id.isdigit() else None
    if job is None:
        raise not_found()
    return job | {"id": int(job_id)}


def _public_job(job: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in job.items() if not key.startswith("log")}


def _member(state: State, project: Project, user_id: str) -> Response:
    user = state.users.get(int(user_id)) if user_id.isdigit() else None
    if user is None or not project.level(user):
        raise not_found()
    return as_json(user.public() | {"access_level": project.level(user), "expires_at": None})
