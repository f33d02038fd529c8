"""What a call costs: dated and tiered rates from `prices.json`, computed in Decimal.

A price that is not known is None and is never guessed; only a worst case, which guards a budget before money is spent,
falls back to the highest known rate. Every row of the data file names its source.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from importlib import resources
from typing import Any

from hummingbird_ai.messages import Usage

_MILLION = Decimal(1_000_000)
DEFAULT_CONTEXT_WINDOW = 200_000
"""For a model nobody told us about: small enough for every current model."""

# `-001`, `-latest`, `@20251001`, `-preview`, `-preview-09-2025`: releases of one model at one price
_RELEASE = re.compile(r"(-\d{3}|@\d{8}|-latest|-preview(-\d{2}-\d{2,4})?)?\Z")
_RATE_NAMES = ("input", "output", "cache_read", "cache_write")


@dataclass(frozen=True, slots=True)
class Rate:
    """USD per million tokens, in force from `start` on, for prompts of more than `above_tokens` tokens."""

    input: Decimal
    output: Decimal
    cache_read: Decimal
    cache_write: Decimal
    start: date = date.min
    above_tokens: int = 0

    def cost(self, usage: Usage) -> Decimal:
        """USD for these counters."""
        return (
            self.input * usage.input_tokens
            + self.output * usage.output_tokens
            + self.cache_read * usage.cache_read_tokens
            + self.cache_write * usage.cache_write_tokens
        ) / _MILLION


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """A model's rates; `regional_uplift` is the factor outside the region `global` of Vertex AI."""

    provider: str
    rates: tuple[Rate, ...]
    source: str
    context_window: int = DEFAULT_CONTEXT_WINDOW
    regional_uplift: Decimal = Decimal(1)

    def rate(self, prompt_tokens: int, on: date) -> Rate:
        """The newest rate in force on that day whose tier the prompt reaches; before the first, the first."""
        starts = {rate.start for rate in self.rates}
        start = max((day for day in starts if day <= on), default=min(starts))
        tiers = [rate for rate in self.rates if rate.start == start]
        reached = [rate for rate in tiers if prompt_tokens > rate.above_tokens or rate.above_tokens == 0]
        return max(reached or tiers, key=lambda rate: rate.above_tokens)


Prices = Mapping[str, ModelPrice | Mapping[str, Any]]
"""Prices by model name: parsed ones, or as `parse_prices` takes them."""


def _load() -> dict[str, ModelPrice]:
    document = json.loads(resources.files("hummingbird_ai").joinpath("prices.json").read_bytes())
    return {
        row["model"]: ModelPrice(
            provider=row["provider"],
            rates=tuple(_rate(rate, row["model"]) for rate in row["rates"]),
            source=f"{row['source']} ({document['as_of']})",
            context_window=row["context_window"],
            regional_uplift=Decimal(row["regional_uplift"]),
        )
        for row in document["models"]
    }


def _rate(raw: Mapping[str, Any], where: str) -> Rate:
    amounts = {name: _amount(raw[name], f"{where}.{name}") for name in _RATE_NAMES if name in raw}
    missing = {"input", "output"} - amounts.keys()
    unknown = set(raw) - {*_RATE_NAMES, "start", "above_tokens"}
    if missing or unknown:
        raise ValueError(f"{where}: a price has input, output, cache_read, cache_write; look at {missing | unknown}")
    for name in ("cache_read", "cache_write"):
        amounts.setdefault(name, amounts["input"])  # no discount is known: err on the safe side
    start = date.fromisoformat(raw["start"]) if "start" in raw else date.min
    return Rate(**amounts, start=start, above_tokens=int(raw.get("above_tokens", 0)))


def _amount(raw: object, where: str) -> Decimal:
    try:
        amount = Decimal(str(raw))
    except InvalidOperation:
        amount = Decimal(-1)
    if not amount.is_finite() or amount < 0:
        raise ValueError(f"{where}: must be USD per million tokens, 0 or more")
    return amount


MODEL_PRICING: Mapping[str, ModelPrice] = _load()
"""The rates shipped with this version, by model name without its release suffix."""


def parse_prices(raw: Prices) -> dict[str, ModelPrice]:
    """Prices a person adds or overrides: `{model: {input, output, cache_read?, cache_write?}}` in USD per million.

    The cache rates default to the input rate. Raises ValueError naming the model and the field.
    """
    return {name: _parsed(name, price) for name, price in raw.items()}


def _parsed(name: str, price: ModelPrice | Mapping[str, Any]) -> ModelPrice:
    if isinstance(price, ModelPrice):
        return price
    window = context_window(name)
    return ModelPrice(provider_of(name), (_rate(price, name),), "configuration", context_window=window)


def provider_of(model: str) -> str:
    """`google`, `anthropic` or `` for a model's name."""
    return {"gemini": "google", "claude": "anthropic"}.get(_bare(model).split("-")[0], "")


def find_price(model: str, prices: Prices | None = None) -> ModelPrice | None:
    """The price of a model, whatever its release suffix; `prices` come before the shipped ones."""
    name = _bare(model)
    for table in (prices or {}, MODEL_PRICING):
        for known in table:
            if name.startswith(known) and _RELEASE.match(name, len(known)):
                return _parsed(known, table[known])
    return None


def has_price(model: str, prices: Prices | None = None) -> bool:
    """Whether `estimate_cost` can say what this model costs."""
    return find_price(model, prices) is not None


def estimate_cost(
    model: str, usage: Usage, *, prices: Prices | None = None, region: str = "global", on: date | None = None
) -> Decimal | None:
    """USD of one request's tokens, or None without a known price. `on` is the day (UTC) it was made: today."""
    price = find_price(model, prices)
    if price is None:
        return None
    cost = price.rate(usage.total_input_tokens, on or _today()).cost(usage)
    return cost if region == "global" else cost * price.regional_uplift


def worst_case_cost(
    model: str,
    *,
    input_tokens: int,
    max_output_tokens: int,
    prices: Prices | None = None,
    region: str | None = None,
    on: date | None = None,
) -> Decimal:
    """The most one request can cost: nothing cached, all output used; without a region, the dearest one.

    A model without a price counts at its provider's highest rate, an unknown provider at the highest of all.
    """
    day = on or _today()
    known = find_price(model, prices)
    candidates = (
        [known] if known else _same_provider({**MODEL_PRICING, **parse_prices(prices or {})}, provider_of(model))
    )
    return max(
        _worst(price, price.rate(input_tokens, day), input_tokens, max_output_tokens, region) for price in candidates
    )


def _worst(price: ModelPrice, rate: Rate, input_tokens: int, output_tokens: int, region: str | None) -> Decimal:
    cost = (max(rate.input, rate.cache_write) * input_tokens + rate.output * output_tokens) / _MILLION
    return cost if region == "global" else cost * price.regional_uplift


def _same_provider(prices: Mapping[str, ModelPrice], provider: str) -> list[ModelPrice]:
    return [price for price in prices.values() if price.provider == provider] or list(prices.values())


def context_window(model: str) -> int:
    """The number of tokens a conversation may have, DEFAULT_CONTEXT_WINDOW for an unknown model."""
    price = find_price(model)
    return price.context_window if price else DEFAULT_CONTEXT_WINDOW


def _bare(model: str) -> str:
    return model.rpartition("/")[2].lower()


def _today() -> date:
    return datetime.now(UTC).date()
