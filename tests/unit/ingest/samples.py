"""Events as GitLab sends them, from the smallest that says something; a configuration that they meet."""

from __future__ import annotations

from typing import Any

from hummingbird_operator.config import Config
from hummingbird_operator.ingest.event import Event
from hummingbird_operator.workflows import Workflow, Workflows

SHA = "9f2c" * 10
NEWER = "ab12" * 10
BOT, ALICE, GUEST = 1, 7, 9
PROJECT, IID, PROJECT_ID = "group/app", 42, 10
THREAD = "6a9c1750b37d513a43987b574953fceb50b03ce7"
SESSION = "3f0c4b8e-51f2-4c7d-9a43-0b6c1f0e7d55"
OTHER_SESSION = "77777777-51f2-4c7d-9a43-0b6c1f0e7d55"

BASE: dict[str, Any] = {
    "gitlab": {"url": "https://gitlab.example.com:8443", "token_env": "BOT"},
    "models": {"default": "gemini-3.8-flash"},
    "sessions": {"store": "file:///var/lib/hummingbird"},
    "projects": {"group/*": {}},
    "workflows": {
        "analyze-failures": {"prompt": "a.md", "action": "pipeline", "description": "Why it failed"},
        "review": {"prompt": "r.md", "action": "merge_request", "projects": ["group/*"]},
        "rewrite": {"prompt": "w.md", "projects": ["group/app"]},
    },
}


def configured(**changes: Any) -> tuple[Config, Workflows]:
    """The configuration with some keys replaced, and its workflows."""
    config = Config.model_validate({**BASE, **changes})
    loaded = {name: Workflow(name, "Look.", entry, "0123456789abcdef") for name, entry in config.workflows.items()}
    return config, Workflows(loaded)


def project(**changes: Any) -> dict[str, Any]:
    return {"id": PROJECT_ID, "path_with_namespace": PROJECT, **changes}


def user(**changes: Any) -> dict[str, Any]:
    return {"id": ALICE, "username": "alice", "email": "[REDACTED]", **changes}


def request(**changes: Any) -> dict[str, Any]:
    return {
        "iid": IID,
        "title": "Add the cache",
        "source_branch": "cache",
        "source_project_id": PROJECT_ID,
        "target_project_id": PROJECT_ID,
        "state": "opened",
        "url": "https://gitlab.example.com/group/app/-/merge_requests/42",
        **changes,
    }


def note(words: str = "/hummingbird review", *, without: tuple[str, ...] = (), **changes: Any) -> dict[str, Any]:
    """A note event; `changes` go into its attributes, `without` are attributes that an older server has not."""
    attributes = {
        "id": 1244,
        "note": words,
        "noteable_type": "MergeRequest",
        "author_id": ALICE,
        "discussion_id": THREAD,
        "type": None,
        "internal": False,
        "system": False,
        "action": "create",
        "created_at": "2026-11-30 10:00:00 UTC",
        "updated_at": "2026-11-30 10:00:00 UTC",
        "url": "https://gitlab.example.com/group/app/-/merge_requests/42#note_1244",
        **changes,
    }
    return {
        "object_kind": "note",
        "event_type": "note",
        "user": user() if attributes["author_id"] == ALICE else user(id=attributes["author_id"], username="somebody"),
        "project": project(),
        "object_attributes": {name: value for name, value in attributes.items() if name not in without},
        "merge_request": request(),
    }


def reply(words: str = "Why does only arm64 fail?", **changes: Any) -> dict[str, Any]:
    return note(words, **{"type": "DiscussionNote", **changes})


def merge_request(*, without: tuple[str, ...] = (), **changes: Any) -> dict[str, Any]:
    attributes = {
        **request(),
        "action": "open",
        "draft": False,
        "work_in_progress": False,
        "updated_at": "2026-11-30 10:00:00 UTC",
        "last_commit": {"id": SHA},
        "source": {"name": "App"},
        **changes,
    }
    return {
        "object_kind": "merge_request",
        "event_type": "merge_request",
        "user": user(),
        "project": project(),
        "object_attributes": {name: value for name, value in attributes.items() if name not in without},
        "changes": {},
    }


def pipeline(status: str = "failed", *, on: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """A pipeline event; `on` changes its merge request."""
    return {
        "object_kind": "pipeline",
        "object_attributes": {
            "id": 31,
            "ref": "cache",
            "sha": SHA,
            "source": "merge_request_event",
            "status": status,
            "finished_at": "2026-11-30 10:05:00 UTC",
            "url": "https://gitlab.example.com/group/app/-/pipelines/31",
            **changes,
        },
        "merge_request": request(**(on or {})),
        "user": user(),
        "project": project(),
    }


def event(payload: dict[str, Any], kind: str = "", source: str = "gitlab") -> Event:
    return Event(source, kind, payload, "delivery-1")
