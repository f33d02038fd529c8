"""A TLS connection that is read and written at once: nothing hangs, nothing is lost, a shutdown wakes the reader."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import ssl
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest
import trustme

from hummingbird_operator.kube.tls import TlsSocket

SIZE = 4 * 1024 * 1024


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def server(authority: trustme.CA) -> Iterator[int]:
    """Echoes every connection until its end; TLS 1.3 with session tickets, as an API server has it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)

    def serve(raw: socket.socket) -> None:
        try:
            with context.wrap_socket(raw, server_side=True) as tls:
                while data := tls.recv(65536):
                    tls.sendall(data)
        except OSError:
            raw.close()

    def accept() -> None:
        while True:
            try:
                raw, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(raw,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield int(listener.getsockname()[1])
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def connected(authority: trustme.CA, port: int) -> TlsSocket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # without the system's authorities: to read them takes most of it
    authority.configure_trust(context)
    return TlsSocket(socket.create_connection(("127.0.0.1", port), 5), context, "127.0.0.1")


def test_a_reader_that_waits_from_the_beginning_does_not_hold_up_the_first_write(
    authority: trustme.CA, server: int
) -> None:
    """The fault that was found: the reader meets the server's session tickets while the request is written."""
    for _ in range(60):
        tls, got = connected(authority, server), threading.Event()

        def read(tls: TlsSocket = tls, got: threading.Event = got) -> None:
            if tls.recv(65536) == b"request":
                got.set()

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        tls.sendall(b"request")
        assert got.wait(5), "the first request hung"
        reader.join(5)
        tls.close()


def test_megabytes_go_both_ways_at_once_and_arrive_whole(authority: trustme.CA, server: int) -> None:
    tls = connected(authority, server)
    sent, seen = hashlib.sha256(), hashlib.sha256()

    def write() -> None:
        for number in range(SIZE // 65536):
            block = bytes([number % 251]) * 65536
            sent.update(block)
            tls.sendall(block)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    left = SIZE
    while left:
        data = tls.recv(65536)
        seen.update(data)
        left -= len(data)
    writer.join(5)
    assert seen.digest() == sent.digest()
    tls.close()


def test_a_shutdown_from_another_thread_wakes_the_reader(authority: trustme.CA, server: int) -> None:
    tls = connected(authority, server)
    threading.Timer(0.1, tls.shutdown, [socket.SHUT_RDWR]).start()
    with contextlib.suppress(OSError):  # an end without a goodbye is an end as well
        assert tls.recv(1024) == b""
    tls.close()
    assert tls.fileno() == -1


class Slow:
    """A TLS connection whose calls can be held in the middle, and which knows what was done to it meanwhile."""

    family = socket.AF_INET

    def __init__(self) -> None:
        self.within, self.go_on = threading.Event(), threading.Event()
        self.busy = False
        self.closed_under_a_call = False

    def setblocking(self, flag: bool) -> None:
        assert not flag

    def recv(self, size: int) -> bytes:
        self.busy = True
        self.within.set()
        self.go_on.wait(10)
        self.busy = False
        return b"x" * size

    def close(self) -> None:
        self.closed_under_a_call |= self.busy


def test_no_descriptor_is_given_back_under_a_call_that_uses_it() -> None:
    """The next file gets its number: OpenSSL's last alert was found in a record of the journal."""
    slow = Slow()
    context = cast("ssl.SSLContext", SimpleNamespace(wrap_socket=lambda sock, server_hostname: slow))
    line = TlsSocket(cast("socket.socket", None), context, "x")
    reader = threading.Thread(target=line.recv, args=(1,))
    reader.start()
    assert slow.within.wait(10)
    closer = threading.Thread(target=line.close)
    closer.start()
    closer.join(0.2)
    assert closer.is_alive(), "it must wait for the call"
    slow.go_on.set()
    closer.join(10)
    reader.join(10)
    assert not closer.is_alive()
    assert not slow.closed_under_a_call


def test_a_reader_of_a_connection_that_is_closed_without_a_word_ends(authority: trustme.CA, server: int) -> None:
    line = connected(authority, server)
    ended = threading.Event()

    def read() -> None:
        with contextlib.suppress(OSError):
            line.recv(1)
        ended.set()

    threading.Thread(target=read, daemon=True).start()
    line.close()
    assert ended.wait(10)
