"""Events: one object per message, with a count."""

from __future__ import annotations

from hummingbird_operator.errors import Unavailable
from hummingbird_operator.kube.client import EVENTS
from hummingbird_operator.kube.events import Recorder
from hummingbird_operator.kube.testing import FakeKube

ABOUT = {"apiVersion": "v1", "kind": "SandboxPool", "name": "default", "namespace": "n", "uid": "u"}


def recorder(kube: FakeKube) -> Recorder:
    return Recorder(kube, component="hummingbird", instance="i")


async def test_the_same_event_counts_up_and_another_is_another() -> None:
    """kopf.md §1.11: one new Event each, no aggregation."""
    kube = FakeKube()
    events = recorder(kube)
    for _ in range(3):
        await events.emit(ABOUT, "Warning", "Degraded", "no image")
    await events.emit(ABOUT, "Normal", "Healthy", "members start")
    counts = {event["reason"]: event["count"] for event in kube.all(EVENTS)}
    assert counts == {"Degraded": 3, "Healthy": 1}
    await events.emit({**ABOUT, "uid": "another"}, "Warning", "Degraded", "no image")
    assert len(kube.all(EVENTS)) == 3


async def test_an_event_that_ran_out_is_made_anew() -> None:
    kube = FakeKube()
    events = recorder(kube)
    await events.emit(ABOUT, "Warning", "R", "m")
    name = kube.all(EVENTS)[0]["metadata"]["name"]
    await kube.delete(EVENTS, "n", name)
    await events.emit(ABOUT, "Warning", "R", "m")
    await events.emit(ABOUT, "Warning", "R", "m")
    assert len(kube.all(EVENTS)) == 1


async def test_another_process_raises_what_it_finds() -> None:
    kube = FakeKube()
    await recorder(kube).emit(ABOUT, "Warning", "R", "m")
    await recorder(kube).emit(ABOUT, "Warning", "R", "m")
    assert [event["count"] for event in kube.all(EVENTS)] == [2]


async def test_an_event_that_cannot_be_written_harms_nobody() -> None:
    kube = FakeKube()
    kube.fail = lambda verb, resource, name: Unavailable("the API server", "away")
    await recorder(kube).emit(ABOUT, "Warning", "R", "m" * 5000)
