"""The door of the outage tests does what they believe it does."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from demo.stage import wait_for
from tests.standins.door import Door


class Echo:
    """A service that says back what it hears, and counts it."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self.listener.getsockname()
        self.heard = b""
        self.ends = threading.Semaphore(0)
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._serve, args=(connection,)))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(65_536):
                    self.heard += data
                    connection.sendall(data)
            except OSError:
                pass
        self.ends.release()

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def echo() -> Iterator[Echo]:
    service = Echo()
    yield service
    service.close()


@pytest.fixture
def door(echo: Echo) -> Iterator[Door]:
    with Door(echo.address) as made:
        yield made


def connected(door: Door) -> socket.socket:
    return socket.create_connection(door.address, 10)


def said(connection: socket.socket, text: bytes) -> bytes:
    connection.sendall(text)
    back = b""
    while len(back) < len(text):
        back += connection.recv(65_536)
    return back


def test_bytes_pass_untouched_in_both_directions_and_an_end_is_passed_on(door: Door, echo: Echo) -> None:
    data = bytes(range(256)) * 4096
    with connected(door) as client:
        sender = threading.Thread(target=client.sendall, args=(data,))
        sender.start()
        back = b""
        while len(back) < len(data):
            back += client.recv(65_536)
        sender.join()
        assert back == data
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""
    assert echo.ends.acquire(timeout=10)
    assert door.accepted == 1
    wait_for(lambda: len(door.ended) == 1, 10, lambda: "the door did not see the end")


def test_a_shut_door_refuses_resets_what_was_open_and_keeps_its_port(door: Door) -> None:
    with connected(door) as client:
        assert said(client, b"hello") == b"hello"
        door.shut()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    with pytest.raises(ConnectionRefusedError):
        connected(door)
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(door.address)
    door.open()
    with connected(door) as client:
        assert said(client, b"again") == b"again"


def test_a_stalled_door_takes_connections_and_lets_nothing_through_until_it_is_open(door: Door, echo: Echo) -> None:
    with connected(door) as old:
        assert said(old, b"old") == b"old"
        door.stall()
        with connected(door) as new:
            for client in (old, new):
                client.sendall(b"waits")
                client.settimeout(0.2)
                with pytest.raises(TimeoutError):
                    client.recv(1)
                client.settimeout(10)
            assert echo.heard == b"old"
            door.open()
            assert old.recv(5) == b"waits"
            assert new.recv(5) == b"waits"


def test_what_a_client_said_into_a_stall_and_gave_up_is_lost(door: Door, echo: Echo) -> None:
    with connected(door) as old:
        assert said(old, b"old") == b"old"
        door.stall()
        old.sendall(b"lost")
        with connected(door) as new:
            new.sendall(b"lost too")
            wait_for(lambda: door.waiting == 2, 10, lambda: "the door did not see both")
    door.open()
    assert echo.ends.acquire(timeout=10)
    with connected(door) as client:
        assert said(client, b"then") == b"then"
    assert echo.heard == b"oldthen"


def test_cutting_resets_what_is_open_and_the_door_stays_as_it_was(door: Door, echo: Echo) -> None:
    with connected(door) as client:
        assert said(client, b"one") == b"one"
        door.cut()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    assert echo.ends.acquire(timeout=10)
    with connected(door) as client:
        assert said(client, b"two") == b"two"
    door.stall()
    with connected(door) as client:
        client.sendall(b"three")
        wait_for(lambda: door.waiting == 1, 10, lambda: "the door did not see it")
        door.cut()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    assert echo.heard == b"onetwo"


def test_a_service_that_is_away_itself_is_a_reset_behind_the_door() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        address = gone.getsockname()
    with Door(address) as door, pytest.raises(ConnectionResetError), connected(door) as client:
        client.recv(1)
