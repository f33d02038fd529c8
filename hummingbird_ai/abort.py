"""One switch per run that ends whatever it is doing: a wait, a call in flight, a command."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager


class Abort:
    """Set once, from any thread; the first reason stays.

    Callbacks run in the thread that calls `set`. One that is about to run while its `with` block ends may still run
    after it: a callback must bear that its work is over (shutting down a closed socket does).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._event = threading.Event()
        self._reason: str | None = None
        self._callbacks: dict[object, Callable[[], None]] = {}

    def set(self, reason: str) -> None:
        """End the work; every registered callback runs once, even if another one fails."""
        with self._lock:
            if self._reason is not None:
                return
            self._reason = reason
            callbacks = list(self._callbacks.values())
            self._callbacks.clear()
        self._event.set()
        with ExitStack() as stack:
            for callback in callbacks:
                stack.callback(callback)

    @property
    def reason(self) -> str | None:
        """Why, or None while nobody asked for the end."""
        return self._reason

    def is_set(self) -> bool:
        """Somebody asked for the end."""
        return self._event.is_set()

    def wait(self, timeout: float | None) -> bool:
        """Sleep up to `timeout` seconds; True as soon as the end is asked for."""
        return self._event.wait(timeout)

    @contextmanager
    def on_abort(self, callback: Callable[[], None]) -> Iterator[None]:
        """Run `callback` if the end is asked for within this block; at once if it was already."""
        key = object()
        with self._lock:
            late = self._reason is not None
            if not late:
                self._callbacks[key] = callback
        if late:
            callback()
        try:
            yield
        finally:
            with self._lock:
                self._callbacks.pop(key, None)
