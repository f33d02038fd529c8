from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hummingbird_ai.messages import Usage
from hummingbird_ai.pricing import (
    DEFAULT_CONTEXT_WINDOW,
    DEFAULT_MINIMUM_CACHEABLE_TOKENS,
    MODEL_PRICING,
    ModelPrice,
    Rate,
    context_window,
    estimate_cost,
    find_price,
    has_price,
    max_output_tokens,
    minimum_cacheable_tokens,
    parse_prices,
    worst_case_cost,
)

TODAY = date(2026, 11, 30)
MILLION = 1_000_000
LINES = sorted({rate.above_tokens for price in MODEL_PRICING.values() for rate in price.rates})
CHANGES = sorted({rate.start for price in MODEL_PRICING.values() for rate in price.rates} - {date.min})
counts = st.integers(0, 10**7)
prompts = counts | st.sampled_from(LINES).flatmap(lambda line: st.integers(max(0, line - 2), line + 2))
names = st.sampled_from(sorted(MODEL_PRICING))
days = st.dates(date(2025, 1, 1), date(2028, 1, 1)) | st.builds(
    lambda day, more: day + timedelta(days=more), st.sampled_from(CHANGES), st.integers(-2, 2)
)


@st.composite
def usages(draw: st.DrawFn, prompt: int | None = None, output: int | None = None) -> Usage:
    """What our adapters can report, with a prompt of that many tokens in whatever parts."""
    total = draw(prompts) if prompt is None else prompt
    read = draw(st.integers(0, total))
    written = draw(st.integers(0, total - read))
    out = draw(counts) if output is None else output
    return Usage(total - read - written, out, read, written, web_searches=draw(st.integers(0, 20)))


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
        "gemini-3.8-flash@default",
    ],
)
def test_releases_and_long_names_of_a_model_have_its_price(name: str) -> None:
    assert estimate_cost(name, Usage(input_tokens=MILLION), on=TODAY) == Decimal("0.75")


@pytest.mark.parametrize(
    ("name", "bare"),
    [
        ("claude-haiku-4-5@20251001", "claude-haiku-4-5"),
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("publishers/anthropic/models/claude-opus-5-5", "claude-opus-5-5"),
        ("claude-opus-5@20260101", "claude-opus-5"),
        ("claude-fable-5-1", "claude-fable-5-1"),
    ],
)
def test_a_dated_release_of_claude_is_its_model_and_a_minor_version_is_another(name: str, bare: str) -> None:
    assert find_price(name) is MODEL_PRICING[bare]


@pytest.mark.parametrize(
    "name", ["claude-opus-5-6", "claude-opus-5-5-5", "gemini-3.8-flash-lite", "gemini-3.8", "gemini-99-flash", ""]
)
def test_a_model_that_only_looks_alike_has_no_price(name: str) -> None:
    assert estimate_cost(name, Usage(1, 1, 1, 1)) is None
    assert not has_price(name)


@given(st.data(), names, days, st.sampled_from(["global", "eu", "us-east5"]), st.booleans(), st.booleans())
def test_a_worst_case_is_never_less_than_what_a_call_costs(
    data: st.DataObject, name: str, day: date, region: str, told: bool, past_midnight: bool
) -> None:
    """Whatever was cached, wherever it ran if nobody said where, and on the next day if it went on until then."""
    usage = data.draw(usages())
    worst = worst_case_cost(
        name,
        input_tokens=usage.total_input_tokens + data.draw(st.integers(0, 1000)),
        max_output_tokens=usage.output_tokens + data.draw(st.integers(0, 1000)),
        web_searches=usage.web_searches + data.draw(st.integers(0, 3)),
        region=region if told else None,
        on=day,
    )
    cost = estimate_cost(name, usage, region=region, on=day + timedelta(days=past_midnight))

    assert cost is not None
    assert cost <= worst


@given(names, prompts, counts, days)
def test_a_worst_case_grows_with_every_token(name: str, prompt: int, output: int, day: date) -> None:
    def worst(more_in: int = 0, more_out: int = 0, searches: int = 0) -> Decimal:
        return worst_case_cost(
            name, input_tokens=prompt + more_in, max_output_tokens=output + more_out, web_searches=searches, on=day
        )

    assert worst() < worst(more_in=1)
    assert worst() < worst(more_out=1)
    assert worst() < worst(searches=1) <= worst(searches=2)


@given(st.data(), names, days)
def test_no_token_and_no_search_makes_a_request_cheaper(data: st.DataObject, name: str, day: date) -> None:
    usage = data.draw(usages())
    one_more = data.draw(
        st.sampled_from([Usage(1), Usage(0, 1), Usage(0, 0, 1), Usage(0, 0, 0, 1), Usage(web_searches=1)])
    )
    before, after = (estimate_cost(name, item, on=day) for item in (usage, usage + one_more))

    assert before is not None
    assert after is not None
    assert before <= after


