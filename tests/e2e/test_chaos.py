"""An operator that is killed again and again, at effects chosen at random, while runs come and go."""

from __future__ import annotations

import json
import random
import re
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from cluster import Cluster
from demo.stage import Operator, wait_for
from tests.e2e.scene import MERGE_REQUESTS, Scene, scene
from tests.e2e.survival import TURNS, Run, worker

LIVE = 3
"""Runs at work at a time."""


@pytest.fixture
def world(shared_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    pool = {"replicas": 3, "maxSandboxes": 8, "linger": {"seconds": 0, "max": 0}}
    with scene(shared_cluster, tmp_path_factory.mktemp("chaos"), "chaos", pool=pool) as found:
        found.configure(limits={"max_attempts": 1000})
        yield found


@pytest.mark.timeout(3600)
def test_whatever_the_moment_of_its_deaths_each_run_ends_once_and_whole(
    world: Scene, request: pytest.FixtureRequest
) -> None:
    kills = int(request.config.getoption("--kills"))
    names = max(5, 3 * kills // 10)
    choice = random.Random(20261130)  # noqa: S311 - reproducible, not secret
    world.script = worker
    runs: list[Run] = []
    deaths: list[tuple[float, dict[str, set[int]]]] = []
    points: Counter[str] = Counter()
    for _ in range(kills):
        operator = world.stage.start(
            "operator-mortal",
            program="tests.e2e.mortal",
            environ={"FATE": json.dumps({"kill_at": choice.randint(1, 32)})},
        )
        _feed(world, runs, names)
        _until_dead(operator, world, runs, names)
        deaths.append((time.monotonic(), {run.name: run.bought() for run in runs}))
        points[_last(operator)] += 1
        world.free_lease()
    with world.stage.operator("operator-last"):
        while len(runs) < names:
            _feed(world, runs, names)
        for run in runs:
            world.finished(run.name, 180)
            run.assert_whole()
    again = sum(_bought_again(run, deaths) for run in runs)
    calls = sum(len(run.calls()) for run in runs)
    print(f"\n{kills} kills, {names} runs: {calls} calls for {names * TURNS} answers; died at {dict(points)}")
    assert again == 0
    assert calls <= names * TURNS + kills * LIVE


def _feed(world: Scene, runs: list[Run], names: int) -> None:
    """Keep a few runs at work."""
    unfinished = sum("Finished" not in world.conditions(run.name) for run in runs)
    while len(runs) < names and unfinished < LIVE:
        runs.append(Run.start(world, f"chaos-{len(runs)}", MERGE_REQUESTS[len(runs)]))
        unfinished += 1


def _until_dead(operator: Operator, world: Scene, runs: list[Run], names: int) -> None:
    """Until it has met its fate; one that has nothing left to do is killed where it stands."""
    try:
        wait_for(
            lambda: operator.process.poll() is not None or _idle(world, runs, names), 120, operator.tail, pause=0.2
        )
    finally:
        operator.kill()


def _idle(world: Scene, runs: list[Run], names: int) -> bool:
    _feed(world, runs, names)
    return all("Finished" in world.conditions(run.name) for run in runs)


def _last(operator: Operator) -> str:
    found: list[str] = re.findall(r'\{"killed": "([^"]+)"\}', operator.log.read_text(errors="replace"))
    return found[-1] if found else "rest"


def _bought_again(run: Run, deaths: list[tuple[float, dict[str, set[int]]]]) -> int:
    """Calls for turns whose response was in the journal when the process before died."""
    known = [(at, bought.get(run.name, set())) for at, bought in deaths]
    before = [(turn, [bought for died, bought in known if died < at]) for at, turn in run.calls()]
    return sum(turn in journals[-1] for turn, journals in before if journals)
