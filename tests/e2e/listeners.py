"""Real listeners for a sandbox to reach for: beside the cluster's node, in a network of the test's own.

A network namespace stands for everything outside. It also holds the addresses that a cluster promises to pods and that
nobody serves here (API server, DNS) and that of cloud metadata, so that each is tried for real.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

CLONE_NEWNET = 0x40000000
GATE, OUTSIDE = "10.77.0.1", "10.77.0.2"
DNS_FLAGS = b"\x81\x80"
"""A response, recursion desired and available, no error."""


class Outside:
    """A network namespace that the node routes to, with addresses of its own."""

    def __init__(self, name: str, addresses: tuple[str, ...]) -> None:
        self.name = name
        self.link = name[-8:]
        self._addresses = addresses

    def __enter__(self) -> Outside:
        subprocess.run(
            ["ip", "netns", "delete", self.name], capture_output=True, check=False
        )  # of a test that was killed
        _ip("netns", "add", self.name)
        _ip("link", "add", f"{self.link}-a", "type", "veth", "peer", "name", f"{self.link}-b", "netns", self.name)
        _ip("addr", "add", f"{GATE}/24", "dev", f"{self.link}-a")
        _ip("link", "set", f"{self.link}-a", "up")
        for address in (f"{OUTSIDE}/24", *(f"{each}/32" for each in self._addresses)):
            _ip("-n", self.name, "addr", "add", address, "dev", f"{self.link}-b")
        _ip("-n", self.name, "link", "set", "lo", "up")
        _ip("-n", self.name, "link", "set", f"{self.link}-b", "up")
        _ip("-n", self.name, "route", "add", "default", "via", GATE)
        for each in self._addresses:
            _ip("route", "add", f"{each}/32", "via", OUTSIDE)
        return self

    def __exit__(self, *_: object) -> None:
        _ip("netns", "delete", self.name)  # takes the links, and with them addresses and routes

    def inside(self, make: Callable[[], T]) -> T:
        """Call it in a thread that is in the namespace; a socket that it makes stays there."""
        made: list[T] = []
        problems: list[OSError] = []

        def work() -> None:
            try:
                _enter(f"/run/netns/{self.name}")
                made.append(make())
            except OSError as error:
                problems.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        for problem in problems:
            raise problem
        return made[0]


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"


def _enter(path: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if libc.setns(descriptor, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns {path}")
    finally:
        os.close(descriptor)


class Heard:
    """What listeners were told, by whatever way it came."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all = b""

    def add(self, data: bytes) -> None:
        with self._lock:
            self._all += data + b"\n"

    def forget(self) -> None:
        """As if nothing had been said."""
        with self._lock:
            self._all = b""

    def __contains__(self, text: str) -> bool:
        with self._lock:
            return text.encode() in self._all


@contextmanager
def tcp(listener: socket.socket, heard: Heard, answer: Callable[[bytes], bytes]) -> Iterator[tuple[str, int]]:
    """Answers what each connection says first; yields its address."""

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client, contextlib.suppress(OSError):
                client.settimeout(5)
                said = client.recv(4096)
                heard.add(said)
                client.sendall(answer(said))

    yield from _served(listener, serve)


@contextmanager
def udp(listener: socket.socket, heard: Heard, answer: Callable[[bytes], bytes]) -> Iterator[tuple[str, int]]:
    """Answers each datagram; yields its address."""

    def serve() -> None:
        while True:
            try:
                said, sender = listener.recvfrom(4096)
            except OSError:
                return
            if not said:
                return
            heard.add(said)
            with contextlib.suppress(OSError):
                listener.sendto(answer(said), sender)

    yield from _served(listener, serve)


def _served(listener: socket.socket, serve: Callable[[], None]) -> Iterator[tuple[str, int]]:
    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[:2]
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        thread.join(5)
        listener.close()


def tcp_socket(host: str, port: int = 0) -> socket.socket:
    """A socket that listens."""
    return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)


def udp_socket(host: str, port: int = 0) -> socket.socket:
    """A bound socket."""
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind((host, port))
    return made


def resolved(query: bytes) -> bytes:
    """The answer of a DNS server that knows every name: an A record of the outside; no record of another type."""
    end = query.index(b"\0", 12) + 5
    question, wanted = query[12:end], query[end - 4 : end - 2]
    record = b"\xc0\x0c\0\1\0\1\0\0\0\x05\0\4" + socket.inet_aton(OUTSIDE)
    count = b"\0\1" if wanted == b"\0\1" else b"\0\0"
    return query[:2] + DNS_FLAGS + b"\0\1" + count + b"\0\0\0\0" + question + (record if wanted == b"\0\1" else b"")


def question(name: str) -> bytes:
    """A DNS query for the A record of that name."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return b"\x12\x34\x01\0\0\1\0\0\0\0\0\0" + labels + b"\0\0\1\0\1"
