"""A TLS connection that is read and written at once: nothing hangs, nothing is lost, a shutdown wakes the reader."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import ssl
import threading
from collections.abc import Iterator

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
    context = ssl.create_default_context()
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
