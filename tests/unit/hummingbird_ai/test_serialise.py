from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hummingbird_ai.serialise import clean, encode

# every string, lone surrogates included, and every float
texts = st.text(st.characters(exclude_categories=()))
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=10,
)


@given(anything)
def test_whatever_a_tool_returns_becomes_valid_utf8_json_and_stays_unchanged(value: Any) -> None:
    """Report 17: lone surrogates and NaN in any string, key or number."""
    before = copy.deepcopy(value)

    data = encode(value)

    json.loads(data.decode(), parse_constant=pytest.fail)
    assert repr(value) == repr(before)


@given(anything)
def test_equal_input_gives_equal_bytes_and_cleaning_twice_changes_nothing(value: Any) -> None:
    assert encode(value) == encode(copy.deepcopy(value))
    assert clean(clean(value)) == clean(value)


def test_lone_surrogates_become_replacement_characters_and_pairs_are_joined() -> None:
    assert encode({"\ud800": "a\udc00b\ud83d\ude00"}).decode() == '{"\ufffd":"a\ufffdb😀"}'


def test_numbers_that_json_lacks_travel_by_name() -> None:
    assert encode([float("nan"), float("inf"), float("-inf")]) == b'["NaN","Infinity","-Infinity"]'


def test_a_value_without_a_json_form_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="bytes"):
        clean({"data": b"raw"})
