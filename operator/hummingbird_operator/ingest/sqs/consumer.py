"""`ingest sqs`: events from a queue, each deleted only after its AgentRun exists or nothing is to be done.

A message has a worker from its receipt on, and a lease for as long as the worker has it. While the API server or
GitLab is away, what is held stays held and nobody receives: messages that were received too often end in the
dead-letter queue. Nothing here is remembered: any number of processes may read one queue, and any of them may die.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge

from hummingbird_operator import lifecycle
from hummingbird_operator.errors import Invalid, Unavailable
from hummingbird_operator.ingest.handle import Handles
from hummingbird_operator.ingest.sqs.lease import Lease, Pauses
from hummingbird_operator.ingest.sqs.queue import POLL_SECONDS, Queue
from hummingbird_operator.ingest.sqs.settle import Gate, Settlement
from hummingbird_operator.kube.lease import machine_clock

logger = logging.getLogger(__name__)

MOST_AT_ONCE = 10
"""Messages of one receive, by Amazon's rule."""
FINISH_SECONDS = 20.0
"""How long a stopping process lets its workers finish what they began."""
RELEASE_SECONDS = 5.0
LONGEST_END_SECONDS = 30.0
"""Longest time from SIGTERM to the end of `consume`: a poll on its way, the workers, and giving back the rest."""
_LATE_SECONDS = 2.0


@dataclass(frozen=True)
class SqsMetrics:
    """Collectors on one registry."""

    messages: Counter
    """`hummingbird_ingest_sqs_messages_total{result}`: each receipt by its end.

    `done`, `undeleted` (done, and may come again), `released` (given back), `lost` (the lease ran out), `failed` (given
    back for a while, since its handling raised or its own look-ups fail), `dead_letter` and `dropped` (unreadable or
    impossible: left for the dead-letter queue, or acknowledged with a log line).
    """
    held: Gauge
    """`hummingbird_ingest_sqs_held`: messages in hand."""
    waiting: Gauge
    """`hummingbird_ingest_sqs_waiting`: of those, how many wait for the API server or GitLab."""
    failures: Counter
    """`hummingbird_ingest_sqs_failures_total`: receives that failed."""

    @classmethod
    def on(cls, registry: CollectorRegistry | None = None) -> SqsMetrics:
        """Make the collectors; on a registry of their own where none is given."""
        registry = registry or CollectorRegistry()
        prefix = "hummingbird_ingest_sqs"
        return cls(
            messages=Counter(f"{prefix}_messages", "Receipts by their end", ["result"], registry=registry),
            held=Gauge(f"{prefix}_held", "Messages in hand", registry=registry),
            waiting=Gauge(f"{prefix}_waiting", "Messages that wait for a service", registry=registry),
            failures=Counter(f"{prefix}_failures", "Receives that failed", registry=registry),
        )


async def consume(
    queue: Queue,
    handler: Handles,
    *,
    concurrency: int,
    visibility: int,
    topic_arns: Iterable[str] = (),
    stop: asyncio.Event,
    metrics: SqsMetrics,
    clock: Callable[[], float] = machine_clock,
    poll: int = POLL_SECONDS,
) -> None:
    """Handle messages until `stop`; then give back what was not begun and end within LONGEST_END_SECONDS.

    `concurrency`: messages at once; `visibility`: seconds of a lease, extended at a third of it; `topic_arns`: SNS
    topics that are taken, any if empty; `clock` goes on while the machine is suspended; `poll`: seconds that a receive
    waits, at most POLL_SECONDS. Raises Invalid, with nothing left in hand, where the queue does not exist or a
    permission is missing.
    """
    gate = Gate()
    settlement = Settlement(queue, handler, gate, topic_arns)
    consumer = _Consumer(queue, settlement, gate, _Measures(concurrency, visibility, poll), metrics, clock)
    ending = asyncio.create_task(_end_at(stop, gate))
    try:
        await consumer.run()
    finally:
        ending.cancel()


@dataclass(frozen=True)
class _Measures:
    concurrency: int
    visibility: int
    poll: int


