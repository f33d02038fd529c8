"""A door between a client and one TCP service: tests shut it, stall it, cut what is open, and open it again.

Bytes pass through untouched, so TLS stays between the two ends.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time
from types import TracebackType
from typing import Self

CHUNK = 65_536
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER of no seconds: closing sends a reset instead of an orderly end."""


class Door:
    """Listens on a port of its own and passes each connection on to `target`. A context manager.

    The port stays ours for as long as the door exists, also while it is shut. `listener`: a socket that listens
    already, in another network namespace for example; such a door cannot be shut.
    """

    def __init__(
        self, target: tuple[str, int], *, host: str = "127.0.0.1", listener: socket.socket | None = None
    ) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._flows: set[_Flow] = set()
        self._threads: set[threading.Thread] = set()
        self.passing = threading.Event()
        """Whether bytes go through; not while it stalls."""
        self.passing.set()
        self.accepted = 0
        """Connections so far."""
        self.ended: list[float] = []
        """When connections ended, on the monotonic clock."""
        self._place: socket.socket | None = None
        if listener is None:
            # bound and never listening: it keeps the port while the door is shut
            self._place = _bound((host, 0))
        self.address: tuple[str, int] = (self._place or listener or socket.socket()).getsockname()[:2]
        self._listener: socket.socket | None = listener
        self._accepting: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port that is served."""
        return self.address[1]

    @property
    def waiting(self) -> int:
        """Connections whose client has said something, or just came, in a stall."""
        with self._lock:
            return sum(flow.waits for flow in self._flows)

    @property
    def url(self) -> str:
        """The address of an HTTP service behind the door."""
        return f"http://{self.address[0]}:{self.port}"

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shut()
        if self._place is not None:
            self._place.close()

    def open(self) -> None:
        """Let everything through; what waited in a stall goes on, unless its client has given up."""
        self.passing.set()
        if self._accepting is not None:
            return
        if self._listener is None:
            self._listener = _bound(self.address)
            self._listener.listen(128)
        self._accepting = threading.Thread(target=self._accept, args=(self._listener,), daemon=True)
        self._accepting.start()

    def stall(self) -> None:
        """Take every connection and let no byte through, in either direction."""
        self.open()
        self.passing.clear()

    def shut(self) -> None:
        """Refuse new connections and reset those that are open."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes `accept`
        if self._accepting is not None:
            self._accepting.join()
            self._accepting = None
        if listener is not None:
            listener.close()
        self.cut()

    def cut(self) -> None:
        """Reset every connection that is open."""
        with self._lock:
            flows, threads = list(self._flows), list(self._threads)
        for flow in flows:
            flow.reset()
        for thread in threads:
            thread.join()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return  # it was shut
            flow = _Flow(client, self._target, self.passing)
            thread = threading.Thread(target=self._serve, args=(flow,), daemon=True)
            with self._lock:
                self.accepted += 1
                self._flows.add(flow)
                self._threads.add(thread)
                thread.start()  # within the lock: nobody may see, and join, one that has not begun

    def _serve(self, flow: _Flow) -> None:
        flow.run()
        with self._lock:
            self.ended.append(time.monotonic())
            self._flows.discard(flow)
            self._threads.discard(threading.current_thread())


class _Flow:
    """One connection through the door."""

    def __init__(self, client: socket.socket, target: tuple[str, int], passing: threading.Event) -> None:
        self._client = client
        self._service: socket.socket | None = None
        self._target = target
        self._passing = passing
        self._over = threading.Event()
        self._stop = socket.socketpair()
        self.waits = False

    def reset(self) -> None:
        """End it hard."""
        self._over.set()
        with contextlib.suppress(OSError):  # it just ended by itself
            self._stop[0].send(b"!")

    def run(self) -> None:
        """Until both sides are through, or it is reset."""
        try:
            if self._may_pass(self._client):
                self._service = socket.create_connection(self._target, 10)
                self._service.settimeout(None)
                back = threading.Thread(target=self._pump, args=(self._service, self._client), daemon=True)
                back.start()
                self._pump(self._client, self._service)
                back.join()
        except OSError:
            self._over.set()
        finally:
            for end in (self._client, self._service):
                if end is not None:
                    self._close(end)
            for stop in self._stop:
                stop.close()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while self._readable(source):
                data = source.recv(CHUNK)
                if not data:
                    if self._may_pass(None):
                        sink.shutdown(socket.SHUT_WR)
                    return
                if not self._may_pass(source):
                    break
                sink.sendall(data)
        except OSError:
            pass  # one end is gone, so the other one goes as well
        self.reset()

    def _readable(self, source: socket.socket) -> bool:
        """Wait for bytes or an end; False once the flow is over."""
        waiting = select.poll()
        waiting.register(source, select.POLLIN)
        waiting.register(self._stop[1], select.POLLIN)
        waiting.poll()
        return not self._over.is_set()

    def _may_pass(self, client: socket.socket | None) -> bool:
        """Wait until the door lets bytes through; False where it is over, or that client gave up meanwhile."""
        while not self._passing.wait(0.05):
            self.waits = self.waits or client is self._client
            if self._over.is_set():
                return False
        given_up, self.waits = self.waits and client is not None and _hung_up(client), False
        return not given_up

    def _close(self, end: socket.socket) -> None:
        if self._over.is_set() and end is self._client:  # to the service, a client went away
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        end.close()


def _hung_up(end: socket.socket) -> bool:
    asked = select.poll()
    asked.register(end, select.POLLRDHUP)
    return bool(asked.poll(0))


def _bound(address: tuple[str, int]) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(address)
    return made
