"""How long the methods of a sandbox go on trying, and what ends their waits at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from hummingbird_ai.abort import Abort
from hummingbird_operator.errors import Doubt, Unavailable

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
DOUBT_SECONDS = 2.0
"""How long one look at the leadership is put off where the doubt does not say."""
T = TypeVar("T")


class Patience:
    """The time of one sandbox. Its clock stands still while nobody can tell who leads: that is no service's fault.

    An abort ends every wait.
    """

    def __init__(
        self, abort: Abort | None, clock: Callable[[], float], pause: Callable[[float], object] | None
    ) -> None:
        """`pause` replaces every wait, for tests."""
        self._clock = clock
        self._doubted = 0.0
        self.replaced = pause
        self.wait: Callable[[float], object] = pause or (abort.wait if abort is not None else time.sleep)

    def now(self) -> float:
        """Seconds, without those in doubt."""
        return self._clock() - self._doubted

    def bear(self, doubt: Doubt) -> None:
        """Wait a while that counts against nobody."""
        began = self._clock()
        self.wait(doubt.retry_after or DOUBT_SECONDS)
        self._doubted += self._clock() - began

    def tries(self, seconds: float, wait: Callable[[float], object] | None = None) -> Tries:
        """Tries for so long, counted from now."""
        return Tries(self.now, self.now() + seconds, wait or self.wait)


class Tries:
    """The tries of one call, with pauses that grow."""

    def __init__(self, now: Callable[[], float], give_up: float, wait: Callable[[float], object]) -> None:
        self._now = now
        self._give_up = give_up
        self._wait = wait
        self._pause = FIRST_PAUSE

    @property
    def left(self) -> float:
        """Seconds."""
        return self._give_up - self._now()

    def after(self, error: Unavailable) -> None:
        """Pause before the next try, or raise the error of the last one."""
        if self.left <= 0:
            raise error
        self._wait(self._pause)
        self._pause = min(self._pause * 2, LONGEST_PAUSE)


def bounded(service: str, seconds: float, action: Callable[[Abort], T]) -> T:
    """Do it in a thread of its own and wait no longer, wherever it hangs: connecting knows no abort.

    The abort that `action` gets is set when the time is over, so that it has no late effect: by then somebody else
    may have the sandbox. Raises Unavailable then.
    """
    over = Abort()
    done: list[T] = []
    failed: list[Exception] = []

    def act() -> None:
        try:
            done.append(action(over))
        except Exception as error:  # noqa: BLE001 - raised in the thread that waits
            failed.append(error)

    worker = threading.Thread(target=act, name="sandbox-bounded", daemon=True)
    worker.start()
    worker.join(seconds)
    if worker.is_alive():
        over.set("TimedOut")
        raise Unavailable(service, f"no answer within {seconds:g} s")
    if failed:
        raise failed[0]
    return done[0]
