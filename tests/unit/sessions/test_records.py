"""Every field of what is kept comes back: a record that passes one over would lose figures without a word."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from decimal import Decimal

from hummingbird_ai.messages import Finish, ModelResponse, Source, ToolCall, ToolDef, Usage
from hummingbird_operator.sessions.outcomes import Outcome
from hummingbird_operator.sessions.records import (
    Opening,
    Paid,
    RecordedAnswer,
    RecordedResponse,
    answer_data,
    answer_in,
    opening_in,
    opening_record,
    response_in,
    response_record,
)

USAGE = Usage(**{each.name: number for number, each in enumerate(fields(Usage), 1)})
PAID = Decimal("0.0123")


def is_full(value: object) -> bool:
    """None of its fields is left at its default, so that each would be missed."""
    return all(
        each.default is MISSING or getattr(value, each.name) != each.default
        for each in fields(value)  # type: ignore[arg-type] # a dataclass
    )


def test_an_answer_comes_back_with_every_field() -> None:
    answer = RecordedAnswer(Outcome.BUDGET_EXHAUSTED, "So far.", "no money", 3, PAID, USAGE, ("a log",))
    assert is_full(answer)
    assert answer_in("k", answer_data(answer)) == answer


def test_a_response_comes_back_with_every_field() -> None:
    response = ModelResponse(
        text="Look.",
        tool_calls=(ToolCall("1", "sandbox_exec", {"command": "ls"}),),
        raw_content={"role": "model"},
        usage=USAGE,
        finish=Finish.TOOL_CALLS,
        finish_reason="tool_use",
        model_version="m-1",
        cost_usd=PAID,
        sources=(Source("https://example.com", "a page"),),
    )
    recorded = RecordedResponse(response, final=True, attempt=2, rejected=Paid(USAGE, PAID))
    assert is_full(response)
    assert is_full(USAGE)
    assert response_in("k", json.loads(json.dumps(response_record(recorded)))) == recorded


def test_an_opening_comes_back_with_every_field() -> None:
    opening = Opening(
        "run", "w", "h", "here", "m", "base", "Why?", 4, "Look.", (ToolDef("t", "does", {"type": "object"}),)
    )
    assert is_full(opening)
    record = {"worst_case_usd": "1", "opening": opening_record(opening)}
    assert opening_in("k", json.loads(json.dumps(record))) == opening
