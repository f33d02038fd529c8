"""What the stand-in remembers, as records. They keep GitLab's own JSON field names: a fixture reads like the API."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any


@dataclass(frozen=True)
class Token:
    """An access token: `scopes` are GitLab's words, such as api, read_api, read_repository."""

    value: str
    scopes: frozenset[str]


@dataclass
class User:
    """An account with its tokens; `state` is active, blocked, deactivated or banned."""

    id: int
    username: str
    name: str = ""
    tokens: list[Token] = field(default_factory=list)
    state: str = "active"
    bot: bool = False
    created_notes: list[float] = field(default_factory=list)

    def public(self) -> dict[str, Any]:
        """The author object that stands in notes."""
        return {"id": self.id, "username": self.username, "name": self.name or self.username, "state": self.state}


@dataclass
class Note:
    """A note; `type` is None for a plain one."""

    id: int
    discussion_id: str
    author: User
    body: str
    created_at: str
    updated_at: str
    type: str | None = None
    internal: bool = False
    system: bool = False
    resolved: bool = False
    emoji: list[dict[str, Any]] = field(default_factory=list)
    position: dict[str, Any] | None = None
    updated_by: User | None = None
    resolved_by: User | None = None
    resolved_at: str | None = None

    @property
    def resolvable(self) -> bool:
        """A thread's note is, a plain or a system one is not."""
        return self.type is not None and not self.system


@dataclass
class MergeRequest:
    """A merge request: `fields` is the JSON of its details, `diffs` and `versions` the rows of those lists."""

    iid: int
    fields: dict[str, Any]
    diffs: list[dict[str, Any]] = field(default_factory=list)
    versions: list[dict[str, Any]] = field(default_factory=list)
    pipelines: list[dict[str, Any]] = field(default_factory=list)
    notes: dict[int, Note] = field(default_factory=dict)
    emoji: list[dict[str, Any]] = field(default_factory=list)
    commit: dict[str, Any] = field(default_factory=dict)
    """The head commit's `message` and `author`, as an event shows them."""
    stale_reads: int = 0
    """How many more reads show `before` instead of what is."""
    before: dict[str, Any] = field(default_factory=dict)
    """The `fields` that the latest push changed."""
    branch_sha: str = ""
    """Where the source branch stands while the merge request is closed and does not follow it; empty: at its head."""

    @property
    def is_fork(self) -> bool:
        """True if its source is another project."""
        return bool(self.fields["source_project_id"] != self.fields["target_project_id"])


HOOK_FLAGS = (
    *("push_events", "tag_push_events", "merge_requests_events", "repository_update_events", "issues_events"),
    *("confidential_issues_events", "note_events", "confidential_note_events", "pipeline_events", "wiki_page_events"),
    *("deployment_events", "feature_flag_events", "job_events", "releases_events", "milestone_events"),
    *("emoji_events", "resource_access_token_events", "resource_deploy_token_events", "vulnerability_events"),
)
TEMPORARILY_DISABLED_AFTER = 4
DISABLED_AFTER = 40
MAXIMUM_BACKOFF = timedelta(days=1)


@dataclass
class Hook:
    """A webhook with its log, oldest row first. Its rules: `app/models/concerns/web_hooks/auto_disabling.rb`.

    Of a project, or of the group `group_id`, which is told of every project below it.
    `token` and `signing_token` can be written and never read.
    """

    id: int
    project_id: int
    url: str
    created_at: str
    name: str | None = None
    description: str | None = None
    flags: dict[str, bool] = field(default_factory=lambda: {name: name == "push_events" for name in HOOK_FLAGS})
    enable_ssl_verification: bool = True
    token: str = ""
    signing_token: str = ""
    custom_headers: dict[str, str] = field(default_factory=dict)
    recent_failures: int = 0
    disabled_until: datetime | None = None
    log: list[dict[str, Any]] = field(default_factory=list)
    group_id: int | None = None

    def status(self, now: datetime) -> str:
        """`alert_status`: executable, temporarily_disabled or disabled (for good)."""
        if self.recent_failures >= DISABLED_AFTER:
            return "disabled"
        waits = self.disabled_until is not None and self.disabled_until >= now
        return "temporarily_disabled" if waits else "executable"

    def answered(self, success: bool, now: datetime, backoff: timedelta) -> None:
        """Count an attempt: a success clears all; the fourth failure in a row disables for `backoff`, then doubled."""
        if success:
            self.recent_failures, self.disabled_until = 0, None
        elif self.status(now) == "executable":
            times = self.recent_failures + 1 - TEMPORARILY_DISABLED_AFTER
            self.recent_failures += 1
            if times >= 0:
                self.disabled_until = now + min(backoff * 2**times, MAXIMUM_BACKOFF)


@dataclass
class Project:
    """A project; `statuses` by SHA, `files` by ref and path, `jobs` by id with `log`, `log_file` or `log_repeat`.

    `pipelines` by id are rows of the API; keys that begin with an underscore are the stand-in's own.
    """

    id: int
    path: str
    visibility: str = "private"
    members: dict[int, int] = field(default_factory=dict)
    expires: dict[int, str] = field(default_factory=dict)
    """The date (YYYY-MM-DD, UTC) from which a membership counts no longer, by user id."""
    internal_min_level: int = 20
    merge_requests: dict[int, MergeRequest] = field(default_factory=dict)
    statuses: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    jobs: dict[int, dict[str, Any]] = field(default_factory=dict)
    pipelines: dict[int, dict[str, Any]] = field(default_factory=dict)
    hooks: dict[int, Hook] = field(default_factory=dict)

    def level(self, user: User) -> int:
        """What the user's membership gives; 0 when there is none, it has expired, or the account is not active."""
        expires = self.expires.get(user.id)
        if user.state != "active" or (expires and expires <= datetime.now(UTC).date().isoformat()):
            return 0
        return self.members.get(user.id, 0)


@dataclass
class Group:
    """A group; its projects are those whose path begins with its own. A membership counts in the group only."""

    id: int
    path: str
    members: dict[int, int] = field(default_factory=dict)
    hooks: dict[int, Hook] = field(default_factory=dict)

    def level(self, user: User) -> int:
        """What the user's membership gives; 0 when there is none, or the account is not active."""
        return self.members.get(user.id, 0) if user.state == "active" else 0

    def holds(self, project: str) -> bool:
        """Whether the project is in it, or in a group of it."""
        return project.startswith(f"{self.path}/")


@dataclass(frozen=True)
class Call:
    """One request as it arrived; `token` is the name of the user it authenticated, never the secret."""

    method: str
    path: str
    query: str
    body: str
    user: str | None
    status: int
    host: str


def new_discussion_id(number: int) -> str:
    """40 hexadecimal characters, as GitLab's are."""
    return new_sha(str(number))


def new_sha(seed: str) -> str:
    """A commit's id, the same for the same seed."""
    return hashlib.sha1(seed.encode(), usedforsecurity=False).hexdigest()


def timestamp(now: datetime | None = None) -> str:
    """A moment (default: this one) in the form of GitLab's API."""
    return (now or datetime.now(UTC)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def shown(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the API without what the stand-in keeps beside it."""
    return {key: value for key, value in row.items() if not key.startswith("_")}
