"""The kind AgentRun: one order to an agent, and what became of it.

The spec holds no schema defaults for what a workflow or the configuration may set: a stored default would always win.
What is in force stands in `status.resolved`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from hummingbird_operator.api.fields import (
    CommitSha,
    EventName,
    GitHubRepository,
    GitLabProject,
    Input,
    ModelName,
    Observed,
    OpaqueId,
    SessionId,
    Url,
    WorkflowName,
    utf8_prefix,
    whole,
)
from hummingbird_operator.api.limits import Backend, Limits, SandboxChoice
from hummingbird_operator.api.metadata import Metadata
from hummingbird_operator.api.runstatus import (
    LIVE_PHASES,
    AgentRunStatus,
    AnswerStatus,
    EffectiveLimits,
    EffectiveSandbox,
    NoteStatus,
    Phase,
    Resolved,
    RunnerRef,
    SandboxStatus,
    SessionStatus,
    UsageStatus,
    phase,
)

__all__ = [
    "LIVE_PHASES",
    "MESSAGE_BYTES",
    "MESSAGE_CHARACTERS",
    "AgentRun",
    "AgentRunSpec",
    "AgentRunStatus",
    "AnswerStatus",
    "Backend",
    "Delivery",
    "EffectiveLimits",
    "EffectiveSandbox",
    "ForgeName",
    "GitHubKind",
    "GitHubTarget",
    "GitLabTarget",
    "Limits",
    "NoteStatus",
    "Notice",
    "Phase",
    "Resolved",
    "RunnerRef",
    "SandboxChoice",
    "SandboxStatus",
    "SessionStatus",
    "Target",
    "Trigger",
    "UsageStatus",
    "cut_message",
    "phase",
    "render_target",
]

MESSAGE_BYTES = 32 * 1024
"""Of UTF-8: what the model gets of a person's message. The operator cuts there and says so."""

MESSAGE_CHARACTERS = 64 * 1024
"""The schema's bound, in characters, for the API server cannot count bytes. It is twice the rule on purpose: a message
that an ingestor had to cut at this bound is still longer than the rule, so the operator always sees that it was cut."""

_ID_LIMIT = 2**53 - 1


class Notice(StrEnum):
    """Fixed answers that need no model."""

    HELP = "Help"
    UNKNOWN_COMMAND = "UnknownCommand"
    DENIED = "Denied"
    QUEUE_FULL = "QueueFull"


class Delivery(StrEnum):
    """Where the answer goes besides the status and the session store."""

    NOTE = "Note"
    NONE = "None"


class ForgeName(StrEnum):
    """Where an event came from."""

    GITLAB = "gitlab"
    GITHUB = "github"


class GitHubKind(StrEnum):
    """What a number means in a repository."""

    PULL_REQUEST = "PullRequest"
    ISSUE = "Issue"


class GitLabTarget(Input):
    """A merge request."""

    project: GitLabProject
    """Full path of the project, such as group/subgroup/app."""
    merge_request: Annotated[int, whole(1, 2**31 - 1)]
    """Number of the merge request in its project: the 42 of !42."""
    sha: CommitSha | None = None
    """Commit that the event was about, in full. Left out: the head when the run is accepted."""


class GitHubTarget(Input):
    """A pull request or an issue."""

    repository: GitHubRepository
    """The repository as owner/name."""
    number: Annotated[int, whole(1, 2**31 - 1)]
    """Number of the pull request or issue: the 7 of #7."""
    kind: GitHubKind
    """PullRequest or Issue."""


class Target(Input):
    """What the run is about: exactly one of gitlab and github."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {"rule": "has(self.gitlab) != has(self.github)", "message": "name exactly one of gitlab and github"}
            ]
        }
    )

    gitlab: GitLabTarget | None = None
    """A merge request on the GitLab of the configuration."""
    github: GitHubTarget | None = None
    """A pull request or an issue on GitHub."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.gitlab is None) == (self.github is None):
            raise ValueError("name exactly one of gitlab and github")
        return self


