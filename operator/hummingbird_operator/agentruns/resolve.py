"""What is in force for a run: its spec, its workflow and the configuration, within the configuration's ceilings.

Pure. Refusals are `Invalid` and name the field of the spec, or the key of the configuration, that a person must mend.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, TypeVar

from hummingbird_operator.api.agentrun import (
    AgentRunSpec,
    Backend,
    Delivery,
    EffectiveLimits,
    EffectiveSandbox,
    GitLabTarget,
    Limits,
    Notice,
    Resolved,
    cut_message,
)
from hummingbird_operator.config import WorkflowEntry
from hummingbird_operator.errors import Invalid, NotFound
from hummingbird_operator.workflows import Workflow

if TYPE_CHECKING:
    from hummingbird_operator.config import Config
    from hummingbird_operator.workflows import Workflows

N = TypeVar("N", int, Decimal)

SUPPORTED = (Backend.K8SPOOL, Backend.K8S)
"""Backends that this version can claim; the schema already knows the others."""


_NO_WORKFLOW = Workflow("help", "", WorkflowEntry(prompt="none.md"), "")
"""A fixed answer has none; the name is the one that the schema wants and that no workflow may have."""

CUT = "spec.message is longer than 32 KiB: its end is cut off"


@dataclass(frozen=True)
class Order:
    """An accepted run, with everything that its steps need from the configuration."""

    workflow: Workflow
    resolved: Resolved
    target: GitLabTarget | None
    notes: bool
    """Whether there is a note to write."""
    internal: bool
    """Whether the note must be internal."""
    message: str
    message_cut: bool
    remarks: tuple[str, ...]
    """Sentences for the person who made the run: limits that were lowered to their ceiling."""
    most_runs: int = 0
    """Automatic runs of this workflow on one merge request."""
    notice: Notice | None = None
    """A fixed answer: no model, no sandbox."""


def resolve(spec: AgentRunSpec, config: Config, workflows: Workflows) -> Order:
    """The order that this spec means. Raises Invalid."""
    if spec.notice is not None:
        return _fixed_answer(spec, config, spec.notice)
    try:
        workflow = workflows.get(spec.workflow)
    except NotFound as error:
        raise Invalid("spec.workflow", str(error)) from error
    target = _target(spec, config)
    if target is not None and not workflow.admits(target.project):
        globs = ", ".join(workflow.entry.projects)
        text = f"workflow {workflow.name} is for the projects {globs}, not for {target.project}"
        raise Invalid("spec.target.gitlab.project", text)
    limits, remarks = _limits(spec, config, workflow)
    message, cut = cut_message(spec.message or "")
    return Order(
        workflow=workflow,
        resolved=Resolved(
            workflow_hash=workflow.hash,
            model=spec.model or workflow.entry.model or config.models.default,
            sandbox=_sandbox(spec, config, workflow),
            limits=limits,
            head_sha=target.sha if target else None,
        ),
        target=target,
        notes=target is not None and spec.delivery is not Delivery.NONE,
        internal=_internal(spec, config, target),
        message=message,
        message_cut=cut,
        remarks=(*remarks, *([CUT] if cut else [])),
        most_runs=_most_runs(config, target),
    )


def visibility(spec: AgentRunSpec, config: Config) -> bool | None:
    """Whether a note on the target must be internal; None where nothing may be written, not even what is wrong."""
    target = spec.target.gitlab if spec.target else None
    if target is None or config.gitlab is None or config.project(target.project) is None:
        return None
    return _internal(spec, config, target)


def _fixed_answer(spec: AgentRunSpec, config: Config, notice: Notice) -> Order:
    target = _target(spec, config)
    return Order(
        workflow=_NO_WORKFLOW,
        resolved=Resolved(),
        target=target,
        notes=spec.delivery is not Delivery.NONE,
        internal=_internal(spec, config, target),
        message=spec.message or "",
        message_cut=False,
        remarks=(),
        notice=notice,
    )


def _internal(spec: AgentRunSpec, config: Config, target: GitLabTarget | None) -> bool:
    project = config.project(target.project) if target else None
    return bool(project and project.internal_notes) or bool(spec.trigger and spec.trigger.internal)


def _most_runs(config: Config, target: GitLabTarget | None) -> int:
    project = config.project(target.project) if target else None
    return (project and project.max_runs_per_mr) or config.limits.max_runs_per_mr


def _target(spec: AgentRunSpec, config: Config) -> GitLabTarget | None:
    if spec.target is None:
        return None
    if spec.target.gitlab is None:
        raise Invalid("spec.target.github", "GitHub is not served by this version; use spec.target.gitlab")
    if config.gitlab is None:
        raise Invalid("spec.target.gitlab", "the operator's configuration has no section gitlab")
    target, where = spec.target.gitlab, "spec.target.gitlab.project"
    if config.project(target.project) is None:
        known = ", ".join(sorted(config.projects)) or "none"
        raise Invalid(where, f"{target.project} is not allowed; projects in the operator's configuration: {known}")
    return target


def _sandbox(spec: AgentRunSpec, config: Config, workflow: Workflow) -> EffectiveSandbox:
    asked = spec.sandbox.backend if spec.sandbox else None
    backend = asked or Backend(workflow.entry.sandbox or config.sandbox.backend)
    if backend not in SUPPORTED:
        where = "spec.sandbox.backend" if asked else f"workflows.{workflow.name}.sandbox"
        raise Invalid(where, f"{backend} is not served by this version; use {' or '.join(SUPPORTED)}")
    if backend is Backend.K8S and not config.sandbox.image:
        raise Invalid("sandbox.image", "the backend k8s needs an image in the operator's configuration")
    pool = (spec.sandbox and spec.sandbox.pool) or config.sandbox.pool
    return EffectiveSandbox(backend=backend, pool=pool if backend is Backend.K8SPOOL else None)


def _limits(spec: AgentRunSpec, config: Config, workflow: Workflow) -> tuple[EffectiveLimits, tuple[str, ...]]:
    """The lower of what was asked for and the ceiling; each lowered wish is said."""
    asked, top = spec.limits or Limits(), config.limits
    turns = min(workflow.entry.max_iterations or top.max_iterations, top.max_iterations)
    remarks: list[str] = []

    def lower(name: str, wish: N | None, default: N, ceiling: N) -> N:
        if wish is not None and wish > ceiling:
            remarks.append(f"spec.limits.{name}: {wish} is above the ceiling, {ceiling} is in force")
        return default if wish is None else min(wish, ceiling)

    in_force = EffectiveLimits(
        max_iterations=lower("maxIterations", asked.max_iterations, turns, top.max_iterations),
        context_tokens=lower("contextTokens", asked.context_tokens, top.context_tokens, top.context_tokens),
        max_cost_usd=lower("maxCostUSD", asked.max_cost_usd, top.max_cost_usd, top.max_cost_usd),
        timeout_seconds=lower(
            "timeoutSeconds", asked.timeout_seconds, top.run_timeout_seconds, top.run_timeout_seconds
        ),
    )
    return in_force, tuple(remarks)
