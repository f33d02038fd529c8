"""The HTTP side of a provider server: threads, connections, and answers that stall, drip or break off."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

from hummingbird_ai.serialise import encode
from hummingbird_ai.testing.replies import Answer, Body, Drip, Drop, HttpError, Reply, Stall


@dataclass(frozen=True, slots=True)
class Rendered:
    """A reply with the document and the headers that go with it."""

    reply: Reply
    document: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


class Exchange(Protocol):
    """What decides about the answers."""

    def aside(self, method: str, path: str, raw: bytes) -> tuple[int, Any] | None:
        """Status and document of what is not the provider's API; None for the API."""
        ...

    def handle(self, path: str, headers: dict[str, str], raw: bytes) -> Rendered:
        """The answer of the API."""
        ...

    def sleep_until_released(self, connection: socket.socket) -> bool:
        """Wait; False if the connection is to be closed."""
        ...


class Listener(ThreadingHTTPServer):
    """One thread per connection; a long queue of connections that wait for theirs."""

    request_queue_size = 1024  # 200 agents connect at once; the default of 5 would make them wait for a second SYN
    daemon_threads = True

    def __init__(self, address: tuple[str, int], exchange: Exchange) -> None:
        self.exchange = exchange
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Remember the connection for as long as it is open."""
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """The connection is over."""
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is what many tests are about."""

    def end_connections(self) -> None:
        """Shut down what is still open, so that no thread waits for a client."""
        with self._lock:
            for connection in self._open:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue  # it has ended by itself


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Listener

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the base class's
        """Silent: the calls are recorded instead."""

    def do_GET(self) -> None:
        self._aside("GET", b"")

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self._aside("POST", raw):
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        rendered = self.server.exchange.handle(self.path, headers, raw)
        data = encode(rendered.document) if rendered.document is not None else b""
        match rendered.reply:
            case Answer(seconds=seconds):
                time.sleep(seconds)
                self._send(200, data)
            case HttpError(code=code):
                self._send(code, data, rendered.headers)
            case Body() as body:
                self._body(body)
            case Drop():
                self.close_connection = True
            case Stall() as stall:
                self._stall(stall, data)
            case Drip() as drip:
                self._drip(drip, data)

    def _aside(self, method: str, raw: bytes) -> bool:
        answer = self.server.exchange.aside(method, self.path, raw)
        if answer is not None:
            self._send(answer[0], encode(answer[1]))
        return answer is not None

    def _head(self, status: int, length: int, more: Mapping[str, str], content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(length))
        for name, value in more.items():
            self.send_header(name, value)
        self.end_headers()

    def _send(
        self,
        status: int,
        data: bytes,
        more: Mapping[str, str] | None = None,
        content_type: str = "application/json; charset=UTF-8",
    ) -> None:
        self._head(status, len(data), more or {}, content_type)
        self.wfile.write(data)

    def _body(self, reply: Body) -> None:
        self._head(reply.status, len(reply.data) + (1000 if reply.cut else 0), {}, reply.content_type)
        self.wfile.write(reply.data)
        self.close_connection = self.close_connection or reply.cut

    def _stall(self, reply: Stall, data: bytes) -> None:
        if reply.after_headers:
            self._head(200, len(data), {}, "application/json")
            self.wfile.flush()
        if not self.server.exchange.sleep_until_released(self.connection):
            self.close_connection = True
        elif reply.after_headers:
            self.wfile.write(data)
        else:
            self._send(200, data)

    def _drip(self, reply: Drip, data: bytes) -> None:
        self._head(200, len(data), {}, "application/json")
        for start in range(0, len(data), reply.size):
            self.wfile.write(data[start : start + reply.size])
            time.sleep(reply.seconds)
