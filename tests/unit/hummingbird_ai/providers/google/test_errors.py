from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hummingbird_ai import errors
from hummingbird_ai.auth import VertexAuth
from hummingbird_ai.http import HttpReply
from hummingbird_ai.messages import ModelResponse, ToolDef
from hummingbird_ai.models import build_model
from hummingbird_ai.providers.gemini.adapter import GeminiModel
from hummingbird_ai.providers.google.endpoints import VertexEndpoint
from hummingbird_ai.providers.google.errors import from_reply
from hummingbird_ai.testing import Answer, Body, GeminiServer, HttpError, Reply
from hummingbird_ai.testing.replies import HTML_PAGE, SHARED_CAPACITY

RUN = ToolDef("run", "Run a command", {"type": "object"})
OVERFLOW = "The input token count (2000000) exceeds the maximum number of tokens allowed (1048576)."
DAILY = "GenerateRequestsPerDayPerProjectPerModel"
MINUTELY = "GenerateRequestsPerMinutePerProjectPerModel"


def failure(reply: HttpError | Body) -> errors.ModelError:
    with GeminiServer(lambda body, n: reply) as server:
        model = build_model("gemini-3.8-flash", google_api_key="test-key", base_url=server.url)
        with pytest.raises(errors.ModelError) as caught:
            model.generate([model.make_user_content("go")], system="s", tools=[RUN])
    return caught.value


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (HttpError(400, OVERFLOW), errors.ContextOverflow),
        (HttpError(400, "Request payload size exceeds the limit: 20971520 bytes."), errors.RequestTooLarge),
        (HttpError(400, "API key not valid.", reason="API_KEY_INVALID"), errors.AuthFailed),
        (HttpError(400, "Please enable billing on project 1.", "FAILED_PRECONDITION"), errors.QuotaExhausted),
        (HttpError(400, "User location is not supported.", "FAILED_PRECONDITION"), errors.BadRequest),
        (HttpError(400, "Invalid thought signature."), errors.BadRequest),
        (HttpError(400, "prompt is too long: 216868 tokens > 200000 maximum"), errors.ContextOverflow),
        (HttpError(400, "input length and `max_tokens` exceed context limit: 1 + 2 > 2"), errors.ContextOverflow),
        (HttpError(400, "Your credit balance is too low to access the API."), errors.QuotaExhausted),
        (HttpError(400, "Invalid function name: billing report"), errors.BadRequest),
        (HttpError(401, "no"), errors.AuthFailed),
        (HttpError(402, "pay"), errors.QuotaExhausted),
        (HttpError(403, "This API method requires billing to be enabled."), errors.QuotaExhausted),
        (HttpError(409, "The operation was aborted.", "ABORTED"), errors.Overloaded),
        (HttpError(429, "Please check your plan and billing details."), errors.RateLimited),
        (HttpError(403, "no"), errors.AuthFailed),
        (HttpError(404, "models/x is not found"), errors.BadRequest),
        (HttpError(408, "slow"), errors.Overloaded),
        (HttpError(413, "big"), errors.RequestTooLarge),
        (HttpError(418, "teapot"), errors.BadRequest),
        (SHARED_CAPACITY, errors.RateLimited),
        (HttpError(429, "quota", quota_id=MINUTELY), errors.RateLimited),
        (HttpError(429, "quota", quota_id=DAILY), errors.QuotaExhausted),
        (HttpError(499, "gone"), errors.ModelError),
        (HttpError(500, "x"), errors.Overloaded),
        (HttpError(502, "x"), errors.Overloaded),
        (HttpError(503), errors.Overloaded),
        (HttpError(504, "x"), errors.Overloaded),
    ],
)
def test_every_status_has_its_class(reply: HttpError, kind: type[errors.ModelError]) -> None:
    """Reports 18, 35, 36 and section 1.7: an overflow is terminal, a shared capacity is not the day's quota."""
    error = failure(reply)

    assert type(error) is kind
    assert error.status == reply.code
    assert error.retryable == issubclass(kind, errors.Transient)


def test_an_error_in_a_list_of_one_is_read_too() -> None:
    error = failure(HttpError(429, "slow down", quota_id=DAILY, in_list=True))

    assert isinstance(error, errors.QuotaExhausted)
    assert "slow down" in str(error)


@pytest.mark.parametrize(
    ("reply", "seconds"),
    [
        (HttpError(429, "x"), None),
        (HttpError(429, "x", retry_delay="14s"), 14.0),
        (HttpError(429, "x", retry_delay="0.5s"), 0.5),
        (HttpError(429, "x", retry_delay="14s", retry_after="3"), 3.0),
        (HttpError(503, "x", retry_after="2"), 2.0),
        (HttpError(429, "x", retry_delay="soon"), None),
        (HttpError(429, "x", retry_delay="9" * 400 + "s"), None),
    ],
)
def test_the_providers_hint_is_read_from_the_header_before_the_body(reply: HttpError, seconds: float | None) -> None:
    assert failure(reply).retry_after == seconds


