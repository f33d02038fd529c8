from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import pytest
from google.oauth2.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from hummingbird_ai.abort import Abort
from hummingbird_ai.auth import VertexAuth
from hummingbird_ai.calls import (
    DEFAULT_ATTEMPTS,
    LONGEST_HINT_SECONDS,
    LONGEST_WAIT_SECONDS,
    SHOWN_PROBLEM,
    CallMetrics,
    generate_with_retry,
)
from hummingbird_ai.errors import (
    BadRequest,
    CallAborted,
    ContextOverflow,
    MalformedReply,
    ModelError,
    Overloaded,
    RateLimited,
    Rejected,
    TransportFailed,
)
from hummingbird_ai.messages import Finish, ModelAdapter, ModelResponse, ToolDef, Usage
from hummingbird_ai.models import build_model
from hummingbird_ai.providers.claude.adapter import AnthropicVertexModel
from hummingbird_ai.providers.google.endpoints import VertexEndpoint
from hummingbird_ai.testing import (
    Answer,
    ClaudeServer,
    Drop,
    GeminiServer,
    HttpError,
    Reply,
    ScriptedModel,
    Search,
    say,
)
from hummingbird_ai.testing.replies import HALF_BODY, HTML_PAGE
from hummingbird_ai.testing.scripted import StepSource

RUN = ToolDef("run", "Run a command", {"type": "object"})


class Time:
    """A clock that only moves by what is slept, and by what a call takes."""

    def __init__(self, call_seconds: float = 0.0) -> None:
        self.now = 1000.0
        self.waits: list[float] = []
        self._call_seconds = call_seconds

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds

    def call(self, step: StepSource) -> Callable[[Any], Any]:
        def run(contents: Any) -> Any:
            self.now += self._call_seconds
            return step

        return run


def ask(script: Iterable[StepSource] | ModelAdapter, time_: Time | None = None, **more: Any) -> ModelResponse:
    model: Any = script if hasattr(script, "generate") else ScriptedModel(script)
    clockwork = {} if time_ is None else {"sleep": time_.sleep, "clock": time_.clock}
    return generate_with_retry(model, [model.make_user_content("go")], system="s", tools=[RUN], **{**clockwork, **more})


def test_a_transient_error_is_tried_again_with_growing_waits() -> None:
    time_ = Time()
    script: list[StepSource] = [Overloaded("a"), RateLimited("b"), TransportFailed("c"), MalformedReply("d"), "fine"]

    assert ask(script, time_).text == "fine"
    for wait, least in zip(time_.waits, (1, 2, 4, 8), strict=True):
        assert least <= wait <= least + 1


def test_each_error_that_is_waited_out_is_told_with_the_wait() -> None:
    time_ = Time()
    told: list[tuple[str, float]] = []

    ask(
        [Overloaded("a"), RateLimited("b", retry_after=7), "fine"],
        time_,
        on_wait=lambda e, s: told.append((e.problem, s)),
    )

    assert [problem for problem, _ in told] == ["a", "b"]
    assert [seconds for _, seconds in told] == time_.waits
    with pytest.raises(Overloaded):
        ask([Overloaded("last")], time_, max_attempts=1, on_wait=lambda e, s: told.append((e.problem, s)))
    assert len(told) == 2


@pytest.mark.parametrize("error", [ContextOverflow("long"), BadRequest("wrong"), ModelError("gone")])
def test_a_terminal_error_is_raised_at_once(error: ModelError) -> None:
    """Row 35."""
    time_ = Time()

    with pytest.raises(type(error)) as caught:
        ask([error, "fine"], time_)
    assert caught.value is error
    assert not time_.waits


def test_the_last_error_is_raised_after_the_allowed_attempts() -> None:
    for attempts in (1, 3):
        time_ = Time()
        errors = [Overloaded(str(number)) for number in range(10)]
        with pytest.raises(Overloaded) as caught:
            ask(errors, time_, max_attempts=attempts)
        assert caught.value is errors[attempts - 1]
        assert len(time_.waits) == attempts - 1


