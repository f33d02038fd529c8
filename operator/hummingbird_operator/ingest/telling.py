"""One log line for each event: whoever is asked "why was my comment ignored?" finds it by project, number and person.

Nothing of a comment's own words is in it, and what is comes bounded and in printable letters: events are strangers'.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hummingbird_operator.ingest.metrics import known
from hummingbird_operator.ingest.reasons import Outcome, Reason

if TYPE_CHECKING:
    from hummingbird_operator.ingest.event import Event

LONGEST = 120
_MOST_TOLD = 1_000
_NUMBERS_END = 2**63
_LEVELS = {Reason.FORBIDDEN: logging.ERROR, Reason.BAD_PAYLOAD: logging.WARNING}
_log = logging.getLogger(__name__)


class Teller:
    """Tells what became of events. `like` gives the allow list's entry that differs from a path by case only."""

    def __init__(self, like: Callable[[str], str | None]) -> None:
        self._like = like
        self._told: set[str] = set()

    def tell(self, event: Event, outcome: Outcome) -> None:
        """The event's line; a project that is not configured warns once, not at each of its events."""
        fields = subject(event)
        what = " ".join(filter(None, (_place(fields), _what(fields))))
        detail = f" ({outcome.detail})" if outcome.detail else ""
        runs = f" → {' '.join(outcome.runs)}" if outcome.runs else ""
        told = {**fields, "reason": str(outcome.reason), "runs": list(outcome.runs)}
        level = _LEVELS.get(outcome.reason, logging.INFO)
        _log.log(level, "%s: %s%s%s", what, outcome.reason, detail, runs, extra={"told": told})
        if outcome.reason is Reason.NO_PROJECT:
            self._warn_of(outcome.detail)

    def _warn_of(self, project: str) -> None:
        if project in self._told or len(self._told) >= _MOST_TOLD:
            return
        self._told.add(project)
        like = self._like(project)
        hint = f"; there is {like}: case counts" if like else ""
        _log.warning("events of %s are dropped: projects in the configuration does not admit it%s", project, hint)


def subject(event: Event) -> dict[str, str]:
    """What the event says that it is about, as far as it says it in words and numbers."""
    payload = event.payload
    about, request = _inner(payload, "object_attributes"), _inner(payload, "merge_request")
    kind = known(payload.get("object_kind"))
    fields = {
        "event": kind,
        "project": _inner(payload, "project").get("path_with_namespace"),
        "merge_request": (about if kind == "merge_request" else request).get("iid"),
        "note": about.get("id") if kind == "note" else None,
        "pipeline": about.get("id") if kind == "pipeline" else None,
        "author": _inner(payload, "user").get("username"),
        "delivery": event.delivery,
    }
    return {name: text for name, value in fields.items() if (text := _shown(value))}


def _inner(payload: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = payload.get(name)
    return value if isinstance(value, Mapping) else {}


def _shown(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        return ""
    if isinstance(value, int):
        return str(value) if 0 < value < _NUMBERS_END else ""
    return ascii(value)[1:-1][:LONGEST]


def _place(fields: Mapping[str, str]) -> str:
    number = fields.get("merge_request")
    return fields.get("project", "") + (f"!{number}" if number else "")


def _what(fields: Mapping[str, str]) -> str:
    number = fields.get("note") or fields.get("pipeline") or ""
    by = f"by {fields['author']}" if "author" in fields else ""
    return " ".join(filter(None, (fields["event"], number, by)))
