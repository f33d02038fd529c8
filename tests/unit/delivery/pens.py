"""What the tests of the bot's pen share: one merge request, one marker, one body."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hummingbird_operator.delivery.markers import Marker
from hummingbird_operator.delivery.notes import Notes
from tests.standins.gitlab import GitLabStandIn

MARKER = Marker("3f0c4b8e-1111-4222-8333-444455556666", run="uid-1", key="note-1", state="running")
BODY = f"Running…\n\n{MARKER.render()}"
WHERE = ("group/app", 42)
BOT = "bot-token"


@contextmanager
def pen(gitlab: GitLabStandIn, token: str = BOT, **options: Any) -> Iterator[Notes]:
    made = Notes(gitlab.url, token, **options)
    try:
        yield made
    finally:
        made.close()


def posts(gitlab: GitLabStandIn) -> int:
    return sum(call.method == "POST" for call in gitlab.calls)


def stored(gitlab: GitLabStandIn) -> list[Any]:
    """The notes that somebody wrote, GitLab's own left out."""
    return [note for note in gitlab.state.projects[10].merge_requests[42].notes.values() if not note.system]


def answers(gitlab: GitLabStandIn, path: str, body: object, status: int = 200) -> None:
    """The next call whose path holds `path` is answered so, as JSON or as the text that `body` is."""
    text = body if isinstance(body, str) else json.dumps(body)
    gitlab.fault("status", path=path, status=status, body=text)
