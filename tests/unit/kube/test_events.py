"""Events: one object for one thing, a count for its repetition, and never an error of their own."""

from __future__ import annotations

from hummingbird_operator.errors import Unavailable
from hummingbird_operator.kube.client import EVENTS
from hummingbird_operator.kube.events import MESSAGE_LIMIT, Recorder
from hummingbird_operator.kube.testing import FakeKube

ABOUT = {"apiVersion": "v1", "kind": "AgentRun", "name": "why", "namespace": "runs", "uid": "u-1"}


def recorder(kube: FakeKube) -> Recorder:
    return Recorder(kube, component="hummingbird", instance="operator-0")


async def test_the_same_event_again_is_counted_and_another_one_is_new() -> None:
    kube = FakeKube()
    events = recorder(kube)
    await events.emit(ABOUT, "Normal", "Claimed", "default-1")
    await events.emit(ABOUT, "Normal", "Claimed", "default-1")
    await events.emit(ABOUT, "Warning", "SandboxLost", "gone")
    found = await kube.list(EVENTS, "runs")
    assert sorted((event["reason"], event["count"]) for event in found) == [("Claimed", 2), ("SandboxLost", 1)]
    assert {event["involvedObject"]["uid"] for event in found} == {"u-1"}


async def test_a_successor_counts_on_instead_of_failing_on_the_name() -> None:
    kube = FakeKube()
    await recorder(kube).emit(ABOUT, "Normal", "Claimed", "default-1")
    await recorder(kube).emit(ABOUT, "Normal", "Claimed", "default-1")
    assert [event["count"] for event in await kube.list(EVENTS, "runs")] == [2]


async def test_a_long_message_is_cut_where_the_api_server_would_refuse_it() -> None:
    kube = FakeKube()
    await recorder(kube).emit(ABOUT, "Normal", "Claimed", "x" * 5000)
    assert [len(event["message"]) for event in await kube.list(EVENTS, "runs")] == [MESSAGE_LIMIT]


async def test_an_event_that_cannot_be_written_costs_nothing() -> None:
    kube = FakeKube()
    kube.fail = lambda verb, resource, name: Unavailable("the API server", "away")
    await recorder(kube).emit(ABOUT, "Normal", "Claimed", "default-1")
