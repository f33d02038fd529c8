"""The body of a run's note at each point of its life, from `delivery`'s pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hummingbird_operator.agentruns.objects import session_id
from hummingbird_operator.agentruns.resolve import Order
from hummingbird_operator.api import conditions as c
from hummingbird_operator.api.agentrun import Notice
from hummingbird_operator.delivery import bodies
from hummingbird_operator.delivery.markers import Marker
from hummingbird_operator.delivery.parts import Footer
from hummingbird_operator.errors import Invalid

if TYPE_CHECKING:
    from hummingbird_operator.agentruns.notebook import Head
    from hummingbird_operator.agentruns.work import Conversation
    from hummingbird_operator.api.agentrun import AgentRun
    from hummingbird_operator.workflows import Workflows

NO_TRANSCRIPT = "the session store, which has the transcript and all of a long answer"
STATES: dict[str, str] = {
    c.Checkpoint.COMPLETED: "done",
    c.Failure.CANCELLED: "cancelled",
    c.Success.SUPERSEDED: "superseded",
}
"""The marker's state by the run's outcome; any other is failed."""
UNFIT = {
    "spec.workflow": "There is no such workflow here (any more).",
    "spec.target.gitlab.project": "This workflow is not set up for this project.",
}
"""What the thread is told of a refusal, by the field that it names."""
UNFIT_OTHERWISE = "The run cannot be carried out as it was asked for."
CUT = "Your message was longer than 32 KiB: the agent has seen only its beginning."

MERGED_CUT = "The messages were longer than 32 KiB together: of the longest, the agent has seen only the beginning."


class NotePages:
    """Renders with `delivery.bodies`; `secrets` are the values that may never stand in a note."""

    def __init__(
        self,
        secrets: Callable[[], Sequence[str]],
        *,
        has_price: Callable[[str], bool],
        workflows: Workflows,
        by_comment: bool,
    ) -> None:
        """`by_comment`: replies to a note come in as events; else only an AgentRun goes on with a session."""
        self._secrets = secrets
        self._has_price = has_price
        self._workflows = workflows
        self._by_comment = by_comment

    def placeholder(self, run: AgentRun, order: Order) -> str:
        """What stands there while the agent works; of a notice, all that there is to say."""
        if order.notice is not None:
            return self._notice(order.notice, order, _marker(run, "done"))
        return bodies.placeholder(workflow=order.workflow.name, marker=_marker(run, "running"))

    def _notice(self, notice: Notice, order: Order, marker: Marker) -> str:
        project = order.target.project if order.target else ""
        commands = {
            name: workflow.entry.description
            for name, workflow in sorted(self._workflows.by_name.items())
            if workflow.admits(project)
        }
        if notice is Notice.HELP:
            return bodies.help_text(commands, marker=marker)
        if notice is Notice.UNKNOWN_COMMAND:
            return bodies.unknown_command(order.message, commands, marker=marker)
        return bodies.denied(marker=marker) if notice is Notice.DENIED else bodies.queue_full(marker=marker)

    def orphan(self, run: AgentRun, order: Order | Invalid) -> str:
        """What is known of a run whose workflow or project is configured no more, or that ended before its note.

        A refusal's own sentence names other projects, workflows and settings: it stands in the status, not here.
        """
        answered = c.find(run.status.conditions, c.RunCondition.ANSWERED)
        reason = answered.reason if answered else c.Failure.INVALID
        text = run.status.answer.text if run.status.answer else ""
        footer, secrets = self._footer(run, None), self._secrets()
        if reason == c.Checkpoint.COMPLETED and footer is not None:
            return bodies.answer(text, footer=footer, marker=_marker(run, "done"), secrets=secrets)
        said = f"{reason}: {answered.message}" if answered and reason != c.Failure.INVALID else _unfit(order)
        return bodies.failure(
            f"{said}\n\nWho runs Hummingbird here finds more with `{_describe(run)}`.",
            workflow=run.spec.workflow if isinstance(order, Order) else "",
            marker=_marker(run, STATES.get(reason, "failed")),
            partial=text,
            footer=footer,
            secrets=secrets,
        )

    def outcome(self, run: AgentRun, order: Order, said: Conversation | None, head: Head, *, prompt: bool) -> str:
        """The answer, or why there is none, with what was found until then."""
        answered = c.find(run.status.conditions, c.RunCondition.ANSWERED)
        reason = answered.reason if answered else c.Checkpoint.COMPLETED
        message = answered.message if answered else ""
        secrets = self._secrets()
        footer = self._footer(run, said, head, pipeline=order.workflow.entry.action == "pipeline")
        # without the store, the status still has the beginning of the answer
        kept = run.status.answer.text if run.status.answer else ""
        transcript, text = (said.transcript, said.result.text) if said else ("", kept)
        if reason == c.Checkpoint.COMPLETED and footer is not None:
            return bodies.answer(
                text,
                footer=footer,
                marker=_marker(run, "done"),
                transcript=transcript,
                reply_prompt=prompt,
                by_comment=self._by_comment,
                notices=_cuts(run, order, said),
                secrets=secrets,
            )
        if (words := _without_session(run, reason, message, secrets)) is not None:
            return words
        if reason == c.Success.SUPERSEDED:
            marker = _marker(run, "superseded")
            return bodies.superseded(
                marker=marker,
                newer_sha=head.sha,
                partial=text,
                footer=footer,
                transcript=transcript,
                secrets=secrets,
            )
        if reason == c.Failure.CANCELLED:
            marker = _marker(run, "cancelled")
            return bodies.cancelled(marker=marker, partial=text, footer=footer, transcript=transcript, secrets=secrets)
        if reason == c.Failure.TIMED_OUT and (seconds := _seconds(run)):
            marker = _marker(run, "failed")
            return bodies.timed_out(
                seconds, marker=marker, partial=text, footer=footer, transcript=transcript, secrets=secrets
            )
        return bodies.failure(
            f"{reason}: {message}\n\nWho runs Hummingbird here finds more with `{_describe(run)}`.",
            workflow=order.workflow.name,
            marker=_marker(run, "failed"),
            partial=text,
            footer=footer,
            transcript=transcript,
            secrets=secrets,
        )

    def short(self, run: AgentRun, order: Order, said: Conversation | None, head: Head) -> str:
        """The outcome where the whole of it is refused as too long: its beginning."""
        answered = c.find(run.status.conditions, c.RunCondition.ANSWERED)
        reason = answered.reason if answered else c.Checkpoint.COMPLETED
        text = said.result.text if said else (run.status.answer.text if run.status.answer else "")
        return bodies.too_long(
            marker=_marker(run, STATES.get(reason, "failed")),
            partial=text,
            footer=self._footer(run, said, head, pipeline=order.workflow.entry.action == "pipeline"),
            secrets=self._secrets(),
        )

    def _footer(
        self, run: AgentRun, said: Conversation | None, head: Head | None = None, *, pipeline: bool = False
    ) -> Footer | None:
        resolved, used = run.status.resolved, run.status.usage
        if said is None and used is None:
            return None
        model = (resolved and resolved.model) or ""
        sha = resolved.head_sha if resolved else None
        moved = [f"commits after {sha[:12]}"] if sha and head and head.sha and head.sha != sha else []
        if said is not None:
            result, usage = said.result, said.result.usage
            counted = (result.iterations, usage.total_input_tokens, usage.output_tokens, result.cost_usd)
        else:
            assert used is not None  # noqa: S101 - seen above
            tokens = used.total_tokens - used.output_tokens
            counted = (used.iterations, tokens, used.output_tokens, used.cost_usd)
        turns, input_tokens, output_tokens, cost_usd = counted
        return Footer(
            model=model,
            turns=turns,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            cost_usd=cost_usd,
            cost_is_ceiling=not self._has_price(model),
            sha=sha,
            incomplete=[*(said.result.incomplete if said else (NO_TRANSCRIPT,)), *moved],
            pipeline_green=pipeline and head is not None and head.pipeline_status == "success",
        )


def _without_session(run: AgentRun, reason: str, why: str, secrets: Sequence[str]) -> str | None:
    """What a reply is told whose session cannot go on; None for every other outcome."""
    marker = _marker(run, "failed")
    if reason == c.Failure.SESSION_NOT_FOUND:
        return bodies.session_expired(marker=marker)
    if reason == c.Failure.SESSION_NOT_SAVED:
        return bodies.session_never_saved(marker=marker, why=why.removeprefix("spec.session: "), secrets=secrets)
    if reason == c.Failure.SESSION_INTERNAL:
        return bodies.session_internal(marker=marker)
    if reason == c.Failure.SESSION_UNREADABLE:
        return bodies.session_unreadable(marker=marker, why=why, secrets=secrets)
    return None


def _cuts(run: AgentRun, order: Order, said: Conversation | None) -> list[str]:
    """What the people who asked must know of their words."""
    if run.status.merged:
        return [MERGED_CUT] if said is not None and said.cut else []
    return [CUT] if order.message_cut else []


def _unfit(order: Order | Invalid) -> str:
    """Why a run cannot be carried out, by the place of the fault alone."""
    return UNFIT.get(order.where, UNFIT_OTHERWISE) if isinstance(order, Invalid) else UNFIT_OTHERWISE


def _describe(run: AgentRun) -> str:
    return f"kubectl describe agentrun {run.metadata.name} -n {run.metadata.namespace}"


def _seconds(run: AgentRun) -> int | None:
    limits = run.status.resolved.limits if run.status.resolved else None
    return limits.timeout_seconds if limits else None


def _marker(run: AgentRun, state: str) -> Marker:
    if run.spec.notice is not None:  # no session: nobody can go on with a fixed answer, and no limit counts it
        return Marker(None, run=run.metadata.uid, key=run.metadata.name, state=state, notice=run.spec.notice)
    trigger, resolved = run.spec.trigger, run.status.resolved
    # only an automatic run, or a bare command, speaks for its commit
    automatic = trigger is not None and trigger.automatic
    speaks = run.spec.session is None and (automatic or not run.spec.message)
    return Marker(
        id=session_id(run),
        wf=run.spec.workflow,
        sha=resolved.head_sha if resolved and speaks else None,
        run=run.metadata.uid,
        key=run.metadata.name,
        state=state,
    )
