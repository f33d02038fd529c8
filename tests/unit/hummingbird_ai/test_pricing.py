from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hummingbird_ai.messages import Usage
from hummingbird_ai.pricing import (
    DEFAULT_CONTEXT_WINDOW,
    MODEL_PRICING,
    context_window,
    estimate_cost,
    has_price,
    parse_prices,
    worst_case_cost,
)

TODAY = date(2026, 11, 30)
MILLION = 1_000_000
counts = st.integers(0, 10**7)


def test_the_four_counters_are_priced_each_at_its_own_rate() -> None:
    usage = Usage(input_tokens=MILLION, output_tokens=MILLION, cache_read_tokens=MILLION)

    assert estimate_cost("gemini-3.8-flash", usage, on=TODAY) == Decimal("4.575")


def test_a_price_changes_on_its_day() -> None:
    usage = Usage(input_tokens=MILLION)

    assert estimate_cost("gemini-4-argon", usage, on=date(2026, 11, 30)) == 2
    assert estimate_cost("gemini-4-argon", usage, on=date(2026, 12, 1)) == 4
    assert estimate_cost("gemini-4-argon", usage, on=date(2020, 1, 1)) == 2


def test_the_higher_tier_prices_the_whole_request_and_counts_the_cached_part_of_the_prompt() -> None:
    at_the_line = Usage(input_tokens=100_000, cache_read_tokens=100_000, output_tokens=MILLION)
    above = Usage(input_tokens=100_001, cache_read_tokens=100_000, output_tokens=MILLION)

    assert estimate_cost("gemini-3.1-pro", at_the_line, on=TODAY) == Decimal("0.2") + Decimal("0.02") + 12
    assert estimate_cost("gemini-3.1-pro", above, on=TODAY) == Decimal("0.400004") + Decimal("0.04") + 18


def test_a_single_region_costs_its_uplift_where_the_model_has_one() -> None:
    usage = Usage(input_tokens=MILLION)

    assert estimate_cost("gemini-3.5-flash", usage, region="eu", on=TODAY) == Decimal("1.65")
    assert estimate_cost("gemini-2.5-flash", usage, region="us-central1", on=TODAY) == Decimal("0.3")


@pytest.mark.parametrize(
    "name",
    [
        "gemini-3.8-flash-001",
        "models/gemini-3.8-flash",
        "publishers/google/models/gemini-3.8-flash",
        "gemini-3.8-flash-preview-09-2026",
        "gemini-3.8-flash-latest",
        "GEMINI-3.8-FLASH",
    ],
)
def test_releases_and_long_names_of_a_model_have_its_price(name: str) -> None:
    assert estimate_cost(name, Usage(input_tokens=MILLION), on=TODAY) == Decimal("0.75")


@pytest.mark.parametrize("name", ["gemini-3.8-flash-lite", "gemini-3.8", "gemini-99-flash", ""])
def test_a_model_that_only_looks_alike_has_no_price(name: str) -> None:
    assert estimate_cost(name, Usage(1, 1, 1, 1)) is None
    assert not has_price(name)


@given(counts, counts)
def test_a_worst_case_is_never_less_than_what_a_call_costs(input_tokens: int, output_tokens: int) -> None:
    for name in MODEL_PRICING:
        worst = worst_case_cost(name, input_tokens=input_tokens, max_output_tokens=output_tokens, on=TODAY)
        for read in (0, input_tokens // 2, input_tokens):
            usage = Usage(input_tokens - read, output_tokens, read)
            for region in ("global", "eu"):
                cost = estimate_cost(name, usage, region=region, on=TODAY)
                assert cost is not None
                assert cost <= worst


def test_a_model_without_a_price_counts_at_its_providers_highest_rate() -> None:
    worst = worst_case_cost("gemini-99", input_tokens=MILLION, max_output_tokens=0, region="global", on=TODAY)

    assert worst == max(
        price.rate(MILLION, TODAY).input for price in MODEL_PRICING.values() if price.provider == "google"
    )
    assert worst_case_cost("other-model", input_tokens=1, max_output_tokens=1) > 0


def test_prices_of_the_configuration_add_and_override() -> None:
    prices = {"gemini-99": {"input": "1", "output": 2}, "gemini-3.8-flash": {"input": Decimal("0.5"), "output": "1"}}
    usage = Usage(input_tokens=MILLION, cache_read_tokens=MILLION)

    assert estimate_cost("gemini-99", usage, prices=prices) == 2
    assert estimate_cost("gemini-3.8-flash-001", usage, prices=parse_prices(prices)) == 1
    assert has_price("gemini-99", prices)


@pytest.mark.parametrize(
    ("price", "problem"),
    [
        ({"input": "1"}, "output"),
        ({"input": "-1", "output": "1"}, r"m\.input"),
        ({"input": "NaN", "output": "1"}, r"m\.input"),
        ({"input": "1", "output": "cheap"}, r"m\.output"),
        ({"input": "1", "output": "1", "chache_read": "1"}, "chache_read"),
    ],
)
def test_a_price_that_cannot_be_read_names_its_model_and_field(price: dict[str, str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_prices({"m": price})


def test_every_shipped_price_names_its_source_and_is_complete() -> None:
    for name, price in MODEL_PRICING.items():
        assert "2026-11-30" in price.source, name
        for rate in price.rates:
            assert rate.output > rate.input > rate.cache_read > 0, name


def test_an_unknown_model_has_a_window_that_every_model_has() -> None:
    assert context_window("gemini-3.8-flash") == 1_048_576
    assert context_window("gemini-99") == DEFAULT_CONTEXT_WINDOW
