"""All that the stand-in remembers, read from a fixture and changed under one lock."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.standins.gitlab.deliveries import Deliveries
from tests.standins.gitlab.events import Emitted, Events
from tests.standins.gitlab.hookfields import new_hook
from tests.standins.gitlab.records import (
    Call,
    Group,
    MergeRequest,
    Note,
    Project,
    Token,
    User,
    new_discussion_id,
    timestamp,
)

__all__ = [
    "Call",
    "Group",
    "MergeRequest",
    "Note",
    "Project",
    "State",
    "Token",
    "User",
    "log_stream",
    "new_discussion_id",
    "sample_fixture",
    "timestamp",
]

CHUNK = 65536


class State:
    """All records, one lock around every request that touches them."""

    def __init__(self, fixture: Mapping[str, Any]) -> None:
        self.lock = threading.RLock()
        self.users: dict[int, User] = {}
        self.projects: dict[int, Project] = {}
        self.groups: dict[int, Group] = {}
        self.premium: bool = fixture.get("premium", True)
        """Whether groups have hooks: without a licence there are no such paths."""
        self.executed: list[dict[str, str]] = []
        self.mentions: list[dict[str, str]] = []
        self.destroyed: list[int] = []
        self.calls: list[Call] = []
        self.notes_per_minute: int = int(fixture.get("notes_per_minute", 300))
        self.count_limit: int = int(fixture.get("count_limit", 10_000))
        self.web_url: str = fixture.get("web_url", "https://gitlab.example.com")
        self.clock: Callable[[], datetime] = lambda: datetime.now(UTC)
        """What time it is for GitLab, aware of its zone; tests may set it."""
        self.events = Events(self.web_url)
        self.signing_tokens: bool = fixture.get("signing_tokens", True)
        """Whether hooks know signing tokens; servers before 19.0 ignore them without a word."""
        self.resends_per_minute: int = fixture.get("resends_per_minute", 5)
        self.resends: dict[tuple[int, int], list[datetime]] = {}
        """Moments of resends by project and user."""
        self.deliveries = Deliveries(self.lock, lambda: self.clock(), self.events, fixture)
        self.events.at_once = self._to_hooks
        self._ids = 1000
        self.load(fixture)

    @contextlib.contextmanager
    def turn(self, request: str = "", *, wait: bool = True) -> Iterator[None]:
        """One request: its changes under the lock, then the listeners of the events that it caused.

        `request`: the recursion id that the request carried in `X-Gitlab-Event-UUID`, if any. `wait`: see
        `Events.flush`.
        """
        try:
            with self.lock:
                self.events.request = request or str(uuid.uuid4())
                yield
        finally:
            self.events.flush(wait=wait)

    def _to_hooks(self, event: Emitted) -> None:
        project = self.project(event.project)
        groups = [group for group in self.groups.values() if self.premium and group.holds(event.project)]
        hooks = [
            *(project.hooks.values() if project else ()),
            *(hook for group in groups for hook in group.hooks.values()),
        ]
        for hook in hooks:
            self.deliveries.enqueue(hook, event)

    def now(self) -> str:
        """The moment in the form of GitLab's API."""
        return timestamp(self.clock())

    def load(self, fixture: Mapping[str, Any]) -> None:
        """Add what the fixture names; a known id is replaced or, for a project's parts, extended."""
        for raw in fixture.get("users", []):
            tokens = [Token(value, frozenset(scopes)) for value, scopes in raw.get("tokens", {}).items()]
            state, bot = raw.get("state", "active"), raw.get("bot", False)
            self.users[raw["id"]] = User(raw["id"], raw["username"], raw.get("name", ""), tokens, state, bot)
        for raw in fixture.get("projects", []):
            self._load_project(raw)
        for raw in fixture.get("groups", []):
            members = {int(key): level for key, level in raw.get("members", {}).items()}
            self.groups.setdefault(raw["id"], Group(raw["id"], raw["path"])).members |= members

    def _load_project(self, raw: Mapping[str, Any]) -> None:
        project = self.projects.setdefault(raw["id"], Project(raw["id"], raw["path"]))
        project.visibility = raw.get("visibility", project.visibility)
        project.internal_min_level = raw.get("internal_min_level", project.internal_min_level)
        for key, member in raw.get("members", {}).items():  # a level, or a row with `access_level` and `expires_at`
            row = member if isinstance(member, Mapping) else {"access_level": member}
            project.members[int(key)] = row["access_level"]
            if row.get("expires_at"):
                project.expires[int(key)] = row["expires_at"]
        project.pipelines |= {row["id"]: {"project_id": project.id, **row} for row in raw.get("pipelines", [])}
        project.statuses |= {sha: list(rows) for sha, rows in raw.get("statuses", {}).items()}
        project.jobs |= {int(key): dict(job) for key, job in raw.get("jobs", {}).items()}
        for hook in raw.get("hooks", []):
            made = new_hook(hook.get("id", self.next_id()), project.id, hook, self.now())
            project.hooks[made.id] = made
        for ref, files in raw.get("files", {}).items():
            encoded = {path: text if isinstance(text, bytes) else text.encode() for path, text in files.items()}
            project.files.setdefault(ref, {}).update(encoded)
        for merge_request in raw.get("merge_requests", []):
            loaded = self.new_merge_request(project, merge_request)
            project.merge_requests[loaded.iid] = loaded

    def new_merge_request(self, project: Project, raw: Mapping[str, Any]) -> MergeRequest:
        """A record of it with what GitLab fills in; the project does not hold it yet."""
        fields, now = dict(raw), self.now()
        diffs, versions, pipelines = (list(fields.pop(name, [])) for name in ("diffs", "versions", "pipelines"))
        sha = fields.setdefault("sha", "0" * 40)
        defaults: dict[str, Any] = {
            "id": self.next_id(),
            "project_id": project.id,
            "title": f"Merge request {fields['iid']}",
            "description": "",
            "state": "opened",
            "draft": False,
            "created_at": now,
            "updated_at": now,
            "source_branch": "topic",
            "target_branch": "main",
            "source_project_id": project.id,
            "target_project_id": project.id,
            "labels": [],
            "author": {},
            "head_pipeline": None,
            "changes_count": str(len(diffs)),
            "diff_refs": {"base_sha": "b" * 40, "head_sha": sha, "start_sha": "b" * 40},
            "web_url": f"{self.web_url}/{project.path}/-/merge_requests/{fields['iid']}",
            "user_notes_count": 0,
        }
        return MergeRequest(fields["iid"], defaults | fields, diffs, versions, pipelines)

    def next_id(self) -> int:
        """Ids of one sequence, so that a later note always has a higher one."""
        self._ids += 1
        return self._ids

    def project(self, reference: str) -> Project | None:
        """By numeric id or by full path."""
        if reference.isdigit():
            return self.projects.get(int(reference))
        return next((project for project in self.projects.values() if project.path == reference), None)

    def group(self, reference: str) -> Group | None:
        """By number or path."""
        return next((one for one in self.groups.values() if reference in (str(one.id), one.path)), None)

    def below(self, group: Group) -> list[Project]:
        """The group's projects."""
        return [project for project in self.projects.values() if group.holds(project.path)]

    def user(self, username: str) -> User:
        """By name; KeyError for one that does not exist."""
        found = next((user for user in self.users.values() if user.username == username), None)
        if found is None:
            raise KeyError(f"no user {username}")
        return found

    def dump(self) -> dict[str, Any]:
        """What tests ask for: notes by merge request, executed quick actions, mentions, destroyed notes, calls."""
        notes = {
            f"{project.path}!{merge_request.iid}": [
                {"id": note.id, "body": note.body, "internal": note.internal, "type": note.type}
                | {"discussion_id": note.discussion_id, "author": note.author.username, "resolved": note.resolved}
                | {"system": note.system}
                | {"emoji": [award["name"] for award in note.emoji]}
                for note in merge_request.notes.values()
            ]
            for project in self.projects.values()
            for merge_request in project.merge_requests.values()
        }
        return {
            "notes": notes,
            "executed": self.executed,
            "mentions": self.mentions,
            "destroyed": self.destroyed,
            "calls": [vars(call) for call in self.calls],
        }


