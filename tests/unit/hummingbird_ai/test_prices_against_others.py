"""Our price table against the one of genai-prices: where both know a rate, they agree, or it is said here why not."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import genai_prices
import pytest

from hummingbird_ai.messages import Usage
from hummingbird_ai.pricing import MODEL_PRICING, estimate_cost

NOT_KNOWN_THERE = {
    "claude-mythos-5-1",
    "claude-mythos-5",
    "gemini-4-neon",
    "gemini-4-carbon",
    "gemini-4-hydrogen",
}
NAMES_THERE = {"gemini-3.1-pro": "gemini-3.1-pro-preview", "gemini-3-flash": "gemini-3-flash-preview"}

# Their rows for Claude at Google say nothing of writes for an hour, and most say nothing of searches.
SAID_OF_CLAUDE_AT_GOOGLE = {"input", "read", "write", "output"}

DIFFERENCES = {
    ("claude-sonnet-5-5", "read"): (date(2026, 10, 6), "they know the cheaper reads without the day they began"),
    ("gemini-3-flash", "search"): (date(2026, 1, 4), "searches cost nothing before, which is over"),
}
"""(model, kind) → the last day on which they differ, and why."""

LONG_AGO, TODAY, FAR_AHEAD = date(2020, 1, 1), date(2026, 11, 30), date(2030, 1, 1)


def days_of(model: str) -> list[date]:
    """A day in every period of the row, at both its ends."""
    starts = {rate.start for rate in MODEL_PRICING[model].rates} - {date.min}
    return sorted({LONG_AGO, TODAY, FAR_AHEAD} | {day - timedelta(days=back) for day in starts for back in (0, 1)})


def prompts_of(model: str) -> list[int]:
    """A prompt in every tier of the row, at both its ends."""
    lines = {rate.above_tokens for rate in MODEL_PRICING[model].rates} - {0}
    return sorted({1000} | {line + more for line in lines for more in (0, 1)})


def probes(prompt: int) -> Iterator[tuple[str, Usage]]:
    """Usages that each show one rate, for a prompt of that size."""
    yield "input", Usage(input_tokens=prompt)
    yield "read", Usage(cache_read_tokens=prompt)
    yield "write", Usage(cache_write_tokens=prompt)
    yield "write for an hour", Usage(cache_write_tokens=prompt, cache_write_1h_tokens=prompt)
    yield "output", Usage(input_tokens=prompt, output_tokens=1000)
    yield "search", Usage(web_searches=1)


def their_cost(model: str, usage: Usage, on: date, provider: str = "") -> Decimal | None:
    """By the model's own provider unless another is named; None if they do not know the model."""
    given = genai_prices.Usage(
        input_tokens=usage.total_input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        cache_write_1h_tokens=usage.cache_write_1h_tokens,
        web_searches=usage.web_searches,
    )
    try:
        return genai_prices.calc_price(
            given,
            NAMES_THERE.get(model, model),
            provider_id=provider or MODEL_PRICING[model].provider,
            genai_request_timestamp=datetime(on.year, on.month, on.day, 12, tzinfo=UTC),
        ).total_price
    except LookupError:
        return None


def test_the_rows_they_do_not_know_are_these() -> None:
    unknown = {model for model in MODEL_PRICING if their_cost(model, Usage(1), FAR_AHEAD) is None}

    assert unknown == NOT_KNOWN_THERE


@pytest.mark.parametrize("model", sorted(MODEL_PRICING.keys() - NOT_KNOWN_THERE))
def test_every_rate_is_the_same_on_every_day_and_in_every_tier(model: str) -> None:
    for on, prompt in itertools.product(days_of(model), prompts_of(model)):
        for kind, usage in probes(prompt):
            last, _ = DIFFERENCES.get((model, kind), (date.min, ""))
            agree = estimate_cost(model, usage, on=on) == their_cost(model, usage, on)
            assert agree is (on > last), (kind, prompt, on)


@pytest.mark.parametrize("model", sorted(name for name in MODEL_PRICING.keys() - NOT_KNOWN_THERE if "claude" in name))
def test_claude_costs_the_same_at_google_as_at_anthropic(model: str) -> None:
    """From now on: they have no old rates there."""
    later = [on for on in days_of(model) if on >= TODAY]
    for on, prompt in itertools.product(later, prompts_of(model)):
        for kind, usage in probes(prompt):
            if kind in SAID_OF_CLAUDE_AT_GOOGLE:
                assert estimate_cost(model, usage, on=on) == their_cost(model, usage, on, "google"), (kind, prompt, on)
