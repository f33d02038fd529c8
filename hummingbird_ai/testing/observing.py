"""Watching every request that the provider servers of this process accept."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hummingbird_ai.testing.received import ReceivedCall

Observer = Callable[[ReceivedCall], object]

_lock = threading.Lock()
_open: list[list[Observer]] = []  # each in a list of its own: the same callback may be opened twice


@contextmanager
def observing(callback: Observer) -> Iterator[None]:
    """While it is open, `callback` is given every request that any provider server of this process accepts.

    It is called in the server's threads, before the script. What it raises is kept and raised by the server's
    `close`, like an exception of the script; the request itself is answered all the same.
    """
    entry = [callback]
    with _lock:
        _open.append(entry)
    try:
        yield
    finally:
        with _lock:
            _open[:] = [item for item in _open if item is not entry]


def observers() -> list[Observer]:
    """Those that are open now, the outermost first."""
    with _lock:
        return [callback for (callback,) in _open]
