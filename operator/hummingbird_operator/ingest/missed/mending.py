"""A hook that GitLab disabled: what it was not sent is looked for, then it is enabled again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice

from hummingbird_operator.errors import HummingbirdError, Unavailable
from hummingbird_operator.ingest.hooks.hooks import Attempt, Hook
from hummingbird_operator.ingest.hooks.places import Place
from hummingbird_operator.ingest.missed.catchup import Catchup, Left
from hummingbird_operator.ingest.missed.gaps import Gaps, Hooked, Look
from hummingbird_operator.ingest.missed.patience import ASIDE_SECONDS, Patience

logger = logging.getLogger(__name__)

MOST_SUCCESSES = 500
"""Deliveries that went well, read to find out whether failures were in a row."""
SECOND_LOOK_SECONDS = 60.0
FIRST_ENABLING, LONGEST_ENABLING = timedelta(minutes=1), timedelta(hours=1)
"""Pauses after a test that failed: each is a failure more, for which GitLab waits longer."""


@dataclass
class Mending:
    """One per process. `catchup` None: what was not sent is only told of."""

    patience: Patience
    catchup: Catchup | None
    now: Callable[[], datetime]
    sooner: Callable[[float], None]
    """Asks for the next round after so many seconds, if none is to come before."""
    _gaps: Gaps = field(default_factory=Gaps)
    _resting: dict[Hooked, tuple[datetime, timedelta]] = field(default_factory=dict)
    """When the next test may be sent, and the pause that leads there."""
    _failed: set[tuple[Hooked, datetime]] = field(default_factory=set)

    async def learn(self, place: Place, hook: Hook, failures: Sequence[Attempt]) -> None:
        """What the hook's list says; of what went well no more is read than tells when it was disabled."""
        key = (str(place), hook.id)
        self._gaps.learn(key, failures, self.now())
        back_to = self._gaps.unsure(key)
        if back_to is None:
            return

        def read() -> tuple[list[Attempt], bool]:
            found: list[Attempt] = []
            for one in islice(place.deliveries.succeeded(place.name, hook.id), MOST_SUCCESSES):
                if one.id < back_to:
                    return found, True
                found.append(one)
            return found, len(found) < MOST_SUCCESSES

        found, whole = await self.patience.ask(read)
        if not whole:
            text = "%s had more than %d deliveries since its hook failed: whether it was disabled before is not known"
            logger.warning(text, place, MOST_SUCCESSES)
        self._gaps.read(key, found, back_to, self.now(), whole=whole)

    async def mend(self, place: Place, hook: Hook) -> HummingbirdError | None:
        """Look for what was missed, enable the hook; the fault that kept something from being found.

        Before the hook is enabled: a process that dies meanwhile leaves it disabled, for the next one to see. What
        happens until it is enabled is found by a second look.
        """
        key = (str(place), hook.id)
        if hook.disabled and not self._may_try(key):
            return None
        fault: HummingbirdError | None = None
        looks = self._gaps.looks(key, self.now(), disabled=bool(hook.disabled))
        if self.catchup is not None:
            for look in looks:
                fault = await self._look(self.catchup, place, key, look) or fault
        if hook.disabled:
            await self._enable(place, hook, key)
        elif all(look.window.until for look in looks):  # else GitLab will try it again, and it may fail as before
            self._resting.pop(key, None)
        return fault

    def _may_try(self, key: Hooked) -> bool:
        when, _ = self._resting.get(key, (self.now(), FIRST_ENABLING))
        left = (when - self.now()).total_seconds()
        if left > 0:
            self.sooner(left)
        return left <= 0

    async def _look(self, catchup: Catchup, place: Place, key: Hooked, look: Look) -> HummingbirdError | None:
        left, newest, fault = Left.NOTHING, look.window.since, None
        for project in place.projects:
            try:
                found = await catchup.project(project, look.since, look.window.until)
                left, newest = left | found.left, max(newest, found.newest or newest)
            except HummingbirdError as error:
                fault, left = error, left | Left.FAILED
            except Exception as error:  # noqa: BLE001 - a fault of ours must not keep the hook disabled
                logger.error("what %s missed cannot be looked for: %s", project, type(error).__name__)
                left |= Left.FAILED
        failed = (key, look.window.since)
        if Left.YOUNG in left:
            self.sooner(SECOND_LOOK_SECONDS)
        elif left and failed not in self._failed:  # what fails a second time is tried once an hour, for a day
            self._failed.add(failed)
            self.sooner(ASIDE_SECONDS)
        if not left:
            self._failed.discard(failed)
            self._gaps.looked(key, look.window, newest)
        return fault

    async def _enable(self, place: Place, hook: Hook, key: Hooked) -> None:
        """GitLab sends nothing to a disabled hook, and notes nothing."""
        looked = "it was looked for in other lists" if self.catchup else "it is in no list"
        text = "GitLab had the webhook of %s %s: what happened meanwhile was not sent; %s"
        logger.warning(text, place, hook.disabled, looked)
        try:
            await asyncio.to_thread(place.deliveries.enable, place.name, hook)
        except HummingbirdError as error:  # this process may not be reached yet
            _, before = self._resting.get(key, (None, timedelta()))
            pause = min(max(before * 2, FIRST_ENABLING), LONGEST_ENABLING)
            hint = timedelta(seconds=(error.retry_after or 0) if isinstance(error, Unavailable) else 0)
            self._resting[key] = self.now() + max(pause, hint), pause
            logger.warning("a test that would enable it failed, and is tried again in %s: %s", pause, error)
            self.sooner(max(pause, hint).total_seconds())
        else:
            self._resting.pop(key, None)
            self.sooner(SECOND_LOOK_SECONDS)
