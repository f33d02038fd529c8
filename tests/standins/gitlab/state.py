"""What the stand-in remembers. Records keep GitLab's own JSON field names, so that a fixture reads like the API."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

CHUNK = 65536


@dataclass(frozen=True)
class Token:
    """An access token: `scopes` are GitLab's words, such as api, read_api, read_repository."""

    value: str
    scopes: frozenset[str]


@dataclass
class User:
    """An account with its tokens."""

    id: int
    username: str
    name: str = ""
    tokens: list[Token] = field(default_factory=list)
    created_notes: list[float] = field(default_factory=list)

    def public(self) -> dict[str, Any]:
        """The author object that stands in notes."""
        return {"id": self.id, "username": self.username, "name": self.name or self.username, "state": "active"}


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


@dataclass
class Project:
    """A project; `statuses` by SHA, `files` by ref and path, `jobs` by id with `log`, `log_file` or `log_repeat`."""

    id: int
    path: str
    visibility: str = "private"
    members: dict[int, int] = field(default_factory=dict)
    internal_min_level: int = 20
    merge_requests: dict[int, MergeRequest] = field(default_factory=dict)
    statuses: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    jobs: dict[int, dict[str, Any]] = field(default_factory=dict)

    def level(self, user: User) -> int:
        """The user's access level; 0 when not a member."""
        return self.members.get(user.id, 0)


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


class State:
    """All records, one lock around every request that touches them."""

    def __init__(self, fixture: Mapping[str, Any]) -> None:
        self.lock = threading.RLock()
        self.users: dict[int, User] = {}
        self.projects: dict[int, Project] = {}
        self.executed: list[dict[str, str]] = []
        self.mentions: list[dict[str, str]] = []
        self.destroyed: list[int] = []
        self.calls: list[Call] = []
        self.notes_per_minute: int = int(fixture.get("notes_per_minute", 300))
        self.count_limit: int = int(fixture.get("count_limit", 10_000))
        self._ids = 1000
        self.load(fixture)

    def load(self, fixture: Mapping[str, Any]) -> None:
        """Add what the fixture names; a known id is replaced or, for a project's parts, extended."""
        for raw in fixture.get("users", []):
            tokens = [Token(value, frozenset(scopes)) for value, scopes in raw.get("tokens", {}).items()]
            self.users[raw["id"]] = User(raw["id"], raw["username"], raw.get("name", ""), tokens)
        for raw in fixture.get("projects", []):
            self._load_project(raw)

    def _load_project(self, raw: Mapping[str, Any]) -> None:
        project = self.projects.setdefault(raw["id"], Project(raw["id"], raw["path"]))
        project.visibility = raw.get("visibility", project.visibility)
        project.internal_min_level = raw.get("internal_min_level", project.internal_min_level)
        project.members |= {int(key): level for key, level in raw.get("members", {}).items()}
        project.statuses |= {sha: list(rows) for sha, rows in raw.get("statuses", {}).items()}
        project.jobs |= {int(key): dict(job) for key, job in raw.get("jobs", {}).items()}
        for ref, files in raw.get("files", {}).items():
            encoded = {path: text if isinstance(text, bytes) else text.encode() for path, text in files.items()}
            project.files.setdefault(ref, {}).update(encoded)
        for merge_request in raw.get("merge_requests", []):
            loaded = self._merge_request(project, merge_request)
            project.merge_requests[loaded.iid] = loaded

    def _merge_request(self, project: Project, raw: Mapping[str, Any]) -> MergeRequest:
        fields = dict(raw)
        diffs, versions, pipelines = (list(fields.pop(name, [])) for name in ("diffs", "versions", "pipelines"))
        sha = fields.setdefault("sha", "0" * 40)
        defaults: dict[str, Any] = {
            "id": self.next_id(),
            "project_id": project.id,
            "title": f"Merge request {fields['iid']}",
            "description": "",
            "state": "opened",
            "draft": False,
            "source_branch": "topic",
            "target_branch": "main",
            "source_project_id": project.id,
            "target_project_id": project.id,
            "labels": [],
            "author": {},
            "head_pipeline": None,
            "changes_count": str(len(diffs)),
            "diff_refs": {"base_sha": "b" * 40, "head_sha": sha, "start_sha": "b" * 40},
            "web_url": f"https://gitlab.example.com/{project.path}/-/merge_requests/{fields['iid']}",
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

    def dump(self) -> dict[str, Any]:
        """What tests ask for: notes by merge request, executed quick actions, mentions, destroyed notes, calls."""
        notes = {
            f"{project.path}!{merge_request.iid}": [
                {"id": note.id, "body": note.body, "internal": note.internal, "type": note.type}
                | {"discussion_id": note.discussion_id, "author": note.author.username, "resolved": note.resolved}
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


def new_discussion_id(number: int) -> str:
    """40 hexadecimal characters, as GitLab's are."""
    return hashlib.sha1(str(number).encode(), usedforsecurity=False).hexdigest()


def timestamp() -> str:
    """Now, in the form of GitLab's API."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


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
    """One project `group/app` with merge request 42, its bot, a reader, a developer and a stranger."""
    sha = "9f2c" * 10
    return {
        "users": [
            {"id": 1, "username": "hummingbird-bot", "tokens": {"bot-token": ["api"]}},
            {"id": 2, "username": "reader", "tokens": {"read-token": ["read_api"]}},
            {"id": 7, "username": "alice", "tokens": {"alice-token": ["api"]}},
            {"id": 8, "username": "mallory", "tokens": {"mallory-token": ["api"]}},
        ],
        "projects": [
            {
                "id": 10,
                "path": "group/app",
                "members": {"1": 30, "2": 20, "7": 30},
                "merge_requests": [{"iid": 42, "sha": sha, "author": {"id": 7, "username": "alice"}}],
            }
        ],
    }
