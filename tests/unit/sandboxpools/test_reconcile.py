"""Passes over a pool: what is written, and what a failure in between leaves behind."""

from __future__ import annotations

from typing import Any

import pytest

from hummingbird_operator.api import labels
from hummingbird_operator.errors import NotFound, Unavailable
from hummingbird_operator.kube.client import AGENT_RUNS, NETWORK_POLICIES, PODS, SANDBOX_POOLS, QuotaExceeded
from tests.unit.sandboxpools.world import NAMESPACE, World, pool_body, status

RUN = "11111111-aaaa-4444-8888-000000000001"


async def test_a_pool_fills_isolates_and_then_writes_nothing_more() -> None:
    world = World()
    world.pool()
    await world.fill()
    assert len(world.pods(labels.ROLE_STANDBY)) == 2
    assert [policy["metadata"]["name"] for policy in world.kube.all(NETWORK_POLICIES)] == ["default-isolated"]
    assert world.pool_status()["standby"] == 2
    assert world.condition("Ready")["status"] == "True"
    before = world.kube.writes
    for _ in range(5):
        await world.reconciler.reconcile("default")
        world.later(12)
    assert world.kube.writes == before


async def test_all_writes_until_a_claimed_member_is_replaced_are_few() -> None:
    """DESIGN §12: at most 10, kubelet and scheduler included; ours are the claim, the create and the status."""
    world = World()
    world.pool()
    await world.fill()
    before = world.kube.writes
    await world.claims.claim(RUN, session="s", pool="default", active_seconds=60)
    for _ in range(4):
        await world.reconciler.reconcile("default")
        world.start_all()
        world.later(1.1)
    assert len(world.pods(labels.ROLE_STANDBY)) == 2
    assert world.kube.writes - before <= 4


async def test_the_status_is_written_at_most_once_a_second() -> None:
    world = World()
    world.pool(replicas=1)
    await world.reconciler.reconcile("default")
    world.start_all()
    before = world.kube.calls["merge", SANDBOX_POOLS.plural]
    for _ in range(9):
        again = await world.reconciler.reconcile("default")
        assert again is not None
        assert again <= 1.0
        world.later(0.1)
    assert world.kube.calls["merge", SANDBOX_POOLS.plural] == before
    world.later(0.2)
    await world.reconciler.reconcile("default")
    assert world.kube.calls["merge", SANDBOX_POOLS.plural] == before + 1


async def test_a_claim_between_reading_and_deleting_saves_the_member() -> None:
    """sandbox-pools.md §6 no. 10, 11: list, claim, delete."""
    world = World()
    world.pool()
    await world.fill()
    world.pool(replicas=0)
    target = world.pods()[0]
    real = world.kube.delete

    async def claimed_first(*args: Any, **options: Any) -> None:
        if args[2] == target.name:
            body = await world.kube.get(PODS, NAMESPACE, target.name)
            body["metadata"]["labels"] |= {labels.ROLE: labels.ROLE_ACTIVE, labels.RUN: RUN}
            world.kube.put(PODS, NAMESPACE, body)
        await real(*args, **options)

    world.kube.delete = claimed_first  # type: ignore[method-assign]
    await world.reconciler.reconcile("default")
    assert [pod.uid for pod in world.pods()] == [target.uid]


async def test_a_policy_that_was_opened_is_closed_again_and_dropped_when_unmanaged() -> None:
    world = World()
    world.pool()
    await world.fill()
    policy = world.kube.all(NETWORK_POLICIES)[0]
    wanted = policy["spec"]
    world.kube.put(NETWORK_POLICIES, NAMESPACE, {**policy, "spec": {**wanted, "egress": [{}]}})
    world.later(11)
    await world.reconciler.reconcile("default")
    assert world.kube.all(NETWORK_POLICIES)[0]["spec"] == wanted
    world.pool(network="Unmanaged")
    world.later(11)
    await world.reconciler.reconcile("default")
    assert world.kube.all(NETWORK_POLICIES) == []


async def test_no_member_is_made_before_its_policy_stands() -> None:
    world = World()
    world.pool()
    world.kube.fail = lambda verb, resource, name: (
        Unavailable("the API server", "away") if resource == NETWORK_POLICIES and verb == "create" else None
    )
    with pytest.raises(Unavailable):
        await world.reconciler.reconcile("default")
    assert world.pods() == []


async def test_failing_members_are_not_burned_and_a_new_template_begins_anew() -> None:
    """sandbox-pools.md §6 no. 30."""
    world = World()
    world.pool()
    for _ in range(60):
        await world.reconciler.reconcile("default")
        for body in world.kube.all(PODS):
            ended = {"name": "sandbox", "state": {"terminated": {"reason": "Error", "exitCode": 3}}}
            world.set_status(body["metadata"]["name"], {"phase": "Failed", "containerStatuses": [ended]})
        world.later(1)
    assert world.claims.metrics.created.labels("default")._value.get() <= 14
    assert world.condition("Degraded")["reason"] == "MembersFailing"
    assert "exit code 3" in world.condition("Degraded")["message"]
    assert ("Warning", "MembersFailing") in world.events.emitted
    assert len(world.events.emitted) <= 2
    mended = pool_body()["spec"]["pod"]["template"]
    mended["metadata"] = {"annotations": {"mended": "yes"}}
    world.pool(pod={"template": mended})
    await world.fill(passes=5)
    assert len([pod for pod in world.pods() if pod.ready]) == 2
    assert world.condition("Degraded")["status"] == "False"


