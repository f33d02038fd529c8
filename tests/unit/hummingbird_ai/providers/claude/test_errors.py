"""The classifier: Anthropic's shape, Google's shape, and no shape at all."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hummingbird_ai import errors
from hummingbird_ai.http import HttpReply
from hummingbird_ai.providers.claude.errors import from_reply, is_prefix_changed, is_system_refused

BOUND = (
    "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation. "
    'Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
)


def own(word: str, message: str = "no", **details: Any) -> bytes:
    error: dict[str, Any] = {"type": word, "message": message}
    if details:
        error["details"] = details
    return json.dumps({"type": "error", "error": error, "request_id": "req_1"}).encode()


def error_of(status: int, body: bytes, **headers: str) -> errors.ModelError:
    return from_reply(HttpReply(status, {name.replace("_", "-"): value for name, value in headers.items()}, body))


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, own("invalid_request_error", "prompt is too long: 216868 tokens > 200000 maximum"), "ContextOverflow"),
        (400, own("invalid_request_error", "`max_tokens` exceed context limit: 1 + 2 > 2"), "ContextOverflow"),
        (400, own("invalid_request_error", "Your credit balance is too low to access the API"), "QuotaExhausted"),
        (400, own("invalid_request_error", "messages: at least one message is required"), "BadRequest"),
        (401, own("authentication_error"), "AuthFailed"),
        (402, own("billing_error"), "QuotaExhausted"),
        (403, own("permission_error"), "AuthFailed"),
        (404, own("not_found_error"), "BadRequest"),
        (408, own("unheard_of"), "Overloaded"),
        (409, own("conflict_error"), "Overloaded"),
        (413, own("request_too_large"), "RequestTooLarge"),
        (429, own("rate_limit_error"), "RateLimited"),
        (429, own("rate_limit_error", error_code="enforced_spend_limit_reached"), "QuotaExhausted"),
        (429, own("rate_limit_error", error_code="contract_spend_limit_reached"), "QuotaExhausted"),
        (500, own("api_error"), "Overloaded"),
        (503, own("unheard_of"), "Overloaded"),
        (504, own("timeout_error"), "Overloaded"),
        (529, own("overloaded_error"), "Overloaded"),
        (200, own("overloaded_error"), "Overloaded"),
        (429, b'{"error":{"code":429,"message":"Quota exceeded for aiplatform.googleapis.com/x"}}', "RateLimited"),
        (403, b'[{"error":{"code":403,"message":"no","status":"PERMISSION_DENIED"}}]', "AuthFailed"),
        (404, b'{"error":{"code":404,"message":"Publisher Model was not found","status":"NOT_FOUND"}}', "BadRequest"),
        (413, b"<html>too large</html>", "RequestTooLarge"),
        (502, b"", "Overloaded"),
        (529, b"", "Overloaded"),
        (520, b"<html>gateway</html>", "Overloaded"),
        (400, b"[" * 100_000, "BadRequest"),
    ],
)  # fmt: skip
def test_each_answer_has_its_class(status: int, body: bytes, kind: str) -> None:
    """Report 35: an overflow that is retried like an outage; section 2.8."""
    assert type(error_of(status, body)).__name__ == kind


def test_the_provider_may_say_whether_to_try_again() -> None:
    assert error_of(529, own("overloaded_error"), x_should_retry="false").retryable is False
    assert error_of(400, own("invalid_request_error"), x_should_retry="true").retryable is True
    assert error_of(529, own("overloaded_error"), x_should_retry="perhaps").retryable is True
    assert errors.Overloaded.retryable is True


def test_the_hint_is_read_from_the_headers_of_either_shape() -> None:
    assert error_of(429, own("rate_limit_error"), retry_after="7").retry_after == 7
    assert error_of(429, own("rate_limit_error"), retry_after_ms="1500").retry_after == 1.5
    assert error_of(429, own("rate_limit_error")).retry_after is None


def test_an_error_of_anthropic_inside_one_of_google_is_read() -> None:
    """As a front end that wraps it writes it."""
    inner = own("invalid_request_error", "prompt is too long: 9 tokens > 8 maximum").decode()
    outer = json.dumps({"error": {"code": 400, "message": inner, "status": "INVALID_ARGUMENT"}}).encode()

    error = error_of(400, outer)

    assert isinstance(error, errors.ContextOverflow)
    assert error.problem == "HTTP 400 invalid_request_error: prompt is too long: 9 tokens > 8 maximum"


def test_message_and_status_reach_the_person_and_secrets_do_not() -> None:
    reply = HttpReply(400, {}, own("invalid_request_error", "bad token ya29.secret, " + "x" * 2000))

    error = from_reply(reply, ["ya29.secret"])

    assert str(error).startswith("HTTP 400 invalid_request_error: bad token [redacted], xxx")
    assert error.status == 400
    assert len(error.problem) < 600


def test_details_of_any_form_are_no_obstacle() -> None:
    body = b'{"type":"error","error":{"type":"rate_limit_error","message":null,"details":["x"]}}'

    assert isinstance(error_of(429, body), errors.RateLimited)


@pytest.mark.parametrize(
    ("message", "changed", "refused"),
    [
        (BOUND, True, False),
        ("messages.1.content.0: Invalid `signature` in `thinking` block", True, False),
        ("`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified.", True, False),
        ("role 'system' is not supported on this model", False, True),
        ("messages.2.clear_at: Extra inputs are not permitted", False, True),
        ("Unexpected value(s) `mid-conversation-system-x` for the `anthropic-beta` header.", False, True),
        ("messages: roles must alternate", False, False),
    ],
)
def test_what_can_be_repaired_is_told_by_the_provider_s_words(message: str, changed: bool, refused: bool) -> None:
    error = error_of(400, own("invalid_request_error", message))

    assert is_prefix_changed(error) is changed
    assert is_system_refused(error) is refused


def test_only_a_refused_request_can_be_repaired() -> None:
    error = error_of(529, own("overloaded_error", BOUND + " clear_at"))

    assert not is_prefix_changed(error)
    assert not is_system_refused(error)
