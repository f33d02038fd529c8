"""Sandboxes that a quota refused: whose run waits for room is told so, and so is whoever looks at its pool."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from hummingbird_operator.sandboxpools.claiming import Wish
from hummingbird_operator.sandboxpools.decide import History

QUOTA_SECONDS = 15.0
"""How long a pool makes nothing after a quota's refusal; a run that waits tries again sooner."""


class Shortages:
    """What this process met; a pool without a name is that of sandboxes without one."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._runs: dict[str, str] = {}
        self._pools: dict[str, tuple[datetime, str]] = {}

    def met(self, wish: Wish, problem: str) -> None:
        """A quota refused the run's sandbox; `problem` is the API server's sentence."""
        self._runs[wish.run_uid] = problem
        self._pools[wish.pool] = (self._now() + timedelta(seconds=QUOTA_SECONDS), problem)

    def over(self, pool: str) -> None:
        """One more could be made."""
        self._pools.pop(pool, None)

    def forget(self, run_uid: str) -> None:
        """The run asks anew, or for nothing any more."""
        self._runs.pop(run_uid, None)

    def of_run(self, run_uid: str) -> str:
        """The sentence of the run's last claim; empty where no quota refused it."""
        return self._runs.get(run_uid, "")

    def known(self, pool: str, history: History) -> History:
        """The pool's history, with what claims met where that was later."""
        met = self._pools.get(pool)
        if met is None or (history.quota_until is not None and met[0] <= history.quota_until):
            return history
        return replace(history, quota_until=met[0], quota_problem=met[1])
