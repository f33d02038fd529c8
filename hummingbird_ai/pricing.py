"""What a call costs: dated and tiered rates from `prices.json`, computed in Decimal.

A price that is not known is None and is never guessed; only a worst case, which guards a budget before money is spent,
falls back to the highest known rate. Every row of the data file names its source.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from hummingbird_ai.messages import DEFAULT_MAX_OUTPUT_TOKENS, Usage
from hummingbird_ai.price_table import (
    DEFAULT_CONTEXT_WINDOW,
    DEFAULT_MINIMUM_CACHEABLE_TOKENS,
    ModelPrice,
    Prices,
    Rate,
    SearchFee,
    configured,
    fee_of,
    load,
)

__all__ = [
    "DEFAULT_CONTEXT_WINDOW",
    "DEFAULT_MINIMUM_CACHEABLE_TOKENS",
    "MODEL_PRICING",
    "ModelPrice",
    "Prices",
    "Rate",
    "SearchFee",
    "context_window",
    "estimate_cost",
    "find_price",
    "has_price",
    "max_output_tokens",
    "minimum_cacheable_tokens",
    "parse_prices",
    "provider_of",
    "worst_case_cost",
]

# `-001`, `-latest`, `-default`, `-20251001`, `-preview`, `-preview-09-2025`: releases at one price
_RELEASE = re.compile(r"(-\d{3}|-\d{8}|-default|-latest|-preview(-\d{2}-\d{2,4})?)?\Z")
_PROVIDERS = {"gemini": "google", "claude": "anthropic"}

_SHIPPED, _FEES = load()
MODEL_PRICING: Mapping[str, ModelPrice] = _SHIPPED
"""The rates shipped with this version, by model name without its release suffix."""


def parse_prices(raw: Prices) -> dict[str, ModelPrice]:
    """Prices a person adds or overrides, by model, in USD.

    `{input, output, cache_read?, cache_write?, cache_write_1h?}` per million tokens, `{web_search?}` per thousand. What
    is left out: reads cost what input costs, writes what their provider asks for them at that input rate, searches what
    the model's family pays. Raises ValueError naming the model and the field.
    """
    return {name: _parsed(name, price) for name, price in raw.items()}


def _parsed(name: str, price: ModelPrice | Mapping[str, object]) -> ModelPrice:
    if isinstance(price, ModelPrice):
        return price
    bare = _bare(name)
    like = find_price(bare) or ModelPrice(provider_of(bare), (), "", search_fee=fee_of(bare, _FEES))
    return configured(name, price, like)


def provider_of(model: str) -> str:
    """`google`, `anthropic` or `` for a model's name."""
    return _PROVIDERS.get(_bare(model).split("-")[0], "")


def find_price(model: str, prices: Prices | None = None) -> ModelPrice | None:
    """The price of a model, whatever its release suffix; `prices` come before the shipped ones.

    A price for one release (`claude-haiku-4-5@20251001`) comes before one for all of them.
    """
    name = _bare(model)
    for table in (prices or {}, MODEL_PRICING):
        fitting = [known for known in table if _is_release(name, _bare(known))]
        if fitting:
            known = max(fitting, key=len)
            return _parsed(known, table[known])
    return None


def _is_release(name: str, model: str) -> bool:
    return name.startswith(model) and _RELEASE.match(name, len(model)) is not None


def has_price(model: str, prices: Prices | None = None) -> bool:
    """Whether `estimate_cost` can say what this model's tokens cost."""
    return find_price(model, prices) is not None


def estimate_cost(
    model: str, usage: Usage, *, prices: Prices | None = None, region: str = "global", on: date | None = None
) -> Decimal | None:
    """USD of one request, or None without a known price. `on` is the day (UTC) it was made: today.

    It is one request that has a tier and a fee by the prompt: sum the costs of passes, not their usages.
    """
    price = find_price(model, prices)
    if price is None:
        return None
    tokens = price.rate(usage.total_input_tokens, on or _today()).cost(usage)
    cost = tokens if region == "global" else tokens * price.regional_uplift
    if not usage.web_searches:
        return cost
    return None if price.search_fee is None else cost + price.search_fee.cost(usage.web_searches)


def worst_case_cost(
    model: str,
    *,
    input_tokens: int,
    max_output_tokens: int,
    web_searches: int = 0,
    prices: Prices | None = None,
    region: str | None = None,
    on: date | None = None,
) -> Decimal:
    """The most one request can cost: nothing read from a cache, all output used; without a region, the dearest one.

    An answer may take several requests, and a call several answers: see docs/models.md. What a search finds is billed
    as input too, at every look the model takes at it: count it in `input_tokens`. A call that begins on `on` may end
    on the next day, so the dearer of the two days counts. A model without a price counts at its provider's highest
    rate, an unknown provider at the highest of all. Raises ValueError for numbers below 0.
    """
    if min(input_tokens, max_output_tokens, web_searches) < 0:
        raise ValueError("input_tokens, max_output_tokens and web_searches are 0 or more")
    day = on or _today()
    known = find_price(model, prices)
    candidates = (
        [known] if known else _same_provider({**MODEL_PRICING, **parse_prices(prices or {})}, provider_of(model))
    )
    return max(
        _most_tokens(price, day, input_tokens, max_output_tokens, region) + _most_searches(price, web_searches)
        for price in candidates
    )


def _most_tokens(price: ModelPrice, day: date, input_tokens: int, output_tokens: int, region: str | None) -> Decimal:
    rates = [rate for on in (day, day + timedelta(days=1)) for rate in price.reached(input_tokens, on)]
    most = max(rate.most(input_tokens, output_tokens) for rate in rates)
    return most if region == "global" else most * price.regional_uplift


def _most_searches(price: ModelPrice, searches: int) -> Decimal:
    fees = [price.search_fee] if price.search_fee else list(_FEES.values())
    return max(fee.cost(searches) for fee in fees)


def _same_provider(prices: Mapping[str, ModelPrice], provider: str) -> list[ModelPrice]:
    return [price for price in prices.values() if price.provider == provider] or list(prices.values())


def context_window(model: str) -> int:
    """The number of tokens a conversation may have, DEFAULT_CONTEXT_WINDOW for an unknown model."""
    price = find_price(model)
    return price.context_window if price else DEFAULT_CONTEXT_WINDOW


def max_output_tokens(model: str) -> int:
    """The most tokens one answer may have, for an unknown model what every model gives (8,192)."""
    price = find_price(model)
    return price.max_output_tokens if price else DEFAULT_MAX_OUTPUT_TOKENS


def minimum_cacheable_tokens(model: str) -> int:
    """How long a prompt's beginning must be to be cached at all; shorter ones silently are not."""
    price = find_price(model)
    return price.minimum_cacheable_tokens if price else DEFAULT_MINIMUM_CACHEABLE_TOKENS


def _bare(model: str) -> str:
    """Without a path, and written as in an answer: in an address Vertex AI has `@` before a release, there `-`."""
    return model.rpartition("/")[2].lower().replace("@", "-")


def _today() -> date:
    return datetime.now(UTC).date()
