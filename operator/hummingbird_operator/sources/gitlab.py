"""GitLab as a data source: merge requests, CI results, diffs, files and job logs of one project, read-only.

`register` fixes the project. A tool reads that one and, for a merge request from a fork, the fork; an argument that
names another project is refused. The token stays in the reader's closure: it is in no definition, result or text.
"""

from __future__ import annotations

import functools
import json
import logging
import re
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

from hummingbird_operator.errors import HummingbirdError, Invalid, NotFound, Unavailable
from hummingbird_operator.forges.gitlab import Token
from hummingbird_operator.sessions.tools import SourceResult, StreamingResponse, ToolRegistry
from hummingbird_operator.sources import gitlab_definitions as definitions
from hummingbird_operator.sources.connection import CHUNK, Patience, Reader, Sleep, translated
from hummingbird_operator.sources.job_log import clean_log
from hummingbird_operator.sources.unified_diff import unified_diff

logger = logging.getLogger(__name__)

MAXIMUM_FILE = 5 * 1024 * 1024
"""Bytes of one file that are read; the rest is cut off and said."""
MAXIMUM_DESCRIPTION = 8_000

_NATIVE_JOB = re.compile(r"/(?:-/jobs|builds)/(\d{1,19})/?$")
_GENERATED_REF = re.compile(r"refs/merge-requests/\d+/(?:merge|train)")
_STATUS_FIELDS = (
    *("id", "name", "status", "stage", "allow_failure", "description", "target_url", "ref", "sha", "pipeline_id"),
    *("coverage", "created_at", "started_at", "finished_at"),
)
_DETAIL_FIELDS = (
    *("iid", "title", "state", "labels", "source_branch", "target_branch", "source_project_id", "target_project_id"),
    *("sha", "diff_refs", "web_url", "changes_count", "detailed_merge_status", "has_conflicts"),
    *("created_at", "updated_at"),
)


def register(
    registry: ToolRegistry,
    *,
    url: str,
    token: Token,
    project: str,
    merge_request: int | None = None,
    ca: str | None = None,
    patience: Patience | None = None,
    sleep: Sleep = time.sleep,
) -> None:
    """Offer the five GitLab tools for one project.

    `token` is a reading one (scope read_api), never the one that writes notes; a function is asked at each request.
    `merge_request` is the run's own, used where a tool call names none. `ca` is the path of a CA bundle.
    """
    reader = Reader(url, token, ca=ca, sleep=sleep, patience=patience or Patience())
    source = ProjectSource(reader, project, merge_request)
    for definition, function in (
        (definitions.MR_DETAILS, source.mr_details),
        (definitions.COMMIT_STATUSES, source.commit_statuses),
        (definitions.MR_DIFF, source.mr_diff),
        (definitions.FILE_AT_REF, source.file_at_ref),
        (definitions.JOB_LOG, source.job_log),
    ):
        registry.register_data_source(definition, _told(function))


def _told(function: Callable[..., SourceResult]) -> Callable[..., SourceResult]:
    """Failures that have an answer become one: the model reads what to do, the log gets no stack trace."""

    @functools.wraps(function)
    def tool(**arguments: Any) -> SourceResult:
        try:
            return function(**arguments)
        except NotFound as error:
            return {"error": str(error)}
        except (Invalid, Unavailable) as error:
            # the model can only go on without it; people must see it too: in the log and under the note's "Not read"
            logger.warning("%s: %s", function.__name__, error)
            return {"error": str(error), "incomplete": [f"{function.__name__.replace('_', ' ')}: {error}"]}

    return tool


