"""SIGKILL of the operator at named points of a run: whoever comes next ends it as if nothing had happened."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from cluster import Cluster
from demo.stage import Operator, wait_for
from hummingbird_ai.testing.replies import Reply, Stall, say
from tests.e2e.scene import MERGE_REQUESTS, Scene, scene
from tests.e2e.survival import TURNS, Run, turn_of, worker

SEAMS = {
    "after accept": "after status Accepted",
    "after the placeholder's POST, before its id is stored": "after forge.create",
    "after the claim, before its checkpoint": "after sandboxes.claim",
    "after the claim": "after status SandboxReady",
    "after a response, before its tools": "after store.create response",
    "after the tools, before their results": "after sandbox.run",
    "after the answer, before the note": "after status Answered",
    "in delivery, before its checkpoint": "after forge.update",
    "after the note, before the save": "after status Delivered",
    "during the save": "after store.put_stream sandbox.tar.gz",
    "after the save": "after status SessionSaved",
    "before finish": "before status Finished",
}


@pytest.fixture(scope="module")
def world(shared_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    pool = {"replicas": 3, "maxSandboxes": 8, "linger": {"seconds": 0, "max": 0}}
    with scene(shared_cluster, tmp_path_factory.mktemp("kills"), "kills", pool=pool) as found:
        yield found


@pytest.fixture
def iid(request: pytest.FixtureRequest) -> int:
    """A merge request of the test's own."""
    number: int = request.node.stash.setdefault(NUMBER, next(NUMBERS))
    return number


NUMBER = pytest.StashKey[int]()
NUMBERS = iter(MERGE_REQUESTS)


def dead(operator: Operator, world: Scene) -> None:
    """Wait until it was killed."""
    wait_for(lambda: operator.process.poll() is not None, 60, lambda: f"it lives on: {operator.tail()}")
    assert operator.process.returncode == -signal.SIGKILL, operator.tail()
    world.free_lease()


def begun(world: Scene, pod: dict[str, Any]) -> bool:
    """The first command said so."""
    where = ("exec", pod["metadata"]["name"], "-n", world.stage.names.sandboxes)
    return "yes" in world.stage.kubectl(*where, "--", "sh", "-c", "test -e /tmp/data/begun && echo yes", check=False)


def finished_by_another(world: Scene, run: Run, asked: int) -> None:
    """The next operator ends the run: no response that is in the journal is bought again."""
    left = TURNS - len(run.bought())
    with world.stage.operator("operator-next"):
        world.finished(run.name, 60)
        run.assert_whole()
    assert len(run.calls()) == asked + left


@pytest.mark.parametrize("point", SEAMS.values(), ids=SEAMS)
def test_a_kill_at_a_checkpoint_leaves_nothing_lost_and_nothing_doubled(world: Scene, iid: int, point: str) -> None:
    world.script = worker
    world.pool_ready() if iid > MERGE_REQUESTS[0] else None
    fate = {"FATE": json.dumps({"kill": [point]})}
    first = world.stage.start("operator-mortal", program="tests.e2e.mortal", environ=fate)
    try:
        run = Run.start(world, f"kill-{iid}", iid)
        dead(first, world)
    finally:
        first.stop()
    finished_by_another(world, run, len(run.calls()))


def test_a_kill_in_the_middle_of_a_model_call_costs_that_call_and_no_more(world: Scene, iid: int) -> None:
    pid = threading.Event()
    process: list[Operator] = []

    def killer(body: dict[str, Any], n: int) -> Reply:
        if turn_of(body) == 1 and not pid.is_set():
            pid.set()
            os.kill(process[0].process.pid, signal.SIGKILL)
            return Stall(say("nobody hears this"))
        return worker(body, n)

    world.script = killer
    process.append(world.stage.start("operator-mortal"))
    try:
        run = Run.start(world, f"kill-{iid}", iid)
        dead(process[0], world)
    finally:
        process[0].stop()
    assert run.bought() == {0}
    finished_by_another(world, run, 2)


def test_a_kill_in_the_middle_of_a_command_leaves_it_running_and_its_record_is_read(world: Scene, iid: int) -> None:
    world.script = worker
    first = world.stage.start("operator-mortal")
    try:
        run = Run.start(world, f"kill-{iid}", iid)
        world.until(run.name, "SandboxReady")
        (pod,) = run.pods()
        wait_for(lambda: begun(world, pod), 30, lambda: "the command did not begin", pause=0.02)
        first.kill()
        dead(first, world)
    finally:
        first.stop()
    assert run.bought() == {0}
    finished_by_another(world, run, 1)
