"""The next status of a run, for each checkpoint: pure, from the old one. Also the names that a run goes by."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from hummingbird_operator.api import conditions as c
from hummingbird_operator.api import labels
from hummingbird_operator.api.agentrun import (
    AgentRun,
    AgentRunStatus,
    RunnerRef,
    SandboxStatus,
    SessionStatus,
    UsageStatus,
    phase,
    render_target,
)

if TYPE_CHECKING:
    from hummingbird_operator.agentruns.resolve import Order
    from hummingbird_operator.sessions.state import LoopResult, Progress

AT_WORK = "the agent is at work"


def session_id(run: AgentRun) -> str:
    """The session of a run: the one it names, else its own uid."""
    return run.spec.session or run.metadata.uid


def lane(run: AgentRun) -> str:
    """Runs of one workflow on one target exclude each other; empty without a target."""
    return labels.lane_of(render_target(run.spec.target), run.spec.workflow)


def commit(run: AgentRun) -> str:
    """The commit that the run is about; empty where nothing says it yet."""
    target = run.spec.target.gitlab if run.spec.target else None
    resolved = run.status.resolved
    return (target and target.sha) or (resolved and resolved.head_sha) or ""


def missing_labels(run: AgentRun) -> dict[str, str]:
    """What a run made by hand lacks of the labels that ingestors set: people select by them, the operator does not."""
    wanted = {labels.WORKFLOW: run.spec.workflow, labels.SESSION: session_id(run), labels.LANE: lane(run)}
    return {key: value for key, value in wanted.items() if value and key not in run.metadata.labels}


def with_status(
    run: AgentRun, now: datetime, *conditions: tuple[str, c.Status, str, str], **changes: Any
) -> AgentRunStatus:
    """The status with those conditions `(type, status, reason, message)` and fields changed; phase and message too."""
    found = run.status.conditions
    for type_, status, reason, message in conditions:
        # Without observedGeneration: a spec's meaning never changes, and with it `kubectl wait` would hang for ever
        # on a finished run whose ttlSecondsAfterFinished somebody edits.
        found = c.with_condition(found, type_, status, reason, message, now=now, generation=0)
    # the last condition given is the news; its sentence is the one that people see first
    news = {"message": conditions[-1][3]} if conditions else {}
    values = {
        "conditions": found,
        "phase": phase(found),
        "observed_generation": run.metadata.generation,
        **news,
        **changes,
    }
    return run.status.model_copy(update=values)


def taken_over(run: AgentRun, me: RunnerRef, now: datetime) -> AgentRunStatus:
    """The first write of a process: from now on writes of any other one fail."""
    return with_status(
        run, now, runner=me, attempts=run.status.attempts + 1, target=render_target(run.spec.target) or None
    )


def held_up(run: AgentRun, me: RunnerRef, why: str, now: datetime) -> AgentRunStatus | None:
    """It cannot even be accepted for now; None where the status says so already."""
    found = c.find(run.status.conditions, c.RunCondition.ACCEPTED)
    if found is not None and found.message == why and run.status.runner == me:
        return None
    return with_status(
        run,
        now,
        (c.RunCondition.ACCEPTED, "Unknown", c.Checkpoint.RETRYING, why),
        (c.RunCondition.SUCCEEDED, "Unknown", c.Working.QUEUED, why),
        runner=me,
        attempts=run.status.attempts + (0 if run.status.runner == me else 1),
        target=render_target(run.spec.target) or None,
    )


def accepted(run: AgentRun, me: RunnerRef, order: Order, head_sha: str | None, now: datetime) -> AgentRunStatus:
    """Take-over and Accepted in one write: a new run costs one call less."""
    resolved = order.resolved.model_copy(update={"head_sha": head_sha or order.resolved.head_sha})
    message = "; ".join(order.remarks) or f"workflow {order.workflow.name}, model {resolved.model}"
    return with_status(
        run,
        now,
        (c.RunCondition.ACCEPTED, "True", c.Checkpoint.ACCEPTED, message),
        (c.RunCondition.SUCCEEDED, "Unknown", c.Working.QUEUED, "accepted"),
        runner=me,
        attempts=run.status.attempts + (0 if run.status.runner == me else 1),
        resolved=resolved,
        target=render_target(run.spec.target) or None,
        session=SessionStatus(id=session_id(run)),
    )


def refused(run: AgentRun, me: RunnerRef, message: str, now: datetime) -> AgentRunStatus:
    """The spec cannot be carried out: one write says so and ends the run, unless a person waits to be told."""
    known = {"runner": me, "target": render_target(run.spec.target) or None}
    refusal = (c.RunCondition.ACCEPTED, "False", c.Failure.INVALID, message)
    if asked_in_a_comment(run):
        answered = (c.RunCondition.ANSWERED, "False", c.Failure.INVALID, message)
        return with_status(
            run, now, refusal, answered, (c.RunCondition.SUCCEEDED, "Unknown", c.Working.DELIVERING, message), **known
        )
    return with_status(
        run,
        now,
        refusal,
        (c.RunCondition.SUCCEEDED, "False", c.Failure.INVALID, message),
        (c.RunCondition.FINISHED, "True", c.Failure.INVALID, message),
        completion_time=now,
        **known,
    )


def asked_in_a_comment(run: AgentRun) -> bool:
    """Somebody asked on the merge request, and looks for the answer there."""
    return run.spec.target is not None and run.spec.trigger is not None and run.spec.trigger.note_id is not None


def waiting(run: AgentRun, reason: str, message: str, now: datetime) -> AgentRunStatus | None:
    """Still working, and why it does not move; None where the status says so already."""
    found = c.find(run.status.conditions, c.RunCondition.SUCCEEDED)
    if found and (found.reason, found.message) == (reason, message):
        return None
    return with_status(run, now, (c.RunCondition.SUCCEEDED, "Unknown", reason, message))


def sandbox_ready(run: AgentRun, sandbox: SandboxStatus, reason: str, start: datetime, now: datetime) -> AgentRunStatus:
    """The sandbox is this run's, and work begins."""
    where = f"{sandbox.backend} {sandbox.name}"
    return with_status(
        run,
        now,
        (c.RunCondition.SANDBOX_READY, "True", reason, where + (f"; {sandbox.lost}" if sandbox.lost else "")),
        (c.RunCondition.SUCCEEDED, "Unknown", c.Working.RUNNING, AT_WORK),
        sandbox=sandbox,
        start_time=run.status.start_time or start,
    )


