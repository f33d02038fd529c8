"""What the API server refuses, as errors that name who must act."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from hummingbird_operator.errors import Conflict, Invalid, NotFound, Unavailable

Object = dict[str, Any]

SERVICE = "the API server"
GONE = 410


class AlreadyExists(Conflict):
    """A create met an object of that name: read it and see whether it is ours."""


class QuotaExceeded(Unavailable):
    """A ResourceQuota of the namespace is used up: wait for others to finish, nothing is wrong with the object."""


class Forbidden(Invalid):
    """RBAC refuses it to this process: whatever the object holds, a person must mend the Role."""


class Expired(Unavailable):
    """The continue token of a list is too old."""


def raise_for(status: int, payload: Object, what: str, retry_after: float | None = None) -> NoReturn:
    """Turn a Status object into the error that names who must act. `status` 0 means that no answer came."""
    message = str(payload.get("message") or payload.get("reason") or f"HTTP {status}")
    if status == 404:
        raise NotFound(f"{what}: {message}")
    if status == 409:
        raise (AlreadyExists if payload.get("reason") == "AlreadyExists" else Conflict)(f"{what}: {message}")
    if status == 422 and what.startswith("patch ") and _is_failed_test(payload):
        raise Conflict(f"{what}: {message}")
    if status == 403 and "exceeded quota" in message:
        raise QuotaExceeded(SERVICE, message, retry_after=retry_after)
    if status == 401:  # an API server whose own store is away knows nobody's token: that passes by itself
        raise Unavailable(
            SERVICE, f"{what}: {message} (does the server still know this token?)", retry_after=retry_after
        )
    if status == 403 and _is_admission(message):
        raise Invalid(what, message)
    if status == 403:
        raise Forbidden(what, f"{message} (is the Role applied?)")
    if status == GONE:
        raise Expired(SERVICE, message)
    if status == 0 or status == 429 or status >= 500:
        raise Unavailable(SERVICE, f"{what}: {message}", retry_after=retry_after)
    raise Invalid(what, message)


def _is_admission(message: str) -> bool:
    """Whether a policy refused this one object: RBAC's own refusals say who cannot do what."""
    return "denied the request" in message or "denied request" in message


def _is_failed_test(payload: Object) -> bool:
    """A JSON patch that did not apply has no field among its causes; a schema violation has."""
    causes = (payload.get("details") or {}).get("causes") or []
    return not any(cause.get("field") for cause in causes)


def decode(raw: bytes) -> Object:
    """A JSON object, or what came instead as its `message`."""
    try:
        value = json.loads(raw) if raw else {}
    except ValueError:
        value = {"message": raw[:500].decode(errors="replace")}
    return value if isinstance(value, dict) else {"message": str(value)[:500]}
