"""The shape of a price, and reading it: from `prices.json` and from what a person configures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal, InvalidOperation
from importlib import resources
from typing import Any

from hummingbird_ai.messages import DEFAULT_MAX_OUTPUT_TOKENS, Usage

DEFAULT_CONTEXT_WINDOW = 200_000
"""For a model nobody told us about: small enough for every current model."""
DEFAULT_MINIMUM_CACHEABLE_TOKENS = 4096
"""For a model nobody told us about: the largest minimum of the current ones."""

_MILLION, _THOUSAND = -6, -3  # as powers of ten: dividing by them is exact
_RATES = ("input", "output", "cache_read", "cache_write", "cache_write_1h")
_TIER = ("start", "above_tokens")
# What Anthropic charges for a write, as a multiple of the input rate; its reads differ from model to model.
_WRITE_FACTORS = {"anthropic": {"cache_write": Decimal("1.25"), "cache_write_1h": Decimal(2)}}


@dataclass(frozen=True, slots=True)
class Rate:
    """USD per million tokens, in force from `start` on, for prompts of more than `above_tokens` tokens."""

    input: Decimal
    output: Decimal
    cache_read: Decimal
    cache_write: Decimal
    cache_write_1h: Decimal
    start: date = date.min
    above_tokens: int = 0

    def cost(self, usage: Usage) -> Decimal:
        """USD for the tokens, searches not included."""
        hour = min(usage.cache_write_1h_tokens, usage.cache_write_tokens)
        return (
            self.input * usage.input_tokens
            + self.output * usage.output_tokens
            + self.cache_read * usage.cache_read_tokens
            + self.cache_write * (usage.cache_write_tokens - hour)
            + self.cache_write_1h * hour
        ).scaleb(_MILLION)

    def most(self, input_tokens: int, output_tokens: int) -> Decimal:
        """USD when every token of the prompt is of the dearest kind that an adapter of ours can cause.

        Writes for an hour are not: no adapter asks for them, and what a provider writes by itself lasts five minutes.
        """
        dearest = max(self.input, self.cache_read, self.cache_write)
        return (dearest * input_tokens + self.output * output_tokens).scaleb(_MILLION)


@dataclass(frozen=True, slots=True)
class SearchFee:
    """USD per thousand of `unit`: `search`, `query` (each different one), or `prompt` (once a request)."""

    usd_per_1000: Decimal
    unit: str = "search"

    def cost(self, searches: int) -> Decimal:
        """USD for the searches of one request, as `Usage.web_searches` counts them."""
        return (self.usd_per_1000 * (min(searches, 1) if self.unit == "prompt" else searches)).scaleb(_THOUSAND)


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """What a model costs and how much fits into it.

    `regional_uplift` is the factor on tokens outside the region `global` of Vertex AI. Without a `search_fee` nobody
    knows what its searches cost. `max_output_tokens` bounds one answer; a prompt prefix shorter than
    `minimum_cacheable_tokens` is silently not cached.
    """

    provider: str
    rates: tuple[Rate, ...]
    source: str
    context_window: int = DEFAULT_CONTEXT_WINDOW
    regional_uplift: Decimal = Decimal(1)
    max_output_tokens: int = DEFAULT_MAX_OUTPUT_TOKENS
    minimum_cacheable_tokens: int = DEFAULT_MINIMUM_CACHEABLE_TOKENS
    search_fee: SearchFee | None = None

    def reached(self, prompt_tokens: int, on: date) -> list[Rate]:
        """The rates in force on that day whose tier the prompt reaches, lowest first; before the first, the first."""
        starts = {rate.start for rate in self.rates}
        start = max((day for day in starts if day <= on), default=min(starts))
        tiers = sorted((rate for rate in self.rates if rate.start == start), key=lambda rate: rate.above_tokens)
        return [rate for rate in tiers if prompt_tokens > rate.above_tokens or rate.above_tokens == 0] or tiers[:1]

    def rate(self, prompt_tokens: int, on: date) -> Rate:
        """The rate of a request with that prompt (cached parts and cache writes included) on that day."""
        return self.reached(prompt_tokens, on)[-1]


Prices = Mapping[str, ModelPrice | Mapping[str, Any]]
"""Prices by model name: parsed ones, or as `parse_prices` takes them."""


def load() -> tuple[dict[str, ModelPrice], dict[str, SearchFee]]:
    """The shipped prices by model, and the fees for searches by the beginning of a model's name."""
    document = json.loads(resources.files("hummingbird_ai").joinpath("prices.json").read_bytes())
    fees = {
        fee["prefix"]: SearchFee(amount(fee["usd_per_1000"], fee["prefix"]), fee["unit"])
        for fee in document["web_search"]
    }
    prices = {row["model"]: _shipped(row, document["as_of"], fees) for row in document["models"]}
    return prices, fees


