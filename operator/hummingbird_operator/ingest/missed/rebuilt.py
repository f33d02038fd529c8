"""The events that a webhook would have brought, from GitLab's own lists. Pure.

Field by field what `payloads` reads of an event, so that the same gates decide. What a list does not say as an event
would: who pushed (the author of GitLab's note about it, else of the merge request), and a comment's first words where
it was edited since.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hummingbird_operator.ingest import commands
from hummingbird_operator.ingest.hooks.moments import hook_time
from hummingbird_operator.ingest.missed.lists import MergeRequest, Note, Person, Pipeline, Project, Version
from hummingbird_operator.ingest.route import REPLIES

Payload = dict[str, Any]

_READY = re.compile(r"marked (?:this merge request )?as \*\*ready\*\*")
_PUSHED = re.compile(r"added \d+ (?:new )?commits?\b")


@dataclass(frozen=True)
class News:
    """The last thing that happened to a merge request and may start a run: opened, pushed to or made ready."""

    action: str
    at: datetime
    by: Person | None


def news(
    request: MergeRequest,
    versions: Iterable[Version],
    notes: Sequence[Note],
    since: datetime,
    until: datetime | None = None,
) -> News | None:
    """The newest of it since; None where it was only talked about, or that came after `until`. Lists: newest first."""
    found = []
    if request.created_at and request.created_at >= since:
        found.append(News("open", request.created_at, request.author))
    latest = next(iter(versions), None)
    if latest and latest.created_at and latest.created_at >= since and latest.head_commit_sha == request.sha:
        by = next((note.author for note in notes if note.system and _PUSHED.match(note.body)), None)
        found.append(News("update", latest.created_at, by or request.author))
    ready = next((note for note in notes if note.system and _READY.match(note.body)), None)
    if ready and ready.created_at:
        found.append(News("update", ready.created_at, ready.author))
    last = max(found, key=lambda one: one.at, default=None)
    return last if last and (until is None or last.at <= until) else None


def asks(note: Note) -> bool:
    """Whether a comment could be for us: a command, or something in a thread."""
    return not note.system and (note.type in REPLIES or commands.parse(note.body) is not None)


def merge_request(project: Project, request: MergeRequest, what: News) -> Payload:
    """Its own event."""
    attributes = {
        **_attributes(project, request),
        "action": what.action,
        "draft": request.draft,
        "updated_at": None,  # runs.NO_MOMENT in the key
        "last_commit": {"id": request.sha},
        "source": None if request.source_project_id is None else {},
    }
    return _event("merge_request", project, what.by, attributes)


def note(project: Project, request: MergeRequest, found: Note, discussion: str | None) -> Payload:
    """The event of a comment that nobody edited."""
    internal = found.internal or found.confidential
    attributes = {
        "id": found.id,
        "note": found.body,
        "noteable_type": "MergeRequest",
        "author_id": found.author.id if found.author else None,
        "discussion_id": discussion,
        "type": found.type,
        "internal": internal,
        "system": found.system,
        "action": "create",
        "created_at": found.created_at and hook_time(found.created_at),
        "updated_at": found.updated_at and hook_time(found.updated_at),
        "url": f"{request.web_url}#note_{found.id}" if request.web_url else None,
    }
    event = _event("note", project, found.author, attributes)
    event_type = {"event_type": "confidential_note"} if internal else {}
    return {**event, **event_type, "merge_request": _attributes(project, request)}


def pipeline(project: Project, request: MergeRequest, ran: Pipeline) -> Payload:
    """The event of a pipeline's end."""
    attributes = {
        "id": ran.id,
        "status": ran.status,
        "source": ran.source,
        "finished_at": ran.finished_at and hook_time(ran.finished_at),
        "url": ran.web_url,
    }
    return {**_event("pipeline", project, ran.user, attributes), "merge_request": _attributes(project, request)}


def _attributes(project: Project, request: MergeRequest) -> Payload:
    return {
        "iid": request.iid,
        "title": request.title,
        "source_branch": request.source_branch,
        "source_project_id": request.source_project_id,
        "target_project_id": request.target_project_id or project.id,
        "state": request.state,
        "url": request.web_url,
    }


def _event(kind: str, project: Project, by: Person | None, attributes: Mapping[str, Any]) -> Payload:
    return {
        "object_kind": kind,
        "event_type": kind,
        "user": {"id": by.id, "username": by.username} if by else None,
        "project": {
            "id": project.id,
            "path_with_namespace": project.path_with_namespace,
            "web_url": project.web_url,
        },
        "object_attributes": dict(attributes),
    }
