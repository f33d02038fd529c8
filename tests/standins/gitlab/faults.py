"""Faults on order: what happens to GitLab's answers on a bad day."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

TOO_MANY = '{"message": {"error": "This endpoint has been requested too many times. Try again later."}}'
LIMITS: Mapping[str, tuple[Mapping[str, str], str]] = {
    "seconds": ({"Retry-After": "1", "RateLimit-Limit": "2000", "RateLimit-Remaining": "0"}, TOO_MANY),
    "date": ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, TOO_MANY),
    "fraction": ({"Retry-After": "0.5"}, TOO_MANY),
    "none": ({}, TOO_MANY),
    "plain": ({"Content-Type": "text/plain"}, "Retry later\n"),
}
"""What a 429 may look like: most have seconds; some APIs none; proxies a date, a fraction or plain text."""


@dataclass
class Fault:
    """Happens to the next `times` calls whose method and path fit.

    `kind`: status (answer `status` instead) | cut (close after `bytes_sent` bytes of the body) | stall (wait `seconds`
    before the answer, with the connection open) | html (200 with a sign-in page) | next_link (the next page's link
    points at `target`) | drop (close without an answer). With `after_write` the call takes effect first.
    """

    kind: str
    method: str = ""
    path: str = ""
    times: int = 1
    status: int = 500
    headers: dict[str, str] = field(default_factory=dict)
    body: str = '{"message": "injected"}'
    seconds: float = 0.0
    bytes_sent: int = 0
    target: str = ""
    after_write: bool = False
    skip: int = 0

    @classmethod
    def limit(cls, form: str, **details: Any) -> Fault:
        """A 429 in one of the forms of `LIMITS` (sources.md §1.4)."""
        headers, body = LIMITS[form]
        return cls("status", status=429, headers=dict(headers), body=body, **details)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Fault:
        """Read one from the control API; unknown keys are an error."""
        unknown = set(raw) - {item.name for item in fields(cls)}
        if unknown:
            raise ValueError(f"unknown keys {sorted(unknown)}")
        return cls(**raw)

    def fits(self, method: str, path: str) -> bool:
        """True if this call is hit; counts down `skip`, then `times`."""
        if self.times <= 0 or (self.method and self.method != method) or self.path not in path:
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        self.times -= 1
        return True
