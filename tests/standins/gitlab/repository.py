"""What the stand-in tells of code and CI: statuses of commits, files, archives, jobs with their logs, pipelines."""

from __future__ import annotations

import io
import tarfile
from typing import Any

from tests.standins.gitlab import lists, pipelines
from tests.standins.gitlab.records import Project, shown
from tests.standins.gitlab.state import State, log_stream
from tests.standins.gitlab.wire import Request, Response, as_json, flag, not_found, paged


def route(request: Request, state: State, project: Project, rest: tuple[str, ...]) -> Response:
    """Dispatch a GET below a project; 404 for what is not here."""
    match rest:
        case ("repository", "commits", sha, "statuses"):
            return paged(request, _statuses(request, project, sha), state.count_limit)
        case ("repository", "files", path, "raw"):
            return _raw_file(project, request.query.get("ref", "HEAD"), path)
        case ("repository", "archive.tar.gz" | "archive"):
            return _archive(project, request.query.get("sha", "main"))
        case ("jobs", job_id):
            return as_json(_public_job(_job(project, job_id)))
        case ("jobs", job_id, "trace"):
            length, chunks = log_stream(_job(project, job_id))
            return Response(200, chunks, "text/plain", length=length)
        case ("pipelines", *deeper):
            return _pipelines(request, state, project, tuple(deeper))
    raise not_found()


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


def _files(project: Project, ref: str) -> dict[str, bytes]:
    files = project.files.get(ref)
    if files is None:
        raise not_found("Commit")
    return files


def _raw_file(project: Project, ref: str, path: str) -> Response:
    files = _files(project, ref)
    if path not in files:
        raise not_found("File")
    return Response(200, files[path], "text/plain", headers={"X-Gitlab-Size": str(len(files[path]))})


def _archive(project: Project, ref: str) -> Response:
    """A tar.gz with one folder that is named after project and commit."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path, data in _files(project, ref).items():
            member = tarfile.TarInfo(f"{project.path.rsplit('/', 1)[-1]}-{ref}/{path}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return Response(200, buffer.getvalue(), "application/octet-stream")


def _pipelines(request: Request, state: State, project: Project, rest: tuple[str, ...]) -> Response:
    rows = {row["id"]: shown(row) for row in pipelines.known(project)}
    match rest:
        case ():
            return paged(request, lists.pipelines(request, rows.values()), state.count_limit)
        case (number,) if number.isdigit() and int(number) in rows:
            return as_json(rows[int(number)])
        case (number, "jobs"):
            jobs = [_public_job(job) for job in project.jobs.values() if str(job.get("pipeline_id")) == number]
            return paged(request, jobs, state.count_limit)
    raise not_found()


def _job(project: Project, job_id: str) -> dict[str, Any]:
    job = project.jobs.get(int(job_id)) if job_id.isdigit() else None
    if job is None:
        raise not_found()
    return job | {"id": int(job_id)}


def _public_job(job: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in job.items() if not key.startswith("log")}
