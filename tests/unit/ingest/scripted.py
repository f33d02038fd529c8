"""A consumer in virtual time: a queue in memory, a handler that does as it is told, and what came of both."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from prometheus_client import CollectorRegistry

from hummingbird_operator.errors import Unavailable
from hummingbird_operator.ingest.event import Event
from hummingbird_operator.ingest.handle import Outcome, Reason
from hummingbird_operator.ingest.sqs.consumer import SqsMetrics, consume
from tests.standins.sqs_memory import MemoryQueue
from tests.standins.virtual_time import in_virtual_time

Step = Exception | float


def body(name: str) -> str:
    """An event that the handler knows by that name."""
    return json.dumps({"object_kind": "note", "object_attributes": {"note": name}})


class Script:
    """Handles events by name: each try takes the next step, seconds to take or an error to raise; then it is done."""

    def __init__(self, clock: Callable[[], float], queue: MemoryQueue) -> None:
        self.steps: dict[str, list[Step]] = defaultdict(list)
        self.outage: Unavailable | None = None
        """Raised for every event while it is set."""
        self.sound = False
        """Whether the services answer when they are asked after an event met one that is away."""
        self.tries: list[tuple[str, float]] = []
        self.done: list[str] = []
        self.fields: set[str] = set()
        """Of all payloads."""
        self.busy = 0
        self.busiest = 0
        self._clock = clock
        self._queue = queue

    async def handle(self, event: Event) -> Outcome:
        name = str(event.payload["object_attributes"]["note"])
        self.tries.append((name, self._clock()))
        self.fields |= set(event.payload)
        self.busy += 1
        self.busiest = max(self.busiest, self.busy)
        try:
            await self._step(name)
        finally:
            self.busy -= 1
        self.done.append(name)
        self._queue.log.append(("handled", name))
        return Outcome(Reason.FIRED, runs=(name,))

    async def away(self) -> Unavailable | None:
        return self.outage or (None if self.sound else Unavailable("GitLab", "503"))

    async def _step(self, name: str) -> None:
        await asyncio.sleep(0)
        if self.outage is not None:
            raise self.outage
        while self.steps[name]:
            step = self.steps[name].pop(0)
            if isinstance(step, Exception):
                raise step
            await asyncio.sleep(step)

    def times(self, name: str) -> list[float]:
        """When it was tried, in seconds after the first time."""
        times = [when for known, when in self.tries if known == name]
        return [when - times[0] for when in times]


class Scene:
    """One queue and one script; `start` makes consumers of it."""

    def __init__(self, *, fifo: bool = False, most_receives: int | None = None) -> None:
        self.asleep = 0.0
        """How long the machine was suspended: the clock of leases saw it, timers did not."""
        loop = asyncio.get_running_loop()
        self.began = loop.time()
        self.queue = MemoryQueue(clock=loop.time, fifo=fifo, most_receives=most_receives)
        self.script = Script(loop.time, self.queue)
        self.stop = asyncio.Event()
        self.registry = CollectorRegistry()
        self._metrics = SqsMetrics.on(self.registry)
        self._loop = loop
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return self._loop.time() - self.began

    def start(
        self,
        *,
        concurrency: int = 8,
        visibility: int = 120,
        topic_arns: tuple[str, ...] = (),
        stop: asyncio.Event | None = None,
    ) -> asyncio.Task[None]:
        """One more process; without a `stop` of its own `end` ends it."""
        work = consume(
            self.queue,
            self.script,
            concurrency=concurrency,
            visibility=visibility,
            topic_arns=topic_arns,
            stop=stop or self.stop,
            metrics=self._metrics,
            clock=lambda: self._loop.time() + self.asleep,
        )
        task = asyncio.create_task(work)
        self._tasks.append(task)
        return task

    async def end(self) -> float:
        """SIGTERM; how many seconds the end took."""
        began = self.now
        self.stop.set()
        await self.ended()
        return self.now - began

    async def ended(self) -> None:
        await asyncio.gather(*self._tasks)

    def count(self, result: str) -> float:
        return self.registry.get_sample_value("hummingbird_ingest_sqs_messages_total", {"result": result}) or 0.0

    def gauge(self, name: str) -> float | None:
        return self.registry.get_sample_value(f"hummingbird_ingest_sqs_{name}")


def scene(**how: Any) -> Callable[[Callable[[Scene], Awaitable[None]]], Callable[[], None]]:
    """Make a test of a story that is played in a Scene, in virtual time."""

    def decorate(story: Callable[[Scene], Awaitable[None]]) -> Callable[[], None]:
        def test() -> None:
            play(story, **how)

        test.__name__ = story.__name__
        return test

    return decorate


def play(story: Callable[[Scene], Awaitable[None]], **how: Any) -> None:
    """The story in a new Scene, in virtual time."""

    async def played() -> None:
        await story(Scene(**how))

    work: Coroutine[Any, Any, None] = played()
    in_virtual_time(work)
