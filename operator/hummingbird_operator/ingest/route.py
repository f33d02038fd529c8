"""What an event asks for, by its payload and the configuration alone. Pure: every gate that needs no look-up is here.

Each function gives an Outcome where the event ends, else what `gitlab` is to do about it. Events are told apart by
`object_kind`; `event_type` and headers differ for confidential notes and old servers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from hummingbird_operator.config import Config
from hummingbird_operator.forges.merge_requests import SHUT
from hummingbird_operator.ingest import commands, rules
from hummingbird_operator.ingest.payloads import (
    BadPayload,
    MergeRequest,
    MergeRequestEvent,
    NoteEvent,
    NoteSubject,
    PipelineEvent,
    Project,
    User,
    read,
)
from hummingbird_operator.ingest.reasons import Outcome, Reason
from hummingbird_operator.ingest.runs import Comment, Origin
from hummingbird_operator.workflows import Workflows

if TYPE_CHECKING:
    from hummingbird_operator.delivery.threads import ThreadNote

SUCCESS = "success"
ENDED = frozenset({SUCCESS, "failed", "canceled", "skipped"})
ACTIONS = frozenset({"open", "reopen", "update"})
REPLIES = frozenset({"DiscussionNote", "DiffNote"})

_SESSION = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_WORKFLOW = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,38}[a-z0-9])?")


@dataclass(frozen=True)
class Proposed:
    """A merge request that workflows are to look at."""

    origin: Origin
    sha: str
    updated_at: str
    workflows: tuple[str, ...]


@dataclass(frozen=True)
class Ended:
    """A merge request's pipeline that came to its end. Of a failed one there is at least one workflow."""

    origin: Origin
    id: int
    status: str
    finished_at: str
    workflows: tuple[str, ...]


@dataclass(frozen=True)
class Asked:
    """A comment that is a command."""

    comment: Comment
    command: commands.Command
    words: str


@dataclass(frozen=True)
class Replied:
    """A comment in a thread; whether the bot ever spoke there is not known yet."""

    comment: Comment
    discussion: str
    words: str


