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
from hummingbird_operator.ingest.missed.lists import Change, Home, Person, Piped, Version, Words
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


def news(change: Change, versions: Iterable[Version], notes: Sequence[Words], since: datetime) -> News | None:
    """What is new of it since, newest first; None where it was only talked about."""
    found = []
    if change.created_at and change.created_at >= since:
        found.append(News("open", change.created_at, change.author))
    latest = next(iter(versions), None)
    if latest and latest.created_at and latest.created_at >= since and latest.head_commit_sha == change.sha:
        by = next((note.author for note in notes if note.system and _PUSHED.match(note.body)), None)
        found.append(News("update", latest.created_at, by or change.author))
    ready = next((note for note in notes if note.system and _READY.match(note.body)), None)
    if ready and ready.created_at:
        found.append(News("update", ready.created_at, ready.author))
    return max(found, key=lambda one: one.at, default=None)


def asks(note: Words) -> bool:
    """Whether a comment could be for us: a command, or something in a thread."""
    return not note.system and (note.type in REPLIES or commands.parse(note.body) is not None)


def merge_request(home: Home, change: Change, what: News) -> Payload:
    """Its own event."""
    attributes = {
        **_attributes(home, change),
        "action": what.action,
        "draft": change.draft or change.work_in_progress,
        "work_in_progress": change.draft or change.work_in_progress,
        "updated_at": hook_time(what.at),
        "last_commit": {"id": change.sha},
        "source": None if change.source_project_id is None else {},
    }
    return _event("merge_request", home, what.by, attributes)


def note(home: Home, change: Change, words: Words, discussion: str | None) -> Payload:
    """The event of a comment that nobody edited."""
    internal = words.internal or words.confidential
    attributes = {
        "id": words.id,
        "note": words.body,
        "noteable_type": "MergeRequest",
        "author_id": words.author.id if words.author else None,
        "discussion_id": discussion,
        "type": words.type,
        "internal": internal,
        "system": words.system,
        "action": "create",
        "created_at": words.created_at and hook_time(words.created_at),
        "updated_at": words.updated_at and hook_time(words.updated_at),
        "url": f"{change.web_url}#note_{words.id}" if change.web_url else None,
    }
    event = _event("note", home, words.author, attributes)
    event_type = {"event_type": "confidential_note"} if internal else {}
    return {**event, **event_type, "merge_request": _attributes(home, change)}


def pipeline(home: Home, change: Change, ran: Piped) -> Payload:
    """The event of a pipeline's end."""
    attributes = {
        "id": ran.id,
        "status": ran.status,
        "source": ran.source,
        "finished_at": ran.finished_at and hook_time(ran.finished_at),
        "url": ran.web_url,
    }
    return {**_event("pipeline", home, ran.user, attributes), "merge_request": _attributes(home, change)}


def _attributes(home: Home, change: Change) -> Payload:
    return {
        "iid": change.iid,
        "title": change.title,
        "source_branch": change.source_branch,
        "source_project_id": change.source_project_id,
        "target_project_id": change.target_project_id or home.id,
        "state": change.state,
        "url": change.web_url,
    }


def _event(kind: str, home: Home, by: Person | None, attributes: Mapping[str, Any]) -> Payload:
    return {
        "object_kind": kind,
        "event_type": kind,
        "user": {"id": by.id, "username": by.username} if by else None,
        "project": {
            "id": home.id,
            "path_with_namespace": home.path_with_namespace,
            "web_url": home.web_url,
        },
        "object_attributes": dict(attributes),
    }
