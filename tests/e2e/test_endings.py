"""Cancel and delete, wherever a run is: how soon it has effect, what is left running, and what the note says.

Each figure is printed (`pytest -s`) and recorded; the bar is two seconds from the command of a person, whose kubectl
takes a tenth of them.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster import Cluster
from demo.stage import wait_for
from hummingbird_ai.testing.replies import Answer, Reply, Stall, say
from tests.e2e.scene import Scene, scene
from tests.standins.door import Door

pytestmark = pytest.mark.alone
BAR_SECONDS = 2.0
VERBS = ("cancel", "delete")
MARK = "86461"
"""Seconds that a command sleeps: it is found by them."""

Record = Callable[[str, object], None]


@pytest.fixture(scope="module")
def world(shared_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    pool = {"replicas": 1, "maxSandboxes": 1, "linger": {"seconds": 0, "max": 0}}
    with scene(shared_cluster, tmp_path_factory.mktemp("endings"), "endings", pool=pool) as found:
        yield found


@pytest.mark.timeout(180)
def test_a_run_survives_a_crash_and_a_handover_with_one_note_and_no_command_run_twice(world: Scene) -> None:
    world.script = sleeper
    before, calls = len(world.notes()), len(world.gemini.calls)
    first = world.stage.start("operator-first")
    try:
        first.wait_until_leading()
        world.run("survivor", workflow="plain")
        begun(world, "survivor", calls)
        time.sleep(2)
    finally:
        first.kill()
    world.free_lease()
    second = world.stage.start("operator-second")
    second.wait_until_leading(40)
    second.stop()  # and once more, by SIGTERM in the middle of the same command
    with world.stage.operator("operator-third"):
        assert world.finished("survivor", 120)["reason"] == "Completed"
    assert len(world.notes()) == before + 1
    assert "the command is through" in world.notes()[before]["body"]
    assert len(world.gemini.calls) == calls + 2, "a response was bought twice"
    results = [
        part["functionResponse"]["response"]
        for content in world.gemini.calls[-1].body["contents"]
        for part in content["parts"]
        if "functionResponse" in part
    ]
    assert len(results) == 1


def sleeper(body: dict[str, Any], _: int) -> Reply:
    """A command that takes long, then the answer."""
    if len(body["contents"]) == 1:
        return Answer(
            calls=(("sandbox_exec", {"command": "echo began >> /tmp/data/log; sleep 20; echo ended >> /tmp/data/log"}),)
        )
    return say("the command is through")


def begun(world: Scene, name: str, calls: int = 0) -> None:
    world.until(name, "SandboxReady")
    wait_for(lambda: len(world.gemini.calls) > calls, 30, lambda: f"no model call: {world.log()}")


@pytest.fixture(scope="module")
def door(world: Scene) -> Iterator[Door]:
    """What lies between the operator and the model: it sees when a call is given up. The operator runs behind it."""
    with Door(("127.0.0.1", world.gemini.port)) as made:
        world.configure(models={"endpoint": made.url}, limits={"retry_seconds": 3, "max_concurrent_runs": 2})
        with world.stage.operator():
            world.pool_ready()
            yield made


def ask(world: Scene, verb: str, name: str) -> float:
    """Cancel or delete; when it was asked for, on the monotonic clock."""
    began = time.monotonic()
    where = ("agentrun", name, "-n", world.stage.names.runs)
    if verb == "cancel":
        world.stage.kubectl("patch", *where, "--type=merge", "-p", '{"spec":{"cancel":true}}')
    else:
        world.stage.kubectl("delete", *where, "--wait=false")
    return began


def over(world: Scene, verb: str, name: str, seconds: float = 30) -> float:
    """Wait until the run is finished, or gone; when that was."""

    def ended() -> bool:
        if verb == "cancel":
            return world.conditions(name).get("Finished", {}).get("status") == "True"
        return not world.stage.kubectl("get", "agentrun", name, "-n", world.stage.names.runs, "--ignore-not-found")

    wait_for(ended, seconds, lambda: f"{name} did not end: {world.log()}", pause=0.02)
    return time.monotonic()


def soon(record: Record, what: str, seconds: float, bar: float | None = BAR_SECONDS) -> None:
    """Print and record a figure, and hold it against the bar."""
    record(what, round(seconds, 2))
    print(f"{what}: {seconds:.2f} s")
    assert bar is None or seconds < bar, f"{what}: {seconds:.2f} s"


def note_of(world: Scene, name: str, uid: str) -> str:
    """The body of the run's only note; empty when there is none."""
    bodies = [note["body"] for note in world.notes() if uid in note["body"]]
    assert len(bodies) <= 1, f"{name} has {len(bodies)} notes"
    return bodies[0] if bodies else ""


def uid_of(world: Scene, name: str) -> str:
    return str(world.stage.get("agentrun", name)["metadata"]["uid"])


def running(mark: str) -> bool:
    """Whether a process with that in its arguments is alive on this machine; those of pods are to be seen from it."""
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if mark.encode() in process.read_bytes():
                return True
    return False


def free_again(world: Scene) -> None:
    """The pool has a member that nobody holds: what the run had is gone."""

    def fresh() -> bool:
        labels = [pod["metadata"]["labels"] for pod in world.pods() if "deletionTimestamp" not in pod["metadata"]]
        return [label.get("hummingbird-project.io/role") for label in labels] == ["standby"]

    wait_for(fresh, 30, lambda: f"a sandbox is left over: {world.pods()}")
    world.pool_ready()