async def test_a_quota_is_backed_off_from_and_told() -> None:
    """sandbox-pools.md §6 no. 33, 34."""
    world = World()
    world.pool()
    refusal = QuotaExceeded("the API server", "exceeded quota: q")
    world.kube.fail = lambda verb, resource, name: refusal if (verb, resource) == ("create", PODS) else None
    for _ in range(10):
        await world.reconciler.reconcile("default")
        world.later(1.1)
    assert world.kube.calls["create", PODS.plural] == 2
    assert world.condition("Degraded")["reason"] == "QuotaExceeded"
    world.kube.fail = lambda verb, resource, name: None
    world.later(16)
    await world.fill()
    assert world.condition("Ready")["status"] == "True"
    assert world.condition("Degraded")["status"] == "False"


async def test_members_of_runs_that_are_gone_or_finished_are_reaped_and_of_live_ones_are_not() -> None:
    """sandbox-pools.md §6 no. 40, 45."""
    world = World(runs=("runs",))
    world.pool(replicas=3)
    await world.fill()
    finished = {"type": "Finished", "status": "True", "reason": "Completed"}
    world.kube.put(AGENT_RUNS, "runs", {"metadata": {"name": "a", "uid": "live"}})
    world.kube.put(AGENT_RUNS, "runs", {"metadata": {"name": "b", "uid": "done"}, "status": {"conditions": [finished]}})
    for run in ("live", "done", "gone"):
        await world.claims.claim(run, session=run, pool="default", active_seconds=300)
    world.later(5)
    await world.reconciler.reconcile("default")
    world.later(31)
    await world.reconciler.reconcile("default")
    assert {pod.run for pod in world.pods(labels.ROLE_ACTIVE)} == {"live"}


async def test_deletion_of_a_pool_spares_what_a_run_holds() -> None:
    """sandbox-pools.md §6 no. 12."""
    world = World()
    world.pool(replicas=3)
    await world.fill()
    held = await world.claims.claim(RUN, session="s", pool="default", active_seconds=60)
    await world.claims.claim("other", session="o", pool="default", active_seconds=60)
    await world.claims.linger("other", session="o")
    await world.reconciler.let_go("default", "uid-of-default")
    assert held is not None
    assert [pod.uid for pod in world.pods()] == [held.uid]


async def test_a_pool_that_is_being_deleted_makes_nothing() -> None:
    world = World()
    body = pool_body()
    body["metadata"] |= {"deletionTimestamp": "2030-01-01T00:00:00Z", "finalizers": [labels.FINALIZER]}
    world.kube.put(SANDBOX_POOLS, NAMESPACE, body)
    await world.reconciler.reconcile("default")
    assert world.pods() == []
    with pytest.raises(NotFound):
        await world.reconciler.reconcile("nowhere")


async def test_a_process_that_does_not_lead_writes_nothing() -> None:
    world = World()
    world.pool()
    world.reconciler._leads = lambda: False
    await world.reconciler.reconcile("default")
    assert world.kube.writes == 0


async def test_a_refused_template_is_told_by_an_event_once() -> None:
    world = World()
    spec = {**pool_body()["spec"]["pod"]["template"]["spec"], "hostNetwork": True}
    world.pool(pod={"template": {"spec": spec}})
    for _ in range(4):
        await world.reconciler.reconcile("default")
        world.later(2)
    assert world.events.emitted == [("Warning", "TemplateRefused")]
    assert world.pods() == []


async def test_a_member_that_vanished_is_replaced() -> None:
    """sandbox-pools.md §6 no. 41b: refill was triggered by claims only."""
    world = World()
    world.pool()
    await world.fill()
    await world.kube.delete(PODS, NAMESPACE, world.pods()[0].name)
    await world.reconciler.reconcile("default")
    assert len(world.pods()) == 2


async def test_an_error_in_the_middle_of_a_batch_leaves_what_was_made() -> None:
    world = World()
    world.pool(replicas=4)
    made: list[str] = []

    def third_fails(verb: str, resource: Any, name: str) -> Exception | None:
        if (verb, resource) == ("create", PODS):
            made.append(name)
            if len(made) == 3:
                return Unavailable("the API server", "away")
        return None

    world.kube.fail = third_fails
    with pytest.raises(Unavailable):
        await world.reconciler.reconcile("default")
    await world.reconciler.reconcile("default")
    assert len(world.pods()) == 4
    world.set_status(world.pods()[0].name, status())