def test_a_proxys_page_is_classified_by_its_status_and_shown_in_short() -> None:
    error = failure(Body(HTML_PAGE.data * 100, status=502, content_type="text/html"))

    assert isinstance(error, errors.Overloaded)
    assert "Bad gateway" in str(error)
    assert len(str(error)) < 700


def test_a_redirect_is_a_bad_request_that_says_so() -> None:
    error = failure(Body(b"moved", status=307))

    assert isinstance(error, errors.BadRequest)
    assert "leads elsewhere" in str(error)


def test_a_long_message_is_cut_to_500_characters() -> None:
    assert len(failure(HttpError(400, "x" * 5000)).problem) < 540


def test_a_body_that_repeats_the_key_does_not_bring_it_into_the_message() -> None:
    for reply in (HttpError(400, "API key test-key not valid"), Body(b"<p>test-key</p>", 500), Body(b"test-key", 200)):
        error = failure(reply)
        assert "[redacted]" in str(error)
        assert "test-key" not in f"{error!r} {error}"
        assert error.__context__ is None


class Bearer:
    """Credentials with a token that must not be seen again."""

    valid, token = True, "ya29.secret-token"


def ask_by_vertex(reply: Reply) -> ModelResponse:
    with GeminiServer(lambda body, n: reply, bearer_token=Bearer.token) as server:
        model = GeminiModel("gemini-3.8-flash", VertexEndpoint(VertexAuth("p", credentials=Bearer()), "eu", server.url))
        return model.generate([model.make_user_content("go")], system="s", tools=[RUN])


@pytest.mark.parametrize(
    "reply",
    [
        HttpError(400, "not valid: Bearer ya29.secret-token"),
        HttpError(400, "x", "WORD_ya29.secret-token"),
        Body(b'[{"error": {"code": 503, "message": "ya29.secret-token"}}]', 503),
        Body(b"<pre>authorization: Bearer ya29.secret-token</pre>", 502),
        Body(b" " * 1990 + b"ya29.secret-token", 502),
        Body(b'{"candidates": 1, "got": "ya29.secret-token"}'),
        Body(b'{"error": {"code": 500, "message": "ya29.secret-token"}}'),
    ],
)
def test_a_bearer_token_is_not_shown_even_if_the_other_side_repeats_it(reply: HttpError | Body) -> None:
    with pytest.raises(errors.ModelError) as caught:
        ask_by_vertex(reply)

    assert caught.value.__context__ is None
    shown = f"{caught.value} {caught.value!r}"
    assert "ya29" not in shown
    assert "secret" not in shown


def test_a_key_that_is_not_there_leaves_the_message_as_it_is() -> None:
    assert str(from_reply(HttpReply(503, {}, b"busy"), secrets=("",))).startswith("HTTP 503: busy")


def test_what_an_answer_says_of_its_end_and_its_model_does_not_show_the_token() -> None:
    message, version = "for ya29.secret-token", "gemini-ya29.secret-token"
    response = ask_by_vertex(Answer(text="t", finish="OTHER", finish_message=message, model_version=version))

    assert response.finish_reason == "OTHER: for [redacted]"
    assert response.model_version == "gemini-[redacted]"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
details = st.fixed_dictionaries(
    {"@type": st.sampled_from(["x/google.rpc.QuotaFailure", "x/google.rpc.RetryInfo"]) | json_values},
    optional={"violations": json_values | st.lists(json_values), "retryDelay": json_values, "reason": json_values},
)
fields = {
    "code": json_values,
    "message": json_values,
    "status": json_values,
    "details": json_values | st.lists(details),
}


@given(st.fixed_dictionaries({}, optional=fields) | json_values, st.integers(201, 599), st.booleans())
def test_no_error_body_whatever_raises_anything_but_a_model_error(error: Any, status: int, in_list: bool) -> None:
    document = [{"error": error}] if in_list else {"error": error}
    found = from_reply(HttpReply(status, {}, json.dumps(document).encode()))

    assert isinstance(found, errors.ModelError)
    assert found.status == status
    assert found.retry_after is None or 0 <= found.retry_after < float("inf")


@pytest.mark.parametrize("document", [[], {}, {"error": "text"}, {"error": {"details": ["x", None]}}, "text", None])
def test_a_strange_error_body_still_gives_an_error_by_status(document: Any) -> None:
    error = from_reply(HttpReply(503, {}, json.dumps(document).encode()))

    assert isinstance(error, errors.Overloaded)


def test_every_error_says_what_a_person_can_do() -> None:
    def all_of(kind: type[errors.ModelError]) -> list[type[errors.ModelError]]:
        return [kind, *(below for child in kind.__subclasses__() for below in all_of(child))]

    kinds = all_of(errors.ModelError)
    assert len(kinds) == 15
    for kind in kinds:
        assert str(kind("something broke.")).endswith(kind.advice)
        assert ".." not in str(kind("something broke."))


def test_an_errors_word_is_its_class_in_snake_case() -> None:
    assert errors.RateLimited("x").word == "rate_limited"
