"""What GitLab tells others: every event in order, with the headers of a webhook, whether or not a hook listens."""

from __future__ import annotations

import json
import threading
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

NAMES = {
    "note_hooks": "Note Hook",
    "confidential_note_hooks": "Confidential Note Hook",
    "merge_request_hooks": "Merge Request Hook",
    "pipeline_hooks": "Pipeline Hook",
    "push_hooks": "Push Hook",
}
"""`X-Gitlab-Event` by the name that GitLab gives the trigger in its log."""


@dataclass(frozen=True)
class Emitted:
    """One event. `kind` is its `object_kind`, `project` the path of the project whose hooks get it.

    `headers` are those that GitLab sends without a hook of its own: no token and no signature.
    """

    kind: str
    payload: dict[str, Any]
    headers: dict[str, str]
    project: str
    trigger: str


class Events:
    """The order of events is that of the changes; listeners are called in it, outside of the state's lock."""

    def __init__(self, instance: str) -> None:
        self.instance = instance
        self.log: list[Emitted] = []
        self.request = str(uuid.uuid4())
        """The recursion id, one for all that a request causes (`lib/gitlab/web_hooks/recursion_detection.rb`)."""
        self.at_once: Callable[[Emitted], object] = lambda event: None
        """Called under the state's lock; it may not wait."""
        self._listeners: list[Callable[[Emitted], object]] = []
        self._pending: deque[Emitted] = deque()
        self._calling = threading.RLock()

    def listen(self, listener: Callable[[Emitted], object]) -> None:
        """Have `listener` called for each event from now on, by the thread that caused it."""
        self._listeners.append(listener)

    def emit(self, trigger: str, project: str, payload: Mapping[str, Any]) -> Emitted:
        """Record an event; the caller holds the state's lock."""
        copied = json.loads(json.dumps(payload))
        event = Emitted(copied["object_kind"], copied, self.headers(trigger), project, trigger)
        self.log.append(event)
        self._pending.append(event)
        self.at_once(event)
        return event

    def headers(self, trigger: str, *, key: str = "") -> dict[str, str]:
        """A delivery's headers (`web_hook_service.rb`): the webhook id is drawn anew, `key` stays over a resend."""
        return {
            "Content-Type": "application/json",
            "User-Agent": "GitLab/19.4.0",
            "Idempotency-Key": key or str(uuid.uuid4()),
            "X-Gitlab-Event": NAMES[trigger],
            "X-Gitlab-Webhook-UUID": str(uuid.uuid4()),
            "X-Gitlab-Instance": self.instance,
            "X-Gitlab-Event-UUID": self.request,
        }

    def flush(self, *, wait: bool) -> None:
        """Call the listeners for what has happened.

        With `wait` they have been called for all before it when this returns. Without, a thread that is calling them
        already goes on with what is new: so a listener may wait for somebody whose call causes further events.
        """
        while wait or self._pending:
            if not self._calling.acquire(blocking=wait):
                return
            try:
                self._call()
            finally:
                self._calling.release()
            wait = False

    def _call(self) -> None:
        while self._pending:
            event = self._pending.popleft()
            for listener in list(self._listeners):
                listener(event)
