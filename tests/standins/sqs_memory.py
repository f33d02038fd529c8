"""A queue in memory that keeps Amazon SQS's promises, on a clock of the test's; it remembers all that was asked of it.

Kept: leases by handle, one open message at most per group on FIFO, order in a group, the redrive policy, at-least-once
on a standard queue (a test makes duplicates). Errors are scripted per call.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from hummingbird_operator.ingest.sqs.queue import Message, Traits


@dataclass
class Entry:
    """A message on the queue."""

    id: str
    body: str
    group: str
    attributes: dict[str, str] = field(default_factory=dict)
    visible: float = 0.0
    receives: int = 0
    handle: str = ""
    deleted: bool = False
    dead: bool = False


class MemoryQueue:
    """`hummingbird_operator.ingest.sqs.queue.Queue`, and the other side of it."""

    def __init__(self, *, clock: Callable[[], float], fifo: bool = False, most_receives: int | None = None) -> None:
        self.entries: list[Entry] = []
        self.log: list[tuple[str, str]] = []
        """(call, message id) in the order of arrival; `receive` once per message, `poll` once per call."""
        self.asked: list[int] = []
        """How many messages each receive wanted."""
        self.faults: dict[str, list[Exception | str]] = defaultdict(list)
        """By call: errors to raise; a text for delete, extend or release is a lost lease. Taken from the front."""
        self.slow: dict[str, float] = {}
        """By call: seconds until it answers; it acts at once."""
        self.underway: dict[str, float] = {}
        """By call: seconds until it arrives and acts."""
        self.fifo = fifo
        self.most_receives = most_receives
        self._clock = clock
        self._arrived = asyncio.Event()
        self._puts = 0
        self._handles = 0

    def put(self, body: str, *, group: str = "", attributes: dict[str, str] | None = None) -> str:
        """Add a message; its id."""
        self._puts += 1
        entry = Entry(f"m{self._puts}", body, group or f"g{self._puts}", attributes or {})
        self.entries.append(entry)
        self._arrived.set()
        return entry.id

    def repeat(self, identity: str) -> None:
        """Give a message once more, as a standard queue may do, also after its deletion."""
        entry = self.entry(identity)
        self.entries.append(Entry(entry.id, entry.body, entry.group, entry.attributes))
        self._arrived.set()

    def entry(self, identity: str) -> Entry:
        """The first of that id."""
        return next(entry for entry in self.entries if entry.id == identity)

    def ids(self, call: str) -> list[str]:
        """The messages of that call, in order."""
        return [identity for name, identity in self.log if name == call]

    @property
    def left(self) -> list[str]:
        """What is neither deleted nor in the dead-letter queue."""
        return [entry.id for entry in self.entries if not entry.deleted and not entry.dead]

    @property
    def dead(self) -> list[str]:
        """What the redrive policy took away."""
        return [entry.id for entry in self.entries if entry.dead]

    def hidden(self, identity: str) -> float:
        """Seconds until it can be received."""
        return max(0.0, self.entry(identity).visible - self._clock())

    async def receive(self, count: int, *, wait: int, visibility: int) -> list[Message]:
        """What is free, or what becomes so within `wait` seconds."""
        self.log.append(("poll", ""))
        self.asked.append(count)
        await self._called("receive")
        end = self._clock() + wait
        while not (found := self._free(count)) and self._clock() < end:
            self._arrived.clear()
            await _either(self._arrived, min(self._next_end(), end) - self._clock())
        messages = [self._leased(entry, visibility) for entry in found]
        await self._late("receive")
        return messages

    async def delete(self, message: Message) -> str:
        """Gone, unless the handle is an old one."""
        self.log.append(("delete", message.id))
        problem = await self._called("delete") or self._check(message)
        if not problem:
            self._entry_of(message).deleted = True
            self._arrived.set()
        await self._late("delete")
        return problem

    async def extend(self, message: Message, seconds: int) -> str:
        """Hidden for that long from now on."""
        self.log.append(("extend", message.id))
        return await self._hide(message, seconds, "extend")

    async def release(self, message: Message, seconds: int = 0) -> str:
        """Free after that time."""
        self.log.append(("release", message.id))
        return await self._hide(message, seconds, "release")

    async def send(self, body: str, *, group: str, once: str) -> None:
        """Put it on the queue; `once` is not looked at."""
        await self._called("send")
        self.put(body, group=group)

    async def traits(self) -> Traits:
        """As it was made."""
        self.log.append(("traits", ""))
        await self._called("traits")
        return Traits(fifo=self.fifo, dead_letters=self.most_receives is not None)

    async def _hide(self, message: Message, seconds: int, call: str) -> str:
        problem = await self._called(call) or self._check(message)
        if not problem:
            self._entry_of(message).visible = self._clock() + seconds
            self._arrived.set()
        await self._late(call)
        return problem

    def _free(self, count: int) -> list[Entry]:
        now, blocked, found = self._clock(), set[str](), list[Entry]()
        for entry in self.entries:
            if entry.deleted or entry.dead or len(found) == count:
                continue
            if entry.visible > now:
                blocked.add(entry.group)
            elif not (self.fifo and entry.group in blocked):
                if self.most_receives is not None and entry.receives >= self.most_receives:
                    entry.dead = True
                else:
                    found.append(entry)
        return found

    def _next_end(self) -> float:
        now = self._clock()
        ends = [entry.visible for entry in self.entries if not entry.deleted and entry.visible > now]
        return min(ends, default=float("inf"))

    def _leased(self, entry: Entry, visibility: int) -> Message:
        self._handles += 1
        entry.receives += 1
        entry.handle = f"h{self._handles}"
        entry.visible = self._clock() + visibility
        self.log.append(("receive", entry.id))
        return Message(entry.id, entry.handle, entry.body, entry.attributes, entry.receives)

    def _entry_of(self, message: Message) -> Entry:
        return next(entry for entry in self.entries if entry.handle == message.handle)

    def _check(self, message: Message) -> str:
        entry = next((entry for entry in self.entries if entry.handle == message.handle), None)
        if entry is None or entry.deleted:
            return "the receipt handle is invalid"
        return "the receipt handle has expired" if entry.visible <= self._clock() else ""

    async def _called(self, call: str) -> str:
        await asyncio.sleep(self.underway.get(call, 0.0))
        if not self.faults[call]:
            return ""
        fault = self.faults[call].pop(0)
        if isinstance(fault, Exception):
            raise fault
        return fault

    async def _late(self, call: str) -> None:
        if seconds := self.slow.get(call, 0.0):
            await asyncio.sleep(seconds)


async def _either(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
