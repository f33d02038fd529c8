"""Members that no pool looks after end too."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from hummingbird_operator.api import labels
from hummingbird_operator.kube.client import AGENT_RUNS, PODS, SANDBOX_POOLS
from hummingbird_operator.sandboxpools.strays import Strays, reason
from tests.unit.sandboxpools.world import NAMESPACE, START, World, member, pool_body

ACTIVE: dict[str, Any] = {"role": labels.ROLE_ACTIVE, "run": "r", "pool": ""}


@pytest.mark.parametrize(
    ("changes", "over", "why"),
    [
        (ACTIVE, (), ""),
        (ACTIVE, ("r",), "orphaned"),
        (ACTIVE | {"created": START - timedelta(seconds=9)}, ("r",), ""),
        (ACTIVE | {"reap_by": START - timedelta(seconds=1)}, (), "deadline"),
        (ACTIVE | {"pool": "lives", "reap_by": START - timedelta(seconds=1)}, ("r",), ""),
        (ACTIVE | {"deleting_since": START}, ("r",), ""),
        ({"role": labels.ROLE_LINGERING, "pool": "gone"}, (), "poolDeleted"),
        ({"role": labels.ROLE_LINGERING, "pool": "lives"}, (), ""),
        ({"role": labels.ROLE_STANDBY, "pool": "gone"}, (), ""),
        ({"role": labels.ROLE_STANDBY, "pool": "lives", "owner": "uid-of-a-dead-one"}, (), "poolDeleted"),
        ({"role": labels.ROLE_STANDBY, "pool": "lives", "owner": ""}, (), ""),
    ],
)
def test_what_makes_a_stray(changes: dict[str, Any], over: tuple[str, ...], why: str) -> None:
    """sandbox-pools.md §6 no. 13, 36, 39, 40: every lock needs an expiry and somebody to sweep it."""
    owners = {"uid-of-default"}
    assert reason(member(**changes), pools={"lives"}, owners=owners, over=over, now=START) == why


async def test_a_sandbox_without_a_pool_ends_with_its_run_though_the_run_could_not_release_it() -> None:
    world = World()
    strays = Strays(world.kube, world.claims, run_namespaces=["runs"], now=lambda: world.now)
    world.kube.put(AGENT_RUNS, "runs", {"metadata": {"name": "a", "uid": "live"}})
    template = pool_body()["spec"]["pod"]["template"]
    tasks = [
        asyncio.create_task(world.claims.claim(run, session="s", pool="", active_seconds=60, template=template))
        for run in ("live", "gone")
    ]
    for _ in range(30):
        await asyncio.sleep(0)
    world.start_all()
    await asyncio.gather(*tasks)
    world.later(40)
    assert await strays.sweep() == 1
    assert [pod.run for pod in world.pods()] == ["live"]
    world.later(2000)
    assert await strays.sweep() == 1
    assert world.pods() == []


async def test_members_of_a_pool_are_its_own_daemons_business() -> None:
    world = World()
    world.pool()
    await world.fill()
    await world.claims.claim("gone", session="s", pool="default", active_seconds=60)
    world.later(4000)
    strays = Strays(world.kube, world.claims, run_namespaces=["runs"], now=lambda: world.now)
    assert await strays.sweep() == 0
    await world.kube.delete(SANDBOX_POOLS, NAMESPACE, "default")
    for pod in world.pods(labels.ROLE_STANDBY):  # the collector of garbage
        await world.kube.delete(PODS, NAMESPACE, pod.name)
    assert await strays.sweep() == 1


async def test_members_that_a_dead_pool_owned_go_although_no_collector_of_garbage_comes() -> None:
    """sandbox-pools.md §6 no. 13; a pool of the same name has taken its place, and counts only its own."""
    world = World()
    world.pool()
    await world.fill()
    old = {pod.uid for pod in world.pods()}
    body = pool_body()
    body["metadata"]["uid"] = "uid-of-the-next"
    await world.kube.delete(SANDBOX_POOLS, NAMESPACE, "default")
    world.kube.put(SANDBOX_POOLS, NAMESPACE, body)
    await world.fill()
    world.later(40)
    strays = Strays(world.kube, world.claims, now=lambda: world.now)
    assert await strays.sweep() == len(old) == 2
    assert len(world.pods()) == 2
    assert not old & {pod.uid for pod in world.pods()}


async def test_a_process_that_does_not_lead_sweeps_nothing() -> None:
    world = World()
    strays = Strays(world.kube, world.claims, leads=lambda: False)
    assert await strays.sweep() == 0
    assert not world.kube.calls
