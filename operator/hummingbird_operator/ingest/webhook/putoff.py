"""Events whose own look-ups fail though GitLab and the API server answer: kept in the process, and tried again.

A 503 for such an event would count against the hook, and after four of them GitLab sends nobody's events any more. So
the delivery is accepted. What is kept here is lost when the process is killed, or ends without a queue to give it to:
one event that failed by itself, against all events of a project.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, Counter

from hummingbird_operator.errors import HummingbirdError
from hummingbird_operator.ingest.event import Event
from hummingbird_operator.ingest.handle import Handles, NameTaken
from hummingbird_operator.ingest.payloads import read_part, size_of

logger = logging.getLogger(__name__)

PAUSES = (5.0, 15.0, 60.0, 120.0, 300.0, 600.0, 600.0, 600.0, 600.0, 600.0)
"""Seconds before each try that counts, an hour in all. One made while a service is away does not count."""
MOST = 100
SHARE = 20
"""Of one merge request: whoever writes in a thread that cannot be read must not fill the room of all others."""
CHARACTERS = 16 * 1024 * 1024
TRY_SECONDS = 60.0
TRIES_AT_ONCE = 4
END_SECONDS = 5.0
"""For all that is left at the end of the process."""


class Queue(Protocol):
    """Takes what cannot be handled now."""

    async def send(self, event: Event) -> None:
        """Returns once the event is safe. Raises a HummingbirdError."""


@dataclass(frozen=True)
class _Kept:
    event: Event
    size: int
    lane: tuple[str, str]


@dataclass
class PutOff:
    """What was put off, at most `most` events of `characters` of JSON, `share` of them of one merge request.

    Each ends done, failed, queued, given up or lost. Above the share the oldest of that merge request is given up.
    """

    handler: Handles
    queue: Queue | None = None
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    pauses: Sequence[float] = PAUSES
    most: int = MOST
    share: int = SHARE
    characters: int = CHARACTERS

    def __post_init__(self) -> None:
        name, labels = "hummingbird_ingest_put_off", ["result"]
        self._ends = Counter(name, "Events that were put off, by their end", labels, registry=self.registry)
        self._held: dict[asyncio.Task[None], _Kept] = {}
        self._size = 0
        self._open = True
        self._turns = asyncio.Semaphore(TRIES_AT_ONCE)

    def take(self, event: Event) -> bool:
        """Whether the event is kept and tried again; not where there is no room, or after `close_door`."""
        payload = read_part(event.payload)
        kept = _Kept(replace(event, payload=payload), size_of(payload), _lane(payload))
        if not self._open:
            return False
        same = [task for task, other in self._held.items() if other.lane == kept.lane]
        if len(same) >= self.share:
            self._give_up(same[0], "too many of its merge request are put off")
        if len(self._held) >= self.most or self._size + kept.size > self.characters:
            return False
        task = asyncio.create_task(self._again(kept.event))
        self._held[task] = kept
        self._size += kept.size
        task.add_done_callback(self._gone)
        return True

    def _give_up(self, task: asyncio.Task[None], why: str) -> None:
        logger.error("event %s is given up: %s", ascii(self._held[task].event.delivery), why)
        self._ends.labels("given_up").inc()
        task.cancel()
        self._gone(task)

    async def idle(self) -> None:
        """Wait until nothing is put off any more."""
        while self._held:
            await asyncio.wait(self._held)

    def close_door(self) -> None:
        """Take nothing more: the process ends soon."""
        self._open = False

    async def close(self) -> None:
        """To the queue with what is left; without one, each is tried a last time."""
        self.close_door()
        left = dict(self._held)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await asyncio.gather(*(self._last(kept.event) for kept in left.values()))

    async def _again(self, event: Event) -> None:
        for pause in self.pauses:
            result = ""
            while not result:
                await asyncio.sleep(pause)
                result = await self._try(event)
                if not result and await self.handler.away() is None:
                    break
            if result:
                self._ends.labels(result).inc()
                return
        logger.error("event %s is given up: it failed for an hour by itself", ascii(event.delivery))
        self._ends.labels("given_up").inc()

    async def _try(self, event: Event) -> str:
        """How it ended; empty: it has not yet."""
        try:
            async with self._turns, asyncio.timeout(TRY_SECONDS):
                await self.handler.handle(event)
        except NameTaken as error:
            logger.warning("event %s that was put off: %s", ascii(event.delivery), error)
            return "failed"
        except (HummingbirdError, TimeoutError) as error:
            logger.info("event %s stays put off: %s", ascii(event.delivery), str(error) or "no answer")
            return ""
        except Exception as error:  # noqa: BLE001 - a fault of ours; its text could hold the payload
            logger.error("event %s that was put off failed: %s", ascii(event.delivery), type(error).__name__)
            return "failed"
        return "done"

    async def _last(self, event: Event) -> None:
        try:
            async with asyncio.timeout(END_SECONDS):
                result = await self._handed_over(event) or await self._try(event)
        except TimeoutError:
            result = ""
        if not result:
            logger.error("event %s is lost: it was put off, and the process ends", ascii(event.delivery))
        self._ends.labels(result or "lost").inc()

    async def _handed_over(self, event: Event) -> str:
        if self.queue is None:
            return ""
        try:
            await self.queue.send(event)
        except HummingbirdError as error:
            logger.warning("the queue does not take an event that was put off: %s", error)
            return ""
        return "queued"

    def _gone(self, task: asyncio.Task[None]) -> None:
        kept = self._held.pop(task, None)
        self._size -= kept.size if kept else 0


def _lane(payload: Mapping[str, Any]) -> tuple[str, str]:
    """Project and merge request, as the event names them, in whatever shape."""
    project, request, own = (payload.get(name) for name in ("project", "merge_request", "object_attributes"))
    named = request if isinstance(request, Mapping) else own if isinstance(own, Mapping) else {}
    return str(project.get("id") if isinstance(project, Mapping) else "")[:40], str(named.get("iid"))[:40]