class _Consumer:
    """One process's share of the queue. `run` once; everything is on one event loop."""

    def __init__(
        self,
        queue: Queue,
        settlement: Settlement,
        gate: Gate,
        measures: _Measures,
        metrics: SqsMetrics,
        clock: Callable[[], float],
    ) -> None:
        self._queue = queue
        self._settlement = settlement
        self._gate = gate
        self._measures = measures
        self._metrics = metrics
        self._clock = clock
        self._fifo = True
        self._workers: dict[Lease, asyncio.Task[None]] = {}
        """In the order of receipt."""
        self._fault: Invalid | None = None
        metrics.waiting.set_function(lambda: gate.waiting)
        metrics.held.set_function(lambda: len(self._workers))

    async def run(self) -> None:
        """Until the end, as `consume` says."""
        try:
            poll = None
            traits = await lifecycle.until_available(self._queue.traits, self._gate.ending)
            if traits is not None:
                self._fifo = traits.fifo
                poll = await self._receive_until_end()
            await self._hand_over(poll)
        finally:
            for task in self._workers.values():
                task.cancel()
        if self._fault is not None:
            raise self._fault

    async def _receive_until_end(self) -> asyncio.Task[list[Lease]] | None:
        """Receive whenever there is a free worker; the receive that was on its way when the end came."""
        pauses = Pauses()
        while await self._may_receive():
            poll = asyncio.create_task(self._receive())
            await _either(poll, self._gate.ending)
            if self._gate.ending.is_set():
                return poll
            try:
                leases = poll.result()
            except Unavailable as error:
                self._metrics.failures.inc()
                logger.warning("nothing is received: %s", error)
                await lifecycle.pause(self._gate.ending, pauses.next(error))
                continue
            except Invalid as error:
                self._fail(error)
                break
            pauses = Pauses()
            for lease in leases:
                lease.start()
                self._workers[lease] = asyncio.create_task(self._work(lease))
        return None

    async def _may_receive(self) -> bool:
        """Wait for a free worker while no service is away; False at the end."""
        while not self._gate.ending.is_set() and (len(self._workers) >= self._measures.concurrency or self._gate.shut):
            self._gate.changed.clear()
            await self._gate.changed.wait()
        return not self._gate.ending.is_set()

    async def _receive(self) -> list[Lease]:
        """One receive. On FIFO one message: SQS would give ten of one group at once, which then overtake each other."""
        count = 1 if self._fifo else min(MOST_AT_ONCE, self._measures.concurrency - len(self._workers))
        wait, visibility = self._measures.poll, self._measures.visibility
        began = self._clock()
        messages = await self._queue.receive(count, wait=wait, visibility=visibility)
        took = self._clock() - began
        # an answer that came late may have been given at any time since the question
        age = took if took > wait + _LATE_SECONDS else 0.0
        return [Lease(self._queue, one, visibility, clock=self._clock, age=age) for one in messages]

    async def _work(self, lease: Lease) -> None:
        try:
            result = await self._settlement.settle(lease)
        except Invalid as error:  # the queue's permissions: a person must act, and sees it best where nothing runs
            self._fail(error)
        else:
            self._metrics.messages.labels(result).inc()
        await lease.end()
        if lease.fault is not None:
            self._fail(lease.fault)
        del self._workers[lease]
        self._gate.leave(lease)

    async def _hand_over(self, poll: asyncio.Task[list[Lease]] | None) -> None:
        """Give back what waits and what still comes; let workers finish what they began, for a while."""
        now = asyncio.get_running_loop().time()
        end = now + FINISH_SECONDS
        late = asyncio.create_task(self._return_late(poll))
        await _until(now + self._measures.poll + _LATE_SECONDS, {late})
        self._gate.returning = True
        for lease, worker in reversed(list(self._workers.items())):
            if lease in self._gate.resting:
                lease.wake.set()
                if self._fifo:  # the last one first, one after the other: the order of a group stays
                    await _until(end, {worker})
        await _until(end, {late, *self._workers.values()})
        late.cancel()
        unfinished = dict(self._workers)
        for task in unfinished.values():
            task.cancel()
        await asyncio.wait({late, *unfinished.values()}, timeout=1)
        await self._return(list(unfinished))

    async def _return_late(self, poll: asyncio.Task[list[Lease]] | None) -> None:
        try:
            leases = await poll if poll else []
        except (Unavailable, Invalid) as error:
            logger.info("the last receive brought nothing: %s", error)
            return
        await self._return(leases)

    async def _return(self, leases: list[Lease]) -> None:
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                for lease in reversed(leases):
                    await lease.release()
                    self._metrics.messages.labels("released").inc()
        except (TimeoutError, Invalid) as error:
            logger.warning("messages in hand come when their leases end: %s", error or "the queue does not answer")
        finally:
            for lease in leases:  # one that is extended for ever would never come
                lease.stop()

    def _fail(self, fault: Invalid) -> None:
        self._fault = self._fault or fault
        self._gate.end()


async def _end_at(stop: asyncio.Event, gate: Gate) -> None:
    await stop.wait()
    gate.end()


async def _either(task: asyncio.Task[list[Lease]], event: asyncio.Event) -> None:
    waiter = asyncio.create_task(event.wait())
    await asyncio.wait({task, waiter}, return_when=asyncio.FIRST_COMPLETED)
    waiter.cancel()


async def _until(end: float, tasks: set[asyncio.Task[None]]) -> None:
    """Wait for all of them, no longer than to `end` on the loop's clock."""
    await asyncio.wait(tasks, timeout=max(0.0, end - asyncio.get_running_loop().time()))
