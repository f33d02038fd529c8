"""The hidden marker on every note of ours: who wrote it, for which run, and how far it got.

It is an HTML comment on one line, `<!-- hummingbird: {…} -->`, with JSON whose `<` and `>` are escaped: no value can
end the comment. The older form holds a bare UUID. A marker proves nothing by itself: read it only from notes whose
author is the bot (`Notes.marked` does).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

NAME = "hummingbird"
RUNNING = "running"
DONE = "done"
FAILED = "failed"
CANCELLED = "cancelled"
SUPERSEDED = "superseded"
STATES = frozenset({RUNNING, DONE, FAILED, CANCELLED, SUPERSEDED})

_COMMENT = re.compile(rf"<!-- {NAME}: ([^<>\n]*) -->")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


@dataclass(frozen=True)
class Marker:
    """What a note says of itself; only `id` is always there.

    `id` is the session's UUID, `wf` the workflow, `sha` the head it looked at, `run` the AgentRun's uid, `key` its
    name, `state` one of `STATES`.
    """

    id: str
    wf: str | None = None
    sha: str | None = None
    run: str | None = None
    key: str | None = None
    state: str | None = None

    def render(self) -> str:
        """The comment, on one line; keys without a value are left out."""
        payload = json.dumps({name: value for name, value in vars(self).items() if value is not None})
        return f"<!-- {NAME}: {payload.replace('<', chr(92) + 'u003c').replace('>', chr(92) + 'u003e')} -->"


def parse(body: str) -> Marker | None:
    """The marker of a note: the last one in its text, since ours is the last line."""
    found = parse_all(body)
    return found[-1] if found else None


def parse_all(body: str) -> list[Marker]:
    """Every marker in a text, in order; comments that do not hold one are skipped."""
    return [marker for match in _COMMENT.finditer(body) if (marker := _read(match.group(1)))]


def _read(payload: str) -> Marker | None:
    if _UUID.fullmatch(payload):
        return Marker(payload)
    try:
        value: Any = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not isinstance(value.get("id"), str):
        return None
    fields = {name: value[name] for name in Marker.__dataclass_fields__ if isinstance(value.get(name), str)}
    return Marker(**fields)
