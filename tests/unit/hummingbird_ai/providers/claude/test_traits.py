from __future__ import annotations

import pytest

from hummingbird_ai.providers.claude.traits import Ephemeral, ephemeral_of, needs_release


@pytest.mark.parametrize(
    ("model", "way"),
    [
        ("claude-fable-5", Ephemeral.CLEAR_AT),
        ("claude-fable-5-1", Ephemeral.CLEAR_AT),
        ("claude-mythos-5-2", Ephemeral.CLEAR_AT),
        ("claude-opus-4-8", Ephemeral.CLEAR_AT),
        ("claude-opus-5", Ephemeral.CLEAR_AT),
        ("claude-opus-5-5@20261001", Ephemeral.CLEAR_AT),
        ("claude-sonnet-5-5", Ephemeral.CLEAR_AT),
        ("claude-haiku-5-5", Ephemeral.CLEAR_AT),
        ("claude-sonnet-5", Ephemeral.POPPED),
        ("claude-opus-4-7", Ephemeral.POPPED),
        ("claude-opus-4@20250514", Ephemeral.POPPED),
        ("claude-opus-4-20250514", Ephemeral.POPPED),
        ("claude-sonnet-4-6", Ephemeral.POPPED),
        ("claude-haiku-4-5@20251001", Ephemeral.POPPED),
        ("claude-3-5-haiku@20241022", Ephemeral.POPPED),
        ("claude-sonnet-6", Ephemeral.KEPT),
        ("claude-opus-5-6", Ephemeral.KEPT),
        ("claude-fable-4", Ephemeral.KEPT),
        ("claude-epic-5", Ephemeral.KEPT),
        ("claude-next", Ephemeral.KEPT),
    ],
)
def test_each_model_gets_passing_words_in_the_way_that_breaks_nothing_of_it(model: str, way: Ephemeral) -> None:
    assert ephemeral_of(model) is way


def test_up_to_4_5_a_model_is_known_by_its_release_only() -> None:
    without = ["claude-haiku-4-5", "claude-opus-4", "claude-sonnet-4-20250514", "claude-3-5-haiku"]
    assert all(needs_release(name) for name in without)
    assert not any(needs_release(f"{name}@20251001") for name in without)
    assert not any(needs_release(name) for name in ("claude-opus-4-6", "claude-haiku-5-5", "claude-next"))
