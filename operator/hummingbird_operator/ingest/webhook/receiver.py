"""`POST /webhooks/gitlab`: who sent it, what is in it, what became of it, within the ten seconds that GitLab waits.

The order is the protection: a token before the body is read, a signature over the exact bytes before they are parsed,
a bound on bytes and requests before either. GitLab never sends an event twice and disables a hook whose answers are
4xx or 5xx: so whatever is filtered is a 200, and what cannot be handled now goes to the queue, or is a 503 that
`replay.py` picks up; an event that fails by itself is kept here (`putoff.py`). No header, token, signature or body is
ever logged.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
import traceback
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, Counter
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hummingbird_operator.config import HOOK_PATH
from hummingbird_operator.errors import HummingbirdError, Unavailable
from hummingbird_operator.ingest.event import BODY_BYTES, BadMessage, Event, parse_object
from hummingbird_operator.ingest.handle import Handles, NameTaken
from hummingbird_operator.ingest.reasons import Reason
from hummingbird_operator.ingest.webhook import signatures
from hummingbird_operator.ingest.webhook.putoff import PutOff, Queue
from hummingbird_operator.ingest.webhook.room import LARGE_BYTES, Full, Room
from hummingbird_operator.ingest.webhook.signatures import Verdict

logger = logging.getLogger(__name__)

BUDGET_SECONDS = 7.0
"""From the first byte to the outcome; GitLab hangs up after ten."""
QUEUE_SECONDS = 2.0
"""For the queue, after the budget is spent."""
AWAY_SECONDS = 2.5
"""For the queue and the look at what is away, after the budget is spent."""
RETRY_AFTER_SECONDS = 10
WARN_AGAIN_SECONDS = 60.0
UNVERIFIED_SECONDS = 2.0
"""For a large body that nobody has vouched for yet: its signature can be checked only when it is whole."""
STRANGER_SECONDS = 600.0
"""Between replays that are wanted for refusals of requests that nobody vouched for."""

_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
_DELIVERY = re.compile(r"[A-Za-z0-9_.:-]{1,80}")
_EVENT = re.compile(r"[A-Za-z ]{1,60}")


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
    unverified_seconds: float = UNVERIFIED_SECONDS
    put_off: PutOff = field(init=False)
    """What failed by itself: it is to be closed with the process."""
    _answers: Counter = field(init=False)
    _last: dict[str, float] = field(default_factory=dict, init=False)
    _one_by_one: Executor = field(default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="large"), init=False)

    def __post_init__(self) -> None:
        counter = Counter("hummingbird_ingest_answers", "Answers to webhooks", ["status"], registry=self.registry)
        object.__setattr__(self, "_answers", counter)
        object.__setattr__(self, "put_off", PutOff(self.handler, self.queue, self.registry))

    def app(self) -> Starlette:
        """The ASGI application; any other path is a 404, any other method a 405."""
        routes = [Route(HOOK_PATH, self.receive, methods=["POST"])]
        app = Starlette(routes=routes, exception_handlers={HTTPException: _refusal})
        app.router.redirect_slashes = False  # GitLab takes a redirect for delivered, and the event would be lost
        return app

    async def receive(self, request: Request) -> Response:
        """One delivery. Never raises but for refusals, which are counted."""
        try:
            response = await self._receive(request)
        except HTTPException as refusal:
            response = await _refusal(request, refusal)
            if refusal.status_code in (400, 413, 415):  # four of them disable the hook for everybody
                text = f"a webhook was refused ({refusal.status_code}): {ascii(refusal.detail)[1:201]}"
                self._warn(str(refusal.status_code), text)
        except ClientDisconnect:  # nobody reads this
            response = _answer(400, "disconnected", "the body did not come whole")
        except Exception as error:  # noqa: BLE001 - a fault of ours; its text could hold the payload
            frame = traceback.extract_tb(error.__traceback__)[-1]
            logger.error("a webhook failed: %s in %s line %s", type(error).__name__, frame.name, frame.lineno)
            response = _answer(500, "error", "a fault of ours; the log of the ingestor names it")
        self._answers.labels(str(response.status_code)).inc()
        if response.status_code == 503:
            self._tell(request)
        return response

    def _tell(self, request: Request) -> None:
        """A delivery was lost for now. Half a request of a stranger must not order replay after replay."""
        if getattr(request.state, "verified", False) or self._due("stranger", STRANGER_SECONDS):
            self.refused()

    async def _receive(self, request: Request) -> Response:
        deadline = asyncio.get_running_loop().time() + self.budget_seconds
        headers = {name.lower(): value for name, value in request.headers.items()}
        try:
            with self.room.place() as hold:
                return await self._placed(request, headers, hold, deadline)
        except Full as error:
            raise HTTPException(503, str(error), _later()) from None

    async def _placed(
        self, request: Request, headers: Mapping[str, str], hold: Callable[[int], bool], deadline: float
    ) -> Response:
        event = await self._event(request, headers, hold, deadline)
        try:
            async with asyncio.timeout_at(deadline):
                outcome = await self.handler.handle(event)
        except NameTaken as error:
            return _answer(409, Reason.NAME_TAKEN, str(error))
        except (HummingbirdError, TimeoutError) as error:
            return await self._wait(event, error, deadline + AWAY_SECONDS)
        taken = outcome.reason == Reason.NAME_TAKEN
        return _answer(409 if taken else 200, outcome.reason, outcome.detail, outcome.runs)

    async def _event(
        self, request: Request, headers: Mapping[str, str], hold: Callable[[int], bool], deadline: float
    ) -> Event:
        """Read, verified and parsed, in that order, until the deadline."""
        try:
            async with asyncio.timeout_at(deadline) as limit:
                body = await self._verified(request, headers, hold, limit)
                payload = await self._parsed(headers, body)
        except TimeoutError:
            raise HTTPException(503, "the body did not come in time", _later()) from None
        delivery = headers.get("idempotency-key") or headers.get("webhook-id") or ""
        return Event("gitlab", _plain(_EVENT, headers.get("x-gitlab-event", "")), payload, _plain(_DELIVERY, delivery))

    async def _verified(
        self, request: Request, headers: Mapping[str, str], hold: Callable[[int], bool], limit: asyncio.Timeout
    ) -> bytes:
        """The body, of a sender that is known. A large one that is still to be vouched for gets less time."""
        try:
            secrets = await asyncio.to_thread(self.secrets)
        except HummingbirdError as error:
            self._warn("secrets", f"webhooks are refused: {error}")
            raise HTTPException(503, "no secret is to be had", _later()) from error
        signed, began = signatures.signed(headers, secrets), asyncio.get_running_loop().time()
        if not signed:
            self._admit(signatures.by_token(headers, secrets), request)
        elif not signatures.complete(headers):
            self._admit(Verdict.MISSING, request)

        def held(size: int) -> None:
            if hold(size) and signed:
                limit.reschedule(min(limit.when() or math.inf, began + self.unverified_seconds))

        until = limit.when()
        body = await _read(request, held)
        limit.reschedule(until)
        if signed:
            self._admit(await asyncio.to_thread(signatures.by_signature, body, headers, secrets), request)
        return body

    async def _parsed(self, headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
        if headers.get("content-type", "").split(";")[0].strip().lower() in _FORMS:
            raise HTTPException(415, "a form came; the body must be JSON, as GitLab's own webhooks send it")
        threads = self._one_by_one if len(body) > LARGE_BYTES else None
        try:
            return await asyncio.get_running_loop().run_in_executor(threads, parse_object, body)
        except BadMessage as error:
            raise HTTPException(400, str(error)) from None

    def _admit(self, verdict: Verdict, request: Request) -> None:
        if verdict is Verdict.NOT_TEXT:
            raise HTTPException(400, verdict.value)
        if verdict is not Verdict.VALID:
            self._warn(verdict.name, f"a webhook was refused (401): {verdict}")
            raise HTTPException(401, verdict.value)
        request.state.verified = True

    async def _wait(self, event: Event, error: HummingbirdError | TimeoutError, until: float) -> Response:
        """To the queue where there is one; else a service that is away is a 503, and the event waits in GitLab's list.

        An event that fails by itself is no reason for one: four of them would disable the hook for everybody.
        """
        if isinstance(error, TimeoutError):
            error = Unavailable("this event", f"not done within {self.budget_seconds:.0f} s")
        why, after = str(error), error.retry_after if isinstance(error, Unavailable) else None
        logger.warning("an event waits: %s", why)
        if await self._queued(event):
            return _answer(202, "queued", why)
        if isinstance(error, Unavailable) and await self._alone(until) and self.put_off.take(event):
            return _answer(202, Reason.PUT_OFF, why)
        return _answer(503, "unavailable", why, headers=_later(after))

    async def _queued(self, event: Event) -> bool:
        if self.queue is None:
            return False
        try:
            async with asyncio.timeout(QUEUE_SECONDS):
                await self.queue.send(event)
        except (HummingbirdError, TimeoutError) as error:
            self._warn("queue", f"the queue does not take an event: {str(error) or 'no answer'}")
            return False
        return True

    async def _alone(self, until: float) -> bool:
        """Whether only this event fails. Nobody knows where the services take too long to say that they are there."""
        try:
            async with asyncio.timeout_at(until):
                return await self.handler.away() is None
        except TimeoutError:
            return False

    def _warn(self, kind: str, text: str) -> None:
        """A kind of warning at most once a minute: strangers may knock as often as they like."""
        if self._due(kind, WARN_AGAIN_SECONDS):
            logger.warning("%s", text)

    def _due(self, kind: str, seconds: float) -> bool:
        now = time.monotonic()
        due = now - self._last.get(kind, -math.inf) >= seconds
        if due:
            self._last[kind] = now
        return due


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