@given(usages(), usages())
def test_the_cost_of_passes_at_one_rate_adds_up_exactly(first: Usage, second: Usage) -> None:
    for price in MODEL_PRICING.values():
        rate = price.rates[-1]
        assert rate.cost(first) + rate.cost(second) == rate.cost(first + second)


@given(usages(), st.integers(0, 10**7))
def test_the_four_counters_add_up(usage: Usage, hour: int) -> None:
    """Report 31: each token is in one counter; the hour's writes are a part of the writes and cost once."""
    parts = [
        Usage(usage.input_tokens),
        Usage(0, usage.output_tokens),
        Usage(0, 0, usage.cache_read_tokens),
        Usage(0, 0, 0, usage.cache_write_tokens, cache_write_1h_tokens=min(hour, usage.cache_write_tokens)),
    ]
    whole = sum(parts, Usage())
    rate = MODEL_PRICING["claude-opus-5-5"].rates[0]

    assert sum(part.total_tokens for part in parts) == whole.total_tokens == usage.total_tokens
    assert sum((rate.cost(part) for part in parts), Decimal()) == rate.cost(whole)


def test_a_write_for_an_hour_costs_more_than_one_for_five_minutes() -> None:
    short = Usage(cache_write_tokens=MILLION)
    mixed = Usage(cache_write_tokens=MILLION, cache_write_1h_tokens=MILLION // 2)

    assert estimate_cost("claude-opus-5-5", short) == 5
    assert estimate_cost("claude-opus-5-5", mixed) == Decimal("6.5")


def test_reads_of_sonnet_5_5_got_cheaper_on_a_day() -> None:
    usage = Usage(cache_read_tokens=MILLION)

    assert estimate_cost("claude-sonnet-5-5", usage, on=date(2026, 10, 6)) == Decimal("0.2")
    assert estimate_cost("claude-sonnet-5-5", usage, on=date(2026, 10, 7)) == Decimal("0.1")


def test_the_tier_of_haiku_5_5_counts_the_whole_prompt_and_prices_the_output_too() -> None:
    at_the_line = Usage(20_000, 1000, 50_000, 30_000)
    above = Usage(20_000, 1000, 50_000, 30_001)

    assert estimate_cost("claude-haiku-5-5", at_the_line) == Decimal("0.002") + Decimal("0.0005") + Decimal(
        "0.0005"
    ) + Decimal("0.00375")
    assert estimate_cost("claude-haiku-5-5", above) == Decimal("0.01") + Decimal("0.0025") + Decimal(
        "0.0025"
    ) + Decimal("0.018750625")


@pytest.mark.parametrize(
    ("model", "searches", "fee"),
    [
        ("claude-opus-5-5", 1, "0.01"),
        ("claude-opus-5-5", 3, "0.03"),
        ("gemini-3.8-flash", 3, "0.042"),
        ("gemini-2.5-pro", 1, "0.035"),
        ("gemini-2.5-pro", 3, "0.035"),
        ("gemini-2.5-pro", 0, "0"),
    ],
)
def test_searches_cost_by_the_piece_or_once_a_request_and_the_same_in_every_region(
    model: str, searches: int, fee: str
) -> None:
    usage = Usage(web_searches=searches)

    assert estimate_cost(model, usage, region="eu") == Decimal(fee)
    assert worst_case_cost(model, input_tokens=0, max_output_tokens=0, web_searches=searches) == Decimal(fee)


def test_a_search_whose_fee_nobody_knows_has_no_price_but_a_worst_case() -> None:
    prices = {"other-model": {"input": "1", "output": "1"}}

    assert estimate_cost("other-model", Usage(1), prices=prices) is not None
    assert estimate_cost("other-model", Usage(1, web_searches=1), prices=prices) is None
    worst = worst_case_cost("other-model", input_tokens=0, max_output_tokens=0, web_searches=1, prices=prices)
    assert worst == Decimal("0.035")


def test_a_tier_below_which_there_is_no_rate_prices_small_prompts_too() -> None:
    rate = Rate(Decimal(1), Decimal(1), Decimal(1), Decimal(1), Decimal(1), above_tokens=100)

    assert ModelPrice("", (rate,), "here").rate(10, TODAY) is rate


def test_a_call_that_ends_after_midnight_is_held_back_for_at_the_next_days_rate() -> None:
    """Gemini 4 Argon doubles on 2026-12-01; a reservation made a minute before must cover it."""
    worst = worst_case_cost(
        "gemini-4-argon", input_tokens=MILLION, max_output_tokens=MILLION, region="global", on=date(2026, 11, 30)
    )

    assert worst == estimate_cost("gemini-4-argon", Usage(MILLION, MILLION), on=date(2026, 12, 1)) == 24


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


def test_a_price_for_a_release_is_found_by_its_name_in_an_address_and_in_an_answer() -> None:
    of_all, of_one = {"input": "1", "output": "1"}, {"input": "2", "output": "2"}
    prices = {"claude-haiku-4-5": of_all, "claude-haiku-4-5@20251001": of_one, "Gemini-99": of_one}

    assert estimate_cost("claude-haiku-4-5@20251001", Usage(MILLION), prices=prices) == 2
    assert estimate_cost("claude-haiku-4-5-20251001", Usage(MILLION), prices=prices) == 2
    assert estimate_cost("claude-haiku-4-5@20260101", Usage(MILLION), prices=prices) == 1
    assert estimate_cost("gemini-99-001", Usage(MILLION), prices=prices) == 2


def test_what_a_person_leaves_out_of_a_price_is_what_its_provider_asks_at_that_rate() -> None:
    price = parse_prices({"claude-opus-5-5": {"input": "1", "output": "2"}})["claude-opus-5-5"]

    assert price.rates == (Rate(Decimal(1), Decimal(2), Decimal(1), Decimal("1.25"), Decimal(2)),)
    assert price.context_window == 1_000_000
    assert price.regional_uplift == 1
    assert price.search_fee == MODEL_PRICING["claude-opus-5-5"].search_fee


def test_a_person_can_price_writes_for_an_hour_and_searches() -> None:
    prices = {
        "claude-opus-5-5": {"input": "1", "output": "2", "cache_write": "3", "cache_write_1h": "4", "web_search": "20"},
        "gemini-2.5-pro": {"input": "1", "output": "2", "web_search": "7"},
    }
    usage = Usage(cache_write_tokens=2 * MILLION, cache_write_1h_tokens=MILLION, web_searches=3)

    assert estimate_cost("claude-opus-5-5", usage, prices=prices) == 3 + 4 + Decimal("0.06")
    assert estimate_cost("gemini-2.5-pro", Usage(web_searches=3), prices=prices) == Decimal("0.007")


@pytest.mark.parametrize(
    ("price", "problem"),
    [
        ({"input": "1"}, "output"),
        ({"input": "-1", "output": "1"}, r"m\.input"),
        ({"input": "NaN", "output": "1"}, r"m\.input"),
        ({"input": "1", "output": "cheap"}, r"m\.output"),
        ({"input": "1", "output": "1", "chache_read": "1"}, "chache_read"),
        ({"input": "1", "output": "1", "web_search": "free"}, r"m\.web_search"),
    ],
)
def test_a_price_that_cannot_be_read_names_its_model_and_field(price: dict[str, str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_prices({"m": price})


def test_every_shipped_price_names_its_source_and_is_complete() -> None:
    for name, price in MODEL_PRICING.items():
        assert "2026-11-30" in price.source, name
        assert price.search_fee is not None, name
        assert price.max_output_tokens < price.context_window, name
        for rate in price.rates:
            assert rate.output > rate.input > rate.cache_read > 0, name
            assert rate.cache_write_1h >= rate.cache_write >= rate.input, name


def test_claude_costs_a_tenth_more_outside_global_and_gemini_from_3_5_on() -> None:
    for name, price in MODEL_PRICING.items():
        newer = name.startswith(("claude-", "gemini-3.5", "gemini-3.6", "gemini-3.7", "gemini-3.8", "gemini-4"))
        assert price.regional_uplift == (Decimal("1.1") if newer else 1), name


def test_an_unknown_model_has_a_window_that_every_model_has() -> None:
    assert context_window("gemini-3.8-flash") == 1_048_576
    assert context_window("gemini-99") == DEFAULT_CONTEXT_WINDOW


def test_how_long_an_answer_and_how_short_a_cached_prefix_may_be() -> None:
    assert max_output_tokens("claude-opus-5-5") == 128_000
    assert max_output_tokens("claude-haiku-4-5@20251001") == 64_000
    assert max_output_tokens("gemini-99") == 8192
    assert minimum_cacheable_tokens("claude-opus-5-5") == 512
    assert minimum_cacheable_tokens("claude-haiku-4-5@20251001") == 4096
    assert minimum_cacheable_tokens("claude-99") == DEFAULT_MINIMUM_CACHEABLE_TOKENS


def test_a_price_that_is_no_mapping_is_told() -> None:
    wrong: Any = {"gemini-9": 5}
    with pytest.raises(ValueError, match="gemini-9: a price is a mapping such as"):
        parse_prices(wrong)