def log_stream(job: Mapping[str, Any]) -> tuple[int, Iterator[bytes]]:
    """A job's log as its length and its chunks: from text, from a file, or one line repeated many times."""
    if "log_repeat" in job:
        line, times = str(job["log_repeat"]["line"]).encode(), int(job["log_repeat"]["times"])
        return len(line) * times, _repeated(line, times)
    if "log_file" in job:
        path = Path(job["log_file"])
        return path.stat().st_size, _from_file(path)
    data = job.get("log", b"")
    encoded = data if isinstance(data, bytes) else str(data).encode()
    return len(encoded), iter([encoded])


def _repeated(line: bytes, times: int) -> Iterator[bytes]:
    block = max(1, CHUNK // max(1, len(line)))
    while times > 0:
        yield line * min(block, times)
        times -= block


def _from_file(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk


def sample_fixture() -> dict[str, Any]:
    """One project `group/app` with merge request 42: its bot, a reader, a developer, a maintainer, a stranger."""
    sha = "9f2c" * 10
    return {
        "users": [
            {"id": 1, "username": "hummingbird-bot", "tokens": {"bot-token": ["api"]}},
            {"id": 2, "username": "reader", "tokens": {"read-token": ["read_api"]}},
            {"id": 7, "username": "alice", "tokens": {"alice-token": ["api"]}},
            {"id": 8, "username": "mallory", "tokens": {"mallory-token": ["api"]}},
            {"id": 9, "username": "maya", "tokens": {"maintainer-token": ["api"]}},
        ],
        "projects": [
            {
                "id": 10,
                "path": "group/app",
                "members": {"1": 30, "2": 20, "7": 30, "9": 40},
                "merge_requests": [{"iid": 42, "sha": sha, "author": {"id": 7, "username": "alice"}}],
            }
        ],
    }
