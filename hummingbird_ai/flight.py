"""A call in flight, and how another thread ends it.

`requests.Session.close` does not end a call that another thread has in flight, so a flight keeps a duplicate of the
call's socket: shutting that down wakes the reading thread at once, also inside a TLS handshake. Before there is a
socket, a thread of its own dials.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection


class Flight:
    """The call one thread has in flight: `cut` ends it from another thread, whatever it waits for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._line: socket.socket | None = None
        self._dialling: Future[socket.socket] | None = None
        self._cut = False

    def __enter__(self) -> Flight:
        _here.flight = self
        return self

    def __exit__(self, *_: object) -> None:
        _here.flight = None
        self._replace(None)

    def dial(self, dial: Callable[[], socket.socket]) -> socket.socket:
        """Connect in a thread of its own: neither a look-up of a name nor a connect can be interrupted."""
        dialling: Future[socket.socket] = Future()
        with self._lock:
            self._dialling = dialling
            if self._cut:
                dialling.cancel()
        threading.Thread(target=_deliver, args=(dial, dialling), daemon=True, name="dial").start()
        try:
            sock = dialling.result()
        except CancelledError:
            raise ConnectionAbortedError("cut while connecting") from None
        self.watch(sock.fileno())
        return sock

    def watch(self, file_descriptor: int) -> None:
        """Hold a duplicate of the socket this call uses: the original is detached by TLS and closed by http.client."""
        self._replace(socket.socket(fileno=os.dup(file_descriptor)))

    def is_cut(self) -> bool:
        """Somebody has ended this call: what was read of its answer may be cut short."""
        return self._cut

    def cut(self) -> None:
        """Shut the connection down in both directions; also one that is only being made."""
        with self._lock:
            self._cut = True
            if self._dialling is not None:
                self._dialling.cancel()
            _shut_down(self._line)

    def _replace(self, line: socket.socket | None) -> None:
        with self._lock:
            if self._line is not None:
                self._line.close()
            self._line = line
            if self._cut:
                _shut_down(line)


class _Here(threading.local):
    """The flight of this thread: requests offers no way to hand a value down to the connection it picks."""

    flight: Flight | None = None


_here = _Here()


def _shut_down(line: socket.socket | None) -> None:
    if line is not None:
        try:
            line.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # the other side was faster


def _deliver(dial: Callable[[], socket.socket], dialling: Future[socket.socket]) -> None:
    """Hand the connection to the thread that waits for it, or close it if nobody does any more."""
    try:
        sock = dial()
    except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to the thread that waits
        if dialling.set_running_or_notify_cancel():
            dialling.set_exception(error)
        return
    if dialling.set_running_or_notify_cancel():
        dialling.set_result(sock)
    else:
        sock.close()


class _Connection(HTTPConnection):
    def _new_conn(self) -> socket.socket:
        flight = _here.flight
        return flight.dial(super()._new_conn) if flight else super()._new_conn()

    def putrequest(self, *args: Any, **kwargs: Any) -> None:
        _watch(self.sock)
        super().putrequest(*args, **kwargs)


class _TlsConnection(HTTPSConnection):
    def _new_conn(self) -> socket.socket:
        flight = _here.flight
        return flight.dial(super()._new_conn) if flight else super()._new_conn()

    def putrequest(self, *args: Any, **kwargs: Any) -> None:
        _watch(self.sock)
        super().putrequest(*args, **kwargs)


def _watch(sock: Any) -> None:
    """A kept connection is used again, so that nothing was dialled for this call."""
    if _here.flight is not None and sock is not None:
        _here.flight.watch(sock.fileno())


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


POOLS = {"http": _Pool, "https": _TlsPool}
"""For a urllib3 PoolManager: pools whose connections tell the flight of their thread about their sockets."""
