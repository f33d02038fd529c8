"""How events travel beside GitLab's own hooks: onto the queue as a forwarder puts them, and to the webhook again, late.

Some come two or three times under other delivery ids, some seconds late and so out of order, and with them what no
handler knows.
"""

from __future__ import annotations

import base64
import gzip
import heapq
import http.client
import itertools
import json
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import boto3

from tests.e2e.evening.cast import BY_HOOK_ONLY, TOKEN_SECRET
from tests.standins.gitlab import Emitted

REGION = "us-east-1"
TOPIC = "arn:aws:sns:us-east-1:000000000000:gitlab"


class Queue:
    """The queue on ministack. Safe in one thread at a time."""

    def __init__(self, endpoint: str) -> None:
        keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
        self._client = boto3.client("sqs", endpoint_url=endpoint, region_name=REGION, **keys)
        self.url: str = self._client.create_queue(QueueName=f"evening-{uuid.uuid4().hex}")["QueueUrl"]

    def put(self, body: str, attributes: Mapping[str, str] | None = None) -> None:
        """A message."""
        named = {key: {"DataType": "String", "StringValue": value} for key, value in (attributes or {}).items()}
        self._client.send_message(QueueUrl=self.url, MessageBody=body, MessageAttributes=named)

    def left(self) -> int:
        """Messages that are not deleted yet, those in somebody's hands included."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self._client.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)["Attributes"]
        return sum(int(found[name]) for name in names)


class Wires:
    """Carries events; `take` them as GitLab makes them. A context manager, whose end waits until all are out."""

    def __init__(self, queue: Queue, ports: Sequence[int], seed: int) -> None:
        self._queue = queue
        self._ports = ports
        self._draw = random.Random(seed)  # noqa: S311 - reproducible, not secret
        self._waiting: list[tuple[float, int, str, Emitted]] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._ending = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.sent: Counter[str] = Counter()

    def __enter__(self) -> Wires:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._ending = True
            self._changed.notify()
        self._thread.join(60)

    def take(self, event: Emitted) -> None:
        """Once more or less by each way, now or later."""
        with self._changed:
            if event.project not in BY_HOOK_ONLY:
                for _ in range(self._draw.choices([1, 2, 3], [14, 5, 1])[0]):
                    self._plan("queue", event, self._delay())
            if self._draw.random() < 0.08:
                self._plan("webhook again", event, self._draw.uniform(0, 10))
            if self._draw.random() < 0.02:
                self._plan("unknown", event, 0)
            self._changed.notify()

    def again(self, events: Sequence[Emitted]) -> None:
        """All of them once more, as a late redelivery."""
        with self._changed:
            for event in events:
                self._plan("queue", event, 0)
            self._changed.notify()

    @property
    def idle(self) -> bool:
        """Nothing waits to be sent."""
        with self._changed:
            return not self._waiting

    def _delay(self) -> float:
        longest = self._draw.choices([0.2, 3.0, 10.0], [14, 5, 1])[0]
        return self._draw.uniform(0, longest)

    def _plan(self, way: str, event: Emitted, seconds: float) -> None:
        heapq.heappush(self._waiting, (time.monotonic() + seconds, next(self._numbers), way, event))

    def _run(self) -> None:
        while (job := self._next()) is not None:
            way, event = job
            self.sent[way] += 1
            if way == "queue":
                self._forward(event)
            elif way == "unknown":
                self._strange(event)
            else:
                self.sent[f"{way}, answered {self._post(event)}"] += 1

    def _next(self) -> tuple[str, Emitted] | None:
        with self._changed:
            while True:
                if not self._waiting and self._ending:
                    return None
                pause = self._waiting[0][0] - time.monotonic() if self._waiting else None
                if pause is not None and (pause <= 0 or self._ending):
                    _, _, way, event = heapq.heappop(self._waiting)
                    return way, event
                self._changed.wait(pause)

    def _forward(self, event: Emitted) -> None:
        """An SNS envelope with packed or plain content, or raw delivery."""
        content = json.dumps(event.payload)
        packed = base64.b64encode(gzip.compress(content.encode())).decode()
        named = {"source": "gitlab", "event_type": event.headers["X-Gitlab-Event"]}
        form = self._draw.choice(["packed", "plain", "raw"])
        if form == "raw":
            self._queue.put(packed, named | {"content_encoding": "gzip+base64"})
            return
        attributes = named | ({"content_encoding": "gzip+base64"} if form == "packed" else {})
        envelope = {
            "Type": "Notification",
            "MessageId": str(uuid.uuid4()),
            "TopicArn": TOPIC,
            "Message": packed if form == "packed" else content,
            "Timestamp": "2026-12-01T18:00:00.000Z",
            "MessageAttributes": {key: {"Type": "String", "Value": value} for key, value in attributes.items()},
        }
        self._queue.put(json.dumps(envelope))

    def _strange(self, event: Emitted) -> None:
        """What nobody can read, what nobody knows, and a system note, which GitLab may send as well."""
        payload: dict[str, Any] = json.loads(json.dumps(event.payload))
        attributes = payload.get("object_attributes", {})
        strange: list[str] = ["no JSON", json.dumps(payload | {"object_kind": "emoji"}), json.dumps({"a": 1})]
        if event.kind == "note":
            system = attributes | {"id": attributes["id"] + 10**6, "note": "/hummingbird review", "system": True}
            strange.append(json.dumps(payload | {"object_attributes": system}))
        for body in strange:
            self._queue.put(body, {"source": "gitlab", "event_type": "Strange Hook"})

    def _post(self, event: Emitted) -> str:
        """To one of the ingestors, under a new delivery id; the status, or that nobody was there."""
        connection = http.client.HTTPConnection("127.0.0.1", self._draw.choice(self._ports), timeout=10)
        named = {**event.headers, "X-Gitlab-Token": TOKEN_SECRET, "Idempotency-Key": str(uuid.uuid4())}
        try:
            connection.request("POST", "/webhooks/gitlab", json.dumps(event.payload).encode(), named)
            return str(connection.getresponse().status)
        except (OSError, http.client.HTTPException):
            return "by nobody"
        finally:
            connection.close()