class ProjectSource:
    """What the tools read, all of it within one project and its merge request's fork."""

    def __init__(self, reader: Reader, project: str, merge_request: int | None) -> None:
        self._reader = reader
        self._project = project
        self._merge_request = merge_request
        self._forks: dict[int, int | None] = {}

    def mr_details(self, iid: int | None = None, project: str | None = None) -> SourceResult:
        """The merge request's own fields; the head pipeline says when it belongs to an older commit."""
        raw = self._details(self._own(project), self._number(iid))
        description = raw.get("description") or ""
        details = {
            "project": self._project,
            "description": description[:MAXIMUM_DESCRIPTION],
            "author": (raw.get("author") or {}).get("username"),
            "draft": bool(raw.get("draft") or raw.get("work_in_progress")),
            "is_fork": raw.get("source_project_id") != raw.get("target_project_id"),
            "head_pipeline": _head_pipeline(raw),
        }
        if len(description) > MAXIMUM_DESCRIPTION:
            details["incomplete"] = [f"the description has {len(description)} characters, cut at {MAXIMUM_DESCRIPTION}"]
        return {name: raw[name] for name in _DETAIL_FIELDS if name in raw} | details

    def commit_statuses(self, commit_sha: str, iid: int | None = None, project: str | None = None) -> SourceResult:
        """JSON Lines of the statuses of a SHA, of the project and of the fork; retried ones are marked."""
        own, metadata = self._own(project), dict[str, Any](statuses=0, incomplete=[])
        fork = self._fork(iid if self._merge_request is None else self._merge_request)
        places = [own] if fork is None else [own, str(fork)]
        # With one place only, ask before the stream begins: a refusal is then a plain error.
        latest = {own: self._latest(own, commit_sha)} if fork is None else {}
        return StreamingResponse(self._statuses(places, commit_sha, latest, metadata), ".jsonl", metadata=metadata)

    def mr_diff(self, iid: int | None = None, project: str | None = None) -> SourceResult:
        """A unified diff put together from GitLab's list of changed files (`/diffs`, paged)."""
        path = f"{_at(self._own(project))}/merge_requests/{self._number(iid)}/diffs"
        rows = self._reader.rows(path, f"the diff of {self._project}!{self._number(iid)}")
        metadata: dict[str, Any] = {"files": 0, "incomplete": []}
        first = next(rows, None)
        return StreamingResponse(unified_diff(first, rows, metadata), ".diff", metadata=metadata)

    def file_at_ref(self, file_path: str, ref: str, project: str | None = None) -> SourceResult:
        """Text, or bytes where it is not UTF-8; at most 5 MiB of it."""
        if file_path.startswith("/") or ".." in file_path.split("/"):
            raise Invalid("file_path", f"{file_path!r} must be a path from the repository's root")
        path = f"{_at(self._readable(project))}/repository/files/{quote(file_path, safe='')}/raw"
        data, more = bytearray(), False
        with self._reader.stream(path, f"{file_path} at {ref}", ref=ref) as response:
            for chunk in response.iter_content(CHUNK):
                data += chunk
                if len(data) > MAXIMUM_FILE:
                    more = True
                    break
        if more:
            missing = f"{file_path} is longer than {MAXIMUM_FILE} bytes: only its beginning is here"
            content = bytes(data[:MAXIMUM_FILE])
            return StreamingResponse([content], ".txt", binary=_is_binary(content), metadata={"incomplete": [missing]})
        content = bytes(data)
        return content if _is_binary(content) else content.decode(errors="replace")

    def job_log(self, job_id: int, project: str | None = None) -> SourceResult:
        """The log, cleaned as it streams; a log that breaks off keeps what came and says so."""
        where = self._readable(project)
        what = f"the log of job {job_id}"
        metadata: dict[str, Any] = {"job_id": job_id, "incomplete": []}
        stream = self._log(f"{_at(where)}/jobs/{job_id}/trace", what, metadata)
        first = next(stream, b"")  # opens the connection: an unknown job is a plain error
        return StreamingResponse(_again(first, stream), ".log", metadata=metadata)

    def _log(self, path: str, what: str, metadata: dict[str, Any]) -> Iterator[bytes]:
        with self._reader.stream(path, what) as response:
            yield from clean_log(_until_it_breaks(response.iter_content(CHUNK), what, metadata))

    def _statuses(
        self, places: list[str], sha: str, latest: dict[str, set[int]], metadata: dict[str, Any]
    ) -> Iterator[bytes]:
        for place in places:
            try:
                current = latest.get(place) or self._latest(place, sha)
                # `all` goes through query_parameters: python-gitlab takes a keyword of that name for itself.
                for row in self._reader.rows(_statuses_path(place, sha), _statuses_of(place), all="true"):
                    metadata["statuses"] += 1
                    yield _status_line(row, place, retried=row.get("id") not in current)
            except (Unavailable, NotFound, Invalid) as error:
                metadata["incomplete"].append(f"{_statuses_of(place)} are missing or cut: {error}")

    def _latest(self, place: str, sha: str) -> set[int]:
        """Ids of what GitLab counts as current: the latest of each name."""
        return {row["id"] for row in self._reader.rows(_statuses_path(place, sha), _statuses_of(place))}

    def _details(self, place: str, number: int) -> dict[str, Any]:
        raw = self._reader.get(f"{_at(place)}/merge_requests/{number}", f"{self._project}!{number}")
        source, target = raw.get("source_project_id"), raw.get("target_project_id")
        self._forks[number] = source if source != target else None
        return raw

    def _fork(self, number: int | None) -> int | None:
        """The id of the project that a merge request comes from, if it is another one that still exists."""
        if number is None:
            return None
        if number not in self._forks:
            self._details(self._project, number)
        return self._forks[number]

    def _number(self, iid: int | None) -> int:
        number = iid if iid is not None else self._merge_request
        if number is None:
            raise Invalid("iid", "this run has no merge request of its own: name one")
        return number

    def _own(self, project: str | None) -> str:
        """This run's project; naming another is an error, also the fork: merge requests belong to the target."""
        if project is None or project == self._project:
            return self._project
        raise Invalid("project", f"this tool reads {self._project} only, not {project}: leave project out")

    def _readable(self, project: str | None) -> str:
        """This run's project, or the fork of its merge request (by id or by path)."""
        if project is None or project == self._project:
            return self._project
        fork = self._fork(self._merge_request)
        if fork is not None and (project == str(fork) or project == self._path_of(fork)):
            return str(fork)
        allowed = f"{self._project} or its fork with id {fork}" if fork is not None else self._project
        raise Invalid("project", f"this run may read {allowed} only, not {project}: leave project out")

    def _path_of(self, project_id: int) -> str | None:
        try:
            return str(self._reader.get(f"/projects/{project_id}", "the fork").get("path_with_namespace"))
        except HummingbirdError:
            return None


