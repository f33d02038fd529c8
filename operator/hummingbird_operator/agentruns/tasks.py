"""One run as the engine sees it: everything that a thread needs, frozen, so that it looks nothing up."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from hummingbird_operator.agentruns.following import Question
from hummingbird_operator.agentruns.objects import loss, session_id
from hummingbird_operator.agentruns.resolve import Order
from hummingbird_operator.api import conditions as c
from hummingbird_operator.api.agentrun import render_target

if TYPE_CHECKING:
    from hummingbird_operator.agentruns.facts import Facts


@dataclass(frozen=True)
class Task:
    """One run, as the engine sees it."""

    run: str
    """Its uid."""
    name: str
    session: str
    resumes: bool
    """It names a session that another run made."""
    restore: bool
    """Its sandbox is not the one that the session left: the archive goes in first."""
    sandbox: str
    """The uid of its sandbox."""
    lost: str
    """Why the sandbox before that one was lost; empty for the first."""
    origin: str
    """Namespace and target: a session is resumed only where it was made."""
    order: Order
    head_sha: str | None
    seconds_left: float
    question: Question | None = None
    """The words of several replies, which it answers together; None: its own alone."""


def task_of(facts: Facts, now: datetime) -> Task:
    """The engine's view of a run that is accepted."""
    run, order = facts.run, facts.order
    assert isinstance(order, Order)  # noqa: S101 - decide asks for work only then
    ready = c.find(run.status.conditions, c.RunCondition.SANDBOX_READY)
    resolved, held = run.status.resolved or order.resolved, run.status.sandbox
    return Task(
        run=run.metadata.uid,
        name=run.metadata.name,
        session=session_id(run),
        resumes=run.spec.session is not None,
        restore=ready is None or ready.reason != c.Checkpoint.RECLAIMED,
        sandbox=(held.uid or held.name) if held else "",
        lost=loss(run),
        origin=f"{run.metadata.namespace}/{render_target(run.spec.target)}",
        order=order,
        head_sha=resolved.head_sha,
        seconds_left=(facts.deadline - now).total_seconds() if facts.deadline else 0.0,
    )
