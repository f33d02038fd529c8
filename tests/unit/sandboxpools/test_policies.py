"""No sandbox is made before its network is closed, whoever makes it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hummingbird_operator.api import labels
from hummingbird_operator.errors import HummingbirdError, Invalid, NotFound, Unavailable
from hummingbird_operator.kube.client import NETWORK_POLICIES, PODS, SANDBOX_POOLS, Object, QuotaExceeded, Resource
from hummingbird_operator.sandboxpools import objects
from hummingbird_operator.sandboxpools.strays import Strays
from tests.unit.sandboxpools.world import NAMESPACE, World, pool, pool_body

RUN, OTHER = "11111111-aaaa-4444-8888-000000000001", "22222222-bbbb-4444-8888-000000000002"
TEMPLATE = pool_body()["spec"]["pod"]["template"]
POOLS = [("default", "default-isolated"), ("", "hummingbird-sandboxes-isolated")]


async def claim(world: World, name: str, run: str = RUN) -> None:
    """A cold start, with a kubelet that starts what is there."""
    task = asyncio.create_task(
        world.claims.claim(run, session="s", pool=name, active_seconds=300, template=None if name else TEMPLATE)
    )
    for _ in range(30):
        await asyncio.sleep(0)
    world.start_all()
    assert await task is not None


def open_up(world: World, name: str, **metadata: Any) -> None:
    policy = next(body for body in world.kube.all(NETWORK_POLICIES) if body["metadata"]["name"] == name)
    opened = {**policy, "metadata": {**policy["metadata"], **metadata}, "spec": {**policy["spec"], "egress": [{}]}}
    world.kube.put(NETWORK_POLICIES, NAMESPACE, opened)


def policies(world: World) -> dict[str, Object]:
    return {body["metadata"]["name"]: body["spec"] for body in world.kube.all(NETWORK_POLICIES)}


def world_with_pools() -> World:
    world = World()
    world.pool(replicas=0)
    return world


REFUSALS = [
    (Invalid("create networkpolicies", "forbidden"), Invalid),
    (Unavailable("the API server", "away"), Unavailable),
    (QuotaExceeded("the API server", "exceeded quota"), Unavailable),
]


@pytest.mark.parametrize(("error", "raised"), REFUSALS, ids=lambda value: getattr(value, "__name__", ""))
@pytest.mark.parametrize(("name", "policy"), POOLS)
async def test_a_claim_makes_no_sandbox_while_its_policy_is_refused(
    name: str, policy: str, error: Exception, raised: type[HummingbirdError]
) -> None:
    world = world_with_pools()
    world.kube.fail = lambda verb, resource, _: error if (verb, resource) == ("create", NETWORK_POLICIES) else None
    with pytest.raises(raised, match=f"NetworkPolicy {policy}"):
        await claim(world, name)
    assert world.pods() == []
    world.kube.fail = lambda verb, resource, _: None
    await claim(world, name)
    assert list(policies(world)) == [policy]


@pytest.mark.parametrize(("name", "policy"), POOLS)
async def test_a_policy_that_was_opened_is_closed_before_the_next_cold_start(name: str, policy: str) -> None:
    world = world_with_pools()
    await claim(world, name)
    wanted = policies(world)[policy]
    open_up(world, policy)
    world.later(11)
    world.kube.events.clear()
    await claim(world, name, OTHER)
    assert policies(world)[policy] == wanted
    written = [plural for _, plural, _ in world.kube.events if plural in (PODS.plural, NETWORK_POLICIES.plural)]
    assert written[:2] == [NETWORK_POLICIES.plural, PODS.plural]


@pytest.mark.parametrize(("name", "policy"), POOLS)
async def test_an_open_policy_that_stands_already_is_not_taken_for_a_closed_one(name: str, policy: str) -> None:
    """A new process meets what somebody else made under the name."""
    world = world_with_pools()
    hole = {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{}]}
    world.kube.put(NETWORK_POLICIES, NAMESPACE, {"metadata": {"name": policy}, "spec": hole})
    await claim(world, name)
    assert policies(world)[policy] == objects.policy(NAMESPACE, name, None)["spec"]


@pytest.mark.parametrize(("name", "policy"), POOLS)
async def test_a_policy_that_cannot_be_held_closed_lets_nothing_be_made(name: str, policy: str) -> None:
    world = world_with_pools()
    await claim(world, name)
    open_up(world, policy)
    real = world.kube.patch

    async def undone(resource: Resource, *args: Any, **options: Any) -> Object:
        body = await real(resource, *args, **options)
        return {**body, "spec": {"egress": [{}]}} if resource == NETWORK_POLICIES else body

    world.kube.patch = undone  # type: ignore[method-assign]
    world.later(11)
    with pytest.raises(Unavailable, match=policy):
        await claim(world, name, OTHER)
    open_up(world, policy, deletionTimestamp="2030-01-01T00:00:00Z")
    with pytest.raises(Unavailable, match="being deleted"):
        await claim(world, name, OTHER)
    assert len(world.pods()) == 1


async def test_policies_are_looked_at_once_in_a_while_and_written_once() -> None:
    world = world_with_pools()
    for number in range(3):
        await claim(world, "", f"{number:08d}-run")
        await claim(world, "default", f"{number + 5:08d}-run")
    assert world.kube.calls["get", NETWORK_POLICIES.plural] == 2
    assert world.kube.calls["create", NETWORK_POLICIES.plural] == 2
    world.pool(replicas=0, network="Unmanaged", maxSandboxes=9)
    await claim(world, "default", "changed-run")
    assert list(policies(world)) == ["hummingbird-sandboxes-isolated"]


async def test_a_policy_of_a_pool_of_old_becomes_the_new_ones_and_does_not_go_with_it() -> None:
    world = world_with_pools()
    old = objects.policy(NAMESPACE, "default", {**objects.owner_of(pool()), "uid": "old"})
    world.kube.put(NETWORK_POLICIES, NAMESPACE, old)
    await claim(world, "default")
    assert world.kube.all(NETWORK_POLICIES)[0]["metadata"]["ownerReferences"] == [objects.owner_of(pool())]


async def test_the_sweep_closes_the_network_of_sandboxes_without_a_pool_again() -> None:
    world = World()
    await claim(world, "")
    wanted = policies(world)
    open_up(world, "hummingbird-sandboxes-isolated")
    world.later(60)
    strays = Strays(world.kube, world.claims, now=lambda: world.now)
    world.kube.fail = lambda verb, resource, _: Unavailable("x", "y") if resource == NETWORK_POLICIES else None
    await strays.sweep()
    world.kube.fail = lambda verb, resource, _: None
    await strays.sweep()
    assert policies(world) == wanted


async def test_a_pool_that_goes_leaves_its_policy_to_the_members_that_stay() -> None:
    """The collector of garbage took it with the pool, and the sandboxes of running runs were open."""
    world = World()
    world.pool()
    await world.fill()
    member = await world.claims.claim(RUN, session="s", pool="default", active_seconds=60)
    assert member is not None
    await world.reconciler.let_go("default", "uid-of-default")
    owners = world.kube.all(NETWORK_POLICIES)[0]["metadata"]["ownerReferences"]
    assert owners == [{"apiVersion": "v1", "kind": "Pod", "name": member.name, "uid": member.uid}]
    body = pool_body()
    body["metadata"] |= {"deletionTimestamp": "2030-01-01T00:00:00Z", "finalizers": [labels.FINALIZER]}
    world.kube.put(SANDBOX_POOLS, NAMESPACE, body)
    with pytest.raises(NotFound, match="being deleted"):
        await world.claims.claim(OTHER, session="s", pool="default", active_seconds=60)
    world.pool()  # another one of its name takes the policy over
    await world.reconciler.reconcile("default")
    assert world.kube.all(NETWORK_POLICIES)[0]["metadata"]["ownerReferences"] == [objects.owner_of(pool())]


async def test_a_policy_that_was_collected_before_the_pool_is_made_anew_for_the_members_that_stay() -> None:
    """A deletion in the foreground takes what the pool owns while the pool itself still stands."""
    world = World()
    world.pool()
    await world.fill()
    member = await world.claims.claim(RUN, session="s", pool="default", active_seconds=60)
    assert member is not None
    wanted = policies(world)
    await world.kube.delete(NETWORK_POLICIES, NAMESPACE, "default-isolated")
    await world.reconciler.let_go("default", "uid-of-default")
    assert policies(world) == wanted
    owners = world.kube.all(NETWORK_POLICIES)[0]["metadata"]["ownerReferences"]
    assert [owner["uid"] for owner in owners] == [member.uid]


async def test_a_pool_without_a_policy_or_without_members_goes_quietly() -> None:
    world = World()
    world.pool(network="Unmanaged")
    await world.fill()
    await world.claims.claim(RUN, session="s", pool="default", active_seconds=60)
    await world.reconciler.let_go("default", "uid-of-default")
    await world.claims.release(RUN)
    await world.reconciler.let_go("default", "uid-of-default")
    assert policies(world) == {}


async def test_members_are_reaped_even_while_the_policy_is_refused() -> None:
    world = World()
    world.pool()
    await world.fill()
    world.pool(replicas=1)
    world.later(11)
    world.kube.fail = lambda verb, resource, _: Unavailable("x", "y") if resource == NETWORK_POLICIES else None
    with pytest.raises(Unavailable, match="default-isolated"):
        await world.reconciler.reconcile("default")
    assert len(world.pods(labels.ROLE_STANDBY)) == 1


async def test_a_policy_of_others_is_left_alone_where_the_network_is_not_ours() -> None:
    world = World()
    world.kube.put(NETWORK_POLICIES, NAMESPACE, {"metadata": {"name": "default-isolated"}, "spec": {}})
    world.pool(replicas=0, network="Unmanaged")
    await claim(world, "default")
    assert list(policies(world)) == ["default-isolated"]


def test_no_pool_shares_a_policy_with_sandboxes_that_have_none() -> None:
    names = ["", "hummingbird-sandboxes", "default", "hummingbird-sandboxes-isolated"]
    assert len({objects.policy_name(name) for name in names}) == len(names)
