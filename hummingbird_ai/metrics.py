"""What model calls do and cost, as Prometheus metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

from hummingbird_ai.messages import ModelResponse

_LATENCY_BUCKETS = (0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 120, 300, 600)


class CallMetrics:
    """Counters of every call of this process. Create one per registry: a second one raises ValueError.

    Requests are labelled with the model that was asked, tokens, searches and cost with the one that served.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, words: str, *labels: str) -> Counter:
            return Counter(f"hummingbird_ai_{name}_total", words, labels, registry=registry)

        try:
            self._requests = counter("requests", "Model calls, by how they ended", "model", "outcome")
        except ValueError as error:
            raise ValueError("this registry has CallMetrics already: make them once and pass them on") from error
        self._tokens = counter("tokens", "Tokens billed, by kind", "model", "kind")
        self._searches = counter("web_searches", "Web searches of the provider that are billed", "model")
        self._cost = counter("cost_usd", "Estimated cost in USD", "model")
        self._unpriced = counter("unpriced", "Answers whose model has no known price: not in the cost", "model")
        self._latency = Histogram(
            "hummingbird_ai_latency_seconds",
            "From a request to its answer or error",
            ["model"],
            buckets=_LATENCY_BUCKETS,
            registry=registry,
        )

    def attempt(self, model: str, outcome: str, seconds: float) -> None:
        """One call has ended: `ok`, `rejected` by the caller's validation, or with an error's `word`."""
        self._requests.labels(model, outcome).inc()
        self._latency.labels(model).observe(max(0.0, seconds))

    def billed(self, response: ModelResponse) -> None:
        """The tokens, the searches and the cost of one answer."""
        model, usage = response.model_version, response.usage
        self._tokens.labels(model, "input").inc(usage.input_tokens)
        self._tokens.labels(model, "output").inc(usage.output_tokens)
        self._tokens.labels(model, "cache_read").inc(usage.cache_read_tokens)
        self._tokens.labels(model, "cache_write").inc(usage.cache_write_tokens)
        if usage.web_searches:
            self._searches.labels(model).inc(usage.web_searches)
        if response.cost_usd is None:
            self._unpriced.labels(model).inc()
        else:
            self._cost.labels(model).inc(float(response.cost_usd))
