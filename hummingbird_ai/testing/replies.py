"""The answers a `GeminiServer` script can give: good ones, refusals, and every way to break."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """A 200. Parts come in the order thought, text, calls; usage is estimated from bytes where `usage` is silent.

    `calls` are (name, arguments) pairs. `parts` replaces all three, verbatim and unsigned. `usage` overrides single
    fields of `usageMetadata`; a value of None removes the field. `block_reason` answers without candidates.
    `seconds` is how long the model thinks before its first byte.
    """

    text: str = ""
    calls: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    thought: str = ""
    parts: tuple[Mapping[str, Any], ...] | None = None
    finish: str | None = "STOP"
    finish_message: str = ""
    block_reason: str = ""
    continuation_token: str = ""
    usage: Mapping[str, int | None] = field(default_factory=dict)
    model_version: str = ""
    call_ids: bool | None = None
    """Whether calls carry ids; by default as the real models do: from Gemini 3 on."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class HttpError:
    """An error in Google's shape. `retry_delay` is a RetryInfo in the body, `retry_after` a header."""

    code: int
    message: str = "The model is overloaded. Please try again later."
    status: str = ""
    retry_delay: str = ""
    retry_after: str = ""
    quota_id: str = ""
    reason: str = ""
    in_list: bool = False


@dataclass(frozen=True, slots=True)
class Body:
    """Raw bytes: an empty body, half a body (`cut`: the connection ends before Content-Length), HTML, garbage."""

    data: bytes = b""
    status: int = 200
    content_type: str = "application/json; charset=UTF-8"
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Drop:
    """The connection is closed without an answer."""


@dataclass(frozen=True, slots=True)
class Stall:
    """No byte until the server is released, then `reply`; or until the client gives up."""

    reply: Answer = field(default_factory=Answer)
    after_headers: bool = False
    """Send the status line and headers first, so that the client waits inside the body."""


@dataclass(frozen=True, slots=True)
class Drip:
    """An answer in pieces of `size` bytes, `seconds` apart."""

    reply: Answer
    seconds: float = 0.05
    size: int = 16


Reply = Answer | HttpError | Body | Drop | Stall | Drip

Script = Callable[[dict[str, Any], int], Reply]
"""Given the request's body and the number of the call (from 0, over all conversations), what to answer."""

HALF_BODY = Body(b'{"candidates": [{"content": {"role": "model", "par', cut=True)
HTML_PAGE = Body(b"<html><body><h1>Bad gateway</h1></body></html>", content_type="text/html")
SHARED_CAPACITY = HttpError(429, "Resource exhausted, please try again later.", "RESOURCE_EXHAUSTED")


def say(text: str, **more: Any) -> Answer:
    """A text answer; `more` are fields of Answer."""
    return Answer(text=text, **more)


def call(name: str, /, **arguments: Any) -> Answer:
    """An answer that calls one tool."""
    return Answer(calls=((name, arguments),))
