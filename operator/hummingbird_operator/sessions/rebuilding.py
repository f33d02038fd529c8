"""A conversation from a run's journal: what the run's save would have stored, where nobody came to save it.

The same steps as the loop's, but nothing is bought, run or written here: turns without a record are the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hummingbird_ai.abort import Abort
from hummingbird_ai.messages import Content, ModelAdapter, ToolCall
from hummingbird_operator.errors import Aborted
from hummingbird_operator.sessions.budget import WorstCase
from hummingbird_operator.sessions.journal import RunJournal
from hummingbird_operator.sessions.outcomes import Outcome
from hummingbird_operator.sessions.records import Opening, RecordedAnswer, RecordedResponse
from hummingbird_operator.sessions.session import Conversation, SavedSession
from hummingbird_operator.sessions.state import LoopResult, State
from hummingbird_operator.sessions.turns import recalled, request_bytes


@dataclass(frozen=True)
class Rebuilt:
    """The conversation as it is saved, and how its loop ended, as far as the journal knows."""

    conversation: Conversation
    result: LoopResult


def rebuilt(
    journal: RunJournal,
    opening: Opening,
    base: SavedSession | None,
    model: ModelAdapter,
    worst_case: WorstCase,
    abort: Abort | None = None,
) -> Rebuilt:
    """All that the journal holds of the run, behind `base`. Raises Invalid for what cannot be read, Unavailable.

    Calls without results get an error each, in the words of the run's recorded end: no provider takes a history
    in which they stay open. `abort` ends it between two turns: Aborted.
    """
    before = base.restored_by(model.from_canonical) if base else []
    system, tools = (base.system_prompt, base.tools) if base else (opening.system, opening.tools)
    contents = [*before, model.make_user_content(opening.said)]
    restored = base.tokens_for(opening.model) if base else 0
    state = State.begin(contents, request_bytes(system, tools), restored)
    ended = journal.answer()
    _replay(state, journal, model, worst_case, abort or Abort())
    if state.outcome is None:
        state.broken_off = state.pending is not None
        state.end(*_end(ended))
    result = state.result(_Responder(model))
    conversation = Conversation(
        contents=model.to_canonical(result.contents),
        system_prompt=system,
        tools=tools,
        workflow=opening.workflow,
        workflow_hash=opening.workflow_hash,
        run=journal.run,
        context_tokens=result.context_tokens,
        origin=opening.origin,
        internal=journal.internal() or (base is not None and base.internal),
    )
    return Rebuilt(conversation, result if ended is None else ended_as(result, ended))


@dataclass(frozen=True)
class _Responder:
    """Implements state.Responder."""

    model: ModelAdapter

    def respond(self, calls: Sequence[ToolCall], results: Sequence[dict[str, Any]]) -> Content:
        return self.model.make_tool_responses(calls, results)


def _replay(state: State, journal: RunJournal, model: ModelAdapter, worst_case: WorstCase, abort: Abort) -> None:
    """Up to the loop's end, or to the first turn of which something is missing."""
    while state.outcome is None:
        if abort.is_set():
            raise Aborted(abort.reason or "Cancelled")
        n = state.iterations + 1
        recorded = journal.response(n)
        if recorded is None:
            return
        _check_answer(n, recorded, journal, model)
        state.cost_usd += journal.lost(n, recorded)
        state.take(recalled(recorded, worst_case))
        if state.calls:
            results = journal.results(n, len(state.calls))
            if results is None:
                return
            state.add(_Responder(model), results)


_DAMAGED = (ValueError, TypeError, LookupError, AttributeError)
"""What an adapter raises for content that is not its own: it trusts what it made itself."""


def _check_answer(n: int, recorded: RecordedResponse, journal: RunJournal, model: ModelAdapter) -> None:
    """Before it is part of a session: one that nobody can read would end the conversation for good."""
    content = recorded.response.raw_content
    try:
        model.from_canonical(model.to_canonical([content] if content is not None else []))
    except _DAMAGED as error:
        raise journal.unreadable(n, error) from error


def _end(ended: RecordedAnswer | None) -> tuple[Outcome, str]:
    if ended is None:
        return Outcome.SHUTTING_DOWN, str(Aborted(Outcome.SHUTTING_DOWN.value))
    return Outcome(ended.outcome), ended.message


def ended_as(result: LoopResult, ended: RecordedAnswer) -> LoopResult:
    """The result of a replay, with what the run itself recorded of its end."""
    return replace(
        result,
        outcome=Outcome(ended.outcome),
        text=ended.text,
        usage=ended.usage,
        cost_usd=ended.cost_usd,
        iterations=ended.iterations,
        message=ended.message,
        incomplete=ended.incomplete,
    )
