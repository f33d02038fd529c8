"""An event loop whose clock jumps: where nothing is left to do but wait, the wait is over at once.

While a thread works (`run_in_executor`), time passes as it really does. So a day of retries takes milliseconds, and
nothing has to be imitated: pauses, timeouts and timers are asyncio's own.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

STUCK_SECONDS = 10.0


class JumpingLoop(asyncio.SelectorEventLoop):
    """Its `time` is the real one plus what was skipped."""

    def __init__(self) -> None:
        self.skipped = 0.0
        self.at_work = 0
        super().__init__(_Selector(self))

    def time(self) -> float:
        """Seconds on the loop's own clock."""
        return super().time() + self.skipped

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """As asyncio does it, counted for as long as the thread works."""
        self.at_work += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._done)
        return future

    def _done(self, _: asyncio.Future[Any]) -> None:
        self.at_work -= 1


class _Selector(selectors.DefaultSelector):
    def __init__(self, loop: JumpingLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self._loop.at_work or (timeout is not None and timeout <= 0):
            return super().select(timeout)
        if found := super().select(STUCK_SECONDS if timeout is None else 0):
            return found
        if timeout is None:
            raise RuntimeError("nothing will ever happen: no timer is set and no thread is at work")
        self._loop.skipped += timeout
        return []
