"""The lease on one received message: kept from its receipt on, and ended exactly once.

Amazon counts 12 hours from the receipt, whatever is asked for. A lease that could not be extended in time is lost:
somebody else may have the message, so whoever works on it finishes what can be done twice and begins nothing new.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable

from hummingbird_operator import lifecycle
from hummingbird_operator.errors import Invalid, Unavailable
from hummingbird_operator.ingest.sqs.queue import LONGEST_TOTAL_SECONDS, Message, Queue

logger = logging.getLogger(__name__)

LEASE_SECONDS = 6 * 3600.0
"""Longest time that a message is held in one go; it then goes back to the queue."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 30.0
LONGEST_HINT_SECONDS = 120.0
"""A service's own hint when to come again is obeyed up to here."""
DELETES = 4
_EDGE_SECONDS = 600.0


class Pauses:
    """Growing, jittered pauses between tries of one thing."""

    def __init__(self) -> None:
        self._next = FIRST_PAUSE_SECONDS

    def next(self, error: Unavailable) -> float:
        """Seconds until the next try: 1 to 30, or the service's own hint if that is longer."""
        span, self._next = self._next, min(LONGEST_PAUSE_SECONDS, self._next * 2)
        pause = max(FIRST_PAUSE_SECONDS, span * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
        return max(pause, min(error.retry_after or 0.0, LONGEST_HINT_SECONDS))


class Lease:
    """`start` it at once; `delete` or `release` ends it. Neither raises Unavailable: what is not done comes again."""

    def __init__(
        self, queue: Queue, message: Message, visibility: int, *, clock: Callable[[], float], age: float = 0.0
    ) -> None:
        """`visibility`: seconds of one extension; `clock` goes on while the machine is suspended.

        `age`: seconds since the receipt, at most; it began then, not when we heard of it.
        """
        self.message = message
        self.lost = ""
        """Why it is no longer ours; empty while it is."""
        self.spent = False
        """It was held as long as is allowed: ours still, and extended no more."""
        self.wake = asyncio.Event()
        """Whoever waits with this message shall look again: it is lost or spent, or the process ends."""
        self.fault: Invalid | None = None
        """A person must mend the queue's permissions."""
        self._queue = queue
        self._visibility = visibility
        self._clock = clock
        self._received = clock() - age
        self._until = self._received + visibility
        self._finished = asyncio.Event()
        self._beat: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Extend it from now on, each time a third of its length is over."""
        self._beat = asyncio.create_task(self._keep())

    def stop(self) -> None:
        """Extend it no more."""
        self._finished.set()

    async def end(self) -> None:
        """Stop extending; an extension on its way is waited for, as it would hide a message given back."""
        self.stop()
        if self._beat is not None:
            await asyncio.wait({self._beat})

    async def delete(self) -> bool:
        """Take the message off the queue; False where it may come again. Raises Invalid."""
        pauses = Pauses()
        for last in [False] * (DELETES - 1) + [True]:
            try:
                problem = await self._queue.delete(self.message)
            except Unavailable as error:
                logger.warning("message %s is done and not deleted: %s", self.message.id, error)
                if last or self.lost:
                    break
                await lifecycle.pause(self._finished, pauses.next(error))
                continue
            if problem:  # expected after a long outage: the work is done, and doing it again changes nothing
                logger.warning("message %s is done and may come again: %s", self.message.id, problem)
            await self.end()
            return not problem
        await self.end()
        return False

    async def release(self, seconds: int = 0) -> bool:
        """Give the message back, for the next one in `seconds`; False where it stays hidden. Raises Invalid."""
        await self.end()
        if self.lost:
            return True
        try:
            problem = await self._queue.release(self.message, seconds)
        except Unavailable as error:
            logger.warning("message %s is not given back and comes when its lease ends: %s", self.message.id, error)
            return False
        if problem:
            logger.info("message %s was no longer ours to give back: %s", self.message.id, problem)
        return True

    async def _keep(self) -> None:
        pause = max(0.0, self._received + self._visibility / 3 - self._clock())
        while not (self._finished.is_set() or self.lost or self.spent):
            await lifecycle.pause(self._finished, pause)
            if not self._finished.is_set():
                pause = await self._extend()
        if self.lost and not self._finished.is_set():
            logger.warning("the lease on message %s is lost: %s", self.message.id, self.lost)
        self.wake.set()

    async def _extend(self) -> float:
        """Extend it once; the seconds until the next time."""
        began = self._clock()
        if began >= self._until:  # the machine slept, or the queue was away
            self.lost = self.lost or "it ran out"
            return 0.0
        held = began - self._received
        if held >= LEASE_SECONDS:
            self.spent = True
            return 0.0
        seconds = int(min(self._visibility, LONGEST_TOTAL_SECONDS - _EDGE_SECONDS - held))
        try:
            self.lost = await self._queue.extend(self.message, seconds)
        except Unavailable as error:
            logger.warning("the lease on message %s is not extended: %s", self.message.id, error)
            return min(Pauses().next(error), self._visibility / 12)
        except Invalid as error:
            self.fault, self.lost = error, str(error)
            return 0.0
        except Exception:  # a fault of ours must not end the heartbeat in silence, or two would hold one message
            logger.exception("the lease on message %s is not extended", self.message.id)
            return self._visibility / 12
        self._until = began + seconds
        return self._visibility / 3
