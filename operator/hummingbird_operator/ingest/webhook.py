"""`POST /webhooks/gitlab`: who sent it, what is in it, what became of it, within the ten seconds that GitLab waits.

The order is the protection: a token before the body is read, a signature over the exact bytes before they are parsed,
a bound on bytes and requests before either. GitLab never sends an event twice and disables a hook whose answers are
4xx or 5xx: so whatever is filtered is a 200, and what cannot be handled now goes to the queue, or is a 503 that
`replay.py` picks up. No header, token, signature or body is ever logged.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hummingbird_operator.errors import HummingbirdError, Unavailable
from hummingbird_operator.ingest import signatures
from hummingbird_operator.ingest.event import BODY_BYTES, BadMessage, Event, parse_object
from hummingbird_operator.ingest.handle import NameTaken
from hummingbird_operator.ingest.reasons import Outcome, Reason
from hummingbird_operator.ingest.signatures import Verdict

logger = logging.getLogger(__name__)

PATH = "/webhooks/gitlab"
BUDGET_SECONDS = 7.0
"""From the first byte to the outcome; GitLab hangs up after ten."""
QUEUE_SECONDS = 2.0
"""For the queue, after the budget is spent."""
RETRY_AFTER_SECONDS = 10
WARN_AGAIN_SECONDS = 60.0

LARGE_BYTES = 1024 * 1024
"""Of larger bodies one is parsed at a time: as objects they may take twenty times their bytes."""

_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
_DELIVERY = re.compile(r"[A-Za-z0-9_.:-]{1,80}")
_EVENT = re.compile(r"[A-Za-z ]{1,60}")


class Handles(Protocol):
    """What turns an event into AgentRuns; `handle.Handler` does."""

    async def handle(self, event: Event) -> Outcome:
        """Raises Unavailable (the same event again later) and NameTaken."""

    async def away(self) -> Unavailable | None:
        """Which service does not answer; None where all do, so that a fault is that of one event."""


class Queue(Protocol):
    """Takes what cannot be handled now."""

    async def send(self, event: Event) -> None:
        """Returns once the event is safe. Raises a HummingbirdError."""


@dataclass
class Room:
    """Bounds on what is in hand at once, so that memory is bounded; over them GitLab is told to come again."""

    requests: int = 500
    held_bytes: int = 32 * 1024 * 1024
    _requests: int = field(default=0, init=False)
    _bytes: int = field(default=0, init=False)

    @contextmanager
    def place(self) -> Iterator[Callable[[int], None]]:
        """A place for one request; what it gives is told of each piece of the body. Raises a 503."""
        held = 0

        def hold(size: int) -> None:
            nonlocal held
            if self._bytes + size > self.held_bytes:
                raise _busy()
            held += size
            self._bytes += size

        if self._requests >= self.requests:
            raise _busy()
        self._requests += 1
        try:
            yield hold
        finally:
            self._requests -= 1
            self._bytes -= held


@dataclass(frozen=True)
class Webhook:
    """The door for GitLab's events."""

    handler: Handles
    secrets: Callable[[], Sequence[str]]
    """Reads the secrets that are right now; called in a thread. Raises Invalid."""
    queue: Queue | None = None
    refused: Callable[[], None] = lambda: None
    """Called when a delivery was lost for now (503): GitLab does not send it again."""
    room: Room = field(default_factory=Room)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    budget_seconds: float = BUDGET_SECONDS
    _answers: Counter = field(init=False)
    _warned: dict[str, float] = field(default_factory=dict, init=False)
    _one_by_one: Executor = field(default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="large"), init=False)

    def __post_init__(self) -> None:
        counter = Counter("hummingbird_ingest_answers", "Answers to webhooks", ["status"], registry=self.registry)
        object.__setattr__(self, "_answers", counter)

    def app(self) -> Starlette:
        """The ASGI application; any other path is a 404, any other method a 405."""
        routes = [Route(PATH, self.receive, methods=["POST"])]
        app = Starlette(routes=routes, exception_handlers={HTTPException: _refusal})
        app.router.redirect_slashes = False  # GitLab takes a redirect for delivered, and the event would be lost
        return app

    async def receive(self, request: Request) -> Response:
        """One delivery. Never raises but for refusals, which are counted."""
        try:
            response = await self._receive(request)
        except HTTPException as refusal:
            response = await _refusal(request, refusal)
        except ClientDisconnect:  # nobody reads this
            response = _answer(400, "disconnected", "the body did not come whole")
        except Exception as error:  # noqa: BLE001 - a fault of ours; its text could hold the payload
            frame = traceback.extract_tb(error.__traceback__)[-1]
            logger.error("a webhook failed: %s in %s line %s", type(error).__name__, frame.name, frame.lineno)
            response = _answer(500, "error", "a fault of ours; the log of the ingestor names it")
        self._answers.labels(str(response.status_code)).inc()
        if response.status_code == 503:
            self.refused()
        return response

    async def _receive(self, request: Request) -> Response:
        deadline = asyncio.get_running_loop().time() + self.budget_seconds
        headers = {name.lower(): value for name, value in request.headers.items()}
        with self.room.place() as hold:
            try:
                async with asyncio.timeout_at(deadline):
                    event = await self._event(request, headers, hold)
            except TimeoutError:
                raise HTTPException(503, "the body did not come in time", _later()) from None
            try:
                async with asyncio.timeout_at(deadline):
                    outcome = await self.handler.handle(event)
            except NameTaken as error:
                return _answer(409, Reason.NAME_TAKEN, str(error))
            except TimeoutError:
                return await self._put_off(event, f"not done within {self.budget_seconds:.0f} s", None)
            except HummingbirdError as error:  # away, or a person must mend something: the event itself is not at fault
                logger.warning("an event waits: %s", error)
                after = error.retry_after if isinstance(error, Unavailable) else None
                return await self._put_off(event, str(error), after)
        taken = outcome.reason == Reason.NAME_TAKEN
        return _answer(409 if taken else 200, outcome.reason, outcome.detail, outcome.runs)

    async def _event(self, request: Request, headers: Mapping[str, str], hold: Callable[[int], None]) -> Event:
        """Read, verified and parsed, in that order."""
        try:
            secrets = await asyncio.to_thread(self.secrets)
        except HummingbirdError as error:
            self._warn("secrets", f"webhooks are refused: {error}")
            raise HTTPException(503, "no secret is to be had", _later()) from error
        signed = signatures.signed(headers, secrets)
        if not signed:
            self._admit(signatures.by_token(headers, secrets))
        body = await _read(request, hold)
        if signed:
            self._admit(await asyncio.to_thread(signatures.by_signature, body, headers, secrets))
        if headers.get("content-type", "").split(";")[0].strip().lower() in _FORMS:
            raise HTTPException(415, "a form came; the body must be JSON, as GitLab's own webhooks send it")
        threads = self._one_by_one if len(body) > LARGE_BYTES else None
        try:
            payload = await asyncio.get_running_loop().run_in_executor(threads, parse_object, body)
        except BadMessage as error:
            raise HTTPException(400, str(error)) from None
        delivery = headers.get("idempotency-key") or headers.get("webhook-id") or ""
        return Event("gitlab", _plain(_EVENT, headers.get("x-gitlab-event", "")), payload, _plain(_DELIVERY, delivery))

    def _admit(self, verdict: Verdict) -> None:
        if verdict is Verdict.NOT_TEXT:
            raise HTTPException(400, verdict.value)
        if verdict is not Verdict.VALID:
            self._warn(verdict.name, f"a webhook was refused (401): {verdict}")
            raise HTTPException(401, verdict.value)

    async def _put_off(self, event: Event, why: str, retry_after: float | None) -> Response:
        """To the queue where there is one, else GitLab's list of failed deliveries is where the event waits."""
        if self.queue is not None:
            try:
                async with asyncio.timeout(QUEUE_SECONDS):
                    await self.queue.send(event)
                return _answer(202, "queued", why)
            except (HummingbirdError, TimeoutError) as error:
                self._warn("queue", f"the queue does not take an event: {str(error) or 'no answer'}")
        return _answer(503, "unavailable", why, headers=_later(retry_after))

    def _warn(self, kind: str, text: str) -> None:
        """A kind of warning at most once a minute: strangers may knock as often as they like."""
        now = time.monotonic()
        if now - self._warned.get(kind, -math.inf) >= WARN_AGAIN_SECONDS:
            self._warned[kind] = now
            logger.warning("%s", text)


