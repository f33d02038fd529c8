"""Two operators: how long a run stands still when the leader goes, and what a leader does that wakes up too late."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster import Cluster
from demo.stage import Operator, wait_for
from hummingbird_ai.testing.replies import Reply, Stall, say
from tests.e2e.scene import MERGE_REQUESTS, Scene, scene
from tests.e2e.survival import Run, held, store, turn_of, worker

FROZEN = (
    "before status Accepted",
    "before forge.create",
    "after forge.create",
    "before sandboxes.claim",
    "after sandboxes.claim",
    "before status SandboxReady",
    "before store.create intent",
    "before model.generate",
    "before store.create response",
    "before sandbox.run",
    "after sandbox.run",
    "before store.create results",
    "before store.put answer.md",
    "before store.create answer.json",
    "before status Answered",
    "before forge.update",
    "before status Delivered",
    "before store.put_stream sandbox.tar.gz",
    "before store.put transcript.md",
    "before store.create context.json",
    "before sandboxes.let_go",
    "before status Finished",
)
"""Every kind of write. The first run that comes to a point is held there, so as many runs are needed as points."""


@pytest.fixture(scope="module")
def world(shared_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    pool = {"replicas": 4, "maxSandboxes": 30, "linger": {"seconds": 0, "max": 0}}
    with scene(shared_cluster, tmp_path_factory.mktemp("failover"), "failover", pool=pool) as found:
        found.configure(limits={"max_concurrent_runs": 30, "retry_seconds": 60})
        yield found


@pytest.mark.alone
@pytest.mark.parametrize(("number", "bar"), [(signal.SIGTERM, 3), (signal.SIGKILL, 20)], ids=["SIGTERM", "SIGKILL"])
def test_a_run_goes_on_soon_after_the_leader_is_gone(
    world: Scene, number: signal.Signals, bar: int, record_property: Any
) -> None:
    seconds = going_on_after(world, number)
    record_property("seconds until the run went on", round(seconds, 2))
    print(f"\n{number.name}: the run went on after {seconds:.2f} s (bar {bar} s)")
    assert seconds < bar


def going_on_after(world: Scene, number: signal.Signals) -> float:
    """Seconds from the leader's end in the middle of a model call until the next leader asks the model again."""
    iid = MERGE_REQUESTS[-1 if number is signal.SIGTERM else -2]

    def stalls_once(body: dict[str, Any], n: int) -> Reply:
        return Stall(say("never")) if turn_of(body) == 1 and len(run.calls()) <= 2 else worker(body, n)

    world.script = worker
    leader, follower = world.stage.start("operator-leader"), None
    try:
        leader.wait_until_leading()
        follower = world.stage.start("operator-follower")
        follower.wait_until_ready()
        world.script = stalls_once
        run = Run.start(world, f"goes-on-{number.name.lower()}", iid)
        wait_for(lambda: [turn for _, turn in run.calls()] == [0, 1], 60, lambda: f"{run.calls()}{world.log()}")
        began = time.monotonic()
        leader.process.send_signal(number)
        wait_for(lambda: len(run.calls()) == 3, 60, lambda: f"it does not go on: {world.log()}", pause=0.02)
        seconds = run.calls()[2][0] - began
        world.finished(run.name)
        run.assert_whole()
        assert [turn for _, turn in run.calls()] == [0, 1, 1, 2]
        return seconds
    finally:
        leader.stop()
        if follower is not None:
            follower.stop()


@pytest.mark.timeout(300)
def test_a_leader_frozen_in_every_kind_of_write_changes_nothing_when_it_wakes_up_behind_its_successor(
    world: Scene,
) -> None:
    world.script = worker
    fate = {"FATE": json.dumps({"freeze": FROZEN})}
    old = world.stage.start("operator-frozen", program="tests.e2e.mortal", environ=fate)
    new: Operator | None = None
    try:
        old.wait_until_leading()
        runs = [Run.start(world, f"frozen-{n}", iid) for n, iid in enumerate(MERGE_REQUESTS[: len(FROZEN)])]
        wait_for(lambda: stopped(old), 120, lambda: f"not held: {set(FROZEN) - held(old.log)}\n{old.tail()}")
        new = world.stage.start("operator-successor")
        new.wait_until_leading(40)
        for run in runs:
            world.finished(run.name, 120)
            run.assert_whole()
        wait_for(lambda: not unfinished(world), 30, lambda: f"finalizers are left: {unfinished(world)}")
        before = everything(world)
        old.process.send_signal(signal.SIGCONT)
        wait_for(lambda: old.process.poll() is not None, 30, lambda: f"it lives on: {old.tail()}")
        assert old.process.returncode == 1, old.tail()
        assert "this process ends at once" in old.tail()
        assert everything(world) == before
    finally:
        old.process.kill()
        old.process.wait()
        if new is not None:
            new.stop()


def stopped(operator: Operator) -> bool:
    """The kernel says so: every thread of it stands still."""
    status = Path(f"/proc/{operator.process.pid}/stat").read_text()
    return status.rpartition(")")[2].split()[0] == "T"


def unfinished(world: Scene) -> list[str]:
    """Runs that kopf still holds on to."""
    runs = [run["metadata"] for run in world.stage.get("agentruns")["items"]]
    return [meta["name"] for meta in runs if meta.get("finalizers")]


def everything(world: Scene) -> dict[str, Any]:
    """All that a process can write to."""
    runs = world.stage.get("agentruns")["items"]
    notes = [note for iid in MERGE_REQUESTS for note in world.notes(iid)]
    return {
        "runs": runs,
        "notes": notes,
        "written to GitLab": [call.path for call in world.gitlab.calls if call.method != "GET"],
        "store": store(world),
        "asked": len(world.gemini.calls),
        "claimed": [pod["metadata"]["name"] for pod in world.pods() if "run" in str(pod["metadata"]["labels"])],
    }
