"""The sections of `config.yaml`: what each key means, and which values are right. Frozen; unknown keys are errors.

`settings.py` reads the file; `docs/configuration.md` explains every key and is held against this module by a test.
"""

from __future__ import annotations

import fnmatch
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from hummingbird_operator.config import coherence
from hummingbird_operator.config.values import (
    HOOK_PATH,
    SERVED_BACKENDS,
    BackendName,
    EnvName,
    GitLabUrl,
    HookUrl,
    HttpUrl,
    Money,
    Positive,
    ProjectGlob,
    PromptPath,
    QueueUrl,
    SecretFile,
    StoreUrl,
    UserGlob,
    WorkflowName,
)

__all__ = [
    "HOOK_PATH",
    "SERVED_BACKENDS",
    "Config",
    "DataSource",
    "GitLab",
    "Ingest",
    "Limits",
    "Models",
    "Project",
    "Sandbox",
    "Section",
    "Sessions",
    "TriggerRule",
    "WorkflowEntry",
]


class Section(BaseModel):
    """A part of the file: unknown keys are errors, values never change."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True)


class GitLab(Section):
    """The forge and the one token that may write notes."""

    url: GitLabUrl
    """Base address of the GitLab instance."""
    token_env: EnvName | None = None
    """Environment variable with the bot's token (scope `api`, role Developer): it writes notes and goes to no tool."""
    token_file: SecretFile | None = None
    """File with that token, in place of `token_env`."""
    webhook_secret_env: tuple[EnvName, ...] = ()
    """Environment variables with the accepted webhook secrets; `whsec_…` is a signing token, others are tokens."""
    webhook_secret_file: tuple[SecretFile, ...] = ()
    """Files with such secrets, in place of variables or beside them."""
    allowed_bots: tuple[str, ...] = ()
    """User names of bots that may write commands and replies like people; other bots are ignored."""
    hooks_token_env: EnvName | None = None
    """Variable with a Maintainer's token (scope `api`; of an Owner for groups' hooks), for setup and replay."""
    hooks_token_file: SecretFile | None = None
    """File with that token."""
    ca_file: Path | None = None
    """Certificate authority of the instance, as a PEM file."""

    @model_validator(mode="after")
    def _one_token(self) -> GitLab:
        if (self.token_env is None) == (self.token_file is None):
            raise ValueError("give exactly one of token_env and token_file")
        if self.hooks_token_env is not None and self.hooks_token_file is not None:
            raise ValueError("give hooks_token_env or hooks_token_file, not both")
        return self


class Models(Section):
    """Which model answers, and through which door."""

    default: str = Field(min_length=1)
    """Model of every run that names none."""
    regions: dict[str, str] = {}
    """Vertex region by prefix of the model's name, such as `{"gemini-": global}`; `global` where nothing matches."""
    google_api_key_env: EnvName | None = None
    """Environment variable with the key of the Gemini API; without it and its file: Vertex, as always for Claude."""
    google_api_key_file: SecretFile | None = None
    """File with that key."""
    google_cloud_project: str = ""
    """Vertex project; else the one of the application default credentials."""
    prices: dict[str, dict[Literal["input", "output", "cache_read", "cache_write"], Decimal]] = {}
    """USD per million tokens (`input`, `output`, `cache_read`, `cache_write`) by model, before the built-in table."""
    endpoint: HttpUrl | None = None
    """Address that stands for the provider's own: a gateway, or a test server."""


class Sessions(Section):
    """Where sessions and journals lie."""

    store: StoreUrl
    """`s3://bucket/prefix` or `file:///path`."""
    s3_endpoint: HttpUrl | None = None
    """Address of an S3-compatible service other than AWS."""


class Limits(Section):
    """Ceilings: a run may ask for less, never for more."""

    max_concurrent_runs: Positive = 20
    """Runs that work at once in one operator; each has a thread."""
    max_runs_per_mr: Positive = 5
    """Automatic runs of one workflow on one merge request."""
    max_requests_per_hour: Positive = 30
    """Runs and fixed answers that comments may ask for on one merge request, for each workflow, within an hour."""
    max_iterations: Positive = 30
    """Model calls of one run."""
    context_tokens: Positive = 60_000
    """Tokens of the conversation at the last call."""
    max_output_tokens: Positive = 8_192
    """Tokens that one model call may answer with."""
    max_cost_usd: Money = Decimal("2.00")
    """US dollars of one run; checked before each call against its worst case."""
    run_timeout_seconds: Positive = 1_800
    """Wall time of one run from its first step to its answer."""
    retry_seconds: Positive = 600
    """How long a failing model or session store is tried again."""
    delivery_retry_seconds: Positive = 86_400
    """How long an answered run tries to write its note."""
    max_attempts: Positive = 50
    """Take-overs of one run after which it is given up: a run that kills its operator must end."""


