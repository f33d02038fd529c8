"""Since when a hook may have been sent nothing. Pure but for what it remembers of this process.

GitLab sends nothing to a hook that it disabled, and notes nothing of it. What it noted are the failures before: after
four in a row it disables for a minute, doubling up to a day. Whether others succeeded between them is not asked, so a
window may begin too early, which costs a look and starts nothing twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

AGE = timedelta(days=1)
"""What is older is not looked for."""
SINCE = timedelta(days=3)
"""Failures so old still tell of a gap: GitLab may wait for a day before it tries a disabled hook again."""
MARGIN = timedelta(minutes=5)
"""Clocks differ, and GitLab queues an event for a while before it finds the hook disabled."""
IN_A_ROW = 4

Key = tuple[str, int]


@dataclass
class Gaps:
    """By hook (where it is, and its number): since when this process knows it to be sent to, and what it owes."""

    _known: dict[Key, datetime] = field(default_factory=dict)
    _owed: dict[Key, datetime] = field(default_factory=dict)

    def since(
        self, key: Key, now: datetime, disabled: bool, failures: Sequence[datetime], refusals: Sequence[datetime]
    ) -> datetime | None:
        """Where the window begins in which something may be missing; None where all was sent.

        `failures` and `refusals` are the moments of deliveries that ended in 5xx or without an answer, and in 4xx. One
        refusal is enough: no replay handles such a delivery, whose sender was not believed.
        """
        recent = sorted(moment for moment in [*failures, *refusals] if now - moment <= SINCE)
        begins = [moment for moment in refusals if now - moment <= SINCE and self._new(key, moment)]
        begins += self._begins(key, now, recent, disabled)
        begins = [moment - MARGIN for moment in begins] + ([self._owed[key]] if key in self._owed else [])
        return max(now - AGE, min(begins)) if begins else None

    def _begins(self, key: Key, now: datetime, recent: Sequence[datetime], disabled: bool) -> list[datetime]:
        if key in self._known:
            found = [moment for moment in recent if self._new(key, moment)]
            return found[:1] or ([self._known[key]] if disabled else [])
        if len(recent) >= IN_A_ROW:
            return [recent[IN_A_ROW - 1]]
        return [now - AGE] if disabled else []

    def _new(self, key: Key, moment: datetime) -> bool:
        return key not in self._known or moment > self._known[key] - MARGIN

    def looked(self, key: Key, began: datetime, owed: datetime | None = None) -> None:
        """A look that began then is over; `owed`: where the window of another one begins, whatever else is seen."""
        self._known[key] = began
        if owed is None:
            self._owed.pop(key, None)
        else:
            self._owed[key] = owed

    def owes(self, key: Key) -> bool:
        """Whether another look is due."""
        return key in self._owed
