"""Each of the four services away for a while, with runs in every phase: nothing is lost and nothing is bought twice.

Behind a door each, which stalls (takes connections, answers nothing) and then refuses. `--outage-seconds=60` makes a
minute of each kind, for each service. The operator neither dies nor stands still for runs that can go on.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
import yaml

from cluster import Cluster
from demo.stage import Operator, wait_for
from hummingbird_ai.testing.replies import Answer, Reply, Stall, say
from tests.e2e.scene import MERGE_REQUESTS, Scene, scene
from tests.e2e.survival import merge_request_of, turn_of
from tests.standins.door import Door
from tests.standins.ministack import ministack

SERVICES = ("the API server", "GitLab", "the model", "the store")
PHASES = ("calling", "commanding", "delivering", "new")
FREE: dict[str, dict[str, Any]] = {
    "GitLab": {"workflow": "plain", "target": None},
    "the model": {"workflow": "unknown"},
    "the store": {"workflow": "unknown"},
}
"""Runs that can end without that service; without the API server, nothing can."""
LONG = 30.0
"""From so many seconds on, there is time for both kinds of outage, one after the other."""
S3 = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}


PATIENCE = 60.0
"""An outage goes on for so long at most, until the run that does not need the service has ended."""

Record = Callable[[str, object], None]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kind" in metafunc.fixturenames:
        long = metafunc.config.getoption("--outage-seconds", 15.0) >= LONG
        metafunc.parametrize("kind", ["stalled", "shut"] if long else ["stalled, then shut"])


@dataclass
class World:
    """A scene whose services stand behind doors, and the one operator that lives through it all."""

    scene: Scene
    doors: dict[str, Door]
    operator: Operator
    runs: dict[int, str] = field(default_factory=dict)
    """What the run of a merge request is at when the outage begins."""
    stalled: set[int] = field(default_factory=set)
    """Merge requests whose first model call was made to wait already."""

    def answer(self, body: dict[str, Any], _: int) -> Reply:
        """A command, and the answer; each phase in its own way."""
        iid = merge_request_of(body)
        phase = self.runs.get(iid, "free")
        if turn_of(body) == 0:
            seconds = f"6.{iid}" if phase == "commanding" else "0.1"
            command = Answer(calls=(("sandbox_exec", {"command": f"echo done >>/tmp/data/log; sleep {seconds}"}),))
            if phase == "calling" and iid not in self.stalled:
                self.stalled.add(iid)
                return Stall(command)
            return command
        return say(f"the answer of {iid}")

    def turns(self, iid: int) -> list[int]:
        """The turns that the model was asked for, in order."""
        bodies = [call.body for call in list(self.scene.gemini.calls)]
        return [turn_of(body) for body in bodies if merge_request_of(body) == iid]


@pytest.fixture(scope="module")
def world(shared_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("outages")
    pool = {"replicas": 4, "maxSandboxes": 10, "linger": {"seconds": 0, "max": 0}}
    with ExitStack() as stack:
        endpoint = stack.enter_context(ministack(folder))
        made = stack.enter_context(scene(shared_cluster, folder, f"outages-{secrets.token_hex(2)}", pool=pool))
        make_bucket(endpoint)
        kubeconfig = made.stage._service_account()
        config = yaml.safe_load(kubeconfig.read_text())
        addresses = (config["clusters"][0]["cluster"]["server"], made.gitlab.url, made.gemini.url, endpoint)
        doors = {
            name: stack.enter_context(Door(place(address))) for name, address in zip(SERVICES, addresses, strict=True)
        }
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{doors['the API server'].port}"
        kubeconfig.write_text(yaml.safe_dump(config))
        made.stage.environ |= S3
        made.configure(
            gitlab={"url": doors["GitLab"].url},
            models={"endpoint": doors["the model"].url},
            sessions={"store": "s3://hummingbird/agent", "s3_endpoint": doors["the store"].url},
            limits={"retry_seconds": 600, "max_concurrent_runs": 10},
        )
        operator = stack.enter_context(made.stage.operator())
        found = World(made, doors, operator)
        made.script = found.answer
        made.pool_ready()
        yield found
        for door in doors.values():
            door.open()


def place(address: str) -> tuple[str, int]:
    parts = urlsplit(address)
    return str(parts.hostname), int(parts.port or 0)


def make_bucket(endpoint: str) -> None:
    made = boto3.client(
        "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test"
    )
    made.create_bucket(Bucket="hummingbird")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("service", SERVICES)
def test_while_it_is_away_nothing_is_lost_and_nothing_is_bought_twice(
    world: World,
    service: str,
    kind: str,
    request: pytest.FixtureRequest,
    record_property: Record,
) -> None:
    seconds = float(request.config.getoption("--outage-seconds", 15.0))
    first = MERGE_REQUESTS[0] + len(world.runs)
    runs = {f"{phase}-{first}": first + number for number, phase in enumerate(PHASES)}
    begin(world, runs)
    free = f"free-{first}" if service in FREE else ""
    freed = away(world, service, kind, seconds, first=first, free=free)
    back = time.monotonic()
    if free:
        assert freed, f"{free} needs nothing of {service}, and stood still: {world.scene.log()}"
        tell(record_property, f"{service} {kind}: a run that does not need it ended after", freed)
    for name, iid in runs.items():
        world.scene.finished(name, 120)
        tell(record_property, f"{service} {kind}: {name.split('-')[0]} ended after its return", time.monotonic() - back)
        whole(world, service, name, iid)
    assert held(world) == []
    assert world.operator.process.poll() is None, world.operator.tail()


def away(world: World, service: str, kind: str, seconds: float, *, first: int, free: str) -> float:
    """The outage, with two runs that are made in it; after how many seconds the one that is free of it ended."""
    door, freed, began = world.doors[service], 0.0, time.monotonic()
    try:
        door.stall() if kind.startswith("stalled") else door.shut()
        start(world, f"new-{first}", first + PHASES.index("new"))
        if free:
            world.scene.run(free, **FREE[service])
        while (passed := time.monotonic() - began) < seconds or (free and not freed and passed < seconds + PATIENCE):
            assert world.operator.probe("healthz") == 200, world.operator.tail()
            if free and not freed and ended(world, free):
                freed = passed
            if passed > seconds / 3:
                world.scene.gemini.release()
            if passed > seconds / 2 and kind.endswith("then shut"):
                door.shut()
            time.sleep(0.2)  # the outage lasts as long as it lasts
    finally:
        door.open()
    return freed


def begin(world: World, runs: dict[str, int]) -> None:
    """Start a run for each phase but the last, and come back when each is in it."""
    for name, iid in runs.items():
        world.runs[iid] = name.split("-")[0]
    calling, commanding, delivering, _ = runs
    fault = world.scene.gitlab.fault("stall", method="PUT", path=f"/{runs[delivering]}/", seconds=4)
    for name in (calling, commanding, delivering):
        start(world, name, runs[name])
    wait_for(lambda: runs[calling] in world.stalled, 60, lambda: f"no model call: {world.scene.log()}")
    wait_for(lambda: sleeps(runs[commanding]), 60, lambda: f"no command: {world.scene.log()}")
    wait_for(lambda: fault.times == 0, 60, lambda: f"no delivery: {world.scene.log()}")


def start(world: World, name: str, iid: int) -> None:
    world.scene.run(name, workflow="plain", target={"gitlab": {"project": "group/app", "mergeRequest": iid}})


def sleeps(iid: int) -> bool:
    """The command of that run is at work: processes of pods are to be seen from their node."""
    return any(f"sleep\0006.{iid}\0".encode() in read(path) for path in Path("/proc").glob("[0-9]*/cmdline"))


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def ended(world: World, name: str) -> bool:
    return world.scene.conditions(name).get("Finished", {}).get("status") == "True"


def whole(world: World, service: str, name: str, iid: int) -> None:
    """One note with the answer; every response bought once, but for a call that was in flight to the model itself."""
    run = world.scene.stage.get("agentrun", name)
    reasons = {condition["type"]: condition["reason"] for condition in run["status"]["conditions"]}
    assert (reasons["Succeeded"], reasons["SessionSaved"]) == ("Completed", "Saved"), run["status"]
    (note,) = world.scene.notes(iid)
    assert note["body"].startswith(f"the answer of {iid}")
    assert '"state": "done"' in note["body"]
    turns = world.turns(iid)
    if service == "the model":
        assert turns == sorted(turns), f"a turn was bought again after its response was kept: {turns}"
    else:
        assert turns == [0, 1], f"{name} asked for the turns {turns}"


def held(world: World) -> list[str]:
    """Sandboxes that runs still have."""
    alive = [pod["metadata"] for pod in world.scene.pods() if "deletionTimestamp" not in pod["metadata"]]
    return [meta["name"] for meta in alive if "hummingbird-project.io/run" in meta["labels"]]


def tell(record: Record, what: str, seconds: float) -> None:
    record(what, round(seconds, 1))
    print(f"{what} {seconds:.1f} s")