def test_without_a_limit_there_are_a_few_attempts() -> None:
    time_ = Time()

    with pytest.raises(Overloaded):
        ask([Overloaded("x")] * 20, time_)
    assert len(time_.waits) == DEFAULT_ATTEMPTS - 1


@given(st.floats(0, 400), st.floats(0, 20), st.lists(st.none() | st.floats(0, 100), max_size=50))
def test_no_wait_ever_ends_after_the_budget_and_none_is_shorter_than_the_hint(
    budget: float, call_seconds: float, hints: list[float | None]
) -> None:
    time_ = Time(call_seconds)
    errors = [RateLimited("slow", retry_after=hint) for hint in [*hints, *[None] * 500]]

    with pytest.raises(RateLimited):
        ask([time_.call(error) for error in errors], time_, retry_seconds=budget)

    assert time_.now <= 1000 + budget + call_seconds + 1e-6
    assert all(wait >= (error.retry_after or 0) for wait, error in zip(time_.waits, errors, strict=False))
    assert all(wait <= 100 + LONGEST_WAIT_SECONDS for wait in time_.waits)


def test_a_budget_is_used_before_it_is_given_up() -> None:
    time_ = Time()

    with pytest.raises(Overloaded):
        ask([Overloaded("x")] * 100, time_, retry_seconds=600)
    assert 600 - LONGEST_WAIT_SECONDS - 1 <= time_.now - 1000 < 600


@pytest.mark.parametrize(
    ("hint", "limit", "words"),
    [
        (61, {"retry_seconds": 60}, "slow; the provider asks for 61 s, 48.8 s are left. If"),
        (1e300, {"retry_seconds": 5}, "slow; the provider asks for 1e+300 s, 0 s are left. If"),
        (LONGEST_HINT_SECONDS + 1, {}, "slow; the provider asks for 601 s, at most 600 s are waited. If"),
        (3600, {"max_attempts": 3}, "slow; the provider asks for 3600 s, at most 600 s are waited. If"),
    ],
)
def test_a_hint_beyond_the_limit_is_not_waited_for_and_the_error_says_so(
    hint: float, limit: dict[str, float], words: str
) -> None:
    time_ = Time(11.25)
    error = RateLimited("slow.", status=429, retry_after=hint)

    with pytest.raises(RateLimited) as caught:
        ask([time_.call(error), "fine"], time_, **limit)
    assert caught.value is error
    assert words in str(error)
    assert error.problem == words.removesuffix(". If")
    assert not time_.waits


def test_the_longest_hint_is_waited_for_where_only_the_attempts_are_limited() -> None:
    time_ = Time()

    assert ask([RateLimited("slow", retry_after=LONGEST_HINT_SECONDS), "fine"], time_).text == "fine"
    assert time_.waits == [LONGEST_HINT_SECONDS]


def test_an_error_whose_hint_could_be_waited_for_is_raised_as_it_is() -> None:
    with pytest.raises(RateLimited) as caught:
        ask([RateLimited("slow", retry_after=3)], Time(), max_attempts=1)

    assert caught.value.problem == "slow"


@given(st.floats(0, 400), st.floats(0, 100), st.integers(0, 3), st.floats(1e-3, 1e9))
def test_a_hint_beyond_what_is_left_of_the_budget_ends_it_at_once_with_the_error(
    budget: float, call_seconds: float, before: int, beyond: float
) -> None:
    time_ = Time(call_seconds)

    def too_long(contents: Any) -> RateLimited:
        time_.now += call_seconds
        return RateLimited("the last", retry_after=max(0.0, 1000 + budget - time_.now) + beyond)

    script: list[Any] = [*[time_.call(Overloaded("x"))] * before, too_long, "never"]
    with pytest.raises(ModelError) as caught:
        ask(script, time_, retry_seconds=budget)

    if caught.value.problem.startswith("the last; the provider asks for "):
        assert len(time_.waits) == before
    else:  # the waits before it had used the budget up
        assert len(time_.waits) < before


