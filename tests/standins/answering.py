"""What HTTP stand-ins share: threads that end with the test, and clients that may go away."""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Server(ThreadingHTTPServer):
    """A client that went away, gave up or was killed is what many tests are about: it is no error."""

    daemon_threads = True
    request_queue_size = (
        128  # as many calls as an operator makes at once; the default of 5 would let some wait a second
    )

    def handle_error(self, request: Any, client_address: Any) -> None:
        """See socketserver."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """Keeps connections, sends at once, and prints nothing: calls are recorded instead."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """See http.server."""
