"""Finished runs go when their time is over, and only then."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from hummingbird_operator.agentruns.ttl import LONGEST_SLEEP_SECONDS, RETRY_SECONDS, Reaper, end_of_life
from hummingbird_operator.api.agentrun import AgentRun
from hummingbird_operator.api.conditions import rfc3339
from hummingbird_operator.errors import Unavailable
from hummingbird_operator.kube.client import AGENT_RUNS
from hummingbird_operator.kube.testing import FakeKube
from tests.unit.agentruns.builders import NOW, conditions, run


def done(ttl: int | None, *, ago: int = 0, name: str = "why", **metadata: Any) -> AgentRun:
    """A run that finished so many seconds ago."""
    ended = {"completionTime": rfc3339(NOW - timedelta(seconds=ago)), "conditions": conditions(Finished="True")}
    uid = f"0f9b7c1e-8a51-4f5e-9d2e-{sum(map(ord, name)):012d}"
    return run({"ttlSecondsAfterFinished": ttl}, ended, name=name, uid=uid, finalizers=[], **metadata)


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


def known(kube: FakeKube, clock: Clock, *subjects: AgentRun) -> Reaper:
    reaper = Reaper(kube, clock)
    for subject in subjects:
        kube.put(AGENT_RUNS, "hummingbird", subject.as_dict())
        reaper.observe(subject)
    return reaper


def left(kube: FakeKube) -> set[str]:
    return {body["metadata"]["name"] for body in kube.all(AGENT_RUNS)}


def test_the_time_to_live_counts_from_the_end() -> None:
    assert end_of_life(done(60, ago=10)) == NOW + timedelta(seconds=50)
    assert end_of_life(done(0)) == NOW


@pytest.mark.parametrize(
    "subject",
    [
        done(None),
        done(60, deletionTimestamp="2026-11-30T10:00:00Z"),
        run({"ttlSecondsAfterFinished": 60}),
        run({"ttlSecondsAfterFinished": 60}, {"completionTime": rfc3339(NOW)}),
    ],
    ids=["without a time to live", "being deleted", "at work", "not finished"],
)
def test_some_runs_are_never_deleted_by_their_time(subject: AgentRun) -> None:
    assert end_of_life(subject) is None


async def test_what_is_over_is_deleted_and_the_next_look_is_at_the_next_end() -> None:
    kube, clock = FakeKube(), Clock()
    reaper = known(kube, clock, done(60, ago=60, name="over"), done(60, ago=30, name="soon"), done(None, name="kept"))
    assert await reaper.reap() == 30.0
    assert left(kube) == {"soon", "kept"}
    clock.now += timedelta(seconds=30)
    assert await reaper.reap() == LONGEST_SLEEP_SECONDS
    assert left(kube) == {"kept"}


async def test_a_run_that_was_replaced_by_one_of_its_name_is_not_deleted_in_its_place() -> None:
    kube, clock = FakeKube(), Clock()
    reaper = known(kube, clock, done(60, ago=60))
    kube.put(AGENT_RUNS, "hummingbird", run(uid="6c1d3a52-93a4-4f0e-8a6e-0c7a2c6b9a01").as_dict())
    await reaper.reap()
    assert left(kube) == {"why"}
    assert kube.calls["delete", "agentruns"] == 1
    await reaper.reap()
    assert kube.calls["delete", "agentruns"] == 1


async def test_a_deletion_that_fails_for_now_is_made_again_soon() -> None:
    kube, clock = FakeKube(), Clock()
    reaper = known(kube, clock, done(60, ago=60))
    kube.fail = lambda *_: Unavailable("the API server", "made by a test")
    assert await reaper.reap() == RETRY_SECONDS
    kube.fail = lambda *_: None
    await reaper.reap()
    assert left(kube) == set()


async def test_a_time_to_live_can_be_taken_back_and_given_later() -> None:
    kube, clock = FakeKube(), Clock()
    reaper = known(kube, clock, done(60, ago=60))
    reaper.observe(done(None, ago=60))
    await reaper.reap()
    assert left(kube) == {"why"}
    reaper.observe(done(10, ago=60))
    await reaper.reap()
    assert left(kube) == set()


async def test_a_run_that_is_gone_is_forgotten() -> None:
    kube, clock = FakeKube(), Clock()
    reaper = known(kube, clock, done(60, ago=60))
    reaper.observe(done(60, ago=60), gone=True)
    await reaper.reap()
    assert kube.calls["delete", "agentruns"] == 0


async def test_the_task_sleeps_until_the_next_end_and_wakes_for_a_new_one() -> None:
    kube, loop = FakeKube(), asyncio.get_running_loop()
    began = loop.time()
    reaper = Reaper(kube, lambda: NOW + timedelta(seconds=loop.time() - began))
    task = asyncio.create_task(reaper.keep_reaping())
    await asyncio.sleep(3)
    kube.put(AGENT_RUNS, "hummingbird", done(10).as_dict())
    reaper.observe(done(10))
    await asyncio.sleep(6)
    assert left(kube) == {"why"}
    await asyncio.sleep(1.5)
    assert left(kube) == set()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
