"""From an event to what people see of it: queue or webhook → AgentRun → placeholder note → the model's first call.

Three ways to the same run: a message on the queue (ministack), a webhook's POST, and, to compare, an AgentRun that is
made at the API server without any ingestor.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import requests

from bench.claims import full
from bench.figures import line, milliseconds, percentile
from bench.place import place
from bench.runs import Runs, order
from cluster import Cluster
from demo.stage import wait_for
from hummingbird_ai.testing.replies import say
from hummingbird_operator.ingest.event import Event, encode_envelope
from tests.e2e.scene import Scene
from tests.e2e.survival import merge_request_of
from tests.e2e.talk import SECRET
from tests.standins.gitlab import Emitted
from tests.standins.ministack import ministack

SERIAL = 60
AT_ONCE = 20
BURSTS = 3
FLOOR = 60
BOT = 1
SEEN, PLACED, ASKED = "AgentRun visible in a watch", "placeholder note visible", "the model's first call"
AWS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}

Send = Callable[[Emitted], None]
"""Brings an event to an ingestor, and returns once it is accepted."""


@dataclass(frozen=True)
class Lap:
    """Moments of one event, in seconds since it was sent."""

    accepted: float
    seen: float
    placed: float
    asked: float


class Watched(Runs):
    """Remembers when each run, and the first note of the bot on each merge request, was there."""

    def __init__(self, world: Scene) -> None:
        super().__init__(world)
        self.names: dict[int, str] = {}
        self.seen: dict[int, float] = {}
        self.placed: dict[int, float] = {}
        world.gitlab.on_event(self._noted)

    def _saw(self, run: Mapping[str, Any]) -> None:
        iid, now = int(run["spec"]["target"]["gitlab"]["mergeRequest"]), time.monotonic()
        self.seen.setdefault(iid, now)
        self.names.setdefault(iid, run["metadata"]["name"])
        super()._saw(run)

    def _noted(self, event: Emitted) -> None:
        if event.kind == "note" and event.payload["object_attributes"]["author_id"] == BOT:
            self.placed.setdefault(event.payload["merge_request"]["iid"], time.monotonic())


@dataclass
class Field:
    """The scene with what it takes to send events; `numbers` gives merge requests that nobody used yet."""

    world: Scene
    runs: Watched
    sqs: Any
    queue: str
    webhook: str
    numbers: Iterator[int]

    def ask(self, iid: int) -> Emitted:
        """Alice writes a command; what GitLab tells of it."""
        note = self.world.gitlab.people.comments("group/app", iid, "alice", f"/hummingbird plain number {iid}")
        events = reversed(self.world.gitlab.events)
        return next(each for each in events if each.payload["object_attributes"]["id"] == note.id)

    def by_queue(self, event: Emitted) -> None:
        """As the forwarder does it."""
        body = encode_envelope(Event("gitlab", event.kind, event.payload, ""), now=datetime.now(UTC))
        self.sqs.send_message(QueueUrl=self.queue, MessageBody=body)

    def by_webhook(self, event: Emitted) -> None:
        """As GitLab does it."""
        headers = {**event.headers, "X-Gitlab-Token": SECRET}
        answer = requests.post(self.webhook, json=event.payload, headers=headers, timeout=30)
        assert answer.status_code == 200, answer.text

    def by_hand(self, iid: int) -> None:
        """Without an event."""
        self.runs.create(order(self.world, f"by-hand-{iid}", merge_request=iid, message=f"number {iid}"))


def measure(cluster: Cluster, folder: Path) -> None:
    """Serial and at once, by each way; and the queue alone, for what of it is the queue's."""
    with ExitStack() as stack:
        field = stack.enter_context(_field(cluster, folder))
        _floor(field)
        stack.enter_context(field.world.ingesting("sqs"))
        by_hand = _way(field, "made at the API server", None)
        _way(field, "by the queue", field.by_queue, by_hand)
        _way(field, "by webhook", field.by_webhook, by_hand)