def sandbox_lost(run: AgentRun, why: str, now: datetime) -> AgentRunStatus:
    """The first sandbox is gone: another one is claimed, and the work goes on in it."""
    held = run.status.sandbox
    lost = held and SandboxStatus(backend=held.backend, name=held.name, uid=held.uid, lost=why)
    return with_status(
        run,
        now,
        (c.RunCondition.SANDBOX_READY, "False", c.Failure.SANDBOX_LOST, why),
        (c.RunCondition.SUCCEEDED, "Unknown", c.Working.WAITING_FOR_SANDBOX, f"{why}; it is replaced, once"),
        sandbox=lost,
    )


def loss(run: AgentRun) -> str:
    """Why the run's first sandbox was lost; empty where it was not. From the condition: a CRD that is older than this

    process drops fields that it does not know, and a run would be given sandboxes without end.
    """
    ready = c.find(run.status.conditions, c.RunCondition.SANDBOX_READY)
    if ready is None or ready.reason not in (c.Failure.SANDBOX_LOST, c.Checkpoint.REPLACED):
        return ""
    told = ready.message if ready.reason == c.Failure.SANDBOX_LOST else ""
    return (run.status.sandbox and run.status.sandbox.lost) or told or "the sandbox was lost"


def concluded(run: AgentRun, reason: str, message: str, now: datetime, **changes: Any) -> AgentRunStatus:
    """The outcome is settled: no more model calls. Reason Completed is an answer, any other a failure."""
    answered = reason == c.Checkpoint.COMPLETED
    gone: tuple[tuple[str, c.Status, str, str], ...] = ()
    if reason == c.Failure.SANDBOX_LOST:  # or the condition would name a sandbox that is gone, for ever
        gone = ((c.RunCondition.SANDBOX_READY, "False", c.Failure.SANDBOX_LOST, message),)
    return with_status(
        run,
        now,
        *gone,
        (c.RunCondition.ANSWERED, "True" if answered else "False", reason, message),
        (c.RunCondition.SUCCEEDED, "Unknown", c.Working.DELIVERING, message),
        **changes,
    )


def finished(run: AgentRun, now: datetime) -> AgentRunStatus:
    """The last write: Succeeded with its reason, and Finished."""
    reason, message = outcome(run)
    succeeded: c.Status = "True" if reason in set(c.Success) else "False"
    return with_status(
        run,
        now,
        (c.RunCondition.SUCCEEDED, succeeded, reason, message),
        (c.RunCondition.FINISHED, "True", reason, message),
        completion_time=now,
    )


def outcome(run: AgentRun) -> tuple[str, str]:
    """How the run ends: an answer that nobody could be given is a failure of its own."""
    delivered = c.find(run.status.conditions, c.RunCondition.DELIVERED)
    answered = c.find(run.status.conditions, c.RunCondition.ANSWERED)
    if delivered and delivered.status == "False":
        return delivered.reason, delivered.message
    if answered and answered.status == "False":
        return answered.reason, answered.message
    return c.Success.COMPLETED, answered.message if answered else "nothing was asked"


def progressed(run: AgentRun, last: Progress, waiting: str, now: datetime) -> AgentRunStatus:
    """What is used so far, and whether the run works or waits for its model."""
    succeeded = c.find(run.status.conditions, c.RunCondition.SUCCEEDED)
    news: list[tuple[str, c.Status, str, str]] = []
    if waiting:
        news = [(c.RunCondition.SUCCEEDED, "Unknown", c.Working.WAITING_FOR_MODEL, waiting)]
    elif succeeded is not None and succeeded.reason == c.Working.WAITING_FOR_MODEL:
        news = [(c.RunCondition.SUCCEEDED, "Unknown", c.Working.RUNNING, AT_WORK)]
    return with_status(run, now, *news, usage=usage_of(last))


def usage_of(so_far: Progress | LoopResult) -> UsageStatus:
    """What was used, as the status says it."""
    used = so_far.usage
    return UsageStatus(
        iterations=so_far.iterations,
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        cache_read_tokens=used.cache_read_tokens,
        cache_write_tokens=used.cache_write_tokens,
        total_tokens=used.total_tokens,
        cost_usd=so_far.cost_usd,
    )
