"""Webhooks over the API: made, read, tried and sent again (`lib/api/project_hooks.rb`, `ee/lib/api/group_hooks.rb`).

A project's Maintainers may, and a group's Owners, who also need a licence. Both have the same paths below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from http import HTTPStatus
from typing import Any

from tests.standins.gitlab import hookfields, payloads
from tests.standins.gitlab.deliveries import INTERNAL_ERROR, Answer
from tests.standins.gitlab.records import Group, Hook, MergeRequest, Project, timestamp
from tests.standins.gitlab.state import State
from tests.standins.gitlab.wire import ApiError, Request, Response, as_json, not_found, paged

MAY_ADMINISTER = 40
OWNS = 50
EVENTS_PER_PAGE = 20
KEPT = timedelta(days=7)
CLASSES = {"successful": "2", "client_failure": "4", "server_failure": "5"}
TRIGGERS = {
    "push_events": "push_hooks",
    "merge_requests_events": "merge_request_hooks",
    "note_events": "note_hooks",
    "pipeline_events": "pipeline_hooks",
}

NEEDED = {
    "push_events": "commits",
    "merge_requests_events": "merge requests",
    "note_events": "notes",
    "pipeline_events": "CI pipelines",
}


def of_group(request: Request, state: State, reference: str, rest: tuple[str, ...]) -> Response:
    """Everything below a group's hooks. A group that the user is no member of is one that does not exist."""
    group = state.group(reference)
    if group is None or not group.level(request.user):
        raise not_found("Group")
    if not state.premium:
        raise not_found()
    return route(request, state, group, rest)


def route(request: Request, state: State, project: Project | Group, rest: tuple[str, ...]) -> Response:
    """Everything below a project's or group's hooks; 403 for who is less than a Maintainer, an Owner of the group."""
    group = project.id if isinstance(project, Group) else None
    if project.level(request.user) < (OWNS if group else MAY_ADMINISTER):
        raise ApiError(403, {"message": "403 Forbidden"})
    match (request.method, *rest):
        case ("GET",):
            return paged(request, [_shown(state, hook) for hook in project.hooks.values()], state.count_limit)
        case ("POST",):
            made = Hook(state.next_id(), project.id, "", state.now(), group_id=group)
            hookfields.write(made, request.body, signing_tokens=state.signing_tokens)
            project.hooks[made.id] = made
            return as_json(_shown(state, made), 201)
        case (_, number, *deeper) if number.isdigit() and int(number) in project.hooks:
            return _one(request, state, project, project.hooks[int(number)], tuple(deeper))
    raise not_found()


def _one(request: Request, state: State, project: Project | Group, hook: Hook, rest: tuple[str, ...]) -> Response:
    match (request.method, *rest):
        case ("GET",):
            return as_json(_shown(state, hook))
        case ("PUT",):
            hookfields.write(hook, request.body, signing_tokens=state.signing_tokens)
            return as_json(_shown(state, hook))
        case ("DELETE",):
            del project.hooks[hook.id]
            return Response(204)
        case ("GET", "events"):
            return _events(request, state, hook)
        case ("POST", "events", number, "resend"):
            return _resend(request, state, project, hook, number)
        case ("POST", "test", trigger):
            return _test(request, state, project, hook, trigger)
    raise not_found()


def _shown(state: State, hook: Hook) -> dict[str, Any]:
    return hookfields.shown(hook, state.clock(), signing_tokens=state.signing_tokens)


def _events(request: Request, state: State, hook: Hook) -> Response:
    """Newest first, of the last seven days; a page of more than 20 is refused. `status` may hold several."""
    per_page = request.query.get("per_page", str(EVENTS_PER_PAGE))
    if not per_page.isdigit() or not 1 <= int(per_page) <= EVENTS_PER_PAGE:
        raise ApiError(400, {"error": "per_page does not have a valid value"})
    wanted = [word for word in (request.query.get("status") or request.query.get("status[]") or "").split(",") if word]
    known = {str(status.value) for status in HTTPStatus} | set(CLASSES)
    if set(wanted) - known:
        raise ApiError(400, {"error": "status does not have a valid value"})
    oldest = timestamp(state.clock() - KEPT)
    rows = [row for row in reversed(hook.log) if row["created_at"] >= oldest]
    if wanted:
        rows = [row for row in rows if any(_fits(row["response_status"], word) for word in wanted)]
    return paged(request, rows, state.count_limit)


