"""Sandboxes that are lost: on a node that never lets them go, while they are waited for, and what a 404 may mean."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from hummingbird_operator.errors import Conflict, HummingbirdError, NotFound, SandboxLost, Unavailable
from hummingbird_operator.kube.client import PODS, Resource
from hummingbird_operator.sandboxpools import choose
from hummingbird_operator.sandboxpools.claims import Member
from hummingbird_operator.sandboxpools.members import STUCK_SECONDS
from tests.unit.sandboxpools.world import NAMESPACE, World, pool_body, status

RUN, OTHER = "11111111-aaaa-4444-8888-000000000001", "22222222-bbbb-4444-8888-000000000002"
TEMPLATE = pool_body()["spec"]["pod"]["template"]
UNPOOLED: dict[str, Any] = {"pool": "", "template": TEMPLATE}
POOLED: dict[str, Any] = {"pool": "default"}


async def claim(world: World, run: str = RUN, **options: Any) -> Member | None:
    """A claim beside a kubelet that starts what can be started, after a while."""
    options = POOLED | options
    task = asyncio.ensure_future(world.claims.claim(run, session="s", active_seconds=60, **options))
    for _ in range(30):
        await asyncio.sleep(0)
    while not task.done():
        for pod in world.pods():
            if pod.live and not pod.ready:
                world.set_status(pod.name, status())
        world.claims.notify()
        await asyncio.sleep(0)
    return await task


async def held(world: World, run: str = RUN, **options: Any) -> Member:
    member = await claim(world, run, **options)
    assert member is not None
    return member


async def dies(world: World, member: Member) -> None:
    """The member's node: the control plane deletes the pod, and no kubelet ever ends it."""
    why = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
    world.set_status(member.name, status(conditions=[{"type": "Ready", "status": "False"}, why]))
    await world.kube.delete(PODS, NAMESPACE, member.name)


def cluster(**spec: Any) -> World:
    """Pods that are deleted stay until a kubelet says that they ended."""
    world = World()
    world.kube.graceful = True
    world.pool(replicas=0, **spec)
    return world


@pytest.mark.parametrize("wanted", [POOLED, UNPOOLED], ids=["of a pool", "without a pool"])
async def test_a_cold_started_sandbox_on_a_dead_node_is_replaced_under_a_second_name(wanted: dict[str, Any]) -> None:
    """Its pod stays Terminating for as long as the node is dead, and so its name is taken."""
    world = cluster()
    first = await held(world, **wanted)
    await dies(world, first)
    lost = await world.claims.lost_of(RUN, first.name, first.uid)
    assert lost is not None
    assert lost.cause == "NodeLost"
    await world.claims.release(RUN)
    second = await held(world, replacement=True, **wanted)
    assert (second.name, second.cold, second.backend) == (f"{first.name}-2", True, first.backend)
    assert await held(world, replacement=True, **wanted) == second
    assert await held(world.another(), replacement=True, **wanted) == second
    assert await world.another().claims.find(RUN) == second
    await world.claims.release(RUN)
    assert not [pod for pod in world.pods() if pod.live]


async def test_two_processes_that_replace_at_once_make_one_sandbox() -> None:
    world = cluster()
    await dies(world, await held(world))
    both = await asyncio.gather(held(world, replacement=True), held(world.another(), replacement=True))
    assert len({member.uid for member in both}) == 1
    assert len([pod for pod in world.pods() if pod.live]) == 1


@pytest.mark.parametrize("wanted", [POOLED, UNPOOLED], ids=["of a pool", "without a pool"])
async def test_a_run_that_waits_for_its_own_old_pod_to_go_is_told_so(wanted: dict[str, Any]) -> None:
    """It was told that the pool had no room, while there was room for four."""
    world = cluster()
    first = await held(world, **wanted)
    await dies(world, first)
    with pytest.raises(Unavailable, match=f"{first.name}, which this run had before, is still being deleted") as waits:
        await claim(world, **wanted)
    assert waits.value.retry_after
    second = await held(world, replacement=True, **wanted)
    await dies(world, second)
    world.later(3600)
    with pytest.raises(Unavailable, match=f"{second.name}, .* still being deleted"):
        await claim(world, replacement=True, **wanted)


async def test_a_run_whose_old_pod_has_the_pools_last_place_is_told_so_and_gets_it_when_the_pod_is_stuck() -> None:
    world = cluster(maxSandboxes=1)
    first = await held(world)
    await dies(world, first)
    with pytest.raises(Unavailable, match=f"{first.name}, .* still being deleted and has its place"):
        await claim(world, replacement=True)
    assert await claim(world, OTHER) is None, "no pod of its own is in its way"
    world.later(STUCK_SECONDS + 1)
    assert (await held(world, replacement=True)).name == f"{first.name}-2"
    assert await claim(world, OTHER) is None


async def test_a_member_that_is_stuck_on_a_dead_node_takes_no_place_from_other_runs() -> None:
    """It did for ever, while the pool itself made up for it after two minutes."""
    world = cluster(maxSandboxes=1)
    await dies(world, await held(world))

    async def room() -> int:
        snapshot = await world.claims.reader.snapshot("default")
        return choose.room(snapshot, world.claims.unseen(snapshot), now=world.now)

    assert await room() == 0
    assert await claim(world, OTHER) is None
    world.later(STUCK_SECONDS + 1)
    assert await room() == 1
    await held(world, OTHER)
    assert await room() == 0


