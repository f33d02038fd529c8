"""The HTTP side of `GeminiServer`: threads, connections, and answers that stall, drip or break off."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

from hummingbird_ai.serialise import encode
from hummingbird_ai.testing.gemini.answers import render_error
from hummingbird_ai.testing.replies import Answer, Body, Drip, Drop, HttpError, Reply, Stall


class Gemini(Protocol):
    """What decides about the answers."""

    def handle(self, path: str, headers: Mapping[str, str], raw: bytes) -> tuple[Reply, Any]:
        """The reply, and the rendered document where there is one."""
        ...

    def sleep_until_released(self, connection: socket.socket) -> bool:
        """Wait; False if the connection is to be closed."""
        ...

    def release(self) -> None:
        """Wake those who sleep."""
        ...

    def listing(self) -> Sequence[Mapping[str, Any]]:
        """The calls so far, for `GET /calls`."""
        ...


class Listener(ThreadingHTTPServer):
    """One thread per connection; a long queue of connections that wait for theirs."""

    request_queue_size = 1024  # 200 agents connect at once; the default of 5 would make them wait for a second SYN
    daemon_threads = True

    def __init__(self, address: tuple[str, int], gemini: Gemini) -> None:
        self.gemini = gemini
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
        if self.path != "/calls":
            self._send(404, encode(render_error(HttpError(404, f"{self.path} is not served"))))
            return
        self._send(200, encode({"calls": self.server.gemini.listing()}))

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == "/release":
            self.server.gemini.release()
            self._send(200, b"{}")
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        reply, document = self.server.gemini.handle(self.path, headers, raw)
        data = encode(document) if document is not None else b""
        match reply:
            case Answer():
                time.sleep(reply.seconds)
                self._send(200, data)
            case HttpError():
                more = {"Retry-After": reply.retry_after} if reply.retry_after else {}
                self._send(reply.code, encode(render_error(reply)), more)
            case Body():
                self._body(reply)
            case Drop():
                self.close_connection = True
            case Stall():
                self._stall(reply, data)
            case Drip():
                self._drip(reply, data)

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
        if not self.server.gemini.sleep_until_released(self.connection):
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
