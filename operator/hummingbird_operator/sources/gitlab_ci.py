"""CI for the model: every result of a commit, and the logs of GitLab's own jobs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from hummingbird_operator.errors import Invalid, NotFound, Unavailable
from hummingbird_operator.sessions.tools import SourceResult, StreamingResponse
from hummingbird_operator.sources.connection import CHUNK, Reader, opened, translated
from hummingbird_operator.sources.gitlab_scope import Scope, at
from hummingbird_operator.sources.job_log import clean_log

_NATIVE_JOB = re.compile(r"/(?:-/jobs|builds)/(\d{1,19})/?$")
_STATUS_FIELDS = (
    *("id", "name", "status", "stage", "allow_failure", "description", "target_url", "ref", "sha", "pipeline_id"),
    *("coverage", "created_at", "started_at", "finished_at"),
)


class Ci:
    """The tools about commit statuses and job logs."""

    def __init__(self, reader: Reader, scope: Scope) -> None:
        self._reader = reader
        self._scope = scope

    def commit_statuses(self, commit_sha: str, iid: int | None = None, project: str | None = None) -> SourceResult:
        """JSON Lines of the statuses of a SHA, of the project and of the fork; retried ones are marked."""
        own, metadata = self._scope.own(project), dict[str, Any](statuses=0, incomplete=[])
        fork = self._scope.fork(iid if self._scope.merge_request is None else self._scope.merge_request)
        places = [own] if fork is None else [own, str(fork)]
        # With one place only, ask before the stream begins: a refusal is then a plain error.
        latest = {own: self._latest(own, commit_sha)} if fork is None else {}
        return StreamingResponse(self._statuses(places, commit_sha, latest, metadata), ".jsonl", metadata=metadata)

    def job_log(self, job_id: int, project: str | None = None) -> SourceResult:
        """The log, cleaned as it streams; a log that breaks off keeps what came and says so."""
        where = self._scope.readable(project)
        what = f"the log of job {job_id}"
        metadata: dict[str, Any] = {"job_id": job_id, "incomplete": []}
        stream = opened(self._log(f"{at(where)}/jobs/{job_id}/trace", what, metadata))
        return StreamingResponse(stream, ".log", metadata=metadata)

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


def _statuses_path(place: str, sha: str) -> str:
    return f"{at(place)}/repository/commits/{sha}/statuses"


def _statuses_of(place: str) -> str:
    return f"the statuses in project {place}"


def _status_line(row: dict[str, Any], place: str, *, retried: bool) -> bytes:
    kept = {name: row[name] for name in _STATUS_FIELDS if row.get(name) is not None}
    native = _NATIVE_JOB.search(row.get("target_url") or "")
    if native:
        kept["job_id"] = int(native.group(1))
    kept |= {"project": place, "retried": retried}
    return json.dumps(kept, ensure_ascii=False).encode() + b"\n"


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
