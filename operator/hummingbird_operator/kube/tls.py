"""A TLS socket that one thread may read while another writes.

OpenSSL forbids two threads in one connection at once, and Python 3.11 does not keep them apart: of a hundred execs,
about ten hung in their first request, while one thread read the server's session tickets and another wrote. Here every
touch of the TLS state is short and under one lock; waiting for the network is done outside of it.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading

LOOK_AGAIN_MS = 1000


class TlsSocket:
    """What the websocket library needs of a socket. Blocking, without a time limit: whoever wants an end shuts it."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, server_hostname: str) -> None:
        """Do the handshake, within the socket's own timeout. Raises OSError."""
        self._tls = context.wrap_socket(sock, server_hostname=server_hostname)
        self._tls.setblocking(False)
        self._lock = threading.Lock()
        self.family = self._tls.family

    def recv(self, size: int) -> bytes:
        """Some bytes, as soon as there are any; empty at the end."""
        while True:
            with self._lock:
                try:
                    return self._tls.recv(size)
                except ssl.SSLWantReadError:
                    events = select.POLLIN
                except ssl.SSLWantWriteError:
                    events = select.POLLOUT
            self._wait(events)

    def sendall(self, data: bytes) -> None:
        """All of it."""
        rest = memoryview(data)
        while rest:
            with self._lock:
                try:
                    rest = rest[self._tls.send(rest) :]
                    continue
                except ssl.SSLWantReadError:
                    events = select.POLLIN
                except ssl.SSLWantWriteError:
                    events = select.POLLOUT
            self._wait(events)

    def shutdown(self, how: int) -> None:
        """Of the connection below: a reader in another thread wakes up, the TLS state stays untouched."""
        with self._lock:
            socket.socket.shutdown(self._tls, how)

    def settimeout(self, value: float | None) -> None:
        """Ignored: the library sets none but its own at the end, when the connection is shut anyway."""

    def close(self) -> None:
        """Give the descriptor back, but not under a call that is using it.

        The next file that somebody opens gets the same number: OpenSSL, which found the connection ended, wrote its
        last alert into a record of the journal.
        """
        with self._lock:
            self._tls.close()

    def fileno(self) -> int:
        """The descriptor, -1 once closed."""
        return self._tls.fileno()

    def setsockopt(self, level: int, name: int, value: int) -> None:
        """Of the connection below."""
        self._tls.setsockopt(level, name, value)

    def getsockname(self) -> object:
        """For the library's log lines."""
        return self._tls.getsockname()

    def getpeername(self) -> object:
        """For the library's log lines."""
        return self._tls.getpeername()

    def _wait(self, events: int) -> None:
        """Until the network has moved. Raises OSError when the socket was closed meanwhile."""
        descriptor = self._tls.fileno()
        if descriptor < 0:
            raise OSError("the socket is closed")
        poll = select.poll()
        poll.register(descriptor, events)
        while not poll.poll(LOOK_AGAIN_MS):
            if self._tls.fileno() != descriptor:  # closed meanwhile: the number may be another file's by now
                raise OSError("the socket is closed")
