"""The lists that are filtered and ordered: projects, merge requests, pipelines. An unknown parameter is passed over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from tests.standins.gitlab import pipelines as known
from tests.standins.gitlab.records import Project
from tests.standins.gitlab.state import State
from tests.standins.gitlab.wire import ApiError, Request, flag

PIPELINE_FIELDS = (
    *("id", "iid", "project_id", "sha", "ref", "status", "source", "created_at", "updated_at", "web_url", "name"),
)
"""What the list says of a pipeline; who started it and when it ended stand in its details only."""


def project(state: State, found: Project) -> dict[str, Any]:
    """A project, as far as anybody reads it."""
    return {
        "id": found.id,
        "visibility": found.visibility,
        "name": found.path.rsplit("/", 1)[-1],
        "path_with_namespace": found.path,
        "web_url": f"{state.web_url}/{found.path}",
        "last_activity_at": _last_activity(found),
    }


def projects(request: Request, state: State) -> list[dict[str, Any]]:
    """Those that the user may see; `membership` and `min_access_level` leave those where the user has that role."""
    least = int(request.query.get("min_access_level", "0"))
    least = max(least, 1 if flag(request.query.get("membership")) else 0)
    rows = [
        project(state, one)
        for one in state.projects.values()
        if one.level(request.user) >= least and (one.visibility != "private" or one.level(request.user) > 0)
    ]
    rows = [row for row in rows if _after(request, "last_activity_after", row["last_activity_at"])]
    return _sorted(request, rows, "created_at", {"last_activity_at", "id"})


def merge_requests(request: Request, found: Project) -> list[dict[str, Any]]:
    """Newest first, without `head_pipeline`, which only the details have; `state` is opened, closed, merged or all."""
    wanted = {key: request.query[key] for key in ("source_branch", "target_branch") if key in request.query}
    if request.query.get("state", "all") != "all":
        wanted["state"] = request.query["state"]
    rows = [
        {key: value for key, value in merge_request.fields.items() if key != "head_pipeline"}
        for merge_request in found.merge_requests.values()
        if all(merge_request.fields[key] == value for key, value in wanted.items())
    ]
    rows = [row for row in rows if _after(request, "updated_after", row["updated_at"])]
    return _sorted(request, sorted(rows, key=lambda row: -int(row["iid"])), "created_at", {"updated_at"})


def pipelines(request: Request, found: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Newest first."""
    wanted = [key for key in ("status", "ref", "sha", "source") if key in request.query]
    rows = [{key: row[key] for key in PIPELINE_FIELDS if key in row} for row in found]
    rows = [row for row in rows if all(row.get(key) == request.query[key] for key in wanted)]
    rows = [row for row in rows if _after(request, "updated_after", row.get("updated_at"))]
    return _sorted(request, sorted(rows, key=lambda row: -int(row["id"])), "id", {"updated_at", "id"})


def _last_activity(found: Project) -> str:
    """GitLab writes it down at most once an hour; here it is exact."""
    moments = [str(merge_request.fields["updated_at"]) for merge_request in found.merge_requests.values()]
    moments += [str(row["updated_at"]) for row in known.known(found) if row.get("updated_at")]
    return max(moments, default="2026-01-01T00:00:00.000Z")


def _after(request: Request, name: str, moment: str | None) -> bool:
    """The moment itself counts as well (`updated_at >= ?`)."""
    if name not in request.query:
        return True
    try:
        since = datetime.fromisoformat(request.query[name])
    except ValueError:
        raise ApiError(400, {"error": f"{name} is invalid"}) from None
    return moment is not None and datetime.fromisoformat(moment) >= since


def _sorted(request: Request, rows: list[dict[str, Any]], default: str, known_fields: set[str]) -> list[dict[str, Any]]:
    """By `order_by` in `sort`; by the default the rows are in order already, but for their direction."""
    field, ascending = request.query.get("order_by", default), request.query.get("sort", "desc") == "asc"
    if field == default:
        return rows[::-1] if ascending else rows
    if field not in known_fields:
        raise ApiError(400, {"error": "order_by does not have a valid value"})
    return sorted(rows, key=lambda row: (str(row[field]), row["id"]), reverse=not ascending)