def _fits(status: str, wanted: str) -> bool:
    if wanted == "server_failure" and status == INTERNAL_ERROR:
        return True
    return status == wanted or (wanted in CLASSES and len(status) == 3 and status[0] == CLASSES[wanted])


def _resend(request: Request, state: State, project: Project | Group, hook: Hook, number: str) -> Response:
    """Send a logged event again, with its idempotency key; 422 while the hook is disabled or where its URL changed."""
    _limit(request, state, project)
    row = next((row for row in hook.log if str(row["id"]) == number), None)
    if row is None:
        raise not_found()
    if row["url"] != hook.url:
        raise ApiError(422, {"message": "The hook URL has changed, and this log entry cannot be retried"})
    headers = state.deliveries.headers(row["trigger"], key=row["request_headers"]["Idempotency-Key"])
    return Response(
        later=_later(lambda: state.deliveries.send(hook, row["trigger"], row["request_data"], headers), resent)
    )


def resent(answer: Answer) -> Response:
    """The receiver's status, whatever it is."""
    return as_json({"response_status": int(answer.status)}, 201)


def _test(request: Request, state: State, project: Project | Group, hook: Hook, trigger: str) -> Response:
    """Send what the project has of that kind, also while the hook is disabled."""
    if trigger not in TRIGGERS:
        raise ApiError(400, {"error": "trigger does not have a valid value"})
    _limit(request, state, project)
    payload = _sample(request, state, project, trigger)
    headers = state.deliveries.headers(TRIGGERS[trigger])

    def tried(answer: Answer) -> Response:
        return as_json({"message": "201 Created"}, 201) if answer.success else _failed(answer.body)

    return Response(
        later=_later(lambda: state.deliveries.send(hook, TRIGGERS[trigger], payload, headers, force=True), tried)
    )


def _later(attempt: Callable[[], Answer | None], then: Callable[[Answer], Response]) -> Callable[[], Response]:
    def run() -> Response:
        answer = attempt()
        if answer is None:
            return _failed("Hook disabled")
        return _failed(answer.error) if answer.status == INTERNAL_ERROR else then(answer)

    return run


def _failed(text: str) -> Response:
    return as_json({"message": f"422 Unprocessable Entity - {text}"}, 422)


def _limit(request: Request, state: State, project: Project | Group) -> None:
    """So many a minute, per project and user; the answer has no Retry-After."""
    now = state.clock()
    recent = state.resends.setdefault((project.id, request.user.id), [])
    recent[:] = [moment for moment in recent if now - moment < timedelta(minutes=1)]
    if len(recent) >= state.resends_per_minute:
        text = "This endpoint has been requested too many times. Try again later."
        raise ApiError(429, {"message": {"error": text}})
    recent.append(now)


def _sample(request: Request, state: State, owner: Project | Group, trigger: str) -> dict[str, Any]:
    """A real record of the project, or of one of the group, in that kind's form."""
    projects: Iterable[Project] = state.below(owner) if isinstance(owner, Group) else [owner]
    for project in projects:
        for merge_request in reversed(project.merge_requests.values()):
            made = _sample_of(request, state, project, merge_request, trigger)
            if made is not None:
                return made
    has = "the group has a project with" if isinstance(owner, Group) else "the project has"
    raise ApiError(422, {"message": f"Ensure {has} {NEEDED[trigger]}."})


def _sample_of(
    request: Request, state: State, project: Project, merge_request: MergeRequest, trigger: str
) -> dict[str, Any] | None:
    """A merge request comes without `action`, as the test has it."""
    fields = merge_request.fields
    if trigger == "merge_requests_events":
        made = payloads.merge_request_event(state, project, merge_request, request.user, "", {})
        del made["object_attributes"]["action"]
        return made
    if trigger == "push_events":
        row = payloads.commit_attributes(state, project, fields["sha"], merge_request.commit, state.now())
        return payloads.push_event(state, project, request.user, fields["source_branch"], "", row)
    if trigger == "note_events" and merge_request.notes:
        return payloads.note_event(state, project, merge_request, max(merge_request.notes.values(), key=_id), "create")
    if trigger == "pipeline_events" and merge_request.pipelines:
        return payloads.pipeline_event(state, project, merge_request.pipelines[0], merge_request, request.user)
    return None


def _id(row: Any) -> int:
    return int(row.id)