@pytest.mark.parametrize("verb", VERBS)
def test_in_a_wait_for_a_sandbox_and_in_the_queue(world: Scene, door: Door, verb: str, record_property: Record) -> None:
    world.script = lambda body, n: Stall(say("never"))
    holder, waiter, queued = (f"{name}-{verb}" for name in ("holder", "waiter", "queued"))
    calls = len(world.gemini.calls)
    world.run(holder, workflow="plain", target=None)
    wait_for(lambda: len(world.gemini.calls) > calls, 30, lambda: f"no model call: {world.log()}")
    world.run(waiter, workflow="plain")
    world.until(waiter, "Succeeded", "Unknown", "WaitingForSandbox")
    world.run(queued)
    world.until(queued, "Succeeded", "Unknown", "Queued")
    uids = {name: uid_of(world, name) for name in (waiter, queued)}
    for name, where in ((queued, "the queue"), (waiter, "a wait for a sandbox")):
        began = ask(world, verb, name)
        soon(record_property, f"{verb} in {where}", over(world, verb, name) - began)
    assert note_of(world, queued, uids[queued]) == "", "it had not begun: there is nothing to say"
    assert "cancelled" in note_of(world, waiter, uids[waiter])
    assert len(world.pods()) == 1, "somebody made a sandbox for a run that was over"
    over(world, verb, holder) if ask(world, verb, holder) else None
    free_again(world)


@pytest.mark.parametrize("verb", VERBS)
def test_in_a_model_call(world: Scene, door: Door, verb: str, record_property: Record) -> None:
    world.script = lambda body, n: Stall(say("never"))
    name, calls = f"calls-{verb}", len(world.gemini.calls)
    world.run(name, workflow="plain")
    wait_for(lambda: len(world.gemini.calls) > calls, 30, lambda: f"no model call: {world.log()}")
    uid, ended = uid_of(world, name), len(door.ended)
    began = ask(world, verb, name)
    wait_for(lambda: len(door.ended) > ended, 30, lambda: f"the call goes on: {world.log()}", pause=0.01)
    soon(record_property, f"{verb} in a model call, its socket closed", door.ended[ended] - began)
    soon(record_property, f"{verb} in a model call, the run over", over(world, verb, name) - began, None)
    assert "cancelled" in note_of(world, name, uid)
    assert len(world.gemini.calls) == calls + 1
    free_again(world)


@pytest.mark.parametrize("verb", VERBS)
def test_in_a_command(world: Scene, door: Door, verb: str, record_property: Record) -> None:
    command = f"setsid sleep {MARK} & sleep {MARK}"
    world.script = lambda body, n: Answer(calls=(("sandbox_exec", {"command": command}),))
    name = f"commands-{verb}"
    world.run(name, workflow="plain")
    wait_for(lambda: running(f"sleep\0{MARK}"), 30, lambda: f"no command: {world.log()}")
    uid = uid_of(world, name)
    began = ask(world, verb, name)
    wait_for(lambda: not running(MARK), 30, lambda: f"it goes on: {world.log()}", pause=0.01)
    soon(record_property, f"{verb} in a command, no process left", time.monotonic() - began)
    soon(record_property, f"{verb} in a command, the run over", over(world, verb, name) - began, None)
    assert "cancelled" in note_of(world, name, uid)
    free_again(world)


def test_cancel_in_delivery_does_not_take_back_what_is_paid_for(
    world: Scene, door: Door, record_property: Record
) -> None:
    uid = delivering(world, "delivers", seconds=3)
    began = ask(world, "cancel", "delivers")
    soon(
        record_property,
        "cancel in a delivery that takes 3 s, the run over",
        over(world, "cancel", "delivers") - began,
        None,
    )
    assert world.conditions("delivers")["Succeeded"]["reason"] == "Completed"
    assert note_of(world, "delivers", uid).startswith("this is the answer")
    assert world.status("delivers")["answer"]["text"] == "this is the answer"
    free_again(world)


def test_delete_in_delivery_ends_the_run_and_leaves_nothing(world: Scene, door: Door, record_property: Record) -> None:
    uid = delivering(world, "goes", seconds=3)
    began = ask(world, "delete", "goes")
    soon(record_property, "delete in a delivery that takes 3 s, the run over", over(world, "delete", "goes") - began, 5)
    assert note_of(world, "goes", uid).startswith("this is the answer")
    free_again(world)


def test_delete_in_a_stalled_delivery(world: Scene, door: Door, record_property: Record) -> None:
    uid = delivering(world, "stalls", seconds=4)
    began = ask(world, "delete", "stalls")
    took = over(world, "delete", "stalls") - began
    free_again(world)
    assert note_of(world, "stalls", uid).startswith("this is the answer")
    soon(record_property, "delete in a stalled delivery, the run over", took)


def delivering(world: Scene, name: str, *, seconds: float) -> str:
    """Start a run, and come back when its answer is on the way into a note that takes so long; the run's uid."""
    world.script = lambda body, n: say("this is the answer")
    fault = world.gitlab.fault("stall", method="PUT", path="/notes/", seconds=seconds)
    world.run(name, workflow="plain")
    wait_for(lambda: fault.times == 0, 30, lambda: f"no delivery: {world.log()}", pause=0.02)
    return uid_of(world, name)


def test_a_run_that_takes_too_long_ends_timed_out(world: Scene, door: Door) -> None:
    world.script = lambda body, n: Stall(say("never"))
    world.run("slow", workflow="plain", limits={"timeoutSeconds": 4})
    assert world.finished("slow", 40)["reason"] == "TimedOut"
    assert "stopped: it had 4 seconds" in note_of(world, "slow", uid_of(world, "slow"))
