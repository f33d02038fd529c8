from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from hummingbird_ai.messages import ModelResponse, Usage
from hummingbird_ai.metrics import CallMetrics

counts = st.integers(0, 10**6)
MODEL = {"model": "claude-opus-5-5"}


def answered(usage: Usage, cost: str | None = "0.5") -> ModelResponse:
    price = None if cost is None else Decimal(cost)
    return ModelResponse(text="t", usage=usage, model_version=MODEL["model"], cost_usd=price)


def total(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"hummingbird_ai_{name}", labels)


@given(st.lists(st.builds(Usage, counts, counts, counts, counts, counts, web_searches=counts), max_size=5))
def test_the_kinds_of_tokens_add_up_to_what_was_billed_and_none_is_in_two(usages: list[Usage]) -> None:
    registry = CollectorRegistry()
    metrics = CallMetrics(registry)
    for usage in usages:
        metrics.billed(answered(usage))

    samples = [sample for metric in registry.collect() for sample in metric.samples]
    tokens = sum(sample.value for sample in samples if sample.name == "hummingbird_ai_tokens_total")
    searches = sum(sample.value for sample in samples if sample.name == "hummingbird_ai_web_searches_total")
    assert tokens == sum(usage.total_tokens for usage in usages)
    assert searches == sum(usage.web_searches for usage in usages)


def test_a_write_for_an_hour_is_one_write() -> None:
    registry = CollectorRegistry()

    CallMetrics(registry).billed(answered(Usage(cache_write_tokens=100, cache_write_1h_tokens=60)))

    assert total(registry, "tokens_total", **MODEL, kind="cache_write") == 100


def test_searches_are_counted_by_the_model_that_made_them() -> None:
    registry = CollectorRegistry()
    metrics = CallMetrics(registry)

    metrics.billed(answered(Usage()))
    assert total(registry, "web_searches_total", **MODEL) is None
    metrics.billed(answered(Usage(web_searches=3)))
    assert total(registry, "web_searches_total", **MODEL) == 3


def test_an_answer_without_a_price_is_seen_and_adds_nothing_to_the_cost() -> None:
    registry = CollectorRegistry()
    metrics = CallMetrics(registry)

    metrics.billed(answered(Usage(1), cost=None))
    metrics.billed(answered(Usage(1)))

    assert total(registry, "unpriced_total", **MODEL) == 1
    assert total(registry, "cost_usd_total", **MODEL) == 0.5


def test_an_attempt_counts_its_outcome_and_its_time() -> None:
    registry = CollectorRegistry()
    metrics = CallMetrics(registry)

    metrics.attempt("asked", "ok", 3.0)
    metrics.attempt("asked", "overloaded", -1.0)  # a clock that was set back

    assert total(registry, "requests_total", model="asked", outcome="overloaded") == 1
    assert total(registry, "latency_seconds_count", model="asked") == 2
    assert total(registry, "latency_seconds_sum", model="asked") == 3


def test_a_registry_passed_in_twice_is_a_clear_error() -> None:
    registry = CollectorRegistry()
    CallMetrics(registry)

    with pytest.raises(ValueError, match="has CallMetrics already"):
        CallMetrics(registry)
