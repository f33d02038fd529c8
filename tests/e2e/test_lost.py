"""Sandboxes that are really lost: deleted, evicted, out of memory, off their node. The run goes on in another one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cluster import Cluster
from demo.stage import wait_for
from hummingbird_ai.testing.replies import Answer, Reply, say
from tests.e2e.scene import MERGE_REQUESTS, Scene, scene
from tests.e2e.survival import Run, turn_of

GLUTTON = "while [ ! -e /tmp/data/eat ]; do sleep 0.1; done; exec python3 -c 'x = bytearray(10**9)'"
"""The first process itself runs out of memory: where cgroups are of version 1, another one would die alone."""


@pytest.fixture(scope="module")
def world(shared_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    pool = {"replicas": 2, "maxSandboxes": 8, "linger": {"seconds": 0, "max": 0}}
    with scene(shared_cluster, tmp_path_factory.mktemp("lost"), "lost", pool=pool) as found:
        found.stage.kubectl(
            "patch", "sandboxpool", "default", "-n", found.stage.names.sandboxes, "--type=json", "-p", _gluttonous()
        )
        with found.stage.operator():
            yield found


def _gluttonous() -> str:
    container = "/spec/pod/template/spec/containers/0"
    patch = [{"op": "add", "path": f"{container}/command", "value": ["sh", "-c", GLUTTON]}]
    return json.dumps(patch)


def writer(body: dict[str, Any], _: int) -> Reply:
    """A long output that is kept in a file, then a command during which the sandbox is lost, then a look around."""
    command = {
        0: "seq 3000",
        1: "touch /tmp/data/begun; test -d /tmp/data/_out && sleep 30; echo over",
        2: "ls /tmp/data /tmp/data/_out",
    }
    turn = turn_of(body)
    return Answer(calls=(("sandbox_exec", {"command": command[turn]}),)) if turn in command else say("it went on")


def deleted(world: Scene, pod: str) -> None:
    world.stage.kubectl("delete", "pod", pod, "-n", world.stage.names.sandboxes, "--wait=false")


def evicted(world: Scene, pod: str) -> None:
    where = f"/api/v1/namespaces/{world.stage.names.sandboxes}/pods/{pod}/eviction"
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    world.stage.kubectl("create", "--raw", where, "-f", "-", stdin=json.dumps(body))


def out_of_memory(world: Scene, pod: str) -> None:
    inside(world, pod, "touch /tmp/data/eat")


def driven_off(world: Scene, pod: str) -> None:
    node = world.stage.get("pod", pod, namespace=world.stage.names.sandboxes)["spec"]["nodeName"]
    world.stage.kubectl("taint", "node", node, "hummingbird-test=gone:NoExecute", "--overwrite")
    wait_for(lambda: gone(world, pod), 30, lambda: f"{pod} is not driven off")
    world.stage.kubectl("taint", "node", node, "hummingbird-test=gone:NoExecute-")


def gone(world: Scene, pod: str) -> bool:
    found = [each["metadata"] for each in world.pods() if each["metadata"]["name"] == pod]
    return not found or "deletionTimestamp" in found[0]


def inside(world: Scene, pod: str, command: str) -> str:
    where = ("exec", pod, "-n", world.stage.names.sandboxes, "--", "sh", "-c", command)
    return world.stage.kubectl(*where, check=False)


CAUSES: dict[str, Callable[[Scene, str], None]] = {
    "Deleted": deleted,
    "Evicted": evicted,
    "OOMKilled": out_of_memory,
    "NodeLost": driven_off,
}


ALONE = [pytest.mark.alone]
"""It takes every pod off the node."""


@pytest.mark.parametrize(
    ("cause", "lose"),
    [pytest.param(cause, lose, marks=ALONE if cause == "NodeLost" else [], id=cause) for cause, lose in CAUSES.items()],
)
def test_the_run_goes_on_in_another_sandbox_and_everybody_is_told_why(
    world: Scene, lose: Callable[[Scene, str], None], cause: str
) -> None:
    number = list(CAUSES).index(cause)
    world.script = writer
    world.pool_ready()
    run = Run.start(world, f"lost-{number}", MERGE_REQUESTS[number])
    world.until(run.name, "SandboxReady")
    (pod,) = run.pods()
    name = str(pod["metadata"]["name"])
    wait_for(lambda: "yes" in inside(world, name, "test -e /tmp/data/begun && echo yes"), 30, lambda: world.log())
    lose(world, name)
    assert world.finished(run.name)["reason"] == "Completed"
    status = world.status(run.name)
    assert world.conditions(run.name)["SandboxReady"]["reason"] == "Replaced"
    assert f"({cause})" in status["sandbox"]["lost"]
    assert status["sandbox"]["name"] != name
    assert [turn for _, turn in run.calls()] == [0, 1, 2, 3], "no answer was bought twice"
    told = json.dumps(world.gemini.calls[-1].body["contents"])
    assert f"The sandbox was lost ({cause})" in told
    assert "Gone are these files: /tmp/data/_out/" in told
    assert len(world.notes(run.iid)) == 1
    events = world.stage.kubectl("describe", "agentrun", run.name, "-n", world.stage.names.runs)
    assert "SandboxLost" in events
    wait_for(lambda: not run.pods(), 30, lambda: f"left: {run.pods()}")