def test_what_a_provider_says_of_a_single_error_counts_more_than_its_class() -> None:
    """`x-should-retry`: an error that is otherwise terminal is tried again, and the other way round."""
    again, never = BadRequest("conflict"), Overloaded("for good")
    again.retryable, never.retryable = True, False

    assert ask([again, "fine"], Time()).text == "fine"
    time_ = Time()
    with pytest.raises(Overloaded, match="for good"):
        ask([never, "fine"], time_)
    assert not time_.waits


def test_whichever_limit_comes_first_counts() -> None:
    time_ = Time()

    with pytest.raises(Overloaded):
        ask([Overloaded("x")] * 20, time_, retry_seconds=600, max_attempts=2)
    assert len(time_.waits) == 1


@pytest.mark.parametrize(
    ("reply", "least"),
    [
        (HttpError(429, "slow", retry_delay="17s"), 17),
        (HttpError(503, "busy", retry_after="9"), 9),
        (HttpError(500, "x"), 1),
        (HALF_BODY, 1),
        (HTML_PAGE, 1),
        (Drop(), 1),
    ],
)
def test_what_a_real_server_breaks_is_tried_again_after_its_hint(reply: Reply, least: float) -> None:
    """Rows 36 and 37, over HTTP."""
    time_ = Time()
    with GeminiServer(lambda body, n: say("fine") if n else reply) as server:
        model = build_model("gemini-3.8-flash", google_api_key="test-key", base_url=server.url)
        assert ask(model, time_).text == "fine"
        first, second = server.calls

    assert least <= time_.waits[0] <= least + 1
    assert first.raw == second.raw


def claude(server: ClaudeServer, **more: Any) -> AnthropicVertexModel:
    auth = VertexAuth("project", credentials=Credentials("test-token"))  # type: ignore[no-untyped-call]
    return AnthropicVertexModel("claude-opus-5-5", VertexEndpoint(auth, "global", server.url), **more)


@pytest.mark.parametrize(
    ("reply", "least"),
    [
        (HttpError(529, "Overloaded"), 1),
        (HttpError(429, "slow", retry_after="9"), 9),
        (HttpError(429, "slow", retry_after="9", retry_after_ms="2500"), 2.5),
        (HttpError(429, "Quota exceeded", google=True, retry_delay="17s"), 17),
        (HttpError(400, "wait", should_retry=True), 1),
        (HALF_BODY, 1),
        (HTML_PAGE, 1),
        (Drop(), 1),
    ],
)
def test_what_claude_breaks_is_tried_again_after_its_hint(reply: Reply, least: float) -> None:
    time_ = Time()
    with ClaudeServer(lambda body, n: say("fine") if n else reply) as server:
        assert ask(claude(server), time_).text == "fine"
        first, second = server.calls

    assert least <= time_.waits[0] <= least + 1
    assert first.raw == second.raw


def test_claude_may_say_that_an_overload_is_for_good() -> None:
    time_ = Time()
    with ClaudeServer(lambda body, n: HttpError(529, "Overloaded", should_retry=False)) as server:
        with pytest.raises(Overloaded):
            ask(claude(server), time_)
        assert len(server.calls) == 1
    assert not time_.waits


def reject_the_first_two() -> Callable[[ModelResponse], None]:
    seen: list[ModelResponse] = []

    def validate(response: ModelResponse) -> None:
        seen.append(response)
        if len(seen) <= 2:
            raise ValueError("no JSON in it")

    return validate


def test_a_rejected_answer_is_asked_for_again_within_the_same_limit() -> None:
    script: list[StepSource] = ["one", Overloaded("x"), "two", "three"]

    assert ask(script, Time(), validate=reject_the_first_two(), max_attempts=4).text == "three"
    with pytest.raises(MalformedReply, match="rejected: no JSON in it"):
        ask(script, Time(), validate=reject_the_first_two(), max_attempts=3)


def test_of_a_rejection_the_beginning_is_shown_and_the_answer_is_not_held(caplog: pytest.LogCaptureFixture) -> None:
    def reject(response: ModelResponse) -> None:
        json.loads("x" * 1_000_000)
        raise AssertionError("that was no JSON")

    def quote(response: ModelResponse) -> None:
        raise ValueError("x" * 1_000_000)

    for validate in (reject, quote):
        with pytest.raises(Rejected) as caught:
            ask(["a", "b"], Time(), validate=validate, max_attempts=2)
        assert len(caught.value.problem) < SHOWN_PROBLEM + 100
        assert caught.value.__context__ is None
    assert len(caplog.text) < 5000