@contextmanager
def _field(cluster: Cluster, folder: Path) -> Iterator[Field]:
    os.environ.update(AWS)
    with ExitStack() as stack:
        endpoint = stack.enter_context(ministack(folder))
        world = stack.enter_context(place(cluster, folder, "ingest", standby=3, most=12))
        sqs = boto3.client("sqs", endpoint_url=endpoint)
        queue = sqs.create_queue(QueueName="events")["QueueUrl"]
        numbers = range(1000, 1000 + 3 * (SERIAL + AT_ONCE * BURSTS))
        rows = [{"iid": iid, "sha": "4be1c0de" * 5, "author": {"id": 7, "username": "alice"}} for iid in numbers]
        world.gitlab.state.load({"projects": [{"id": 10, "path": "group/app", "merge_requests": rows}]})
        world.gitlab.state.notes_per_minute = 10_000
        world.stage.environ |= {**AWS, "HOOK_SECRET": SECRET}
        world.configure(
            gitlab={"webhook_secret_env": ["HOOK_SECRET"]},
            ingest={"queue_url": queue, "sqs_endpoint": endpoint},
            limits={"max_concurrent_runs": 2 * AT_ONCE},
        )
        world.script = lambda body, number: say("done")
        operator = stack.enter_context(world.stage.operator())
        operator.wait_until_leading()
        webhook = stack.enter_context(world.ingesting("webhook"))
        runs = stack.enter_context(Watched(world))
        yield Field(world, runs, sqs, queue, webhook.url, iter(numbers))


def _floor(field: Field) -> None:
    """What a message takes from its sender to whoever waits for it, with nobody's work in between."""
    url, took = field.sqs.create_queue(QueueName="floor")["QueueUrl"], []
    with ThreadPoolExecutor(1) as thread:
        for number in range(FLOOR):
            waiting = thread.submit(field.sqs.receive_message, QueueUrl=url, WaitTimeSeconds=20)
            # it waits by then, as an ingestor does; and ministack looks ten times a second, so not always at one point
            time.sleep(0.1 + number % 10 / 100)
            sent = time.monotonic()
            field.sqs.send_message(QueueUrl=url, MessageBody="x")
            for message in waiting.result().get("Messages", ()):
                took.append(time.monotonic() - sent)
                field.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    what = f"the queue server alone: sent → received by a long poll, p50/p95 of {len(took)}"
    line(what, milliseconds(took, 0.5, 0.95))


def _way(field: Field, name: str, send: Send | None, against: Sequence[Lap] = ()) -> Sequence[Lap]:
    serial = [lap for _ in range(SERIAL) for lap in _laps(field, send, 1)]
    _tell(f"{name}, one after the other", serial, against)
    burst = [lap for _ in range(BURSTS) for lap in _laps(field, send, AT_ONCE)]
    _tell(f"{name}, {AT_ONCE} at once, {BURSTS} times", burst, warm=False)
    return serial


def _laps(field: Field, send: Send | None, many: int) -> list[Lap]:
    """So many events at once on a warm pool, until their runs are over."""
    full(field.world)
    iids = list(itertools.islice(field.numbers, many))
    events = {iid: field.ask(iid) for iid in iids} if send else {}

    def one(iid: int) -> tuple[float, float]:
        sent = time.monotonic()
        send(events[iid]) if send else field.by_hand(iid)
        return sent, time.monotonic()

    with ThreadPoolExecutor(many) as threads:
        sent = dict(zip(iids, threads.map(one, iids), strict=True))
    wait_for(lambda: all(iid in field.runs.names for iid in iids), 60, field.world.log)
    field.runs.wait([field.runs.names[iid] for iid in iids], "Finished", 120)
    asked: dict[int, float] = {}
    for call in field.world.gemini.calls:
        asked.setdefault(merge_request_of(call.body), call.at)
    return [
        Lap(
            accepted=accepted - begin,
            seen=field.runs.seen[iid] - begin,
            placed=field.runs.placed[iid] - begin,
            asked=asked[iid] - accepted,
        )
        for iid, (begin, accepted) in sent.items()
    ]


def _tell(what: str, laps: Sequence[Lap], against: Sequence[Lap] = (), *, warm: bool = True) -> None:
    line(f"{what}: sent → accepted, p50/p95 of {len(laps)}", milliseconds([lap.accepted for lap in laps], 0.5, 0.95))
    columns: dict[str, Callable[[Lap], float]] = {
        f"  → {SEEN}": lambda lap: lap.seen,
        f"  → {PLACED}": lambda lap: lap.placed,
    }
    if warm:
        columns[f"  accepted → {ASKED}, warm pool (bar 1000 ms)"] = lambda lap: lap.asked
    for name, column in columns.items():
        ratio = f"; {_p50(laps, column) / _p50(against, column):.1f} times by hand" if against else ""
        line(name, milliseconds([column(lap) for lap in laps], 0.5, 0.95) + ratio)


def _p50(laps: Sequence[Lap], column: Callable[[Lap], float]) -> float:
    return percentile([column(lap) for lap in laps], 0.5)
