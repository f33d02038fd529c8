"""The door of the API: where each call goes, and what is only told of users, projects, members, merge requests."""

from __future__ import annotations

from typing import Any

from tests.standins.gitlab import hooks, lists, notes, repository
from tests.standins.gitlab.records import MergeRequest, Project, User, shown
from tests.standins.gitlab.state import State
from tests.standins.gitlab.wire import ApiError, Request, Response, as_json, not_found, paged

MAY_READ_CODE = 20


def route(request: Request, state: State) -> Response:
    """Dispatch one authenticated call."""
    match request.segments:
        case ("user",) if request.method == "GET":
            return as_json(request.user.public() | {"bot": request.user.bot})
        case ("users", number) if request.method == "GET":
            found = _user(state, number)
            return as_json(found.public() | {"bot": found.bot})
        case ("projects",) if request.method == "GET":
            return paged(request, lists.projects(request, state), state.count_limit)
        case ("groups", reference, "hooks", *rest):
            return hooks.of_group(request, state, reference, tuple(rest))
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
    if rest[:1] == ("hooks",):
        return hooks.route(request, state, project, rest[1:])
    if request.method != "GET":
        raise ApiError(405, {"error": "405 Not Allowed"})
    match rest:
        case ():
            return as_json(lists.project(state, project))
        case ("merge_requests",):
            return paged(request, lists.merge_requests(request, project), state.count_limit)
        case ("members", "all"):
            rows = [_member(project, state.users[number]) for number in project.members if number in state.users]
            return paged(request, rows, state.count_limit)
        case ("members", "all", user_id):
            return as_json(_member(project, _user(state, user_id)))
    return repository.route(request, state, project, rest)


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
    fields = merge_request.fields
    if merge_request.stale_reads > 0:
        merge_request.stale_reads -= 1
        fields = merge_request.before or fields
    head = fields["head_pipeline"]
    return fields | {"head_pipeline": shown(head) if head else head}


def _raw_diffs(merge_request: MergeRequest) -> Response:
    text = "".join(
        f"diff --git a/{row['old_path']} b/{row['new_path']}\n{row.get('diff', '')}" for row in merge_request.diffs
    )
    return Response(200, text.encode(), "text/plain")


def _user(state: State, user_id: str) -> User:
    found = state.users.get(int(user_id)) if user_id.isdigit() else None
    if found is None:
        raise not_found("User")
    return found


def _member(project: Project, user: User) -> dict[str, Any]:
    """A row of members, also of an account that is blocked or a membership that has expired but is not yet removed."""
    if user.id not in project.members:
        raise not_found()
    membership = {"expires_at": project.expires.get(user.id), "membership_state": "active", "member_role": None}
    return user.public() | {"access_level": project.members[user.id]} | membership