class Sandbox(Section):
    """Where commands run when neither the run nor its workflow says so."""

    backend: BackendName = "k8spool"
    """Kind of sandbox: k8spool, k8s, kubevirtpool, kubevirt, or podman."""
    pool: str = "default"
    """SandboxPool for the pool backends."""
    namespace: str = "hummingbird-sandboxes"
    """Namespace of pools and sandboxes; runs live elsewhere."""
    image: str = ""
    """Image of the backends without a pool (`k8s`, `podman`)."""
    resources: dict[str, dict[str, str]] = {}
    """`requests` and `limits` of the `k8s` backend, as in a Pod; seed defaults where absent."""


class Project(Section):
    """One entry of the allow list; the key is a path or a glob."""

    internal_notes: bool = Field(default=False, strict=True)
    """Notes are internal: seen by members from Reporter on. Nothing to do with GitLab's visibility `internal`."""
    max_runs_per_mr: Positive | None = None
    """In place of `limits.max_runs_per_mr`."""
    tokens: dict[Literal["gitlab"], EnvName] = {}
    """Environment variable with the read token that tools get for this project, by data source: `{gitlab: NAME}`."""


class Ingest(Section):
    """How events come in. Not read by the operator itself."""

    queue_url: QueueUrl | None = None
    """SQS queue that `ingest sqs` reads, and that `ingest webhook` hands an event to while the API server is away."""
    sqs_endpoint: HttpUrl | None = None
    """Address of an SQS-compatible service other than AWS."""
    sqs_region: str = ""
    """Region of the queue; else boto3's own."""
    topic_arns: tuple[str, ...] = ()
    """SNS topics whose messages are taken; absent: all that the queue's policy lets in."""
    concurrency: Positive = 8
    """Events that one process handles at once."""
    visibility_seconds: Annotated[int, Field(ge=30, le=43_200)] = 120
    """How long a received message is hidden from others; renewed at a third of it for as long as it is held."""
    webhook_url: HookUrl | None = None
    """Public address of `POST /webhooks/gitlab`: `webhook-setup` writes it, replay knows our hook by it."""


class TriggerRule(Section):
    """One line of an ordered list; the first that matches decides."""

    action: Literal["allow", "deny"]
    """The verdict: allow or deny."""
    status: str | None = None
    """Glob on a pipeline's status; without one a rule means `failed`. One that names it fits no merge request event."""
    user: UserGlob | None = None
    """Glob on the name of the person who acted."""
    branch: str | None = None
    """Glob on the source branch."""
    title: str | None = None
    """Glob on the merge request's title."""
    fork: bool | None = Field(default=None, strict=True)
    """Whether the merge request comes from a fork."""


class DataSource(Section):
    """Settings of one data source within a workflow."""

    token_env: EnvName | None = None
    """Environment variable with a read token, where the project has none of its own."""
    cluster_url: HttpUrl | None = None
    """Konflux: address of its UI."""
    kubeconfig_env: EnvName | None = None
    """Konflux: environment variable with the path of a kubeconfig."""
    kubearchive_url: HttpUrl | None = None
    """Konflux: address of KubeArchive."""


class WorkflowEntry(Section):
    """Metadata of a workflow; its prompt is a file of its own."""

    description: str = Field(default="", max_length=200)
    """One line for `/hummingbird help`."""
    prompt: PromptPath
    """Markdown file, relative to the configuration file; used verbatim."""
    action: Literal["pipeline", "merge_request", "manual"] = "manual"
    """What starts it without being asked: pipeline, merge_request, or manual (nothing)."""
    projects: tuple[str, ...] = ("*",)
    """Globs of the projects that may use it; the allow list `projects` holds as well."""
    trigger_rules: tuple[TriggerRule, ...] | None = None
    """Which events start it: [a list](#trigger_rules); absent: every merge request event, and failed pipelines."""
    data_sources: dict[Literal["gitlab", "konflux", "testing_farm"], DataSource] = {}
    """What its model may read: gitlab, konflux, testing_farm."""
    model: str | None = None
    """In place of `models.default`."""
    max_iterations: Positive | None = None
    """In place of `limits.max_iterations`, and never above it."""
    sandbox: BackendName | None = None
    """In place of `sandbox.backend`; the same choices."""


class Config(Section):
    """The whole file."""

    gitlab: GitLab | None = None
    """The forge; absent: runs have no target."""
    models: Models
    """Models and their door."""
    sessions: Sessions
    """The session store."""
    limits: Limits = Limits()
    """Ceilings of every run."""
    sandbox: Sandbox = Sandbox()
    """The sandbox of runs that name none."""
    ingest: Ingest = Ingest()
    """How events come in."""
    projects: dict[ProjectGlob, Project] = {}
    """Allow list: a target outside of it is refused."""
    workflows: dict[WorkflowName, WorkflowEntry]
    """Workflows by name (a DNS label of at most 40 characters; `help` is taken)."""

    @model_validator(mode="after")
    def _coherent(self) -> Config:
        for problem in coherence.problems(self):
            raise ValueError(problem)
        return self

    def project(self, path: str) -> Project | None:
        """The entry that admits the project: its own path first, then the first glob that matches."""
        if path in self.projects:
            return self.projects[path]
        return next((entry for glob, entry in self.projects.items() if fnmatch.fnmatchcase(path, glob)), None)
