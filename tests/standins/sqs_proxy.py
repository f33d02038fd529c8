"""A proxy before an SQS server that does what no emulator does: loses answers, expires handles, throttles, stalls.

It speaks Amazon's JSON protocol (`X-Amz-Target: AmazonSQS.<Action>`) as boto3 does. Faults are ordered per action and
used up one call at a time; a call without one goes through. Error texts and codes are Amazon's.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from tests.standins.answering import Handler, Server

TARGET = "AmazonSQS."
CONTENT = "application/x-amz-json-1.0"


@dataclass(frozen=True)
class Answer:
    """In place of the server's answer; the call does not reach it."""

    status: int = 200
    body: Mapping[str, Any] | bytes = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Lost:
    """The server acts, and nobody hears of it: the connection ends without an answer."""


@dataclass(frozen=True)
class Refused:
    """The connection ends before the server hears of the call."""


@dataclass(frozen=True)
class Stalled:
    """Nothing happens for that long, or until the proxy ends; then the connection ends."""

    seconds: float


@dataclass(frozen=True)
class Again:
    """A receive answers with messages that were given before, deleted or not, with their old handles."""

    ids: tuple[str, ...] = ()
    """Which; all of the last answer that had some where none is named."""


Fault = Answer | Lost | Refused | Stalled | Again


def error(code: str, text: str, *, status: int = 400, kind: str = "") -> Answer:
    """An error as SQS words it; `kind`: the name in the JSON protocol where it differs from the older `code`."""
    body = {"__type": f"com.amazonaws.sqs#{kind or code.rsplit('.', 1)[-1]}", "message": text}
    return Answer(status, body, {"x-amzn-query-error": f"{code};Sender"})


EXPIRED_HANDLE = error(
    "InvalidParameterValue",
    "Value AQEB for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired.",
)
"""FIFO: to a delete or an extension that comes after the lease."""
NOT_IN_FLIGHT = error(
    "InvalidParameterValue",
    "Value AQEB for parameter ReceiptHandle is invalid. Reason: Message does not exist or is not available for "
    "visibility timeout change.",
)
INVALID_HANDLE = error(
    "ReceiptHandleIsInvalid", 'The input receipt handle "AQEB" is not a valid receipt handle.', status=404
)
THROTTLED = error("RequestThrottled", "Rate exceeded", kind="RequestThrottled")
SERVER_ERROR = Answer(500, {"__type": "com.amazon.coral.service#InternalFailure"}, {})
GATEWAY_ERROR = Answer(502, b"<html><body><h1>502 Bad Gateway</h1></body></html>", {"Content-Type": "text/html"})
SIGNATURE_EXPIRED = Answer(
    403,
    {
        "__type": "com.amazon.coral.service#InvalidSignatureException",
        "message": "Signature expired: 20261201T000000Z is now earlier than 20261201T003000Z "
        "(20261201T004500Z - 15 min.)",
    },
)
TOKEN_EXPIRED = Answer(
    403,
    {
        "__type": "com.amazon.coral.service#ExpiredTokenException",
        "message": "The security token included in the request is expired",
    },
)
ACCESS_DENIED = Answer(
    403,
    {
        "__type": "com.amazon.coral.service#AccessDeniedException",
        "message": "User: arn:aws:iam::1:user/a is not authorized to perform: sqs:receivemessage on resource: a",
    },
)
NO_SUCH_QUEUE = error(
    "AWS.SimpleQueueService.NonExistentQueue", "The specified queue does not exist.", kind="QueueDoesNotExist"
)


@dataclass(frozen=True)
class Call:
    """One call as it came."""

    action: str
    request: Mapping[str, Any]
    authorization: str


class SqsProxy:
    """A running proxy, a context manager. Without an `upstream` address every call needs an order of its own."""

    def __init__(self, upstream: str = "") -> None:
        self.upstream = urlsplit(upstream).netloc
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        self._faults: dict[str, deque[Fault]] = defaultdict(deque)
        self._calls: list[Call] = []
        self._given: list[dict[str, Any]] = []
        self._last: list[dict[str, Any]] = []
        self._server = Server(("127.0.0.1", 0), _handler_for(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def order(self, action: str, *faults: Fault) -> None:
        """Meet the next calls of that action (`ReceiveMessage`, `DeleteMessage`, …) with these, one each."""
        with self._lock:
            self._faults[action].extend(faults)

    def ordered(self, action: str) -> int:
        """How many faults of that action are still to come."""
        with self._lock:
            return len(self._faults[action])

    def queue(self, url: str) -> str:
        """The queue's address behind this proxy."""
        return self.url + urlsplit(url).path

    def calls(self, action: str) -> list[Call]:
        """The calls of that action so far."""
        with self._lock:
            return [call for call in self._calls if call.action == action]

    @property
    def given(self) -> list[str]:
        """The ids of all messages that a receive's answer held, heard or lost, in order."""
        with self._lock:
            return [str(message["MessageId"]) for message in self._given]

    def take(self, call: Call) -> Fault | None:
        """Note the call and take the fault that was ordered for it."""
        with self._lock:
            self._calls.append(call)
            faults = self._faults[call.action]
            return faults.popleft() if faults else None

    def note(self, body: bytes) -> None:
        """Remember the messages of a receive's answer."""
        messages = json.loads(body).get("Messages") or []
        with self._lock:
            self._given += messages
            self._last = messages or self._last

    def again(self, fault: Again) -> Answer:
        """What was given before, as a receive's answer."""
        with self._lock:
            newest = {str(message["MessageId"]): message for message in self._given}
            messages = [newest[one] for one in fault.ids] if fault.ids else self._last
            return Answer(body={"Messages": messages})


def _handler_for(proxy: SqsProxy) -> type[Handler]:
    class Owned(_Handler):
        owner = proxy

    return Owned


class _Handler(Handler, BaseHTTPRequestHandler):
    owner: SqsProxy

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        action = (self.headers.get("X-Amz-Target") or "").removeprefix(TARGET)
        fault = self.owner.take(Call(action, json.loads(raw or b"{}"), self.headers.get("Authorization") or ""))
        with contextlib.suppress(ConnectionError):
            self._meet(action, raw, fault)

    def _meet(self, action: str, raw: bytes, fault: Fault | None) -> None:
        match fault:
            case Answer():
                self._send(fault)
            case Again():
                self._send(self.owner.again(fault))
            case Stalled():
                self.owner.stopping.wait(fault.seconds)
                self.close_connection = True
            case Refused():
                self.close_connection = True
            case Lost():
                self._pass(action, raw)
                self.close_connection = True
            case None:
                self._send(self._pass(action, raw))

    def _pass(self, action: str, raw: bytes) -> Answer:
        if not self.owner.upstream:
            return SERVER_ERROR
        connection = http.client.HTTPConnection(self.owner.upstream, timeout=60)
        kept = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
        try:
            connection.request("POST", self.path, raw, kept)
            with connection.getresponse() as response:
                body = response.read()
                named = ("content-type", "x-amzn-query-error", "x-amzn-requestid")
                headers = {name: value for name, value in response.getheaders() if name.lower() in named}
                if action == "ReceiveMessage" and response.status == 200:
                    self.owner.note(body)
                return Answer(response.status, body, headers)
        except OSError:
            return GATEWAY_ERROR
        finally:
            connection.close()

    def _send(self, answer: Answer) -> None:
        body = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        self.send_response(answer.status)
        for name, value in {"Content-Type": CONTENT, **answer.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
