"""What becomes of one received message: handled and deleted, kept through an outage, given back, or given up."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import traceback
from collections.abc import Iterable
from dataclasses import replace

from hummingbird_operator.delivery.cleaning import clean, cut
from hummingbird_operator.errors import Unavailable
from hummingbird_operator.ingest.event import BadMessage, Event, decode_message
from hummingbird_operator.ingest.handle import Handles, NameTaken
from hummingbird_operator.ingest.payloads import read_part
from hummingbird_operator.ingest.sqs.lease import Lease, Pauses
from hummingbird_operator.ingest.sqs.queue import Message, Queue

logger = logging.getLogger(__name__)

TRY_SECONDS = 600.0
"""Longest time of one try to handle an event; the handler's own calls end much sooner."""
ATTEMPTS = 5
"""Receipts after which a message is given up whose handling raises, where no dead-letter queue takes it."""
LONE_ATTEMPTS = 10
"""The same for one whose look-ups fail while both services answer: more than an hour, as half of GitLab may be away."""
LONE_TRIES = 3
"""Tries of such a message in one receipt, with short pauses: most of what fails alone fails once."""
FIRST_RETURN_SECONDS, LONGEST_RETURN_SECONDS = 30, 900
INLINE_CHARACTERS = 2_048
"""Longer bodies, and packed ones, which may unpack to a thousand times as much, are decoded in a thread, for the leases
of others must be kept meanwhile; and one at a time, since as objects they take many times their bytes."""
_REASON_CHARACTERS = 300


class _AloneError(Exception):
    """Both services answer, and still this event meets Unavailable (its cause)."""


class Gate:
    """Shut while a message waits for a service that is away; also says that the process ends."""

    def __init__(self) -> None:
        self.ending = asyncio.Event()
        self.changed = asyncio.Event()
        """Whether to receive must be asked again."""
        self.resting: set[Lease] = set()
        """Messages that sleep between two tries."""
        self.returning = False
        """Whether messages may go back: not while a receive of ours is on its way, which would bring them again."""
        self._away: set[Lease] = set()
        self._back = asyncio.Event()
        """Set once, and then replaced, when a message that had waited went through."""

    @property
    def waiting(self) -> int:
        """Messages that wait for a service, those included that are being tried again."""
        return len(self._away)

    @property
    def shut(self) -> bool:
        """Whether nobody may receive."""
        return bool(self._away)

    def shut_for(self, lease: Lease) -> None:
        """A service is away: nobody receives until this message left."""
        if not self.ending.is_set():
            self._away.add(lease)

    async def rest(self, lease: Lease, seconds: float, *, hinted: bool) -> None:
        """Sleep, no longer than until `lease.wake`; at the end of the process until then.

        Also no longer than until another one went through, unless the service itself asked for the pause (`hinted`).
        """
        self.resting.add(lease)
        try:
            if not self.ending.is_set():
                await _first([lease.wake] if hinted else [lease.wake, self._back], seconds)
            if self.ending.is_set() and not self.returning:
                await lease.wake.wait()
        finally:
            self.resting.discard(lease)

    def leave(self, lease: Lease) -> bool:
        """It waits no more; whether it did."""
        self.changed.set()
        waited = lease in self._away
        self._away.discard(lease)
        return waited

    def wake(self) -> None:
        """One that had waited went through: let those that sleep try at once.

        Else all would wait for whoever sleeps longest, half a minute after the outage: nobody receives until then.
        """
        self._back.set()
        self._back = asyncio.Event()

    def end(self) -> None:
        """Receive nothing more."""
        self.ending.set()
        self.changed.set()


