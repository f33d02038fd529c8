"""What broke in other pool controllers (docs/faults.md) and no other test of ours forces."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import kopf
import pytest
import yaml

from hummingbird_operator.api import labels
from hummingbird_operator.errors import Conflict, Unavailable
from hummingbird_operator.kube.client import PODS, SANDBOX_POOLS, Object, Resource
from hummingbird_operator.sandboxpools import handlers, objects
from hummingbird_operator.sandboxpools.handlers import Wakes, held_open, keep_pool, let_go
from hummingbird_operator.sandboxpools.members import read
from tests.unit.sandboxpools.test_handlers import Script, Stop
from tests.unit.sandboxpools.world import NAMESPACE, START, World, member, pool, pool_body, status

ROOT = Path(__file__).parents[3]


async def test_claims_of_one_process_do_not_collide_although_their_reading_is_stale() -> None:
    """sandbox-pools.md §6 no. 6: without a reservation 88 % of first tries failed."""
    world = World(seed=7)
    world.pool(replicas=20, maxSandboxes=20)
    await world.fill()
    world.kube.lag = 15
    for start in range(0, 20, 5):
        runs = [f"{number:08d}-run" for number in range(start, start + 5)]
        claims = (world.claims.claim(run, session=run, pool="default", active_seconds=60) for run in runs)
        assert all(await asyncio.gather(*claims))
    holders = [pod.run for pod in world.pods(labels.ROLE_ACTIVE)]
    assert len(set(holders)) == len(holders) == 20
    conflicts = world.claims.metrics.conflicts.labels("default")._value.get()
    assert conflicts <= 1, "at most 0.05 a claim"


async def test_a_pod_of_the_runs_name_that_is_somebody_elses_is_not_taken_and_not_touched() -> None:
    """sandbox-pools.md §6 no. 8: AlreadyExists means "mine" only where the uid says so."""
    world = World()
    world.pool(replicas=0)
    name = objects.cold_name("default", "11111111-aaaa")
    foreign: Object = {"metadata": {"name": name, "labels": {labels.RUN: "another"}}, "status": status()}
    world.kube.put(PODS, NAMESPACE, foreign)
    with pytest.raises(Unavailable, match=f"{name}, which is not this run's"):
        await world.claims.claim("11111111-aaaa", session="s", pool="default", active_seconds=60)
    await world.claims.release("11111111-aaaa")
    assert [pod.name for pod in world.pods()] == [name]


def test_a_pool_knows_its_members_after_its_api_got_another_version() -> None:
    """sandbox-pools.md §6 no. 14."""
    body = objects.standby(pool())
    body["metadata"] |= {"name": "m", "uid": "u", "resourceVersion": "1"}
    body["metadata"]["ownerReferences"][0]["apiVersion"] = "hummingbird-project.io/v1"
    assert read(body).owner == pool().metadata.uid
    body["metadata"]["ownerReferences"][0]["kind"] = "ReplicaSet"
    assert read(body).owner == ""


async def test_a_release_deletes_what_this_run_holds_and_nothing_else() -> None:
    """sandbox-pools.md §6 no. 15: a broad label took along another run's."""
    world = World()
    world.pool()
    await world.fill()
    for run in ("mine", "theirs"):
        await world.claims.claim(run, session="the same", pool="default", active_seconds=60)
    await world.claims.release("mine")
    assert [pod.run for pod in world.pods(labels.ROLE_ACTIVE)] == ["theirs"]


async def test_a_status_that_the_server_drops_makes_no_member_too_many() -> None:
    """sandbox-pools.md §6 no. 31: 2,200 pods a minute, because a decision hung on a field that was pruned."""
    world = World()
    world.pool()

    def pruned(verb: str, resource: Resource, name: str) -> Exception | None:
        if (verb, resource) == ("merge", SANDBOX_POOLS):
            tries.append(world.clock())
            return Conflict("nothing of it was kept")
        return None

    tries: list[float] = []
    world.kube.fail = pruned
    for _ in range(100):
        await world.reconciler.reconcile("default")
        world.start_all()
        world.later(0.05)
    assert len(world.pods()) == 2
    assert len(tries) <= 6, "once a second at most"
    assert world.pool_status() == {}


def test_a_server_whose_clock_is_ahead_shortens_no_deadline() -> None:
    """sandbox-pools.md §6 no. 47: now() against the server's timestamps."""

    def deadline(ahead: float) -> int:
        later = START + timedelta(seconds=ahead)
        pod = member(created=later, started=later)
        patch = objects.claim_patch(pod, run_uid="r", now=START, active_seconds=600, linger_seconds=0)
        return next(int(op["value"]) for op in patch if op["path"] == "/spec/activeDeadlineSeconds")

    assert deadline(ahead=3600) == deadline(ahead=0) >= 600


async def test_the_one_back_off_grows_and_is_over_with_the_first_success() -> None:
    """sandbox-pools.md §6 no. 48, kopf.md §2 no. 5: and it is never shorter than the server asks for, within reason."""
    waits: list[float] = []
    wakes, stop = Wakes(), Stop()

    async def rest(seconds: float) -> None:
        waits.append(seconds)

    away, busy = Unavailable("the API server", "away"), Unavailable("the API server", "busy", retry_after=40)
    mad = Unavailable("the API server", "come back tomorrow", retry_after=86_400)
    script = Script(stop, away, away, away, 0.01, away, busy, mad, None)
    keeping = asyncio.create_task(
        keep_pool(script, wakes, "default", stop, rest=rest)  # type: ignore[arg-type]
    )
    while not keeping.done():
        wakes.wake("default")  # a storm of events, which must not shorten them
        await asyncio.sleep(0)
    assert waits == [1, 2, 4, 1, 40, 60]


