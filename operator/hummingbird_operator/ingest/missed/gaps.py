"""When GitLab had a hook disabled, by what it noted of the deliveries before and after. Reads nothing.

After four failures in a row GitLab disables a hook for a minute, doubling up to a day, and sends nothing and notes
nothing. So a window begins with the fourth failure in a row and ends with the next success; there is no other one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from hummingbird_operator.ingest.hooks.hooks import Attempt

AGE = timedelta(days=1)
"""What is older is not looked for."""
SINCE = timedelta(days=3)
"""Failures so old still tell of a gap: GitLab may wait for a day before it tries a disabled hook again."""
MARGIN = timedelta(minutes=5)
"""GitLab queues an event for a while before it finds the hook disabled; and our clock may differ from its clock."""
IN_A_ROW = 4

Hooked = tuple[str, int]
"""Where a hook is, and its number."""


@dataclass(frozen=True)
class Window:
    """When GitLab sent nothing, by its own clock; `until` is None while that lasts."""

    since: datetime
    until: datetime | None


@dataclass(frozen=True)
class Look:
    """What of a window is to be looked at."""

    window: Window
    since: datetime


def windows(attempts: Iterable[Attempt]) -> list[Window]:
    """All of them, oldest first."""
    found, row, begin = list[Window](), 0, None
    for attempt in sorted(attempts, key=lambda one: one.id):
        if attempt.went_well:
            found += [Window(begin, attempt.at)] if begin else []
            row, begin = 0, None
        else:
            row += 1
            begin = attempt.at if row == IN_A_ROW else begin
    return [*found, Window(begin, None)] if begin else found


@dataclass
class Gaps:
    """What this process knows of its hooks."""

    _attempts: dict[Hooked, dict[int, Attempt]] = field(default_factory=dict)
    _judged: dict[Hooked, tuple[int, int]] = field(default_factory=dict)
    """Between which ids successes were read: of failures in between it is known whether they were in a row."""
    _floor: dict[Hooked, int] = field(default_factory=dict)
    """Below that id nobody can tell."""
    _seen: dict[Hooked, Window] = field(default_factory=dict)
    """Since when a hook was found disabled of which no list says since when."""
    _covered: dict[tuple[Hooked, datetime], datetime] = field(default_factory=dict)
    """By a window's begin: up to when it was looked at, while it lasted."""
    _done: set[tuple[Hooked, Window]] = field(default_factory=set)
    """Windows that ended and were looked at since."""

    def learn(self, hook: Hooked, attempts: Iterable[Attempt], now: datetime) -> None:
        """Deliveries that were tried."""
        known = self._attempts.get(hook, {}) | {attempt.id: attempt for attempt in attempts}
        floor = self._floor.get(hook, 0)
        self._attempts[hook] = {
            number: one for number, one in known.items() if number >= floor and now - one.at <= SINCE
        }

    def unsure(self, hook: Hooked) -> int | None:
        """The id of the failure back to which successes are to be read; None where that changes nothing."""
        failed, last = self._failed(hook), max((one.id for one in self._known(hook) if one.went_well), default=0)
        low, high = self._judged.get(hook, (0, 0))
        new = [number for number in failed if number > min(high, last) or number < low]
        return min(new) if new and len(failed) >= IN_A_ROW else None

    def read(self, hook: Hooked, successes: Iterable[Attempt], back_to: int, now: datetime, *, whole: bool) -> None:
        """The successes back to that id; not `whole`: as far as they go, and of failures before them nothing is known.

        A hook may have been sent to between those, so they tell of no window.
        """
        found = list(successes)
        if not whole:
            back_to = self._floor[hook] = min((one.id for one in found), default=back_to)
        self.learn(hook, found, now)
        low, _ = self._judged.get(hook, (back_to, 0))
        self._judged[hook] = min(low, back_to), max(self._failed(hook), default=0)

    def looks(self, hook: Hooked, now: datetime, *, disabled: bool) -> list[Look]:
        """What is to be looked at, oldest first: nothing where the hook was never disabled."""
        low, high = self._judged.get(hook, (0, 0))
        sure = all(low <= number <= high for number in self._failed(hook))
        found = windows(self._known(hook)) if sure else []
        seen = self._seen.get(hook)
        if disabled and (seen is None or seen.until) and not (found and found[-1].until is None):
            seen = self._seen[hook] = Window(now, None)
        elif not disabled and seen and seen.until is None:
            seen = self._seen[hook] = Window(seen.since, now)
        looks = []
        for window in [*found, *([seen] if seen else [])]:
            covered = self._covered.get((hook, window.since))
            since = max(now - AGE, (covered or window.since) - MARGIN)
            if (hook, window) not in self._done and (window.until is None or since <= window.until):
                looks.append(Look(window, since))
        return looks

    def _known(self, hook: Hooked) -> Iterable[Attempt]:
        return self._attempts.get(hook, {}).values()

    def _failed(self, hook: Hooked) -> list[int]:
        return [one.id for one in self._known(hook) if not one.went_well]

    def looked(self, hook: Hooked, window: Window, newest: datetime | None) -> None:
        """All of it was handed in; `newest` is when the last thing happened that GitLab's lists had."""
        if window.until is not None:
            self._done.add((hook, window))
        before = self._covered.get((hook, window.since), window.since)
        self._covered[hook, window.since] = max(newest or before, before)
