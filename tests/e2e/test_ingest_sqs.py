"""`ingest sqs` on a real queue server by the real boto3, with the fault proxy between them.

The server is ministack 1.5.33 and not Amazon: what it does not do (see tests/standins/sqs_proxy.py), the proxy does.
Events go through the real handler; GitLab and the API server are in memory.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import json
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.config import Config

from hummingbird_operator.errors import Unavailable
from hummingbird_operator.ingest.event import Event, encode_envelope
from hummingbird_operator.ingest.handle import Outcome
from hummingbird_operator.ingest.sqs.consumer import SqsMetrics, consume
from hummingbird_operator.ingest.sqs.queue import SqsQueue
from hummingbird_operator.kube.testing import FakeKube
from tests.standins.ministack import ministack
from tests.standins.sqs_proxy import (
    EXPIRED_HANDLE,
    GATEWAY_ERROR,
    SERVER_ERROR,
    SIGNATURE_EXPIRED,
    THROTTLED,
    Again,
    Lost,
    Refused,
    SqsProxy,
    Stalled,
)
from tests.unit.ingest.desk import Desk
from tests.unit.ingest.samples import note

VISIBILITY = 4
"""Seconds of a lease here: short, so that what is lost comes again soon."""
REGION = "us-east-1"
LOOKS = 600
"""How often an end is looked for, ten times a second."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ministack(tmp_path_factory.mktemp("ministack-sqs")) as endpoint:
        yield endpoint


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def proxy(server: str) -> Iterator[SqsProxy]:
    with SqsProxy(server) as proxy:
        yield proxy


@dataclass
class Bench:
    """A queue, its proxy, and ingestors that share one GitLab and one API server."""

    server: str
    proxy: SqsProxy
    url: str
    dead_url: str
    desk: Desk = field(default_factory=lambda: Desk(limits={"max_requests_per_hour": 1_000}))
    metrics: SqsMetrics = field(default_factory=SqsMetrics.on)
    tries: list[int] = field(default_factory=list)
    """Note ids in the order in which their handling began."""
    open: int = 0
    widest: int = 0
    slow: float = 0.0
    """Seconds that each handling takes at least."""

    def client(self, service: str = "sqs") -> Any:
        return boto3.client(
            service, endpoint_url=self.server, region_name=REGION, config=Config(max_pool_connections=4)
        )

    def put(self, body: str, *, group: str = "g", attributes: dict[str, str] | None = None) -> None:
        lane = {"MessageGroupId": group, "MessageDeduplicationId": uuid.uuid4().hex} if ".fifo" in self.url else {}
        named = {name: {"DataType": "String", "StringValue": value} for name, value in (attributes or {}).items()}
        self.client().send_message(QueueUrl=self.url, MessageBody=body, MessageAttributes=named, **lane)

    def comment(self, *ids: int, group: str = "g") -> None:
        """Commands in the merge request, as the forwarder puts them on the queue."""
        for number in ids:
            self.put(enveloped(number), group=group)

    def count(self, name: str, url: str = "") -> int:
        found = self.client().get_queue_attributes(QueueUrl=url or self.url, AttributeNames=["All"])["Attributes"]
        return int(found[name])

    def visible(self, url: str = "") -> int:
        return self.count("ApproximateNumberOfMessages", url)

    def empty(self) -> bool:
        """Nothing waits and nothing is in flight."""
        return self.visible() + self.count("ApproximateNumberOfMessagesNotVisible") == 0

    @property
    def commands(self) -> list[int]:
        """The note ids that have an AgentRun."""
        return sorted(int(run["spec"]["trigger"]["noteId"]) for run in self.desk.runs.values())

    def tried(self, enough: int) -> Callable[[], bool]:
        """Whether that many events were begun."""
        return lambda: len(set(self.tries)) >= enough

    def result(self, name: str) -> float:
        return float(self.metrics.messages.labels(name)._value.get())

    async def away(self) -> Unavailable | None:
        return await self.desk.handler.away()

    async def handle(self, event: Event) -> Outcome:
        self.tries.append(int(event.payload["object_attributes"]["id"]))
        self.open += 1
        self.widest = max(self.widest, self.open)
        try:
            await asyncio.sleep(self.slow)
            return await self.desk.handler.handle(event)
        finally:
            self.open -= 1

    @contextlib.asynccontextmanager
    async def ingestor(self, *, concurrency: int = 4, visibility: int = VISIBILITY) -> AsyncIterator[asyncio.Event]:
        """One process for as long as the block lasts; yields what SIGTERM sets."""
        queue, stop = SqsQueue(self.proxy.queue(self.url), region=REGION, call_seconds=3), asyncio.Event()
        work = consume(
            queue, self, concurrency=concurrency, visibility=visibility, stop=stop, metrics=self.metrics, poll=1
        )  # fmt: skip
        task = asyncio.create_task(work)
        try:
            yield stop
        finally:
            stop.set()
            await task
            queue.close()