def _at(place: str) -> str:
    return f"/projects/{quote(place, safe='')}"


def _statuses_path(place: str, sha: str) -> str:
    return f"{_at(place)}/repository/commits/{sha}/statuses"


def _statuses_of(place: str) -> str:
    return f"the statuses in project {place}"


def _status_line(row: dict[str, Any], place: str, *, retried: bool) -> bytes:
    kept = {name: row[name] for name in _STATUS_FIELDS if row.get(name) is not None}
    native = _NATIVE_JOB.search(row.get("target_url") or "")
    if native:
        kept["job_id"] = int(native.group(1))
    kept |= {"project": place, "retried": retried}
    return json.dumps(kept, ensure_ascii=False).encode() + b"\n"


def _head_pipeline(raw: dict[str, Any]) -> dict[str, Any] | None:
    """Generated merge and train refs have a SHA of their own, so only other refs can be of an older commit."""
    pipeline = raw.get("head_pipeline")
    if not isinstance(pipeline, dict):
        return None
    kept = {name: pipeline.get(name) for name in ("id", "status", "source", "ref", "sha", "web_url")}
    generated = _GENERATED_REF.fullmatch(str(pipeline.get("ref")))
    return kept | {"of_an_older_commit": pipeline.get("sha") != raw.get("sha") and not generated}


def _until_it_breaks(chunks: Iterator[bytes], what: str, metadata: dict[str, Any]) -> Iterator[bytes]:
    """Chunks up to a broken connection, which is told instead of raised: the beginning of a log is worth keeping."""
    received = 0
    try:
        with translated(what):
            for chunk in chunks:
                received += len(chunk)
                yield chunk
    except Unavailable as error:
        metadata["incomplete"].append(f"{what} broke off after {received} bytes, its end is missing: {error}")


def _again(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from rest


def _is_binary(data: bytes) -> bool:
    if b"\x00" in data[:8192]:
        return True
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start < len(data) - 3  # a character that the bound cut is no reason
    return False