class Router:
    """The gates, with the configuration that they look at."""

    def __init__(self, config: Config, workflows: Workflows) -> None:
        self._config = config
        self._workflows = workflows
        self._host = urlsplit(config.gitlab.url).hostname or "" if config.gitlab else ""

    def ours(self, host: str) -> bool:
        """Whether that is the name of our GitLab, as we call it."""
        return host == self._host

    @property
    def allowed_bots(self) -> tuple[str, ...]:
        """User names of bots whose comments count like people's."""
        return self._config.gitlab.allowed_bots if self._config.gitlab else ()

    @property
    def most_an_hour(self) -> int:
        """Runs and fixed answers that may be asked for on one merge request, for each workflow."""
        return self._config.limits.max_requests_per_hour

    def pipeline(self, payload: Mapping[str, Any]) -> Outcome | Ended:
        """The gates of a pipeline. One that succeeded always passes: its threads are resolved whatever the rules say.

        An event of a fork's own project names a merge request of another one, whose path it does not tell: no_target.
        """
        event = read(PipelineEvent, payload)
        pipeline, request, project = event.object_attributes, event.merge_request, event.project
        if pipeline.source != "merge_request_event" or request is None:
            return Outcome(Reason.NOT_A_MERGE_REQUEST_PIPELINE)
        if pipeline.status not in ENDED:
            return Outcome(Reason.STATUS_FILTERED, pipeline.status)
        if request.target_project_id not in (None, project.id):
            return Outcome(Reason.NO_TARGET, f"its merge request is in the project {request.target_project_id}")
        if self._config.project(project.path_with_namespace) is None:
            return Outcome(Reason.NO_PROJECT, project.path_with_namespace)
        fork = request.source_project_id != project.id
        found = self._starting("pipeline", project, event.user, request, status=pipeline.status, fork=fork)
        if request.state in SHUT:
            found = Outcome(Reason.CLOSED, request.state or "")
        if isinstance(found, Outcome) and pipeline.status != SUCCESS:
            return found
        names = () if isinstance(found, Outcome) else found
        origin = self._origin("pipeline", project, event.user, request, pipeline.url or request.url)
        return Ended(origin, pipeline.id, pipeline.status, pipeline.finished_at or "", names)

    def merge_request(self, payload: Mapping[str, Any]) -> Outcome | Proposed:
        """The gates of a merge request."""
        event = read(MergeRequestEvent, payload)
        request, project = event.object_attributes, event.project
        if request.action not in ACTIONS:
            return Outcome(Reason.ACTION_FILTERED, (request.action or "none")[:40])
        if request.draft or request.work_in_progress:
            return Outcome(Reason.DRAFT)
        if request.state in SHUT:
            return Outcome(Reason.CLOSED, request.state or "")
        if self._config.project(project.path_with_namespace) is None:
            return Outcome(Reason.NO_PROJECT, project.path_with_namespace)
        if request.last_commit is None:
            return Outcome(Reason.NO_TARGET, "it has no commit")
        found = self._starting("merge_request", project, event.user, request, status=None, fork=request.fork)
        if isinstance(found, Outcome):
            return found
        origin = self._origin("merge_request", project, event.user, request, request.url)
        return Proposed(origin, request.last_commit.id, request.updated_at or "", found)

    def note(self, payload: Mapping[str, Any]) -> Outcome | NoteEvent:
        """The gates of a note before the bot's own account must be known."""
        subject = read(NoteSubject, payload).object_attributes.noteable_type
        if subject != "MergeRequest":
            return Outcome(Reason.NO_TARGET, f"a note on {subject[:40]}")
        event = read(NoteEvent, payload)
        if event.merge_request is None:
            raise BadPayload("merge_request", "is required in a note on a merge request")
        if event.edited:
            return Outcome(Reason.EDITED)
        if event.object_attributes.system:
            return Outcome(Reason.SYSTEM_NOTE)
        return event

    def addressed(self, event: NoteEvent, bot_id: int) -> Outcome | Asked | Replied:
        """The gates after it: by the author's number, never by what a text says of itself."""
        note, request, project = event.object_attributes, event.merge_request, event.project
        if note.author_id == bot_id:
            return Outcome(Reason.SELF_EVENT)
        if self._config.project(project.path_with_namespace) is None:
            return Outcome(Reason.NO_PROJECT, project.path_with_namespace)
        command, discussion = commands.parse(note.note), note.discussion_id
        is_reply = note.type in REPLIES and discussion
        if request is None or not (command or is_reply):
            return Outcome(Reason.NOT_FOR_US)
        actor = event.user.id if event.user else None
        if note.action == "create" and actor not in (None, note.author_id):
            raise BadPayload("user.id", "is not the author of the new note")
        known = event.user is not None and event.user.id in (None, note.author_id)
        author = User(id=note.author_id, username=event.user.username if event.user and known else None)
        origin = self._origin("note", project, author, request, note.url)
        comment = Comment(origin, note.id, discussion or None, event.internal)
        return Asked(comment, command, note.note) if command else Replied(comment, discussion or "", note.note)

    def admitted(self, project: str) -> tuple[str, ...]:
        """The workflows that people may start in the project."""
        return tuple(name for name, workflow in self._workflows.by_name.items() if workflow.admits(project))

    def answers_pipelines(self, workflow: str | None) -> bool:
        """Whether it is a workflow about pipelines: a pipeline that succeeds settles its threads."""
        found = self._workflows.by_name.get(workflow or "")
        return found is not None and found.entry.action == "pipeline"

    def like(self, project: str) -> str | None:
        """An entry of the allow list that would admit the project if case did not count."""
        path = project.casefold()
        return next((entry for entry in self._config.projects if fnmatchcase(path, entry.casefold())), None)

    def _starting(
        self, action: str, project: Project, user: User | None, request: MergeRequest, *, status: str | None, fork: bool
    ) -> tuple[str, ...] | Outcome:
        path = project.path_with_namespace
        entries = {name: self._workflows.by_name[name].entry for name in self.admitted(path)}
        fitting = {name: entry for name, entry in entries.items() if entry.action == action}
        if not fitting:
            return Outcome(Reason.NO_WORKFLOW)
        actor, branch = (user and user.username) or "", request.source_branch or ""
        occasion = rules.Occasion(status, actor, branch, request.title or "", fork)
        allowed = tuple(name for name, entry in fitting.items() if rules.allows(entry.trigger_rules, occasion))
        return allowed or Outcome(Reason.RULES_DENIED, ", ".join(fitting)[:200])

    def _origin(self, kind: str, project: Project, user: User | None, request: MergeRequest, url: str | None) -> Origin:
        who = user or User()
        path = project.path_with_namespace
        return Origin(self._host, kind, path, project.id, request.iid, who.username or "", who.id, url or "")


def conversation(notes: Iterable[ThreadNote], before: int) -> tuple[str, str | None] | None:
    """Session and workflow that a reply goes on with: those of the bot's nearest note before it that has a session.

    Not of a later one: between the reply and this look at the thread the bot may have answered somebody else. Fixed
    answers have no session. The workflow is None in the oldest form of marker.
    """
    for note in sorted(notes, key=lambda one: one.id, reverse=True):
        marker = note.marker if note.by_bot and note.id < before else None
        session = marker.id.lower() if marker and marker.id else ""
        if marker and _SESSION.fullmatch(session):
            return session, marker.wf if marker.wf and _WORKFLOW.fullmatch(marker.wf) else None
    return None