async def _read(request: Request, hold: Callable[[int], None]) -> bytes:
    """The body, by a count of its own: Content-Length may be absent, and is only good for an early no."""
    if int(request.headers.get("content-length") or 0) > BODY_BYTES:
        raise _too_large()
    pieces, size = [], 0
    stream: AsyncIterator[bytes] = request.stream()
    async for piece in stream:
        size += len(piece)
        if size > BODY_BYTES:
            raise _too_large()
        hold(len(piece))
        pieces.append(piece)
    return b"".join(pieces)


def _too_large() -> HTTPException:
    return HTTPException(413, f"a body has at most {BODY_BYTES} bytes", {"Connection": "close"})


def _busy() -> HTTPException:
    return HTTPException(503, "too many events at once", _later())


def _later(seconds: float | None = None) -> dict[str, str]:
    return {"Retry-After": str(RETRY_AFTER_SECONDS if seconds is None else math.ceil(seconds))}


def _plain(pattern: re.Pattern[str], text: str) -> str:
    """The text where it is what GitLab sends, else nothing: it goes into logs."""
    return text if pattern.fullmatch(text) else ""


def _answer(
    status: int, reason: str, detail: str = "", runs: Sequence[str] = (), headers: Mapping[str, str] | None = None
) -> Response:
    content = {"reason": str(reason), "detail": detail, "runs": list(runs)}
    return JSONResponse(content, status, headers=dict(headers or {}))


_WORDS = {
    400: "bad_payload",
    401: "bad_signature",
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
    415: "not_json",
    503: "unavailable",
}


async def _refusal(_: Request, error: Exception) -> Response:
    """A refusal in the same shape as an outcome."""
    assert isinstance(error, HTTPException)  # noqa: S101 - Starlette's handlers are typed for any exception
    return _answer(error.status_code, _WORDS.get(error.status_code, "error"), error.detail, headers=error.headers)
