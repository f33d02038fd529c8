"""How webhooks leave GitLab: one thread per hook, each event once, never again (`app/services/web_hook_service.rb`)."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import http.client
import itertools
import json
import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from tests.standins.gitlab.events import Emitted, Events
from tests.standins.gitlab.records import Hook, timestamp

FLAGS = {
    "note_hooks": "note_events",
    "confidential_note_hooks": "confidential_note_events",
    "merge_request_hooks": "merge_requests_events",
    "pipeline_hooks": "pipeline_events",
    "push_hooks": "push_events",
}
MAXIMUM_BODY = 25 * 1024 * 1024
SHOWN_ANSWER = 8 * 1024
INTERNAL_ERROR = "internal error"
"""What the log has as the status where no answer came."""


@dataclass(frozen=True)
class Answer:
    """What the receiver said: `status` in digits, or `INTERNAL_ERROR` with the reason in `error`."""

    status: str
    headers: dict[str, str]
    body: str
    error: str = ""

    @property
    def success(self) -> bool:
        """True for 2xx and 3xx; GitLab follows no redirect and counts it as delivered."""
        return self.status[:1] in {"2", "3"}


class Deliveries:
    """Sends events to hooks. `fixture`: `hook_timeout_seconds` (10), `hook_backoff_seconds` (60: the first pause)."""

    def __init__(
        self,
        lock: AbstractContextManager[Any],
        clock: Callable[[], datetime],
        events: Events,
        fixture: Mapping[str, Any],
    ) -> None:
        self.timeout = float(fixture.get("hook_timeout_seconds", 10))
        self.backoff = timedelta(seconds=fixture.get("hook_backoff_seconds", 60))
        self.ca_file: str | None = fixture.get("hook_ca_file")
        """Authorities for receivers with TLS, beside which those of the system do not count."""
        self._lock = lock
        self._clock = clock
        self._events = events
        self._queues: dict[int, queue.SimpleQueue[tuple[Hook, Emitted] | None]] = {}
        self._threads: list[threading.Thread] = []
        self._rows = itertools.count(1)
        self._late: list[tuple[Hook, Emitted]] | None = None
        self._open = 0
        self._done = threading.Condition()
        self._connections: set[http.client.HTTPConnection] = set()

    def enqueue(self, hook: Hook, event: Emitted) -> None:
        """Have the event sent if the hook wants such; one that is disabled gets nothing, and nothing is noted of it."""
        if self._late is not None:
            self._late.append((hook, event))
            return
        if not hook.flags[FLAGS[event.trigger]] or hook.status(self._clock()) != "executable":
            return
        if hook.id not in self._queues:
            self._queues[hook.id] = queue.SimpleQueue()
            thread = threading.Thread(target=self._work, args=(self._queues[hook.id],), daemon=True)
            self._threads.append(thread)
            thread.start()
        with self._done:
            self._open += 1
        self._queues[hook.id].put((hook, event))

    @contextlib.contextmanager
    def late(self) -> Iterator[None]:
        """GitLab's own queue is slow: what happens within the block is sent at its end."""
        waiting: list[tuple[Hook, Emitted]] = []
        self._late = waiting
        try:
            yield
        finally:
            self._late = None
            for hook, event in waiting:
                self.enqueue(hook, event)

    def wait(self, seconds: float) -> bool:
        """Until nothing is queued or under way."""
        with self._done:
            return self._done.wait_for(lambda: self._open == 0, seconds)

    def stop(self) -> None:
        """End the threads; a delivery under way is cut."""
        for waiting in self._queues.values():
            waiting.put(None)
        for connection in list(self._connections):
            if connection.sock is not None:
                with contextlib.suppress(OSError):
                    connection.sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(self.timeout)

    def send(
        self, hook: Hook, trigger: str, payload: Mapping[str, Any], headers: Mapping[str, str], *, force: bool = False
    ) -> Answer | None:
        """One attempt and its row in the log; None, and no row, where the hook is disabled (unless `force`)."""
        with self._lock:
            if not force and hook.status(self._clock()) != "executable":
                return None
            url, verify = hook.url, hook.enable_ssl_verification
            body = json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
            sent = {**hook.custom_headers, **headers, **self._secrets(hook, headers["Idempotency-Key"], body)}
        began = time.monotonic()
        answer = self._post(url, body, sent, verify=verify)
        masked = dict.fromkeys(hook.custom_headers, "[REDACTED]")
        masked |= {"X-Gitlab-Token": "[REDACTED]"} if hook.token else {}
        self._note(hook, url, trigger, payload, sent | masked, answer, time.monotonic() - began)
        return answer

    def breaks(self, hook: Hook) -> None:
        """One more delivery is noted that got a 503, of an event that nobody needs."""
        answer = Answer("503", {}, "")
        self._note(hook, hook.url, "push_hooks", {"object_kind": "push"}, self.headers("push_hooks"), answer, 0.0)

    def _note(
        self,
        hook: Hook,
        url: str,
        trigger: str,
        payload: Mapping[str, Any],
        headers: Mapping[str, str],
        answer: Answer,
        seconds: float,
    ) -> None:
        with self._lock:
            row = {
                "id": next(self._rows),
                "url": url,
                "trigger": trigger,
                "request_headers": dict(headers),
                "request_data": dict(payload),
                "response_headers": answer.headers,
                "response_body": answer.body[:SHOWN_ANSWER],
                "execution_duration": round(seconds, 3),
                "response_status": answer.status,
                "created_at": timestamp(self._clock()),
            }
            hook.log.append(row)
            hook.answered(answer.success, self._clock(), self.backoff)

    def headers(self, trigger: str, *, key: str = "") -> dict[str, str]:
        """For an attempt that no event caused: a resend has the `key` of the first."""
        return self._events.headers(trigger, key=key)

    def _work(self, waiting: queue.SimpleQueue[tuple[Hook, Emitted] | None]) -> None:
        while (job := waiting.get()) is not None:
            hook, event = job
            own = self._events.headers(event.trigger)  # each hook has an idempotency key of its own
            own["X-Gitlab-Event-UUID"] = event.headers["X-Gitlab-Event-UUID"]
            try:
                self.send(hook, event.trigger, event.payload, own)
            finally:
                with self._done:
                    self._open -= 1
                    self._done.notify_all()

    def _secrets(self, hook: Hook, key: str, body: bytes) -> dict[str, str]:
        """The plain token and, with a signing token, the headers of Standard Webhooks."""
        found = {"X-Gitlab-Token": hook.token} if hook.token else {}
        if hook.signing_token:
            moment = str(int(self._clock().timestamp()))
            secret = base64.b64decode(hook.signing_token.split("_", 1)[1])
            digest = hmac.new(secret, f"{key}.{moment}.".encode() + body, hashlib.sha256).digest()
            signature = f"v1,{base64.b64encode(digest).decode()}"
            found |= {"webhook-id": key, "webhook-timestamp": moment, "webhook-signature": signature}
        return found

    def _post(self, url: str, body: bytes, headers: Mapping[str, str], *, verify: bool) -> Answer:
        if len(body) > MAXIMUM_BODY:
            return Answer(INTERNAL_ERROR, {}, "", "the payload is too large")
        connection = self._connection(url, verify=verify)
        self._connections.add(connection)
        parts = urlsplit(url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        try:
            connection.request("POST", target, body, dict(headers))
            response = connection.getresponse()
            text = response.read(SHOWN_ANSWER).decode(errors="replace")
            return Answer(str(response.status), dict(response.getheaders()), text)
        except (OSError, http.client.HTTPException) as error:
            return Answer(INTERNAL_ERROR, {}, "", str(error) or type(error).__name__)
        finally:
            self._connections.discard(connection)
            connection.close()

    def _connection(self, url: str, *, verify: bool) -> http.client.HTTPConnection:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        if parts.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=self.timeout)
        context = ssl.create_default_context(cafile=self.ca_file)
        if not verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return http.client.HTTPSConnection(host, port, timeout=self.timeout, context=context)
