"""Cancel, delete, time-out, and the death of the operator: what is left running, and what the note says."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from cluster import Cluster
from demo.stage import wait_for
from hummingbird_ai.testing.replies import Answer, Reply, Stall, say
from tests.e2e.scene import Scene, scene


@pytest.fixture(scope="module")
def world(shared_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    pool = {"replicas": 2, "linger": {"seconds": 0, "max": 0}}
    with scene(shared_cluster, tmp_path_factory.mktemp("endings"), "endings", pool=pool) as found:
        yield found


def sleeper(body: dict[str, Any], _: int) -> Reply:
    """A command that takes long, then the answer."""
    if len(body["contents"]) == 1:
        return Answer(
            calls=(("sandbox_exec", {"command": "echo began >> /tmp/data/log; sleep 20; echo ended >> /tmp/data/log"}),)
        )
    return say("the command is through")


def cancel(world: Scene, name: str) -> float:
    began = time.monotonic()
    patch = ("--type=merge", "-p", '{"spec":{"cancel":true}}')
    world.stage.kubectl("patch", "agentrun", name, "-n", world.stage.names.runs, *patch)
    assert world.finished(name, 20)["reason"] == "Cancelled"
    return time.monotonic() - began


def begun(world: Scene, name: str, calls: int = 0) -> None:
    world.until(name, "SandboxReady")
    wait_for(lambda: len(world.gemini.calls) > calls, 30, lambda: f"no model call: {world.log()}")


def test_cancel_in_a_model_call_ends_it_and_the_note_says_so(world: Scene) -> None:
    with world.stage.operator():
        calls = len(world.gemini.calls)
        world.script = lambda body, n: Stall(say("never"))
        world.run("in-a-call", workflow="plain")
        begun(world, "in-a-call", calls)
        assert cancel(world, "in-a-call") < 10
        assert "cancelled" in world.notes()[-1]["body"]


def test_cancel_in_a_command_leaves_nothing_running(world: Scene) -> None:
    with world.stage.operator():
        world.script = sleeper
        world.run("in-a-command", workflow="plain", target=None)
        world.until("in-a-command", "SandboxReady")
        time.sleep(1.5)
        pod = world.status("in-a-command")["sandbox"]["uid"]
        assert cancel(world, "in-a-command") < 10
        wait_for(
            lambda: pod not in [p["metadata"]["uid"] for p in world.pods()], 30, lambda: "the sandbox is left over"
        )


def test_deleting_a_working_run_stops_it_and_says_so_in_the_note(world: Scene) -> None:
    with world.stage.operator():
        world.script = sleeper
        before = len(world.notes())
        world.run("deleted", workflow="plain")
        world.until("deleted", "SandboxReady")
        pod = world.status("deleted")["sandbox"]["uid"]
        world.stage.kubectl("delete", "agentrun", "deleted", "-n", world.stage.names.runs, "--timeout=20s")
        assert "cancelled" in world.notes()[before]["body"]
        wait_for(
            lambda: pod not in [p["metadata"]["uid"] for p in world.pods()], 30, lambda: "the sandbox is left over"
        )


def test_a_run_that_takes_too_long_ends_timed_out(world: Scene) -> None:
    with world.stage.operator():
        world.script = lambda body, n: Stall(say("never"))
        world.run("slow", workflow="plain", limits={"timeoutSeconds": 4})
        assert world.finished("slow", 40)["reason"] == "TimedOut"
        assert "stopped: it had 4 seconds" in world.notes()[-1]["body"]


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