@pytest.fixture(params=["standard", "fifo"])
def bench(request: pytest.FixtureRequest, server: str, proxy: SqsProxy) -> Bench:
    return made(server, proxy, fifo=request.param == "fifo")


@pytest.fixture
def fifo(server: str, proxy: SqsProxy) -> Bench:
    return made(server, proxy, fifo=True)


@pytest.fixture
def standard(server: str, proxy: SqsProxy) -> Bench:
    return made(server, proxy, fifo=False)


def made(server: str, proxy: SqsProxy, *, fifo: bool, most_receives: int = 0) -> Bench:
    """A fresh queue (a purged one keeps its deduplication), with a dead-letter queue where receipts are bounded."""
    client = boto3.client("sqs", endpoint_url=server, region_name=REGION)
    end, kind = (".fifo", {"FifoQueue": "true"}) if fifo else ("", {})
    dead = client.create_queue(QueueName=f"dead-{uuid.uuid4().hex}{end}", Attributes=kind)["QueueUrl"]
    arn = client.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    redrive = {"deadLetterTargetArn": arn, "maxReceiveCount": str(most_receives)}
    more = {"RedrivePolicy": json.dumps(redrive)} if most_receives else {}
    url = client.create_queue(QueueName=f"events-{uuid.uuid4().hex}{end}", Attributes={**kind, **more})["QueueUrl"]
    return Bench(server, proxy, url, dead)


def payload(number: int) -> dict[str, Any]:
    return note(id=number)


def packed(number: int) -> str:
    return base64.b64encode(gzip.compress(json.dumps(payload(number)).encode())).decode()


def enveloped(number: int) -> str:
    return encode_envelope(Event("gitlab", "note", payload(number), f"delivery-{number}"), now=datetime.now(UTC))


async def until(reached: Callable[[], bool]) -> None:
    for _ in range(LOOKS):
        if await asyncio.to_thread(reached):
            return
        await asyncio.sleep(0.1)
    raise AssertionError("the queue and its events did not get there")


async def test_each_message_makes_its_agentrun_and_leaves_the_queue(bench: Bench) -> None:
    for number in range(1, 21):
        bench.comment(number, group=f"g{number % 3}")
    async with bench.ingestor():
        await until(bench.empty)
    assert bench.commands == list(range(1, 21))
    assert len(bench.tries) == 20


async def test_sns_envelopes_and_raw_delivery_are_both_read(standard: Bench) -> None:
    sns = standard.client("sns")
    arn = standard.client().get_queue_attributes(QueueUrl=standard.url, AttributeNames=["QueueArn"])
    for raw in ("false", "true"):
        topic = sns.create_topic(Name=f"events-{uuid.uuid4().hex}")["TopicArn"]
        sns.subscribe(
            TopicArn=topic,
            Protocol="sqs",
            Endpoint=arn["Attributes"]["QueueArn"],
            Attributes={"RawMessageDelivery": raw},
        )
        for encoding in ("", "gzip+base64"):
            number = 1 + 2 * (raw == "true") + bool(encoding)
            named = {"source": "gitlab", "event_type": "note", "content_encoding": encoding}
            sns.publish(
                TopicArn=topic,
                Message=packed(number) if encoding else json.dumps(payload(number)),
                MessageAttributes={
                    name: {"DataType": "String", "StringValue": value} for name, value in named.items() if value
                },
            )
    async with standard.ingestor():
        await until(standard.empty)
    assert standard.commands == [1, 2, 3, 4]


