from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hummingbird_ai.messages import Finish, ModelResponse, ToolCall, Usage

counts = st.integers(0, 10**9)
usages = st.builds(Usage, counts, counts, counts, counts, counts)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
arguments = st.dictionaries(st.text(), json_values, max_size=3)
responses = st.builds(
    ModelResponse,
    text=st.text(),
    tool_calls=st.lists(st.builds(ToolCall, st.text(), st.text(), arguments), max_size=3).map(tuple),
    raw_content=st.none() | arguments,
    usage=usages,
    finish=st.sampled_from(Finish),
    finish_reason=st.text(),
    model_version=st.text(),
    cost_usd=st.none() | st.decimals(allow_nan=False, allow_infinity=False),
)


@given(responses)
def test_a_response_comes_back_equal_from_its_json_record(response: ModelResponse) -> None:
    assert ModelResponse.from_dict(json.loads(json.dumps(response.to_dict()))) == response


@given(usages, usages)
def test_counters_add_and_the_context_is_that_of_the_later_pass(first: Usage, second: Usage) -> None:
    both = first + second

    assert both.total_tokens == first.total_tokens + second.total_tokens
    assert both.total_tokens == both.total_input_tokens + both.output_tokens
    assert both.context_tokens == second.context_tokens


@pytest.mark.parametrize("record", [{}, {"cost_usd": "much"}, {**ModelResponse().to_dict(), "cost_usd": "much"}])
def test_a_record_of_another_shape_is_a_value_error(record: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="not a recorded model response"):
        ModelResponse.from_dict(record)


def test_a_response_is_usable_with_text_or_calls_only() -> None:
    assert ModelResponse(text="a").usable
    assert ModelResponse(tool_calls=(ToolCall("1", "run", {}),)).usable
    assert not ModelResponse(text=" \n").usable


def test_a_cost_keeps_every_digit_in_its_record() -> None:
    cost = Decimal("0.000000123400")

    assert str(ModelResponse.from_dict(ModelResponse(cost_usd=cost).to_dict()).cost_usd) == str(cost)
