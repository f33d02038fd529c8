"""Ports on the loopback address: the usual number where it is free, any other where it is not."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Ports:
    """The ports of one cluster, with the usual numbers."""

    apiserver: int = 6443
    etcd: int = 2379
    etcd_peer: int = 2380
    kubelet: int = 10250


def is_free(port: int) -> bool:
    """Whether a server could listen there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            # All addresses: a listener on 0.0.0.0 would not clash here, but its clients and ours would be confused.
            probe.bind(("", port))
        except OSError:
            return False
        return True


def any_free() -> int:
    """A port that the kernel picks."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def choose(free: Callable[[int], bool] = is_free, another: Callable[[], int] = any_free) -> Ports:
    """Four different ports."""
    usual = Ports()
    taken: set[int] = set()

    def pick(port: int) -> int:
        number = port if free(port) else another()
        while number in taken:
            number = another()
        taken.add(number)
        return number

    return Ports(pick(usual.apiserver), pick(usual.etcd), pick(usual.etcd_peer), pick(usual.kubelet))
