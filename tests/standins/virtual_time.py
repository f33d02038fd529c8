"""An event loop whose clock jumps to the next timer instead of waiting: hours pass in milliseconds, always the same.

For code without threads and sockets: a loop with nothing to do and no timer would wait for ever, and raises.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Jump(selectors.DefaultSelector):
    def __init__(self, advance: Callable[[float], None]) -> None:
        super().__init__()
        self._advance = advance

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("every task waits for something that nobody will do")
        if not ready and timeout:
            self._advance(timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """`time()` begins at 1000 seconds."""

    def __init__(self) -> None:
        self._now = 1000.0
        super().__init__(_Jump(self._jump))

    def time(self) -> float:
        return self._now

    def _jump(self, seconds: float) -> None:
        self._now += seconds


def in_virtual_time(work: Coroutine[Any, Any, T]) -> T:
    """Run it to its end."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
