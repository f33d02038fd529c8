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
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, Counter

from hummingbird_operator.errors import HummingbirdError, Invalid, NotFound, Unavailable
from hummingbird_operator.ingest.event import Event
from hummingbird_operator.ingest.handle import Handles
from hummingbird_operator.ingest.hooks.hooks import Delivery, Hook
from hummingbird_operator.ingest.hooks.moments import happened
from hummingbird_operator.ingest.hooks.places import Deliveries, Globs, Place, below, groups_above
from hummingbird_operator.ingest.missed.catchup import Catchup, Left
from hummingbird_operator.ingest.missed.gaps import MARGIN, SINCE, Gaps
from hummingbird_operator.ingest.missed.handing import Result, hand_in
from hummingbird_operator.ingest.missed.patience import (
    ASIDE_SECONDS,
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    Patience,
)
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
class _Record:
    """When deliveries of a hook failed, and when some were refused, or kept by GitLab in a shape that tells nothing."""

    failed: list[datetime] = field(default_factory=list)
    refused: list[datetime] = field(default_factory=list)


@dataclass
class Replay:
    """One replay at a time; `run` it once per process, and call `wanted` after a delivery was refused."""

    deliveries: Deliveries
    handler: Handles
    url: str
    """Of our hook."""
    projects: Sequence[str]
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    pauses: tuple[float, float] = (FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
    """Seconds: the first pause, and the longest."""
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
        self._settled: OrderedDict[tuple[str, int], None] = OrderedDict()
        self._patience = Patience(self.handler, self.pauses)
        self._gaps = Gaps()
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
            self._next = EVERY_SECONDS
            await self.until_done()
            await asyncio.sleep(self.pauses[0])  # an outage refuses many deliveries: one replay for all of them

    async def until_done(self) -> None:
        """One replay over all groups and projects: it waits while a service is away, and for nothing else."""
        self._covered.clear()
        for place in await self._places():
            try:
                await self._place(place)
            except Unavailable as error:
                logger.warning("failed deliveries of %s are looked at again later: %s", place, error)
                self._sooner(ASIDE_SECONDS)
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
            found, more = await self._patience.ask(self.behind.found, self.now() - SINCE)
        except HummingbirdError as error:
            logger.warning("which projects %s admit is not known: %s", ", ".join(self.globs), error)
            self._sooner(ASIDE_SECONDS)
            return []
        if more:
            logger.warning("more than %d projects of globs were busy: the others are not replayed", len(found))
        return found

    async def _place(self, place: Place) -> None:
        began = self.now()
        listed = await self._patience.ask(place.deliveries.hooks, place.name)
        hooks = [hook for hook in listed if hook.url == self.url]
        fault: HummingbirdError | None = None
        for hook in hooks:
            record = _Record()
            unread: HummingbirdError | None = None
            try:
                if await self._hook(place, hook, record):
                    hook = await self._again_shown(place, hook)
                record.refused += await self._patience.ask(place.deliveries.refused, place.name, hook.id)
            except HummingbirdError as error:
                unread = error
            if self.catchup is not None and (unread is None or hook.disabled):
                fault = (
                    await self._caught_up(self.catchup, place, hook, _Record() if unread else record, began) or fault
                )
            if hook.disabled:
                await self._enable(place, hook)
            fault = unread or fault
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
        listed = await self._patience.ask(place.deliveries.hooks, place.name)
        return next((one for one in listed if one.id == hook.id), hook)

    async def _hook(self, place: Place, hook: Hook, record: _Record) -> bool:
        """Handle what failed, and write down when that was; whether anything did."""
        found, more = await self._patience.ask(self._held, place, hook, record.failed)
        if more:
            logger.warning("%s has more than %d failed deliveries: the oldest wait", place, len(found))
            self._sooner(self.pauses[1])
        done = 0
        for delivery in reversed(found):
            done += await self._again(place, delivery)
            record.refused += [delivery.at] if delivery.at and (delivery.oversize or delivery.unreadable) else []
        if found:
            logger.info("%d of %d failed deliveries of %s were handled now", done, len(found), place)
        return bool(found)

    def _sooner(self, seconds: float) -> None:
        self._next = min(self._next, seconds)

    async def _caught_up(
        self, catchup: Catchup, place: Place, hook: Hook, record: _Record, began: datetime
    ) -> HummingbirdError | None:
        """Look for what was never sent, if anything; the fault that kept it from being found.

        Before the hook is enabled: a process that dies meanwhile leaves it disabled, for the next one to see. What
        happens until it is enabled is found by a second look.
        """
        key, left = (str(place), hook.id), Left.NOTHING
        fault: HummingbirdError | None = None
        since = self._gaps.since(key, began, bool(hook.disabled), record.failed, record.refused)
        for project in place.projects if since else ():
            try:
                left |= await catchup.project(project, since or began)
            except Unavailable as error:
                fault, left = error, left | Left.FAILED
            except HummingbirdError as error:
                fault = error
            except Exception as error:  # noqa: BLE001 - a fault of ours must not keep the hook disabled
                logger.error("what %s missed cannot be looked for: %s", project, type(error).__name__)
        if hook.disabled or Left.YOUNG in left:
            self._sooner(self.pauses[1])
        elif left and not self._gaps.owes(key):  # what fails a second time is tried once an hour, for a day
            self._sooner(ASIDE_SECONDS)
        self._gaps.looked(key, began, since if left else began - MARGIN if hook.disabled else None)
        return fault

    async def _enable(self, place: Place, hook: Hook) -> None:
        """GitLab sends nothing to a disabled hook, and notes nothing."""
        looked = "it was looked for in other lists" if self.catchup else "it is in no list"
        logger.warning(
            "GitLab had the webhook of %s %s: what happened meanwhile was not sent; %s", place, hook.disabled, looked
        )
        try:
            await asyncio.to_thread(place.deliveries.enable, place.name, hook)
        except HummingbirdError as error:
            logger.warning("a test that would enable it failed, and is tried again soon: %s", error)
            self._sooner(self.pauses[1])  # this process may not be reached yet

    def _held(self, place: Place, hook: Hook, failures: list[datetime]) -> tuple[list[Delivery], bool]:
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

    def _new(self, place: Place, hook: Hook, failures: list[datetime]) -> Iterator[Delivery]:
        """What is young enough and was not looked at before. Resent deliveries are new ones of old events."""
        for delivery in place.deliveries.failed(place.name, hook.id):
            failures += [delivery.at] if delivery.at else []
            moment = happened(delivery.payload)
            young = moment is None or self.now() - moment <= SINCE
            if young and (str(place), delivery.id) not in self._settled:
                yield delivery

    async def _again(self, place: Place, delivery: Delivery) -> bool:
        if delivery.oversize:
            logger.warning("delivery %d of %s was too large for GitLab to keep: it is lost", delivery.id, place)
            return self._settle(place, delivery, "lost")
        if delivery.unreadable:
            logger.warning("delivery %d of %s has another shape in GitLab's list: it is lost", delivery.id, place)
            return self._settle(place, delivery, "unreadable")
        event = Event("gitlab", delivery.type, delivery.payload, delivery.key)
        result = await hand_in(self._patience, event, f"delivery {delivery.id} of {place}")
        if result is Result.PUT_OFF:
            self._sooner(ASIDE_SECONDS)
            self._counter.labels("put_off").inc()
            return False
        return self._settle(place, delivery, "failed" if result is Result.FAILED else "done")

    def _settle(self, place: Place, delivery: Delivery, result: str) -> bool:
        self._settled[str(place), delivery.id] = None
        if len(self._settled) > REMEMBERED:
            self._settled.popitem(last=False)
        self._counter.labels(result).inc()
        return result == "done"
