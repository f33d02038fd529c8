"""What the pools' metrics say, and that they say nothing of a pool that is gone."""

from __future__ import annotations

import pytest

from hummingbird_operator.errors import NotFound, Unavailable
from hummingbird_operator.kube.client import PODS, SANDBOX_POOLS
from tests.unit.sandboxpools.world import NAMESPACE, World

MEMBERS, WANTED = "hummingbird_sandboxpool_members", "hummingbird_sandboxpool_spec_replicas"


def series(world: World, name: str) -> dict[tuple[str, ...], float]:
    """The values of a metric by its labels' values, as a scrape finds them."""
    metrics = world.claims.metrics
    collectors = (metrics.members, metrics.wanted, metrics.reconciles)
    samples = [sample for each in collectors for metric in each.collect() for sample in metric.samples]
    return {tuple(sample.labels.values()): sample.value for sample in samples if sample.name == name}


async def test_what_a_pool_wants_is_told_beside_what_it_has() -> None:
    """Else a pool that is scaled to nothing looks like one that cannot be filled."""
    world = World()
    world.pool(replicas=0)
    world.pool("other", replicas=2)
    for name in ("default", "other"):
        await world.fill(name)
    assert series(world, WANTED) == {(NAMESPACE, "default"): 0, (NAMESPACE, "other"): 2}
    standby = {key: value for key, value in series(world, MEMBERS).items() if key[2] == "standby"}
    assert standby == {(NAMESPACE, "default", "standby"): 0, (NAMESPACE, "other", "standby"): 2}


@pytest.mark.parametrize("away", [False, True])
async def test_a_pool_that_is_deleted_has_no_gauges_any_more(*, away: bool) -> None:
    """Zeros that stay would call it empty for ever, and so would what it had last, were it never tidied up."""
    world = World()
    for name in ("default", "other"):
        world.pool(name)
        await world.fill(name)
    if away:
        world.kube.fail = lambda verb, resource, name: Unavailable("the API server", "away")
        with pytest.raises(Unavailable):
            await world.reconciler.let_go("default", "uid-of-default")
    else:
        await world.reconciler.let_go("default", "uid-of-default")
    assert {key[1] for name in (MEMBERS, WANTED) for key in series(world, name)} == {"other"}


async def test_a_pool_that_vanished_unseen_has_no_gauges_any_more() -> None:
    """Somebody took its finalizer off by hand."""
    world = World()
    world.pool()
    await world.fill()
    assert series(world, WANTED)
    await world.kube.delete(SANDBOX_POOLS, NAMESPACE, "default")
    with pytest.raises(NotFound):
        await world.reconciler.reconcile("default")
    assert series(world, MEMBERS) == series(world, WANTED) == {}


async def test_a_pass_that_fails_is_counted_as_one() -> None:
    world = World()
    world.pool()
    away = Unavailable("the API server", "away")
    world.kube.fail = lambda verb, resource, name: away if (verb, resource) == ("create", PODS) else None
    with pytest.raises(Unavailable):
        await world.reconciler.reconcile("default")
    world.kube.fail = lambda verb, resource, name: None
    await world.reconciler.reconcile("default")
    counted = series(world, "hummingbird_sandboxpool_reconciles_total")
    assert counted == {("default", "error"): 1, ("default", "done"): 1}
