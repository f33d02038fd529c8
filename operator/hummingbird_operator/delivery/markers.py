"""The hidden marker on every note of ours: who wrote it, for which run, and how far it got.

It is an HTML comment alone on a line, `<!-- hummingbird: {…} -->`, with JSON whose `<` and `>` are escaped: no value
can end the comment. The older form holds a bare UUID. Fields that a newer version writes are passed over. A fixed
answer (help, access denied) has a marker without a session, so that it counts as no conversation.

A marker proves nothing by itself: read it only from notes whose author is the bot (`Notes.marked` does), and there only
the last one that stands alone on its line: what stands inside a sentence, a quote or a list is somebody's text.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from hummingbird_operator.forges.notes import MARKER_NAME as NAME

RUNNING = "running"
DONE = "done"
FAILED = "failed"
CANCELLED = "cancelled"
SUPERSEDED = "superseded"
STATES = frozenset({RUNNING, DONE, FAILED, CANCELLED, SUPERSEDED})

_COMMENT = re.compile(rf"<!-- {NAME}: ([^<>\n]*) -->")
_OWN_LINE = re.compile(rf"^{_COMMENT.pattern}[ \t\r]*$", re.MULTILINE)
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


@dataclass(frozen=True)
class Marker:
    """What a note says of itself: the session, or at least the run with its key.

    `id` is the session's UUID (None in a fixed answer), `wf` the workflow, `sha` the head it looked at, `run` the
    AgentRun's uid, `key` its name, `state` one of `STATES`, `notice` which fixed answer it is (api `Notice`).
    """

    id: str | None = None
    wf: str | None = None
    sha: str | None = None
    run: str | None = None
    key: str | None = None
    state: str | None = None
    notice: str | None = None

    def render(self) -> str:
        """The comment, on one line; keys without a value are left out."""
        payload = json.dumps({name: value for name, value in vars(self).items() if value is not None})
        return f"<!-- {NAME}: {payload.replace('<', chr(92) + 'u003c').replace('>', chr(92) + 'u003e')} -->"


def parse(body: str) -> Marker | None:
    """The marker of a note: the last that stands alone on its line, since ours is the last line.

    Not only the very last line is read: a Maintainer may have written something below it.
    """
    found = [marker for match in _OWN_LINE.finditer(body) if (marker := _read(match.group(1)))]
    return found[-1] if found else None


def parse_all(body: str) -> list[Marker]:
    """Every marker in a text, in order and wherever it stands; comments that do not hold one are skipped."""
    return [marker for match in _COMMENT.finditer(body) if (marker := _read(match.group(1)))]


def _read(payload: str) -> Marker | None:
    if _UUID.fullmatch(payload):
        return Marker(payload)
    try:
        value: Any = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    fields = {name: value[name] for name in Marker.__dataclass_fields__ if isinstance(value.get(name), str)}
    marker = Marker(**fields)
    names_a_run = marker.run is not None and marker.key is not None
    return marker if marker.id is not None or names_a_run else None
