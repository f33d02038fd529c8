"""Finished runs leave nothing in the process: no object of the product's classes, no entry in a table, task or thread.

Counted between the 50th and the 200th run of one process; what both have is what a process needs to live.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pytest

from hummingbird_ai.abort import Abort
from hummingbird_operator.agentruns.runs import Runs
from hummingbird_operator.api import conditions as c
from hummingbird_operator.api.agentrun import AgentRun
from hummingbird_operator.kube.client import AGENT_RUNS
from hummingbird_operator.kube.events import REMEMBERED, Recorder
from hummingbird_operator.kube.testing import FakeKube
from tests.unit.agentruns.builders import NOW, run
from tests.unit.agentruns.process import Process
from tests.unit.agentruns.world import World
from tests.unit.sandboxpools import world as pools

WARM, RUNS = 50, 200
IN_FLIGHT = 5
"""Whatever is kept of each run, or of one kind of them in six, is there at least 25 times more after 150 runs."""
PACKAGES = ("hummingbird_operator.", "hummingbird_ai.")
FAKES = (".testing", "hummingbird_ai.testing.")
OVER = Abort()


class Held:
    """What the process holds now."""

    def __init__(self) -> None:
        gc.collect()
        ours = [each for each in gc.get_objects() if _is_product(type(each))]  # type: ignore[arg-type] # of every class
        self.objects = Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in ours)
        self.entries: Counter[str] = Counter()
        for each in ours:
            for name, table in _tables(each):
                self.entries[f"{type(each).__qualname__}.{name}"] += len(table)
        self.tasks = len(asyncio.all_tasks())
        # those of pools are as many as the pool may have, and those of the stand-ins are not ours
        bounded = ("ThreadPoolExecutor", "asyncio_")
        names = [thread.name for thread in threading.enumerate()]
        self.threads = sum(not name.startswith(bounded) and "process_request" not in name for name in names)

    def more_than(self, before: Held) -> dict[str, int]:
        """What there is more of than a thread or task that is just ending may still hold."""
        grown = {**(self.objects - before.objects), **(self.entries - before.entries)}
        grown |= {"tasks": self.tasks - before.tasks, "threads": self.threads - before.threads}
        return {name: number for name, number in grown.items() if number > IN_FLIGHT}


@functools.cache  # a million objects have a few thousand classes
def _is_product(kind: type) -> bool:
    module = str(kind.__module__)
    return module.startswith(PACKAGES) and not any(fake in f"{module}." for fake in FAKES)


def _tables(of: object) -> Iterable[tuple[str, Any]]:
    """The containers among its attributes, also those of objects without a dict."""
    attributes: dict[str, Any] = dict(getattr(of, "__dict__", {}))
    attributes |= {name: getattr(of, name, None) for name in getattr(type(of), "__slots__", ())}
    for name, value in attributes.items():
        if isinstance(value, Mapping | set | frozenset | list) or type(value).__name__ in {"deque", "WeakSet"}:
            yield name, value


Order = Callable[[World, str, int], AgentRun]


def mixed(world: World, name: str, number: int, **spec: Any) -> AgentRun:
    """Runs that end in different ways."""
    kinds: tuple[dict[str, Any], ...] = (
        {},
        {"target": None},
        {"workflow": "unknown"},
        {"cancel": True},
        {"target": None, "limits": {"timeoutSeconds": 1}},
        {"delivery": "None"},
    )
    return world.order(name, **{**kinds[number % len(kinds)], **spec})


def reaped(world: World, name: str, number: int) -> AgentRun:
    return mixed(world, name, number, ttlSecondsAfterFinished=5)


async def lived(world: World, process: Process, order: Order, numbers: range, *, goes: bool) -> None:
    """Those runs, one after the other, to their ends; and away with what only the fakes keep of them."""
    for number in numbers:
        uid = order(world, f"run-{number}", number).metadata.uid
        await world.until(lambda uid=uid: uid in process.daemons)  # type: ignore[misc]
        await process.daemons[uid]
        if goes:
            await world.until(lambda: world.kube.all(AGENT_RUNS) == [])
        await asyncio.gather(*process._tasks)  # every event of it was seen
        del process.daemons[uid]
        forget(world, process, uid)


def forget(world: World, process: Process, uid: str) -> None:
    """The world's own memory of what happened is no memory of the process."""
    for place in world.pool.places:
        place.line.held_by = OVER
    world.pool.places.clear()
    world.model.calls.clear()
    world.events.emitted.clear()
    process.points.clear()
    process._stoppers.pop(uid, None)
    process._workers.pop(uid, None)


@pytest.fixture(autouse=True)
def everything_counts() -> Iterator[None]:
    """Also what was there before the first test, which `gc.get_objects` does not show while it is frozen."""
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.mark.parametrize(("order", "goes"), [(mixed, False), (reaped, True)], ids=["that stay", "with a time to live"])
async def test_finished_runs_leave_nothing_in_the_process(world: World, order: Order, goes: bool) -> None:
    world.says("an answer")
    process = world.start()
    reaping = asyncio.create_task(process.reaper.keep_reaping())
    await lived(world, process, order, range(WARM), goes=goes)
    before = Held()
    await lived(world, process, order, range(WARM, RUNS), goes=goes)
    assert Held().more_than(before) == {}
    left = world.runs()
    assert len(left) == (0 if goes else RUNS)
    assert all(c.is_true(each.status.conditions, c.RunCondition.FINISHED) for each in left)
    assert before.objects["hummingbird_operator.agentruns.runs.Runs"] >= 1, "the count sees nothing at all"
    reaping.cancel()
    await asyncio.gather(reaping, return_exceptions=True)


async def test_runs_that_are_over_leave_nothing_with_the_pools() -> None:
    world = pools.World()
    world.pool(linger={"seconds": 5, "max": 1})
    await world.fill()

    async def used(numbers: range) -> None:
        for number in numbers:
            uid = f"run-{number}"
            assert await world.claims.claim(uid, session=uid, pool="default", active_seconds=60)
            await (world.claims.linger(uid, session=uid) if number % 2 else world.claims.release(uid))
            world.later(700)  # past every time that something is remembered for
            await world.fill(passes=2)

    await used(range(WARM))
    before = Held()
    await used(range(WARM, RUNS))
    assert Held().more_than(before) == {}


async def test_the_recorder_remembers_no_more_events_than_it_says() -> None:
    recorder = Recorder(FakeKube(), component="hummingbird", instance="test", now=lambda: NOW)
    for number in range(REMEMBERED + 100):
        uid = str(number)
        await recorder.emit({"kind": "AgentRun", "name": uid, "namespace": "n", "uid": uid}, "Normal", "Completed", "")
    assert len(recorder._counts) == REMEMBERED


async def test_the_count_sees_an_object_that_is_kept_and_an_entry_in_a_table() -> None:
    runs = Runs(slots=1)
    before = Held()
    for number in range(25):
        runs.open(run(uid=f"0f9b7c1e-8a51-4f5e-9d2e-{number:012d}"))
    grown = Held().more_than(before)
    assert grown["hummingbird_operator.agentruns.control.Control"] == 25
    assert grown["Runs._controls"] == 25