class Settlement:
    """Settles messages, many at once."""

    def __init__(self, queue: Queue, handler: Handles, gate: Gate, topic_arns: Iterable[str]) -> None:
        self._queue = queue
        self._handler = handler
        self._gate = gate
        self._topic_arns = tuple(topic_arns)
        self._has_dead_letters = False
        self._one_by_one = asyncio.Lock()

    async def settle(self, lease: Lease) -> str:
        """Bring a message to its end, and say which: a label of SqsMetrics. Raises Invalid of the queue only."""
        try:
            end = await self._handle(lease)
        except (BadMessage, NameTaken) as error:
            return await self._refuse(lease, error)
        except _AloneError as alone:
            return await self._give_up(lease, alone.__cause__ or alone, LONE_ATTEMPTS)
        except Exception as error:  # noqa: BLE001 - a fault of ours; its text could hold the payload
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{type(error).__name__} in {frame.name} line {frame.lineno}"
            logger.error("message %s: its handling failed: %s", lease.message.id, place)
            return await self._give_up(lease, RuntimeError(place), ATTEMPTS)
        if end == "released":
            await lease.release()
        return end or ("done" if await lease.delete() else "undeleted")

    async def _handle(self, lease: Lease) -> str:
        """Until it is handled, which gives an empty text; through every outage, unless that ends it otherwise."""
        event = await self._decoded(lease.message)
        pauses, end, alone = Pauses(), "", 0
        while not end:
            try:
                async with asyncio.timeout(TRY_SECONDS):
                    await self._handler.handle(event)
                break
            except Unavailable as error:
                away = await self._handler.away()
                alone = 0 if away else alone + 1
                if alone >= LONE_TRIES:
                    raise _AloneError from error
                end = await self._wait(lease, error, pauses.next(error), away)
        if self._gate.leave(lease) and not end:
            self._gate.wake()
            logger.info("message %s went through", lease.message.id)
        return end

    async def _decoded(self, message: Message) -> Event:
        if _is_small(message):
            return self._read(message)
        async with self._one_by_one:
            return await asyncio.to_thread(self._read, message)

    def _read(self, message: Message) -> Event:
        """The event without what nobody looks at: it may wait for hours."""
        event = decode_message(message.body, message.attributes, self._topic_arns)
        return replace(event, payload=read_part(event.payload))

    async def _wait(self, lease: Lease, error: Unavailable, seconds: float, away: Unavailable | None) -> str:
        """Keep the message until its next try; how it ended otherwise. Only an outage keeps the others waiting."""
        if away:
            self._gate.shut_for(lease)
        elif self._gate.leave(lease):
            self._gate.wake()
        logger.warning("message %s waits %.0f s%s: %s", lease.message.id, seconds, "" if away else ", alone", error)
        await self._gate.rest(lease, seconds, hinted=error.retry_after is not None)
        if lease.lost:
            return "lost"
        return "released" if lease.spent or self._gate.ending.is_set() else ""

    async def _refuse(self, lease: Lease, error: BadMessage | NameTaken) -> str:
        """For the dead-letter queue, or off the queue with a record: it would be the same at every receipt."""
        if not await self._dead_letters():
            return await self._drop(lease, error)
        logger.error("%s; it is left for the dead-letter queue", record(lease.message, error))
        # at once, so that its group goes on; a redrive policy of a thousand receipts must not become a busy loop
        await lease.release(0 if lease.message.receives <= ATTEMPTS else FIRST_RETURN_SECONDS)
        return "dead_letter"

    async def _give_up(self, lease: Lease, error: BaseException, attempts: int) -> str:
        """Back to the queue for a growing while; after `attempts` off the queue, where nothing else takes it."""
        receives = lease.message.receives
        if receives >= attempts and not await self._dead_letters():
            return await self._drop(lease, error)
        logger.warning("%s; it goes back", record(lease.message, error))
        grown = FIRST_RETURN_SECONDS * 2 ** min(max(receives, 1) - 1, 10)
        await lease.release(min(LONGEST_RETURN_SECONDS, grown))
        return "failed"

    async def _drop(self, lease: Lease, error: BaseException) -> str:
        logger.error("%s; it is acknowledged, as no dead-letter queue takes it", record(lease.message, error))
        await lease.delete()
        return "dropped"

    async def _dead_letters(self) -> bool:
        """Whether a redrive policy takes what we leave: read now, as this is rare and the policy may be new."""
        try:
            self._has_dead_letters = (await self._queue.traits()).dead_letters
        except Unavailable as error:
            logger.warning("whether there is a dead-letter queue is as it was: %s", error)
        return self._has_dead_letters


def record(message: Message, error: BaseException) -> str:
    """What stays of a message that is given up: enough to find it again, and of its text at most what `error` cites."""
    digest = hashlib.sha256(message.body.encode(errors="surrogatepass")).hexdigest()
    reason = cut(" ".join(clean(str(error)).split()), _REASON_CHARACTERS) or type(error).__name__
    return (
        f"message {message.id} (sha256 {digest}, {len(message.body)} characters, receipt {message.receives}): {reason}"
    )


def _is_small(message: Message) -> bool:
    """Short, and surely not packed: no name in it is written with escapes."""
    packed = bool(message.attributes.get("content_encoding")) or "gzip" in message.body or "\\" in message.body
    return len(message.body) <= INLINE_CHARACTERS and not packed


async def _first(events: Iterable[asyncio.Event], seconds: float) -> None:
    """Sleep, but no longer than until one of them."""
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()