async def test_what_the_webhook_hands_over_is_read_back(bench: Bench) -> None:
    async with bench.ingestor():
        sender = SqsQueue(bench.url, endpoint=bench.server, region=REGION)
        await sender.send(enveloped(5), group="note-5", once=uuid.uuid4().hex)
        sender.close()
        await until(lambda: bench.commands == [5])
        await until(bench.empty)


async def test_two_ingestors_keep_the_order_of_a_group_and_never_overlap_in_it(fifo: Bench) -> None:
    fifo.slow = 0.05
    fifo.comment(*range(1, 21))
    async with fifo.ingestor(), fifo.ingestor():
        await until(fifo.empty)
    assert fifo.tries == list(range(1, 21))
    assert fifo.widest == 1


async def test_work_that_outlasts_its_lease_is_done_once(bench: Bench) -> None:
    bench.slow = 2.5 * VISIBILITY
    bench.comment(1)
    async with bench.ingestor(), bench.ingestor():
        await until(lambda: bench.commands == [1])
        await until(bench.empty)
    assert bench.tries == [1]


@pytest.mark.parametrize("fifo_queue", [True, False])
async def test_what_nobody_can_read_ends_in_the_dead_letter_queue(
    server: str, proxy: SqsProxy, fifo_queue: bool
) -> None:
    bench = made(server, proxy, fifo=fifo_queue, most_receives=2)
    bench.put("no JSON")
    bench.put("AAAA", attributes={"content_encoding": "gzip+base64"})
    bench.comment(1)
    async with bench.ingestor():
        await until(lambda: bench.visible(bench.dead_url) == 2)
        await until(bench.empty)
    assert bench.commands == [1]


async def test_what_nobody_can_read_is_acknowledged_where_nothing_else_takes_it(bench: Bench) -> None:
    bench.put("no JSON")
    bench.put(
        base64.b64encode(gzip.compress(bytes(200_000_000))).decode(), attributes={"content_encoding": "gzip+base64"}
    )
    bench.comment(1)
    async with bench.ingestor():
        await until(bench.empty)
    assert bench.commands == [1]
    assert bench.result("dropped") == 2


async def test_an_answer_to_receive_that_was_lost_loses_no_event(bench: Bench) -> None:
    bench.comment(1)
    bench.proxy.order("ReceiveMessage", Lost())
    async with bench.ingestor():
        await until(lambda: bench.commands == [1])
        await until(bench.empty)
    assert len(bench.proxy.given) == 2
    assert bench.tries == [1]


async def test_an_answer_to_delete_that_was_lost_does_no_harm(bench: Bench) -> None:
    bench.comment(1, 2)
    bench.proxy.order("DeleteMessage", Lost())
    async with bench.ingestor():
        await until(lambda: bench.commands == [1, 2])
        await until(bench.empty)
    assert sorted(bench.tries) == [1, 2]


async def test_a_handle_that_expired_brings_the_event_again_and_makes_nothing_twice(fifo: Bench) -> None:
    fifo.comment(1, 2)
    fifo.proxy.order("DeleteMessage", EXPIRED_HANDLE)
    async with fifo.ingestor():
        await until(fifo.empty)
    assert fifo.commands == [1, 2]
    assert fifo.tries == [1, 1, 2]


async def test_an_extension_that_comes_too_late_ends_that_lease_only(fifo: Bench) -> None:
    fifo.slow = 1.0 * VISIBILITY
    fifo.comment(1, 2)
    fifo.proxy.order("ChangeMessageVisibility", EXPIRED_HANDLE)
    async with fifo.ingestor():
        await until(fifo.empty)
    assert fifo.commands == [1, 2]


