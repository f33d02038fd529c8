"""What was done on the evening: a record that the oracle reads. Values only; `people.py` makes them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.e2e.evening.cast import NOTHING, Means

Place = tuple[str, int]
"""A merge request: project and iid."""
_MARKER = re.compile(r"<!-- hummingbird: (\{.*\}) -->\s*\Z")
TOKEN = re.compile(r"q-\d+")
"""What stands in each question, once on the whole evening."""


@dataclass(frozen=True)
class Mr:
    """A merge request as GitLab has it."""

    project: str
    iid: int
    author: str
    sha: str
    title: str
    branch: str
    state: str
    draft: bool
    fork: bool

    @property
    def open(self) -> bool:
        return self.state == "opened"

    @property
    def place(self) -> Place:
        return self.project, self.iid


@dataclass(frozen=True)
class Said:
    """A new note. `session` and `workflow` are those of the bot's nearest note before it in its thread."""

    id: int
    means: Means = NOTHING
    internal: bool = False
    session: str = ""
    workflow: str = ""
    token: str = ""


@dataclass(frozen=True)
class Pipe:
    """A pipeline that moved to `status`; `ours`: it ran in the merge request's own project."""

    id: int
    status: str
    ref: str
    source: str
    ours: bool


@dataclass(frozen=True)
class Act:
    """One act of a person. `mr` is its merge request afterwards, None elsewhere."""

    verb: str
    user: str
    mr: Mr | None = None
    said: Said | None = None
    pipe: Pipe | None = None


@dataclass(frozen=True)
class Happening:
    """An event of GitLab with the act that caused it; None: the bot did."""

    kind: str
    payload: Mapping[str, Any]
    act: Act | None


def marker(body: str) -> dict[str, Any]:
    """The marker at the end of a note of the bot; empty where there is none."""
    found = _MARKER.search(body)
    return dict(json.loads(found[1])) if found else {}


def actor(payload: Mapping[str, Any]) -> str:
    """Who caused an event."""
    user = payload.get("user")
    return str(user["username"] if user else payload.get("user_username", ""))