class Trigger(Input):
    """The event that a run was made from. Set by ingestors; a run made by hand has none."""

    source: ForgeName
    """gitlab or github."""
    event: EventName
    """Kind of the event, such as pipeline, merge_request or note."""
    key: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """Content key of the event: two deliveries of one event have the same."""
    author: Annotated[str, Field(max_length=255)] | None = None
    """User name of the person who caused the event."""
    author_id: Annotated[int, whole(1, _ID_LIMIT)] | None = None
    """Number of that person at the forge."""
    url: Url | None = None
    """Address of what caused the run: a pipeline, a comment."""
    automatic: bool = Field(default=False, strict=True)
    """True where nobody asked: such runs are limited for each merge request and skip a commit that was answered before.
    Left out: false."""
    internal: bool = Field(default=False, strict=True)
    """True where the question stands in an internal note: the answer must be internal too. Left out: false."""
    discussion: OpaqueId | None = None
    """Thread of the question; the answer goes there."""
    note_id: Annotated[int, whole(1, _ID_LIMIT)] | None = None
    """The comment with the question; it gets the reaction."""


class AgentRunSpec(Input):
    """The order. Immutable but for cancel, which goes one way, and ttlSecondsAfterFinished."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "!has(oldSelf.cancel) || !oldSelf.cancel || (has(self.cancel) && self.cancel)",
                    "message": "a cancelled run stays cancelled: make a new AgentRun",
                    "fieldPath": ".cancel",
                },
                {
                    "rule": "!has(self.delivery) || self.delivery != 'Note' || has(self.target)",
                    "message": "Note needs a target to write to",
                    "fieldPath": ".delivery",
                },
                {
                    "rule": "!has(self.notice) || has(self.target)",
                    "message": "a notice needs a target to write to",
                    "fieldPath": ".notice",
                },
            ]
        }
    )

    workflow: WorkflowName
    """Name of the workflow in the operator's configuration: its prompt, tools and settings."""
    target: Target | None = None
    """What the run is about. Left out: nothing but the message; the answer stands in the status."""
    session: SessionId | None = None
    """UUID of the conversation. An old one is resumed, from the namespace and target that made it only. Left out: the
    run begins one whose id is its own uid."""
    message: Annotated[str, Field(max_length=MESSAGE_CHARACTERS)] | None = None
    """A person's words for the agent. Longer than 32 KiB of UTF-8, the end is cut off; agent and person are told."""
    notice: Notice | None = None
    """Help, UnknownCommand, Denied or QueueFull: a fixed answer, no model is asked."""
    trigger: Trigger | None = None
    """The event that the run was made from."""
    model: ModelName | None = None
    """Model to ask, such as gemini-3.8-flash. Left out: the workflow's, else models.default of the configuration."""
    sandbox: SandboxChoice | None = None
    """Where commands run. What is left out comes from the workflow, else from sandbox in the configuration."""
    limits: Limits | None = None
    """Where the run must end. What is left out comes from the workflow, else from limits in the configuration; the
    values in force stand in status.resolved.limits."""
    delivery: Delivery | None = None
    """Note writes the answer to the target, None only to the status and the session store. Left out: Note where there
    is a target."""
    cancel: bool = Field(default=False, strict=True)
    """True ends the run as soon as possible; an answer that is already there is still delivered. Cannot be undone. Left
    out: false."""
    ttl_seconds_after_finished: Annotated[int, whole(0, 31_536_000)] | None = None
    """Seconds after its end until the run is deleted. Left out: it is kept. Runs made from events have 15 days."""

    @model_validator(mode="after")
    def _note_needs_target(self) -> Self:
        if self.target is None and self.delivery is Delivery.NOTE:
            raise ValueError("delivery Note needs a target to write to")
        if self.target is None and self.notice is not None:
            raise ValueError("a notice needs a target to write to")
        return self


class AgentRun(Observed):
    """One order to an agent, and what became of it."""

    api_version: Literal["hummingbird-project.io/v1alpha1"] = "hummingbird-project.io/v1alpha1"
    kind: Literal["AgentRun"] = "AgentRun"
    metadata: Metadata
    spec: AgentRunSpec
    """The order."""
    status: AgentRunStatus = Field(default_factory=AgentRunStatus)
    """What the operator observed and did."""


def render_target(target: Target | None) -> str:
    """A target in one word, for columns and logs: group/app!42, octo-org/app#7, or nothing."""
    if target is not None and target.gitlab is not None:
        return f"{target.gitlab.project}!{target.gitlab.merge_request}"
    if target is not None and target.github is not None:
        return f"{target.github.repository}#{target.github.number}"
    return ""


def cut_message(message: str) -> tuple[str, bool]:
    """What the model gets of a person's message, and whether something was cut off."""
    kept = utf8_prefix(message, MESSAGE_BYTES)
    return kept, len(kept) < len(message)
