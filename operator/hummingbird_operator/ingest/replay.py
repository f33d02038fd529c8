"""Failed deliveries, handled late: GitLab never sends a webhook twice, but keeps a list of what it sent.

After a 503 of ours, at the start of the process and once an hour the failed deliveries of our hook are read in each
project and handed to the handler, oldest first. That is safe to repeat: content keys name the AgentRuns. Several
replicas may do it at once. What GitLab did not send at all, to a hook that it had disabled, is not in the list; such a
hook is enabled again, by a test.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Protocol, TypeVar

from prometheus_client import CollectorRegistry, Counter

from hummingbird_operator.errors import HummingbirdError, Unavailable
from hummingbird_operator.ingest.event import Event
from hummingbird_operator.ingest.handle import Handles, NameTaken
from hummingbird_operator.ingest.hooks import Delivery, Hook
from hummingbird_operator.ingest.payloads import read_part, size_of

logger = logging.getLogger(__name__)
T = TypeVar("T")

SINCE = timedelta(days=3)
"""Older events start nothing any more; GitLab keeps them for seven days."""
MOST = 500
"""Deliveries of one hook in one replay: they are held in memory, to be handled oldest first."""
HELD = 32 * 1024 * 1024
"""Characters of them at most, without the parts that nothing reads."""
REMEMBERED = 10_000
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 2.0, 60.0
ASIDE_SECONDS = 600.0
"""Until what was put aside is tried again."""
EVERY_SECONDS = 3600.0
"""Also without a reason that we saw: a proxy in front may have answered 502 while nobody here knew."""

_GLOB = re.compile(r"[*?\[]")
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.\d+)? ?(UTC|Z|[+-]\d\d:?\d\d)?")


class Deliveries(Protocol):
    """What is asked of GitLab, by blocking calls: `hooks.Hooks`."""

    def hooks(self, project: str) -> Sequence[Hook]:
        """All hooks of a project."""

    def failed(self, project: str, hook_id: int) -> Iterator[Delivery]:
        """Newest first."""

    def enable(self, project: str, hook: Hook) -> None:
        """End what GitLab did to a hook after failures."""


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

    def __post_init__(self) -> None:
        name, labels = "hummingbird_ingest_replayed", ["result"]
        self._counter = Counter(name, "Failed deliveries that were looked at again", labels, registry=self.registry)
        self._wanted = asyncio.Event()
        self._wanted.set()  # nobody knows what was missed before the start
        self._next = EVERY_SECONDS
        self._settled: OrderedDict[tuple[str, int], None] = OrderedDict()
        self._without: set[str] = set()
        """Projects that were said to have no hook: their events may come by a queue, or a hook of their group."""

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
        """One replay over all projects: it waits while a service is away, and for nothing else."""
        for project in self.projects:
            try:
                await self._project(project)
            except Unavailable as error:
                logger.warning("failed deliveries of %s are looked at again later: %s", project, error)
                self._sooner(ASIDE_SECONDS)
            except HummingbirdError as error:
                logger.warning("failed deliveries of %s cannot be replayed: %s", project, error)
            except Exception as error:  # noqa: BLE001 - a fault of ours; its text could hold the payload
                logger.error("the replay of %s failed: %s", project, type(error).__name__)

    async def _patiently(self, act: Callable[[], Awaitable[T]]) -> T:
        """Again and again while a service is away. Raises Unavailable where none is, and it failed a second time."""
        pause, alone = self.pauses[0], False
        while True:
            try:
                return await act()
            except Unavailable as error:
                away = await self.handler.away()
                if away is None and alone:
                    raise
                alone = away is None  # once more: the service may have come back between the two calls
                logger.info("the replay of failed deliveries waits %.0f s: %s", pause, away or error)
                await asyncio.sleep(pause)
                pause = self.pauses[0] if alone else min(pause * 2, self.pauses[1])

    async def _project(self, project: str) -> None:
        listed = await self._patiently(partial(asyncio.to_thread, self.deliveries.hooks, project))
        hooks = [hook for hook in listed if hook.url == self.url]
        fault: HummingbirdError | None = None
        for hook in hooks:
            try:
                await self._hook(project, hook)
            except HummingbirdError as error:
                fault = error
            if hook.disabled:
                await self._enable(project, hook)
        if fault is not None:
            raise fault
        if hooks:
            self._without.discard(project)
        elif project not in self._without:
            self._without.add(project)
            logger.warning("%s has no webhook for %s; run: hummingbird webhook-setup", project, self.url)

    async def _hook(self, project: str, hook: Hook) -> None:
        found, more = await self._patiently(partial(asyncio.to_thread, self._held, project, hook))
        if more:
            logger.warning("%s has more than %d failed deliveries: the oldest wait", project, len(found))
            self._sooner(self.pauses[1])
        done = 0
        for delivery in reversed(found):
            done += await self._again(project, delivery)
        if found:
            logger.info("%d of %d failed deliveries of %s were handled now", done, len(found), project)

    def _sooner(self, seconds: float) -> None:
        self._next = min(self._next, seconds)

    async def _enable(self, project: str, hook: Hook) -> None:
        """GitLab sends nothing to a disabled hook, and notes nothing: what happened meanwhile is lost."""
        text = "GitLab had the webhook of %s %s: what happened meanwhile was not sent, and is in no list"
        logger.warning(text, project, hook.disabled)
        try:
            await asyncio.to_thread(self.deliveries.enable, project, hook)
        except HummingbirdError as error:
            logger.warning("a test that would enable it failed, and is tried again soon: %s", error)
            self._sooner(self.pauses[1])  # this process may not be reached yet

    def _held(self, project: str, hook: Hook) -> tuple[list[Delivery], bool]:
        """The newest, newest first, as far as memory allows; whether there are more."""
        found, size = list[Delivery](), 0
        for delivery in self._new(project, hook):
            payload = read_part(delivery.payload)
            size += size_of(payload)
            if len(found) >= MOST or (found and size > self.held):
                return found, True
            found.append(replace(delivery, payload=payload))
        return found, False

    def _new(self, project: str, hook: Hook) -> Iterator[Delivery]:
        """What is young enough and was not looked at before. Resent deliveries are new ones of old events."""
        for delivery in self.deliveries.failed(project, hook.id):
            moment = happened(delivery.payload)
            young = moment is None or self.now() - moment <= SINCE
            if young and (project, delivery.id) not in self._settled:
                yield delivery

    async def _again(self, project: str, delivery: Delivery) -> bool:
        if delivery.oversize:
            logger.warning("delivery %d of %s was too large for GitLab to keep: it is lost", delivery.id, project)
            return self._settle(project, delivery, "lost")
        if delivery.unreadable:
            logger.warning("delivery %d of %s has another shape in GitLab's list: it is lost", delivery.id, project)
            return self._settle(project, delivery, "unreadable")
        event = Event("gitlab", delivery.type, delivery.payload, delivery.key)
        try:
            await self._patiently(partial(self.handler.handle, event))
        except NameTaken as error:
            logger.warning("delivery %d of %s: %s", delivery.id, project, error)
            return self._settle(project, delivery, "failed")
        except HummingbirdError as error:
            logger.warning("delivery %d of %s is put aside, the others go on: %s", delivery.id, project, error)
            self._sooner(ASIDE_SECONDS)
            self._counter.labels("put_off").inc()
            return False
        except Exception as error:  # noqa: BLE001 - a fault of ours; its text could hold the payload
            logger.error("delivery %d of %s failed: %s", delivery.id, project, type(error).__name__)
            return self._settle(project, delivery, "failed")
        return self._settle(project, delivery, "done")

    def _settle(self, project: str, delivery: Delivery, result: str) -> bool:
        self._settled[project, delivery.id] = None
        if len(self._settled) > REMEMBERED:
            self._settled.popitem(last=False)
        self._counter.labels(result).inc()
        return result == "done"


def exact(projects: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Of the allow list: the projects that are named, and the globs, whose projects nobody lists."""
    globs = [path for path in projects if _GLOB.search(path)]
    return [path for path in projects if path not in globs], globs


def happened(payload: Mapping[str, Any]) -> datetime | None:
    """When the event happened, by its own words: hooks say `2015-05-17 18:21:36 UTC`, the API ISO 8601."""
    attributes = payload.get("object_attributes")
    named = attributes if isinstance(attributes, Mapping) else {}
    moments = [_moment(named.get(name)) for name in ("finished_at", "updated_at", "created_at")]
    return max(filter(None, moments), default=None)


def _moment(text: object) -> datetime | None:
    found = _MOMENT.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    zone = "+00:00" if found[3] in (None, "UTC", "Z") else found[3]
    try:
        return datetime.fromisoformat(f"{found[1]}T{found[2]}{zone}")
    except ValueError:
        return None
