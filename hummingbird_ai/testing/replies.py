"""The answers a provider server's script can give: good ones, refusals, and every way to break."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Search:
    """A web search that the provider makes by itself; `results` are (title, url) pairs.

    `pending`: Claude has asked for it and has no result yet; its next answer begins with the result. `error` is the
    error code in the place of results (`max_uses_exceeded`, …). Gemini knows neither of the two.
    """

    query: str
    results: tuple[tuple[str, str], ...] = ()
    pending: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """A 200. Order: thought, searches, text, calls; usage is estimated from bytes where `usage` is silent.

    `calls` are (name, arguments) pairs. `parts` replaces all four, verbatim (Gemini: unsigned; Claude: a thinking
    block without a signature gets one). `finish` is the provider's word, "" the natural end (Gemini STOP; Claude
    end_turn, tool_use or pause_turn) and None an absent one. `usage` overrides single fields of the provider's usage;
    a value of None removes the field. `seconds` is how long the model thinks before its first byte.

    Gemini alone: `finish_message`, `block_reason` (an answer without candidates), `continuation_token`, `call_ids`.
    Claude alone: `redacted` (the thought comes as a redacted_thinking block), `stop_details`.
    """

    text: str = ""
    calls: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    thought: str = ""
    parts: tuple[Mapping[str, Any], ...] | None = None
    finish: str | None = ""
    finish_message: str = ""
    block_reason: str = ""
    continuation_token: str = ""
    usage: Mapping[str, Any] = field(default_factory=dict)
    model_version: str = ""
    call_ids: bool | None = None
    """Whether calls carry ids; by default as the real models do: from Gemini 3 on."""
    seconds: float = 0.0
    searches: tuple[Search, ...] = ()
    redacted: bool = False
    stop_details: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class HttpError:
    """An error in the shape of the server's provider; `google`: in Google's, as its front end answers on Vertex AI.

    `status` is the provider's word for it (by default the one that belongs to `code`), `in_list` wraps the document.
    Headers: `retry_after`, `retry_after_ms`, `should_retry`. Google's shape alone: `retry_delay` is a RetryInfo in the
    body, `quota_id` a QuotaFailure, `reason` an ErrorInfo. Anthropic's alone: `error_code` in the details.
    """

    code: int
    message: str = "The model is overloaded. Please try again later."
    status: str = ""
    retry_delay: str = ""
    retry_after: str = ""
    quota_id: str = ""
    reason: str = ""
    in_list: bool = False
    google: bool = False
    error_code: str = ""
    should_retry: bool | None = None
    retry_after_ms: str = ""


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
SHARED_CAPACITY = HttpError(429, "Resource exhausted, please try again later.", "RESOURCE_EXHAUSTED", google=True)


def say(text: str, **more: Any) -> Answer:
    """A text answer; `more` are fields of Answer."""
    return Answer(text=text, **more)


def call(name: str, /, **arguments: Any) -> Answer:
    """An answer that calls one tool."""
    return Answer(calls=((name, arguments),))
