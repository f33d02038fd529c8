"""Google's error answers, in the classes a caller acts on (Gemini API and Vertex AI alike)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from hummingbird_ai.errors import (
    AuthFailed,
    BadRequest,
    ContextOverflow,
    MalformedReply,
    ModelError,
    Overloaded,
    QuotaExhausted,
    RateLimited,
    RequestTooLarge,
)
from hummingbird_ai.http import HttpReply, retry_after

SHOWN_BODY = 500
SHOWN_WORD = 50
_DELAY = re.compile(r"(\d+(?:\.\d+)?)s")
OVERFLOW = ("input token count", "number of tokens allowed", "prompt is too long", "exceed context limit")
"""Google's words, and Claude's where Google's front end passes them on."""
NO_MONEY = "credit balance is too low"
_BY_STATUS: Mapping[int, type[ModelError]] = {
    401: AuthFailed,
    402: QuotaExhausted,
    403: AuthFailed,
    408: Overloaded,
    409: Overloaded,
    413: RequestTooLarge,
    429: RateLimited,
    499: ModelError,
    500: Overloaded,
    502: Overloaded,
    503: Overloaded,
    504: Overloaded,
}


def from_reply(reply: HttpReply, secrets: Sequence[str] = ()) -> ModelError:
    """The error that this answer, of a status other than 200, stands for."""
    try:
        document = json.loads(reply.body)
    except (ValueError, RecursionError):
        document = None
    error = error_of(document)
    if error is not None:
        return from_error(error, reply.status, reply.headers, secrets)
    shown = excerpt(reply.body, secrets)
    if 300 <= reply.status < 400:
        return BadRequest(f"HTTP {reply.status}: the address leads elsewhere: {shown}", status=reply.status)
    kind = by_status(reply.status)
    return kind(f"HTTP {reply.status}: {shown}", status=reply.status, retry_after=retry_after(reply.headers))


def error_of(document: Any) -> Mapping[str, Any] | None:
    """The `error` object of an answer; sometimes it comes in a list of one."""
    if isinstance(document, list) and document:
        document = document[0]
    error = document.get("error") if isinstance(document, Mapping) else None
    return error if isinstance(error, Mapping) else None


def from_error(
    error: Mapping[str, Any], status: int, headers: Mapping[str, str], secrets: Sequence[str] = ()
) -> ModelError:
    """Class by status, then by what message and details say."""
    message = str(error.get("message", ""))
    word = str(error.get("status", ""))
    details = _objects(error.get("details"))
    kind = _kind(status, word, message.lower(), details)
    hint = retry_after(headers)
    head = f"HTTP {status} {redacted(word, secrets)[:SHOWN_WORD]}".rstrip()
    return kind(
        f"{head}: {redacted(message, secrets)[:SHOWN_BODY]}",
        status=status,
        retry_after=_delay(details) if hint is None else hint,
    )


def _kind(status: int, word: str, message: str, details: Sequence[Mapping[str, Any]]) -> type[ModelError]:
    if status == 429:
        return QuotaExhausted if _is_daily(details) else RateLimited
    if status in (400, 403) and _is_unpaid(status, word, message):
        return QuotaExhausted
    if status == 400:
        return _kind_of_bad_request(message, details)
    return by_status(status)


def _is_unpaid(status: int, word: str, message: str) -> bool:
    """There is no money, or no billing account. A 429 sends people to their "plan and billing details" each minute,
    and a 400 may name a tool for billing."""
    return NO_MONEY in message or ("billing" in message and (status == 403 or word == "FAILED_PRECONDITION"))


def by_status(status: int) -> type[ModelError]:
    """A number that nobody has listed, such as 529 or a gateway's 520, is an outage from 500 on."""
    return _BY_STATUS.get(status, Overloaded if status >= 500 else BadRequest)


def _kind_of_bad_request(message: str, details: Sequence[Mapping[str, Any]]) -> type[ModelError]:
    if any(phrase in message for phrase in OVERFLOW):
        return ContextOverflow
    if "request payload size exceeds" in message:
        return RequestTooLarge
    if any(item.get("reason") == "API_KEY_INVALID" for item in details):
        return AuthFailed
    return BadRequest


def _is_daily(details: Sequence[Mapping[str, Any]]) -> bool:
    violations = [
        violation
        for item in details
        if str(item.get("@type", "")).endswith("google.rpc.QuotaFailure")
        for violation in _objects(item.get("violations"))
    ]
    return any("PerDay" in str(violation.get("quotaId", "")) for violation in violations)


def _delay(details: Sequence[Mapping[str, Any]]) -> float | None:
    for item in details:
        if str(item.get("@type", "")).endswith("google.rpc.RetryInfo"):
            match = _DELAY.fullmatch(str(item.get("retryDelay", "")))
            seconds = float(match.group(1)) if match else math.inf
            return seconds if math.isfinite(seconds) else None
    return None


def _objects(value: Any) -> list[Mapping[str, Any]]:
    """The objects in what should be a list of them."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def unreadable(reply: HttpReply, why: str, secrets: Sequence[str] = ()) -> MalformedReply:
    """A 200 that is no answer."""
    return MalformedReply(f"{why}: {excerpt(reply.body, secrets)}", status=reply.status)


def excerpt(body: bytes, secrets: Sequence[str] = ()) -> str:
    """The beginning of a body on one line; secrets go first, so that none is cut in half and shown."""
    text = redacted(body.decode(errors="replace"), secrets)[: 4 * SHOWN_BODY]
    return " ".join(text.split())[:SHOWN_BODY] or "(empty)"


def redacted(text: str, secrets: Sequence[str]) -> str:
    """The text without any of the secrets."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "[redacted]")
    return text
