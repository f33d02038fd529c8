"""The parts of GitLab's webhook payloads that decide, as lenient models: servers differ by years, templates bend them.

Only what no decision can do without is required. Older servers lack `action`, `internal`, `type`, `discussion_id` and
`draft`; `source` is null where the fork is gone. Fields: GitLab's `lib/gitlab/data_builder` and `hook_data`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hummingbird_operator.api.fields import CommitSha, GitLabProject
from hummingbird_operator.errors import Invalid
from hummingbird_operator.problems import invalid

Id = Annotated[int, Field(strict=True, ge=1, le=2**53 - 1)]
Iid = Annotated[int, Field(strict=True, ge=1, le=2**31 - 1)]
NOTE_CHARACTERS = 1_000_001
"""One more than GitLab takes: whatever is longer stays no note of GitLab's."""
OTHER_CHARACTERS = 10_000

Flag = Annotated[bool, Field(strict=True)] | None
Moment = Annotated[str, Field(pattern=r"^[0-9A-Za-z :.+-]{1,40}$")]
"""A time in any of GitLab's forms; it is compared and hashed, never read."""
Word = Annotated[str, Field(pattern=r"^[a-zA-Z_]{1,64}$")]


class BadPayload(Invalid):
    """The event does not have the shape of its kind; `where` is the field."""


class Payload(BaseModel):
    """A part of an event: what is not named here is passed over."""

    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)


class Project(Payload):
    """The project of the event: of a merge request and its notes the target project."""

    id: Id
    path_with_namespace: GitLabProject


class User(Payload):
    """Who acted."""

    id: Id | None = None
    username: str | None = None


class Commit(Payload):
    """A commit."""

    id: CommitSha


class MergeRequest(Payload):
    """A merge request as it stands in events of all kinds."""

    iid: Iid
    title: str | None = None
    source_branch: str | None = None
    source_project_id: Id | None = None
    target_project_id: Id | None = None
    state: str | None = None
    url: str | None = None


class NoteAttributes(Payload):
    """A comment."""

    id: Id
    note: str
    noteable_type: str
    author_id: Id
    discussion_id: Annotated[str, Field(pattern=r"^[0-9A-Za-z_-]{0,64}$")] | None = None
    type: str | None = None
    internal: Flag = None
    confidential: Flag = None
    system: Flag = None
    action: str | None = None
    created_at: str | None = None
    updated_at: str | None = None
    url: str | None = None


class _Subject(Payload):
    noteable_type: str


class NoteSubject(Payload):
    """What a note is about: those of snippets and commits have no merge request, and need no project."""

    object_attributes: _Subject


class NoteEvent(Payload):
    """`object_kind: note`."""

    object_attributes: NoteAttributes
    project: Project
    merge_request: MergeRequest | None = None
    user: User | None = None
    event_type: str | None = None

    @property
    def internal(self) -> bool:
        """Whether only members may read it: servers say so in three places, and any of them is enough."""
        note = self.object_attributes
        return note.internal is True or note.confidential is True or self.event_type == "confidential_note"

    @property
    def edited(self) -> bool:
        """Whether it is anything but a new comment. Servers before 16.11 say no action: equal times mean new."""
        note = self.object_attributes
        if note.action is None:
            return note.created_at is None or note.created_at != note.updated_at
        return note.action != "create"


class MergeRequestAttributes(MergeRequest):
    """A merge request in its own event."""

    action: str | None = None
    draft: Flag = None
    work_in_progress: Flag = None
    updated_at: Moment | None = None
    last_commit: Commit | None = None
    source: Mapping[str, Any] | None = Field(default_factory=dict)

    @property
    def fork(self) -> bool:
        """Whether it comes from another project, or from one that is gone (`source` is null then)."""
        return self.source is None or self.source_project_id != self.target_project_id


class MergeRequestEvent(Payload):
    """`object_kind: merge_request`."""

    object_attributes: MergeRequestAttributes
    project: Project
    user: User | None = None


class PipelineAttributes(Payload):
    """A pipeline."""

    id: Id
    status: Word
    source: str | None = None
    finished_at: Moment | None = None
    url: str | None = None


class PipelineEvent(Payload):
    """`object_kind: pipeline`."""

    object_attributes: PipelineAttributes
    project: Project
    merge_request: MergeRequest | None = None
    user: User | None = None


def read_part(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Of an event the fields that anything here looks at: builds, commits and changes may be megabytes.

    Texts but the note's are cut where no real one is as long, so that an event that waits takes little memory.
    """
    return {name: _pruned(name, value) for name, value in payload.items() if name in _FIELDS}


def size_of(payload: Mapping[str, Any]) -> int:
    """Characters of its JSON: what it costs while it waits."""
    return len(json.dumps(payload, ensure_ascii=False))


def _pruned(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return read_part(value)
    if isinstance(value, str):
        return value[: NOTE_CHARACTERS if name == "note" else OTHER_CHARACTERS]
    return [] if isinstance(value, list) else value


def home(payload: Mapping[str, Any]) -> str:
    """The host of the GitLab that the project of an event is in, by its own words; empty where it does not say."""
    project = payload.get("project")
    address = project.get("web_url") if isinstance(project, Mapping) else None
    try:
        return (urlsplit(address).hostname or "")[:253] if isinstance(address, str) else ""
    except ValueError:
        return ""


_FIELDS = {"object_kind", "web_url", "oversize"}.union(
    *(
        model.model_fields
        for model in (
            *(NoteEvent, NoteAttributes, MergeRequestEvent, MergeRequestAttributes, PipelineEvent, PipelineAttributes),
            *(Project, User, Commit, MergeRequest),
        )
    )
)

P = TypeVar("P", bound=Payload)


def read(model: type[P], payload: Mapping[str, Any]) -> P:
    """The event as that model. Raises BadPayload that names the field."""
    try:
        return model.model_validate(dict(payload))
    except ValidationError as error:
        fault = invalid(model, error, "")
        raise BadPayload(fault.where, fault.problem) from error
