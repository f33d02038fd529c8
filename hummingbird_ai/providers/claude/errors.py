"""Claude's error answers in the classes a caller acts on: Anthropic's shape, or Google's from its front end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hummingbird_ai.errors import (
    AuthFailed,
    BadRequest,
    ContextOverflow,
    ModelError,
    Overloaded,
    QuotaExhausted,
    RateLimited,
    RequestTooLarge,
)
from hummingbird_ai.http import HttpReply, retry_after
from hummingbird_ai.providers.google import errors as google_errors

_OF_THINKING = (
    "bound to a different conversation",
    "Invalid `signature`",
    "Invalid `data`",
    "cannot be modified",
    "final block in an assistant message",
)
_SPEND_LIMITS = frozenset({"enforced_spend_limit_reached", "contract_spend_limit_reached"})
_BY_WORD: Mapping[str, type[ModelError]] = {
    "authentication_error": AuthFailed,
    "permission_error": AuthFailed,
    "billing_error": QuotaExhausted,
    "request_too_large": RequestTooLarge,
    "rate_limit_error": RateLimited,
    "api_error": Overloaded,
    "timeout_error": Overloaded,
    "overloaded_error": Overloaded,
}


def from_reply(reply: HttpReply, secrets: Sequence[str] = ()) -> ModelError:
    """The error that this answer, of a status other than 200, stands for."""
    document = _document(reply.body)
    own = own_error(document)
    if own is None:
        error = google_errors.from_reply(reply, secrets)
    else:
        error = from_error(own, reply.status, reply.headers, secrets)
    override = {"true": True, "false": False}.get(reply.headers.get("x-should-retry", "").lower())
    if override is not None:
        error.retryable = override
    return error


def own_error(document: Any) -> Mapping[str, Any] | None:
    """The `error` object of Anthropic's shape; Google's has a number as its code and no type.

    Some front ends put the one, as text, into the message of the other.
    """
    error = google_errors.error_of(document)
    if error is not None and not isinstance(error.get("type"), str):
        error = google_errors.error_of(_document(str(error.get("message", "")).encode()))
    return error if error is not None and isinstance(error.get("type"), str) else None


def from_error(
    error: Mapping[str, Any], status: int, headers: Mapping[str, str], secrets: Sequence[str] = ()
) -> ModelError:
    """Class by what message and details say, then by Anthropic's word, then by status."""
    message = str(error.get("message", ""))
    details = error.get("details")
    code = str(details.get("error_code", "")) if isinstance(details, Mapping) else ""
    shown = google_errors.redacted(message, secrets)[: google_errors.SHOWN_BODY]
    word = google_errors.redacted(error["type"], secrets)[: google_errors.SHOWN_WORD]
    kind = _kind(status, error["type"], message.lower(), code)
    return kind(f"HTTP {status} {word}: {shown}", status=status, retry_after=retry_after(headers))


def _kind(status: int, word: str, message: str, code: str) -> type[ModelError]:
    if any(phrase in message for phrase in google_errors.OVERFLOW):
        return ContextOverflow
    if google_errors.NO_MONEY in message or code in _SPEND_LIMITS:
        return QuotaExhausted
    return _BY_WORD.get(word) or google_errors.by_status(status)


def _document(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def is_prefix_changed(error: ModelError) -> bool:
    """A thinking block no longer fits where it stands: it helps to leave the old thinking out."""
    return isinstance(error, BadRequest) and (
        "thinking" in error.problem and any(phrase in error.problem for phrase in _OF_THINKING)
    )


def is_system_refused(error: ModelError) -> bool:
    """System messages among the others, or the beta that lets them end by themselves, are not to be had here."""
    return isinstance(error, BadRequest) and (
        any(phrase in error.problem for phrase in ("role 'system'", 'role "system"', "clear_at"))
        or ("mid-conversation-system" in error.problem and "anthropic-beta" in error.problem)
    )