def _shipped(row: Mapping[str, Any], as_of: str, fees: Mapping[str, SearchFee]) -> ModelPrice:
    name, provider = row["model"], row["provider"]
    return ModelPrice(
        provider=provider,
        rates=tuple(_rate(rate, name, provider) for rate in row["rates"]),
        source=f"{row['source']} ({as_of})",
        context_window=row["context_window"],
        regional_uplift=Decimal(row["regional_uplift"]),
        max_output_tokens=row["max_output_tokens"],
        minimum_cacheable_tokens=row["minimum_cacheable_tokens"],
        search_fee=fee_of(name, fees),
    )


def fee_of(name: str, fees: Mapping[str, SearchFee]) -> SearchFee | None:
    """The fee of the longest beginning that fits the name."""
    fitting = [prefix for prefix in fees if name.startswith(prefix)]
    return fees[max(fitting, key=len)] if fitting else None


def configured(name: str, raw: Mapping[str, Any], like: ModelPrice) -> ModelPrice:
    """A price that a person wrote: `{input, output, cache_read?, cache_write?, cache_write_1h?, web_search?}`.

    `web_search` is USD per thousand, of the unit that `like` has. All else is as in `like`, but a person's price holds
    in every region. Raises ValueError naming the model and the field.
    """
    if not isinstance(raw, Mapping):
        raise ValueError(f"{name}: a price is a mapping such as {{input: 1, output: 5}}, not {raw!r}")
    rates = {key: value for key, value in raw.items() if key != "web_search"}
    fee = like.search_fee
    if "web_search" in raw:
        fee = replace(fee or SearchFee(Decimal(0)), usd_per_1000=amount(raw["web_search"], f"{name}.web_search"))
    rate = _rate(rates, name, like.provider)
    return replace(like, rates=(rate,), source="configuration", regional_uplift=Decimal(1), search_fee=fee)


def _rate(raw: Mapping[str, Any], where: str, provider: str) -> Rate:
    amounts = {name: amount(raw[name], f"{where}.{name}") for name in _RATES if name in raw}
    missing = {"input", "output"} - amounts.keys()
    unknown = set(raw) - {*_RATES, *_TIER}
    if missing or unknown:
        wrong = [f"{name} is missing" for name in sorted(missing)] + [f"{name} is unknown" for name in sorted(unknown)]
        raise ValueError(f"{where}: a price has {', '.join(_RATES)} and web_search: {', '.join(wrong)}")
    factors = _WRITE_FACTORS.get(provider, {})
    # no discount is known for what is left out: err on the safe side
    amounts.setdefault("cache_read", amounts["input"])
    amounts.setdefault("cache_write", amounts["input"] * factors.get("cache_write", 1))
    hour = amounts["input"] * factors["cache_write_1h"] if factors else amounts["cache_write"]
    amounts.setdefault("cache_write_1h", max(hour, amounts["cache_write"]))
    start = date.fromisoformat(raw["start"]) if "start" in raw else date.min
    return Rate(**amounts, start=start, above_tokens=int(raw.get("above_tokens", 0)))


def amount(raw: object, where: str) -> Decimal:
    """A price as Decimal; raises ValueError naming `where` for anything but a number of 0 or more."""
    try:
        value = Decimal(str(raw))
    except InvalidOperation:
        value = Decimal(-1)
    if not value.is_finite() or value < 0:
        raise ValueError(f"{where}: {raw!r} must be USD (per million tokens, or per thousand searches), 0 or more")
    return value
