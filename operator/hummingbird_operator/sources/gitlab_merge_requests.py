"""A merge request for the model: its own fields and its diff."""

from __future__ import annotations

from typing import Any

from hummingbird_operator.forges.merge_requests import GENERATED_REF
from hummingbird_operator.sessions.tools import SourceResult, StreamingResponse
from hummingbird_operator.sources.connection import Reader
from hummingbird_operator.sources.gitlab_scope import Scope, at
from hummingbird_operator.sources.unified_diff import unified_diff

MAXIMUM_DESCRIPTION = 8_000
"""Characters of a description that are shown; the rest is cut off and said."""

_DETAIL_FIELDS = (
    *("iid", "title", "state", "labels", "source_branch", "target_branch", "source_project_id", "target_project_id"),
    *("sha", "diff_refs", "web_url", "changes_count", "detailed_merge_status", "has_conflicts"),
    *("created_at", "updated_at"),
)


class MergeRequests:
    """The tools about a merge request itself."""

    def __init__(self, reader: Reader, scope: Scope) -> None:
        self._reader = reader
        self._scope = scope

    def mr_details(self, iid: int | None = None, project: str | None = None) -> SourceResult:
        """The merge request's own fields; the head pipeline says when it belongs to an older commit."""
        own = self._scope.own(project)
        raw = self._scope.details(self._scope.number(iid))
        description = raw.get("description") or ""
        details = {
            "project": own,
            "description": description[:MAXIMUM_DESCRIPTION],
            "author": (raw.get("author") or {}).get("username"),
            "draft": bool(raw.get("draft") or raw.get("work_in_progress")),
            "is_fork": raw.get("source_project_id") != raw.get("target_project_id"),
            "head_pipeline": _head_pipeline(raw),
        }
        if len(description) > MAXIMUM_DESCRIPTION:
            details["incomplete"] = [f"the description has {len(description)} characters, cut at {MAXIMUM_DESCRIPTION}"]
        return {name: raw[name] for name in _DETAIL_FIELDS if name in raw} | details

    def mr_diff(self, iid: int | None = None, project: str | None = None) -> SourceResult:
        """A unified diff put together from GitLab's list of changed files (`/diffs`, paged)."""
        own, number = self._scope.own(project), self._scope.number(iid)
        rows = self._reader.rows(f"{at(own)}/merge_requests/{number}/diffs", f"the diff of {own}!{number}")
        metadata: dict[str, Any] = {"files": 0, "incomplete": []}
        first = next(rows, None)
        return StreamingResponse(unified_diff(first, rows, metadata), ".diff", metadata=metadata)


def _head_pipeline(raw: dict[str, Any]) -> dict[str, Any] | None:
    """Generated merge and train refs have a SHA of their own, so only other refs can be of an older commit."""
    pipeline = raw.get("head_pipeline")
    if not isinstance(pipeline, dict):
        return None
    kept = {name: pipeline.get(name) for name in ("id", "status", "source", "ref", "sha", "web_url")}
    generated = GENERATED_REF.fullmatch(str(pipeline.get("ref")))
    return kept | {"of_an_older_commit": pipeline.get("sha") != raw.get("sha") and not generated}
