"""kopf, its finalizers and its watches on a real API server, with a door between the two that can be shut."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest

from cluster import Cluster
from demo.stage import ROOT, Operator, wait_for
from hummingbird_ai.testing.replies import Reply, say
from hummingbird_operator.api.labels import FINALIZER
from tests.e2e.scene import Scene, scene
from tests.standins.door import Door

AWAY_SECONDS = 3.0
"""Less than the renewal deadline of the Lease: who leads goes on leading."""


@pytest.fixture(scope="module")
def world(shared_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    pool = {"replicas": 1, "maxSandboxes": 2, "linger": {"seconds": 0, "max": 0}}
    with scene(shared_cluster, tmp_path_factory.mktemp("kopf"), "kopf", pool=pool) as found:
        found.script = answer
        yield found


@pytest.fixture(scope="module")
def door(world: Scene) -> Iterator[Door]:
    """Between the operator and the API server."""
    path = world.stage._service_account()
    found = re.search(r"server: https://([\d.]+):(\d+)", path.read_text())
    assert found
    with Door((found[1], int(found[2]))) as door:
        path.write_text(path.read_text().replace(found[0], f"server: https://127.0.0.1:{door.port}"))
        yield door


@pytest.fixture(scope="module")
def operator(world: Scene, door: Door) -> Iterator[Operator]:
    with world.stage.operator() as process:
        process.wait_until_leading()
        world.pool_ready()
        yield process


class MakePool(Protocol):
    """Applies a pool like the scene's own under another name."""

    def __call__(self, name: str, replicas: int = 0) -> None: ...


@pytest.fixture(scope="module")
def make_pool(world: Scene) -> MakePool:
    spec = world.stage.get("sandboxpool", "default", world.stage.names.sandboxes)["spec"]

    def make(name: str, replicas: int = 0) -> None:
        world.stage.apply(
            {
                "apiVersion": "hummingbird-project.io/v1alpha1",
                "kind": "SandboxPool",
                "metadata": {"name": name, "namespace": world.stage.names.sandboxes},
                "spec": {**spec, "replicas": replicas},
            }
        )

    return make


def answer(body: dict[str, Any], n: int) -> Reply:
    return say("nothing to be found")


def names(world: Scene, kind: str, namespace: str = "") -> list[str]:
    return [each["metadata"]["name"] for each in world.stage.get(kind, namespace=namespace)["items"]]


def pools(world: Scene) -> list[str]:
    return names(world, "sandboxpools", world.stage.names.sandboxes)


def finalizers(world: Scene, pool: str) -> list[str]:
    found: list[str] = world.stage.get("sandboxpool", pool, world.stage.names.sandboxes)["metadata"].get(
        "finalizers", []
    )
    return found


def delete_pools(world: Scene, *which: str, seconds: int = 20) -> str:
    where = ("-n", world.stage.names.sandboxes)
    return world.stage.kubectl("delete", "sandboxpool", *which, *where, f"--timeout={seconds}s")


OUTAGES: dict[str, Callable[[Door], None]] = {"refused": Door.shut, "silent": Door.stall, "reset": Door.cut}


@pytest.mark.parametrize("kind", OUTAGES)
def test_an_outage_of_the_api_server_costs_no_process_and_what_happened_meanwhile_is_seen(
    world: Scene, door: Door, operator: Operator, make_pool: MakePool, kind: str
) -> None:
    """Connections refused, taken and not answered, reset: kopf's watches and our own come back by themselves."""
    until_over = time.monotonic() + AWAY_SECONDS
    OUTAGES[kind](door)
    make_pool(f"made-{kind}")
    world.run(f"run-{kind}", workflow="plain", target=None)
    while time.monotonic() < until_over:
        if kind == "reset":
            door.cut()  # again and again, also while watches are being opened
        time.sleep(0.25)
    door.open()
    assert world.finished(f"run-{kind}")["reason"] == "Completed"
    pool = ("sandboxpool", f"made-{kind}", "-n", world.stage.names.sandboxes)
    world.stage.kubectl("wait", "--for=condition=Ready", *pool, "--timeout=40s")
    delete_pools(world, f"made-{kind}")
    assert operator.process.poll() is None, operator.tail()
    assert operator.probe("healthz") == 200


def test_a_pool_that_is_deleted_while_its_daemon_waits_is_gone_at_once(
    world: Scene, operator: Operator, make_pool: MakePool
) -> None:
    make_pool("brief", replicas=1)
    pool = ("sandboxpool", "brief", "-n", world.stage.names.sandboxes)
    world.stage.kubectl("wait", "--for=condition=Ready", *pool, "--timeout=40s")
    assert finalizers(world, "brief") == [FINALIZER]
    delete_pools(world, "brief", seconds=10)