async def test_a_duplicate_that_comes_after_its_delete_makes_nothing_twice(standard: Bench) -> None:
    standard.comment(1)
    async with standard.ingestor():
        await until(standard.empty)
        standard.proxy.order("ReceiveMessage", Again())
        await until(lambda: standard.tries == [1, 1])
        standard.comment(2)
        await until(lambda: standard.commands == [1, 2])
        await until(standard.empty)


async def test_a_server_that_throttles_fails_and_stalls_delays_events_and_loses_none(bench: Bench) -> None:
    for number in range(1, 11):
        bench.comment(number, group=f"g{number}")
    bench.proxy.order("GetQueueAttributes", THROTTLED)
    bench.proxy.order("ReceiveMessage", THROTTLED, Refused(), Stalled(3), SERVER_ERROR)
    bench.proxy.order("DeleteMessage", THROTTLED, SERVER_ERROR, Stalled(10), GATEWAY_ERROR)
    async with bench.ingestor():
        await until(bench.empty)
    assert bench.commands == list(range(1, 11))


async def test_a_machine_that_slept_goes_on(bench: Bench) -> None:
    bench.comment(1)
    for action in ("GetQueueAttributes", "ReceiveMessage", "DeleteMessage"):
        bench.proxy.order(action, SIGNATURE_EXPIRED)
    async with bench.ingestor():
        await until(bench.empty)
    assert bench.commands == [1]
    assert bench.tries == [1]


async def test_while_gitlab_is_away_nobody_receives_and_no_receipt_is_used_up(bench: Bench) -> None:
    bench.desk.forge.fail = lambda method: Unavailable("GitLab", "503")
    for number in range(1, 6):
        bench.comment(number, group=f"g{number}")
    async with bench.ingestor(concurrency=2):
        await until(lambda: len(bench.proxy.calls("ChangeMessageVisibility")) >= 10)
        held = len(bench.proxy.given)
        assert held <= 2
        assert bench.visible() == 5 - held
        bench.desk.forge.fail = lambda method: None
        await until(bench.empty)
    assert bench.commands == [1, 2, 3, 4, 5]
    assert len(bench.proxy.given) == 5


async def test_while_the_api_server_is_away_nobody_receives(bench: Bench) -> None:
    class Away(FakeKube):
        away = True

        async def create(self, *arguments: Any, **named: Any) -> Any:
            if self.away:
                raise Unavailable("the API server", "connection refused")
            return await super().create(*arguments, **named)

    kube = Away()
    bench.desk = Desk(kube)
    bench.comment(1, 2)
    async with bench.ingestor(concurrency=1):
        await until(lambda: len(bench.proxy.calls("ChangeMessageVisibility")) >= 4)
        assert len(bench.proxy.given) == 1
        kube.away = False
        await until(bench.empty)
    assert bench.commands == [1, 2]


async def test_sigterm_gives_back_at_once_what_waits(bench: Bench) -> None:
    bench.desk.forge.fail = lambda method: Unavailable("GitLab", "503")
    bench.comment(1)
    bench.comment(2, group="other")
    async with bench.ingestor(concurrency=2, visibility=600) as stop:
        await until(lambda: len(set(bench.tries)) >= 1)
        stop.set()
    assert bench.visible() == 2
    bench.desk.forge.fail = lambda method: None
    async with bench.ingestor():
        await until(bench.empty)
    assert bench.commands == [1, 2]


async def test_sigterm_finishes_what_was_begun(bench: Bench) -> None:
    bench.slow = 3.0
    bench.comment(1)
    async with bench.ingestor() as stop:
        await until(lambda: bench.tries == [1])
        stop.set()
    assert bench.commands == [1]
    assert bench.empty()


async def test_ingestors_that_come_and_go_lose_nothing_and_make_nothing_twice(bench: Bench) -> None:
    bench.slow = 0.1
    for number in range(1, 61):
        bench.comment(number, group=f"g{number % 7}")
    async with bench.ingestor():
        for rounds in range(1, 4):
            async with bench.ingestor():
                await until(bench.tried(10 * rounds))
        await until(bench.empty)
    assert bench.commands == list(range(1, 61))
