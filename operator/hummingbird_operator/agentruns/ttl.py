"""Deletes finished runs after their `ttlSecondsAfterFinished`: one task of the leader, told of every run by the watch.

A kopf timer would put a finalizer on every finished run; a periodic list would read all of them to find the few.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from hummingbird_operator.api import conditions as c
from hummingbird_operator.api.agentrun import AgentRun
from hummingbird_operator.errors import Conflict, HummingbirdError, NotFound
from hummingbird_operator.kube.client import AGENT_RUNS, KubeApi

logger = logging.getLogger(__name__)

LONGEST_SLEEP_SECONDS = 60.0
RETRY_SECONDS = 10.0


def end_of_life(run: AgentRun) -> datetime | None:
    """When the run may be deleted; None while it works, without a time to live, or when it is being deleted."""
    ttl, done = run.spec.ttl_seconds_after_finished, run.status.completion_time
    if ttl is None or done is None or run.metadata.deleting:
        return None
    return done + timedelta(seconds=ttl) if c.is_true(run.status.conditions, c.RunCondition.FINISHED) else None


class Reaper:
    """The finished runs that have a time to live, and the task that ends them."""

    def __init__(self, kube: KubeApi, clock: Callable[[], datetime]) -> None:
        self._kube = kube
        self._clock = clock
        self._ends: dict[str, tuple[datetime, str, str]] = {}
        self._changed = asyncio.Event()

    def observe(self, run: AgentRun, *, gone: bool = False) -> None:
        """The watch showed the run: its end may be new, other than before, or off."""
        end = None if gone else end_of_life(run)
        if end is None:
            self._ends.pop(run.metadata.uid, None)
            return
        self._ends[run.metadata.uid] = (end, run.metadata.namespace, run.metadata.name)
        self._changed.set()

    async def keep_reaping(self) -> None:
        """Delete each run when its time is over, for ever."""
        while True:
            self._changed.clear()
            pause = await self.reap()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._changed.wait()

    async def reap(self) -> float:
        """Delete what is over; seconds until the next look."""
        now = self._clock()
        for uid, (end, namespace, name) in sorted(self._ends.items(), key=lambda entry: entry[1][0]):
            if end > now:
                return min((end - now).total_seconds(), LONGEST_SLEEP_SECONDS)
            try:
                await self._kube.delete(AGENT_RUNS, namespace, name, uid=uid)
                logger.info("deleted after its ttlSecondsAfterFinished", extra={"run": name})
            except (Conflict, NotFound):
                pass  # somebody was faster, or another run has the name now
            except HummingbirdError as error:
                logger.warning("a finished run was not deleted: %s", error, extra={"run": name})
                return RETRY_SECONDS
            self._ends.pop(uid, None)
        return LONGEST_SLEEP_SECONDS
