"""Runs that the watch has shown and that went unseen: looked at when nothing drives them, and forgotten."""

from __future__ import annotations

from typing import cast

from hummingbird_operator.agentruns.ghosts import look
from hummingbird_operator.agentruns.runs import Runs
from hummingbird_operator.agentruns.status import StatusWriter
from hummingbird_operator.errors import Unavailable
from hummingbird_operator.kube.client import AGENT_RUNS, KubeApi
from hummingbird_operator.kube.testing import FakeKube
from tests.unit.agentruns.builders import ME, run


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_only_what_is_gone_is_forgotten_and_only_after_a_minute_without_a_daemon() -> None:
    time, kube = Time(), FakeKube()
    runs = Runs(slots=5, monotonic=time)
    there, gone, driven = (run(name=name, uid=f"uid-{name}") for name in ("there", "gone", "driven"))
    for each in (there, gone):
        runs.observe(each)
    runs.open(driven)
    kube.put(AGENT_RUNS, "hummingbird", there.model_dump(by_alias=True, mode="json", exclude_none=True))
    status = StatusWriter(cast("KubeApi", kube), ME)
    await look(runs, status)
    assert runs.alive("uid-gone") == ""
    time.now = 61
    await look(runs, status)
    assert [runs.alive(f"uid-{name}") for name in ("there", "gone", "driven")] == ["", None, ""]


async def test_while_the_api_server_is_away_nothing_is_forgotten() -> None:
    time, kube = Time(), FakeKube()
    kube.fail = lambda verb, resource, name: Unavailable("the API server", "away")
    runs = Runs(slots=5, monotonic=time)
    runs.observe(run(uid="uid-gone"))
    time.now = 61
    await look(runs, StatusWriter(cast("KubeApi", kube), ME))
    assert runs.alive("uid-gone") == ""