# --- a pod that vanishes while it is waited for ---


async def starting(world: World) -> tuple[asyncio.Task[Member | None], str]:
    task = asyncio.create_task(world.claims.claim(RUN, session="s", pool="default", active_seconds=60))
    for _ in range(30):
        await asyncio.sleep(0)
    (pod,) = world.pods()
    return task, pod.name


async def test_a_pod_that_vanishes_while_it_is_waited_for_is_a_lost_sandbox_and_no_missing_pool() -> None:
    """A pod that was not scheduled yet goes without grace; the run ended with "there is no SandboxPool"."""
    world = World()
    world.pool(replicas=0)
    task, name = await starting(world)
    await world.kube.delete(PODS, NAMESPACE, name)
    world.claims.notify()
    with pytest.raises(SandboxLost, match=f"{name} was deleted while it was being started") as lost:
        await task
    assert lost.value.cause == "Deleted"


async def test_a_pod_that_got_the_name_of_the_one_that_is_waited_for_is_not_deleted_for_it() -> None:
    world = World()
    world.pool(replicas=0)
    task, name = await starting(world)
    await world.kube.delete(PODS, NAMESPACE, name)
    world.kube.put(PODS, NAMESPACE, {"metadata": {"name": name}, "status": status()})
    world.claims.notify()
    with pytest.raises(SandboxLost, match="another one has its name"):
        await task
    assert [pod.name for pod in world.pods()] == [name]


# --- whose 404 it is ---

Call = tuple[str, str]
Scene = Callable[[World], Awaitable[dict[str, Any]]]


async def warm(world: World) -> dict[str, Any]:
    world.pool()
    await world.fill()
    return POOLED


async def cold(world: World) -> dict[str, Any]:
    world.pool(replicas=0)
    return POOLED


async def without_a_pool(world: World) -> dict[str, Any]:
    return UNPOOLED


async def begun_before(world: World) -> dict[str, Any]:
    world.pool(replicas=0)
    task, _ = await starting(world)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return POOLED


async def ended(world: World) -> dict[str, Any]:
    world.pool(replicas=0)
    world.set_status((await held(world)).name, {"phase": "Failed"})
    return POOLED | {"replacement": True}


async def still_going_away(world: World) -> dict[str, Any]:
    world.kube.graceful = True
    world.pool(replicas=0)
    await dies(world, await held(world))
    return POOLED


async def without_an_answer(world: World) -> dict[str, Any]:
    await warm(world)
    real = world.kube.patch

    async def cut(*args: Any, **options: Any) -> Any:
        raise Unavailable("the API server", "connection reset")

    world.kube.patch = cut  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        await claim(world)
    world.kube.patch = real  # type: ignore[method-assign]
    return POOLED


async def contended(world: World) -> dict[str, Any]:
    await warm(world)
    real = world.kube.patch

    async def beaten(*args: Any, **options: Any) -> Any:
        world.kube.patch = real  # type: ignore[method-assign]
        world.set_status(args[2], status(podIP="10.0.0.9"))
        return await real(*args, **options)

    world.kube.patch = beaten  # type: ignore[method-assign]
    return POOLED


SCENES: list[Scene] = [
    warm,
    cold,
    without_a_pool,
    begun_before,
    ended,
    still_going_away,
    without_an_answer,
    contended,
]


async def refused(scene: Scene, nth: int) -> tuple[Call | None, BaseException | Member | None]:
    """The scene's claim, whose nth call is answered 404: which call that was, and what came of the claim."""
    world = World()
    wanted = await scene(world)
    calls: list[Call] = []

    def fail(verb: str, resource: Resource, name: str) -> Exception | None:
        calls.append((verb, resource.plural))
        return NotFound(f"{resource.plural} {name} not found") if len(calls) == nth + 1 else None

    world.kube.fail = fail
    try:
        result: BaseException | Member | None = await claim(world, **wanted)
    except HummingbirdError as error:
        result = error
    return (calls[nth] if len(calls) > nth else None), result


async def test_a_404_leaves_a_claim_as_not_found_only_where_it_is_the_pools() -> None:
    """The run took any for a missing pool, and ended for good."""
    seen: set[Call] = set()
    for scene in SCENES:
        for nth in range(100):
            call, result = await refused(scene, nth)
            if call is None:
                assert nth >= 2, scene.__name__
                break
            seen.add(call)
            where = f"{scene.__name__}, call {nth}: {call}: {result!r}"
            assert isinstance(result, NotFound) == (call == ("get", "sandboxpools")), where
            assert not isinstance(result, Conflict), where
            if not isinstance(result, NotFound):
                assert isinstance(result, Member | Unavailable | SandboxLost), where
    assert seen == {
        ("get", "sandboxpools"),
        ("list", "pods"),
        ("list", "nodes"),
        ("get", "networkpolicies"),
        ("create", "networkpolicies"),
        ("create", "pods"),
        ("get", "pods"),
        ("patch", "pods"),
        ("delete", "pods"),
    }