def test_a_validation_may_end_it_with_an_error_of_its_own() -> None:
    def refuse(response: ModelResponse) -> None:
        raise BadRequest("never")

    def crash(response: ModelResponse) -> None:
        raise KeyError("bug")

    with pytest.raises(BadRequest, match="never"):
        ask(["a", "b"], Time(), validate=refuse)
    with pytest.raises(KeyError, match="bug"):
        ask(["a", "b"], Time(), validate=crash)


def test_an_abort_ends_a_wait_at_once() -> None:
    """The wait would be longer than the time any test may take."""
    abort = Abort()
    threading.Timer(0.1, abort.set, ["Cancelled"]).start()

    with pytest.raises(CallAborted, match="Cancelled"):
        ask([RateLimited("slow", retry_after=3600), "fine"], abort=abort, retry_seconds=7200)


def test_nothing_is_called_after_an_abort() -> None:
    abort, model = Abort(), ScriptedModel(["fine"])
    abort.set("Deleted")

    with pytest.raises(CallAborted, match="Deleted"):
        ask(model, abort=abort)
    assert not model.calls


def answer(version: str = "gemini-3.8-flash", cost: str | None = "0.5") -> ModelResponse:
    usage = Usage(input_tokens=10, output_tokens=20, cache_read_tokens=30, cache_write_tokens=40)
    price = None if cost is None else Decimal(cost)
    return ModelResponse(text="t", usage=usage, model_version=version, cost_usd=price)


def test_every_paid_answer_is_accounted_exactly_once_even_if_it_is_rejected() -> None:
    """Row 31 and section 7: one increment per answer."""
    registry = CollectorRegistry()
    billed: list[ModelResponse] = []
    script: list[StepSource] = [answer(), Overloaded("x"), answer(), answer()]

    ask(
        ScriptedModel(script, name="asked"),
        Time(),
        validate=reject_the_first_two(),
        metrics=CallMetrics(registry),
        on_billed=billed.append,
    )

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"hummingbird_ai_{name}", labels)

    assert len(billed) == 3
    assert value("requests_total", model="asked", outcome="ok") == 1
    assert value("requests_total", model="asked", outcome="rejected") == 2
    assert value("requests_total", model="asked", outcome="overloaded") == 1
    for kind, count in {"input": 30, "output": 60, "cache_read": 90, "cache_write": 120}.items():
        assert value("tokens_total", model="gemini-3.8-flash", kind=kind) == count
    assert value("cost_usd_total", model="gemini-3.8-flash") == 1.5
    assert value("latency_seconds_count", model="asked") == 4
    assert value("unpriced_total", model="gemini-3.8-flash") is None


def half_paid() -> ModelError:
    error = Overloaded("in the second pass")
    error.billed = answer()
    return error


@given(
    st.lists(st.sampled_from(["rejected", "refused by the caller", "failed", "half paid"]), max_size=6), st.booleans()
)
def test_one_increment_for_each_answer_that_is_paid_for_and_none_for_others(ends: list[str], succeeds: bool) -> None:
    """Whatever becomes of an answer: returned, rejected by the caller, or cut short by an error."""
    registry = CollectorRegistry()
    billed: list[ModelResponse] = []
    made: dict[str, Callable[[], StepSource]] = {"failed": lambda: Overloaded("x"), "half paid": half_paid}
    script = [made.get(end, answer)() for end in [*ends, *(["returned"] if succeeds else ["failed"])]]
    verdicts = iter([end for end in ends if end not in made])

    def validate(response: ModelResponse) -> None:
        verdict = next(verdicts, "")
        if verdict == "rejected":
            raise ValueError("no JSON in it")
        if verdict:
            raise Overloaded("said the caller")

    try:
        ask(
            ScriptedModel(script, name="asked"),
            Time(),
            validate=validate,
            max_attempts=len(script),
            metrics=CallMetrics(registry),
            on_billed=billed.append,
        )
        returned = True
    except Overloaded:
        returned = False

    paid = len([end for end in ends if end != "failed"]) + succeeds
    samples = [sample for metric in registry.collect() for sample in metric.samples]
    assert returned is succeeds
    assert len(billed) == paid
    assert sum(sample.value for sample in samples if sample.name.endswith("tokens_total")) == 100 * paid
    assert sum(sample.value for sample in samples if sample.name.endswith("cost_usd_total")) == 0.5 * paid
    assert sum(sample.value for sample in samples if sample.name.endswith("requests_total")) == len(script)


