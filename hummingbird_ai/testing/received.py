"""What a provider server was asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hummingbird_ai.testing.replies import HttpError


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request as it came in; `at` is the server's clock at its arrival, header names are lower case.

    `body` is {} where `unreadable` says why it is no JSON object.
    """

    at: float
    path: str
    model: str
    headers: Mapping[str, str]
    raw: bytes
    body: dict[str, Any]
    unreadable: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedCall(Request):
    """A request with its place among all of its server (`number`), what refused it, and "google" or "anthropic"."""

    number: int
    refused: HttpError | None
    provider: str