async def test_pool_and_namespace_are_plain_labels_of_the_metrics() -> None:
    """sandbox-pools.md §6 no. 51: whoever scales by them must be able to select."""
    world = World()
    world.pool()
    await world.fill()
    gauge = next(iter(world.claims.metrics.members.collect()))
    found = [sample.labels for sample in gauge.samples]
    assert {"namespace": NAMESPACE, "pool": "default", "state": "standby"} in found


def test_the_schema_caps_what_a_pool_may_ask_for() -> None:
    """sandbox-pools.md §6 no. 37."""
    crd = yaml.safe_load((ROOT / "crds" / "sandboxpools.yaml").read_text())
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    linger = spec["linger"]["properties"]
    for field in (spec["replicas"], spec["maxSandboxes"], spec["activeDeadlineSeconds"], *linger.values()):
        assert field["maximum"] >= field["minimum"] >= 0


async def test_a_pool_that_cannot_be_read_disturbs_no_other() -> None:
    """kopf.md §2 no. 16: an object of an older schema, and a handler that raises for ever."""
    world = World()
    world.pool()
    broken = pool_body("broken")
    broken["spec"] = {"replicas": "three"}
    world.kube.put(SANDBOX_POOLS, NAMESPACE, broken)
    stop, wakes = Stop(), Wakes()
    keepers = [asyncio.create_task(keep_pool(world.reconciler, wakes, name, stop)) for name in ("broken", "default")]
    async with asyncio.timeout(10):
        while len(world.pods()) < 2:  # noqa: ASYNC110 - nothing tells when a pod is made
            await asyncio.sleep(0.01)
    assert not any(keeper.done() for keeper in keepers)
    stop.set()
    await asyncio.wait_for(asyncio.gather(*keepers), 10)


# --- the finalizer ---


class Live(dict[str, Any]):
    """kopf's view of a pool: it changes when the watch shows something."""


def live(*finalizers: str) -> Live:
    return Live(metadata=pool_body()["metadata"] | {"finalizers": list(finalizers)})


async def test_a_pool_makes_nothing_before_its_finalizer_is_stored() -> None:
    """kopf.md §0 no. 4: the daemon starts first, and a deletion in between would pass it by."""
    world, body, stop = World(), live(), Stop()
    waiting = asyncio.create_task(held_open(world.kube, body, stop))
    await asyncio.sleep(0.2)
    assert not waiting.done()
    assert not world.kube.calls
    body["metadata"]["finalizers"].append(labels.FINALIZER)
    await asyncio.wait_for(waiting, 5)
    assert not world.kube.calls


async def test_a_finalizer_that_kopf_could_not_store_is_stored_by_us() -> None:
    """kopf looks at the object again only after its next event, which the pool would have had to cause."""
    world, stop = World(), Stop()
    world.pool()
    refused = [Conflict("somebody else wrote"), Unavailable("the API server", "away")]
    world.kube.fail = lambda verb, resource, name: refused.pop() if refused else None
    await asyncio.wait_for(held_open(world.kube, live(), stop, seconds=0.01), 5)
    (stored,) = world.kube.all(SANDBOX_POOLS)
    assert stored["metadata"]["finalizers"] == [labels.FINALIZER]
    await asyncio.wait_for(held_open(world.kube, live(), stop, seconds=0.01), 5)
    assert world.kube.writes == 1


async def test_a_pool_that_is_being_deleted_gets_no_finalizer_and_a_stop_is_obeyed() -> None:
    world, stop = World(), Stop()
    body = pool_body()
    body["metadata"] |= {"deletionTimestamp": "2030-01-01T00:00:00Z", "finalizers": ["of-others"]}
    world.kube.put(SANDBOX_POOLS, NAMESPACE, body)
    await asyncio.wait_for(held_open(world.kube, live(), stop, seconds=0.01), 5)
    assert world.kube.writes == 0
    stop.set()
    await asyncio.wait_for(held_open(world.kube, live(), stop), 5)


class Letting:
    """A reconciler that lets a pool go as it is told."""

    def __init__(self, *results: Exception | None) -> None:
        self.results, self.tries = list(results), 0

    async def let_go(self, name: str, uid: str) -> None:
        self.tries += 1
        result = self.results[0] if len(self.results) == 1 else self.results.pop(0)
        if result is not None:
            raise result


async def test_a_pool_is_let_go_although_a_try_fails_and_not_held_for_ever_by_a_bug() -> None:
    """kopf.md §2 no. 17: a finalizer must never outlive whoever takes it off."""
    waits: list[float] = []

    async def rest(seconds: float) -> None:
        waits.append(seconds)

    letting = Letting(Unavailable("the API server", "away", retry_after=7), ValueError("a bug"), None)
    await let_go(letting, "default", "u", rest=rest)  # type: ignore[arg-type]
    assert (letting.tries, waits) == (3, [7, 1])
    letting = Letting(ValueError("a bug"))
    await let_go(letting, "default", "u", rest=rest)  # type: ignore[arg-type]
    assert letting.tries == handlers.SURPRISES


async def test_a_process_that_leaves_leaves_a_pool_that_cannot_be_let_go_to_the_next() -> None:
    class Leaving(Stop):
        reason = kopf.DaemonStoppingReason.OPERATOR_EXITING | kopf.DaemonStoppingReason.RESOURCE_DELETED

    letting = Letting(Unavailable("the API server", "away"))
    await let_go(letting, "default", "u", Leaving())  # type: ignore[arg-type]
    assert letting.tries == 0
