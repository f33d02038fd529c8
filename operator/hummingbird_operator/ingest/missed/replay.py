"""Events that were missed, handled late: GitLab never sends a webhook twice, but keeps a list of what it sent.

After a 503 of ours, at the start of the process and once an hour the failed deliveries of our hooks are read, in each
project and in the groups above, and handed to the handler, oldest first. That is safe to repeat: content keys name the
AgentRuns. Several replicas may do it at once. What GitLab did not send at all, to a hook that it had disabled, is not
in that list: `catchup` finds it in others. A disabled hook is enabled again, by a test.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from prometheus_client import CollectorRegistry, Counter

from hummingbird_operator.errors import HummingbirdError, Invalid, NotFound, Unavailable
from hummingbird_operator.ingest.event import Event
from hummingbird_operator.ingest.hooks.hooks import PAGE, Attempt, Delivery, Hook
from hummingbird_operator.ingest.hooks.moments import happened
from hummingbird_operator.ingest.hooks.places import Deliveries, Globs, Place, below, groups_above
from hummingbird_operator.ingest.missed.catchup import Catchup
from hummingbird_operator.ingest.missed.gaps import SINCE, Hooked
from hummingbird_operator.ingest.missed.handing import Result, hand_in
from hummingbird_operator.ingest.missed.mending import Mending
from hummingbird_operator.ingest.missed.patience import ASIDE_SECONDS, LONGEST_PAUSE_SECONDS, Patience
from hummingbird_operator.ingest.payloads import read_part, size_of

logger = logging.getLogger(__name__)

MOST = 500
"""Deliveries of one hook in one replay: they are held in memory, to be handled oldest first."""
HELD = 32 * 1024 * 1024
"""Characters of them at most, without the parts that nothing reads."""
REMEMBERED = 10_000
EVERY_SECONDS = 3600.0
"""Also without a reason that we saw: a proxy in front may have answered 502 while nobody here knew."""


@dataclass
class Replay:
    """One replay at a time; `run` it once per process, and call `wanted` after a delivery was refused."""

    deliveries: Deliveries
    patience: Patience
    url: str
    """Of our hook."""
    projects: Sequence[str]
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    held: int = HELD
    catchup: Catchup | None = None
    """What looks for what was never sent; it is only said without."""
    groups: Deliveries | None = None
    """The hooks of groups."""
    globs: Sequence[str] = ()
    behind: Globs | None = None
    """What finds the projects of the globs."""

    def __post_init__(self) -> None:
        name, labels = "hummingbird_ingest_replayed", ["result"]
        self._counter = Counter(name, "Failed deliveries that were looked at again", labels, registry=self.registry)
        self._wanted = asyncio.Event()
        self._wanted.set()  # nobody knows what was missed before the start
        self._next = EVERY_SECONDS
        self._done: OrderedDict[tuple[str, int], None] = OrderedDict()
        """Deliveries that are not to be handled again."""
        self._cut: set[Hooked] = set()
        """Hooks in whose list something waits to be handled."""
        self._until: dict[str, datetime] = {}
        """Places of which GitLab said when to come back."""
        self._mending = Mending(self.patience, self.catchup, self.now, self._sooner)
        self._said: set[str] = set()
        """What was said once, and is not to be said each hour."""
        self._covered: set[str] = set()
        """Projects of groups that have a hook of ours."""

    def wanted(self) -> None:
        """A delivery was refused: look into the list once the handler works again."""
        self._wanted.set()

    async def run(self) -> None:
        """For as long as the process lives."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._next):
                    await self._wanted.wait()
            self._wanted.clear()
            await self.once()
            # an outage refuses many deliveries: one replay for all of them
            await asyncio.sleep(self.patience.pauses[0])

    async def once(self) -> float:
        """One replay; the seconds until the next one."""
        self._next = EVERY_SECONDS
        await self.until_done()
        return self._next

    async def until_done(self) -> None:
        """One replay over all groups and projects: it waits while a service is away, and for nothing else."""
        self._covered.clear()
        for place in await self._places():
            left = (self._until.get(str(place), self.now()) - self.now()).total_seconds()
            if left > 0:
                self._sooner(left)
                continue
            try:
                await self._place(place)
            except Unavailable as error:
                logger.warning("failed deliveries of %s are looked at again later: %s", place, error)
                wait = max(ASIDE_SECONDS, error.retry_after or 0)
                if wait > ASIDE_SECONDS:
                    self._until[str(place)] = self.now() + timedelta(seconds=wait)
                self._sooner(wait)
            except (NotFound, Invalid) as error:
                if not place.group:
                    logger.warning("failed deliveries of %s cannot be replayed: %s", place, error)
                elif not isinstance(error, NotFound):  # a name above a project need be no group's, nor have hooks
                    self._once(f"hooks of {place} are not looked at: {error}")
            except HummingbirdError as error:
                logger.warning("failed deliveries of %s cannot be replayed: %s", place, error)
            except Exception as error:  # noqa: BLE001 - a fault of ours; its text could hold the payload
                logger.error("the replay of %s failed: %s", place, type(error).__name__)

    async def _places(self) -> list[Place]:
        """Groups first: whether a project lacks a hook is said only where no group above it has one."""
        behind = await self._behind_globs()
        known = [*self.projects, *(project for project in behind if project not in self.projects)]
        found = []
        if self.groups is not None:
            names = groups_above(self.projects, self.globs)
            found = [Place(name, self.groups, below(name, known), group=True) for name in names]
        return found + [Place(name, self.deliveries, (name,), named=name in self.projects) for name in known]

    async def _behind_globs(self) -> list[str]:
        if self.behind is None or not self.globs:
            return []
        try:
            found, more = await self.patience.ask(self.behind.found, self.now() - SINCE)
        except HummingbirdError as error:
            logger.warning("which projects %s admit is not known: %s", ", ".join(self.globs), error)
            self._sooner(ASIDE_SECONDS)
            return []
        if more:
            logger.warning("more than %d projects of globs were busy: the others are not replayed", len(found))
        return found

    async def _place(self, place: Place) -> None:
        listed = await self.patience.ask(place.deliveries.hooks, place.name)
        hooks = [hook for hook in listed if hook.url == self.url]
        fault: HummingbirdError | None = None
        for hook in hooks:
            unread: HummingbirdError | None = None
            failures: list[Attempt] = []
            try:
                if await self._replayed(place, hook, failures):
                    hook = await self._again_shown(place, hook)
                await self._mending.learn(place, hook, failures)
            except HummingbirdError as error:
                unread = error
            fault = await self._mending.mend(place, hook) or unread or fault
        if fault is not None:
            raise fault
        self._missing(place, bool(hooks))

    def _missing(self, place: Place, has_hook: bool) -> None:
        """Say which project has no hook; its events may come by a queue."""
        text = f"{place} has no webhook for {self.url}; run: hummingbird webhook-setup"
        if has_hook:
            self._said.discard(text)
            self._covered.update(place.projects if place.group else ())
        elif place.named and place.name not in self._covered:
            self._once(text)

    def _once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            logger.warning("%s", text)

    async def _again_shown(self, place: Place, hook: Hook) -> Hook:
        """The hook as it is now: it may have been disabled while its failed deliveries waited for a service."""
        listed = await self.patience.ask(place.deliveries.hooks, place.name)
        return next((one for one in listed if one.id == hook.id), hook)

    async def _replayed(self, place: Place, hook: Hook, failures: list[Attempt]) -> bool:
        """Handle what failed, and write down when that was; whether anything did."""
        found, more = await self.patience.ask(self._held, place, hook, failures)
        key = (str(place), hook.id)
        self._cut.discard(key)
        if more:
            self._cut.add(key)
            logger.warning("%s has more than %d failed deliveries: the oldest wait", place, len(found))
            self._sooner(LONGEST_PAUSE_SECONDS)
        done = 0
        for delivery in reversed(found):
            done += await self._again(place, key, delivery)
        if found:
            logger.info("%d of %d failed deliveries of %s were handled now", done, len(found), place)
        return bool(found)

    def _sooner(self, seconds: float) -> None:
        self._next = min(self._next, seconds)

    def _held(self, place: Place, hook: Hook, failures: list[Attempt]) -> tuple[list[Delivery], bool]:
        """The newest, newest first, as far as memory allows; whether there are more."""
        found, size = list[Delivery](), 0
        failures.clear()
        for delivery in self._new(place, hook, failures):
            payload = read_part(delivery.payload)
            size += size_of(payload)
            if len(found) >= MOST or (found and size > self.held):
                return found, True
            found.append(replace(delivery, payload=payload))
        return found, False

    def _new(self, place: Place, hook: Hook, failures: list[Attempt]) -> Iterator[Delivery]:
        """What is young enough and was not looked at before, down to a page of which nothing is new.

        Resent deliveries are new ones of old events.
        """
        old, whole = 0, (str(place), hook.id) in self._cut
        for delivery in place.deliveries.failed(place.name, hook.id):
            if delivery.at and self.now() - delivery.at > SINCE:
                return
            failures += [delivery.attempt] if delivery.attempt else []
            if self._is_new(place, delivery):
                old = 0
                yield delivery
            else:
                old += 1
            if old >= PAGE and not whole:
                return

    def _is_new(self, place: Place, delivery: Delivery) -> bool:
        if (str(place), delivery.id) in self._done:
            return False
        if delivery.refused:
            self._once(f"GitLab sent something to {place} that was refused (4xx): no replay handles it")
            self._settle(place, delivery, "refused")
            return False
        when = happened(delivery.payload)
        return when is None or self.now() - when <= SINCE

    async def _again(self, place: Place, hook: Hooked, delivery: Delivery) -> bool:
        """Handle one; whether that is done."""
        if delivery.oversize:
            logger.warning("delivery %d of %s was too large for GitLab to keep: it is lost", delivery.id, place)
            return self._settle(place, delivery, "lost")
        if delivery.unreadable:
            logger.warning("delivery %d of %s has another shape in GitLab's list: it is lost", delivery.id, place)
            return self._settle(place, delivery, "unreadable")
        event = Event("gitlab", delivery.type, delivery.payload, delivery.key)
        result = await hand_in(self.patience, event, f"delivery {delivery.id} of {place}")
        if result is Result.PUT_OFF:
            self._sooner(ASIDE_SECONDS)
            self._cut.add(hook)  # it may stand below a page of others
            self._counter.labels("put_off").inc()
            return False
        return self._settle(place, delivery, "failed" if result is Result.FAILED else "done")

    def _settle(self, place: Place, delivery: Delivery, result: str) -> bool:
        self._done[str(place), delivery.id] = None
        if len(self._done) > REMEMBERED:
            self._done.popitem(last=False)
        self._counter.labels(result).inc()
        return result == "done"