def test_an_answer_without_a_price_shows_in_a_metric() -> None:
    registry = CollectorRegistry()

    ask(ScriptedModel([answer("gemini-99", None)], usd_per_million=None), metrics=CallMetrics(registry))

    assert registry.get_sample_value("hummingbird_ai_unpriced_total", {"model": "gemini-99"}) == 1
    assert registry.get_sample_value("hummingbird_ai_cost_usd_total", {"model": "gemini-99"}) is None


def test_the_paid_part_of_a_failed_call_is_accounted() -> None:
    answers: list[Reply] = [
        Answer(text="a", finish="CONTINUATION", continuation_token="t"),
        HttpError(503),
        say("whole"),
    ]
    registry = CollectorRegistry()
    billed: list[ModelResponse] = []
    with GeminiServer(lambda body, n: answers[n]) as server:
        model = build_model("gemini-3.8-flash", google_api_key="test-key", base_url=server.url)
        last = ask(model, Time(), metrics=CallMetrics(registry), on_billed=billed.append)

    assert [response.finish for response in billed] == [Finish.MAX_TOKENS, Finish.STOP]
    assert billed[1] == last
    labels = {"model": "gemini-3.8-flash", "kind": "input"}
    counted = registry.get_sample_value("hummingbird_ai_tokens_total", labels)
    assert counted == sum(response.usage.input_tokens for response in billed)


def test_the_passes_of_a_search_are_one_answer_and_the_paid_one_of_a_failed_search_another() -> None:
    paused = Answer(searches=(Search("q", (("A page", "https://example.com/a"),), pending=True),))
    answers: list[Reply] = [paused, HttpError(529, "Overloaded"), paused, say("whole")]
    registry = CollectorRegistry()
    billed: list[ModelResponse] = []
    with ClaudeServer(lambda body, n: answers[n]) as server:
        last = ask(claude(server, web_search=True), Time(), metrics=CallMetrics(registry), on_billed=billed.append)
        assert len(server.calls) == 4

    assert len(billed) == 2
    assert billed[1] == last
    assert last.text == "whole"
    for name, counted in {
        "tokens_total": sum(response.usage.total_tokens for response in billed),
        "web_searches_total": sum(response.usage.web_searches for response in billed),
        "cost_usd_total": float(sum(response.cost_usd or 0 for response in billed)),
    }.items():
        samples = [sample for metric in registry.collect() for sample in metric.samples if sample.name.endswith(name)]
        assert sum(sample.value for sample in samples) == pytest.approx(counted), name
    assert last.usage.web_searches == 1


def test_a_crash_of_the_callers_own_code_is_counted_as_an_error() -> None:
    registry = CollectorRegistry()

    def crash(response: ModelResponse) -> None:
        raise KeyError("bug")

    with pytest.raises(KeyError):
        ask(ScriptedModel(["a"], name="asked"), validate=crash, metrics=CallMetrics(registry))
    labels = {"model": "asked", "outcome": "error"}
    assert registry.get_sample_value("hummingbird_ai_requests_total", labels) == 1


def test_metrics_of_one_registry_are_made_once() -> None:
    registry = CollectorRegistry()
    CallMetrics(registry)

    with pytest.raises(ValueError, match="already"):
        CallMetrics(registry)


def test_arguments_reach_the_model_unchanged() -> None:
    model = ScriptedModel(["fine"])

    ask(model, ephemeral=["w"], allow_tools=False, max_output_tokens=7)

    assert model.calls[0].ephemeral == ("w",)
    assert not model.calls[0].allow_tools
    assert model.calls[0].max_output_tokens == 7
