"""Error answers: the document in Google's and in Anthropic's shape, and the headers of both."""

from __future__ import annotations

from typing import Any

from hummingbird_ai.testing.replies import HttpError

_GOOGLE_WORDS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_ANTHROPIC_WORDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def google_error(error: HttpError) -> Any:
    """`{"error": {"code", "message", "status", "details"?}}`."""
    details: list[dict[str, Any]] = []
    if error.quota_id:
        violation = {"quotaMetric": "generate_content_requests", "quotaId": error.quota_id}
        details.append({"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [violation]})
    if error.retry_delay:
        details.append({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": error.retry_delay})
    if error.reason:
        details.append({"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": error.reason})
    word = error.status or _GOOGLE_WORDS.get(error.code, "UNKNOWN")
    document = {"error": {"code": error.code, "message": error.message, "status": word}}
    if details:
        document["error"]["details"] = details
    return [document] if error.in_list else document


def anthropic_error(error: HttpError) -> Any:
    """`{"type": "error", "error": {"type", "message", "details"?}, "request_id"}`, or Google's where it says so."""
    if error.google:
        return google_error(error)
    word = error.status or _ANTHROPIC_WORDS.get(error.code, "api_error")
    inner: dict[str, Any] = {"type": word, "message": error.message}
    if error.error_code:
        inner["details"] = {"error_code": error.error_code}
    document = {"type": "error", "error": inner, "request_id": "req_vrtx_error"}
    return [document] if error.in_list else document


def error_headers(error: HttpError) -> dict[str, str]:
    """What the error says about trying again."""
    given = {"Retry-After": error.retry_after, "retry-after-ms": error.retry_after_ms}
    headers = {name: value for name, value in given.items() if value}
    if error.should_retry is not None:
        headers["x-should-retry"] = str(error.should_retry).lower()
    return headers