def test_a_pool_that_is_deleted_as_soon_as_it_is_made_leaves_nothing(
    world: Scene, operator: Operator, make_pool: MakePool
) -> None:
    """The daemon starts before the finalizer is stored; the deletion comes before, between or after the two."""
    for number in range(3):
        make_pool(f"hasty-{number}", replicas=1)
        time.sleep(number * 0.1)
        delete_pools(world, f"hasty-{number}", seconds=10)

    def nothing_left() -> bool:
        selector = ",".join(f"hasty-{number}" for number in range(3))
        found = world.stage.get(
            "pods,networkpolicies",
            namespace=world.stage.names.sandboxes,
            selector=f"hummingbird-project.io/pool in ({selector})",
        )
        return not found["items"]

    wait_for(nothing_left, 40, lambda: f"members of a deleted pool are left: {world.pods()}")


def test_a_run_with_annotations_near_their_limit_is_served_and_gets_none_of_kopf_s(
    world: Scene, operator: Operator
) -> None:
    """A copy of the object in an annotation would exceed the 256 KiB that all of them may have together."""
    annotations = {"note": "x" * 200_000, "more": "y" * 50_000}
    world.stage.kubectl("create", "-f", "-", stdin=_run_text(world, "large", annotations, "ä" * 30_000))
    assert world.finished("large")["reason"] == "Completed"
    meta = world.stage.get("agentrun", "large")["metadata"]
    assert meta["annotations"] == annotations

    def free() -> bool:
        return "finalizers" not in world.stage.get("agentrun", "large")["metadata"]

    wait_for(free, 20, lambda: f"its finalizer stays\n{world.log()}")


def _run_text(world: Scene, name: str, annotations: dict[str, str], message: str) -> str:
    body = {
        "apiVersion": "hummingbird-project.io/v1alpha1",
        "kind": "AgentRun",
        "metadata": {"name": name, "namespace": world.stage.names.runs, "annotations": annotations},
        "spec": {"workflow": "plain", "message": message},
    }
    return json.dumps(body)


def test_removing_everything_while_the_operator_runs_leaves_no_finalizer(
    world: Scene, operator: Operator, make_pool: MakePool
) -> None:
    """The commands of docs/operations.md, up to the one that takes the operator away."""
    make_pool("another")
    script = operations("kubectl delete -n hummingbird agentruns --all").split("kubectl delete -k")[0]
    shell(world, script)
    assert names(world, "agentruns") == []
    assert pools(world) == []


def test_without_an_operator_the_documented_loop_takes_the_finalizers_off(
    world: Scene, operator: Operator, make_pool: MakePool
) -> None:
    make_pool("orphan")
    wait_for(lambda: finalizers(world, "orphan") == [FINALIZER], 20, lambda: "it never got its finalizer")
    operator.kill()
    world.run("orphan", workflow="plain", target=None)
    world.stage.kubectl(
        "patch", "agentrun", "orphan", "-n", world.stage.names.runs, "--type=merge", "-p",
        f'{{"metadata": {{"finalizers": ["{FINALIZER}"]}}}}',
    )  # fmt: skip
    for kind, namespace in (("agentruns", world.stage.names.runs), ("sandboxpools", world.stage.names.sandboxes)):
        world.stage.kubectl("delete", kind, "--all", "-n", namespace, "--wait=false")
    assert (names(world, "agentruns"), pools(world)) == (["orphan"], ["orphan"]), "their finalizers hold them"
    shell(world, operations("for kind in agentruns:hummingbird"))
    assert names(world, "agentruns") == []
    assert pools(world) == []


def operations(beginning: str) -> str:
    """The block of commands in docs/operations.md that begins so."""
    page = (ROOT / "docs" / "operations.md").read_text()
    blocks: list[str] = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    return next(block for block in blocks if block.startswith(beginning))


def shell(world: Scene, script: str) -> None:
    """Run commands of the documentation as people do, in this scene's namespaces."""
    stage = world.stage
    folder = stage.folder / "bin"
    folder.mkdir(exist_ok=True)
    kubectl = folder / "kubectl"
    kubectl.write_text(f'#!/bin/sh\nexec "{stage.cluster.kubectl}" --kubeconfig "{stage.cluster.kubeconfig}" "$@"\n')
    kubectl.chmod(0o700)
    script = script.replace("hummingbird-sandboxes", "SANDBOXES").replace("-n hummingbird ", f"-n {stage.names.runs} ")
    script = script.replace("agentruns:hummingbird ", f"agentruns:{stage.names.runs} ")
    script = script.replace("SANDBOXES", stage.names.sandboxes)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env={"PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(stage.folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
