"""Claims against an API server in memory that keeps its promises about resourceVersions."""

from __future__ import annotations

import asyncio
import itertools
from datetime import timedelta
from typing import Any

import pytest

from hummingbird_operator.api import labels
from hummingbird_operator.errors import Conflict, Invalid, NotFound, SandboxLost, Unavailable
from hummingbird_operator.kube.client import NETWORK_POLICIES, NODES, PODS, SANDBOX_POOLS, QuotaExceeded, Resource
from hummingbird_operator.sandboxpools import objects
from hummingbird_operator.sandboxpools.claiming import Wish
from hummingbird_operator.sandboxpools.claims import Member
from hummingbird_operator.sandboxpools.decide import History
from hummingbird_operator.sandboxpools.facts import NoPool
from hummingbird_operator.sandboxpools.shortages import Shortages
from tests.unit.sandboxpools.world import NAMESPACE, START, World, pool_body, status

RUN, OTHER = "11111111-aaaa-4444-8888-000000000001", "22222222-bbbb-4444-8888-000000000002"
TEMPLATE = pool_body()["spec"]["pod"]["template"]


@pytest.fixture
async def world() -> World:
    world = World()
    world.pool()
    await world.fill()
    return world


async def claim(world: World, run: str = RUN, *, session: str = "s", pool: str = "default") -> Member | None:
    return await world.claims.claim(run, session=session, pool=pool, active_seconds=300)


async def cold(world: World, run: str = RUN, **options: Any) -> Member | None:
    """A claim that starts cold, with a kubelet that starts what is there."""
    task = asyncio.create_task(world.claims.claim(run, session="s", active_seconds=300, **options))
    for _ in range(20):
        await asyncio.sleep(0)
    world.start_all()
    return await task


async def test_a_warm_claim_is_exactly_one_write(world: World) -> None:
    """DESIGN §12: at most 3 of the operator's own; this is the only one to the pool's members."""
    before = world.kube.writes
    member = await claim(world)
    assert world.kube.writes - before == 1
    assert member is not None
    assert (member.cold, member.lingered, member.pool, member.backend) == (False, False, "default", "k8spool")
    pod = await world.kube.get(PODS, NAMESPACE, member.name)
    assert pod["metadata"]["labels"][labels.RUN] == RUN
    assert pod["metadata"]["labels"][labels.ROLE] == labels.ROLE_ACTIVE
    assert "ownerReferences" not in pod["metadata"]
    assert pod["metadata"]["annotations"][objects.SAFE_TO_EVICT] == "false"
    assert pod["metadata"]["annotations"][labels.REAP_BY].endswith("Z")


async def test_a_claim_asked_again_gives_the_same_member_in_this_process_and_the_next(world: World) -> None:
    """sandbox-pools.md §6 no. 1, 2; kopf.md §2 no. 28: not yet written is not the same as not yet done."""
    member = await claim(world)
    before = world.kube.writes
    assert await claim(world) == member
    assert await world.another().claims.claim(RUN, session="s", pool="default", active_seconds=300) == member
    assert await world.another().claims.find(RUN) == member
    assert world.kube.writes == before


async def test_claims_of_one_run_at_the_same_time_take_one_member(world: World) -> None:
    members = await asyncio.gather(*(claim(world) for _ in range(5)))
    assert len({member.uid for member in members if member}) == 1
    assert len(world.pods(labels.ROLE_ACTIVE)) == 1


async def test_the_oldest_ready_member_is_taken(world: World) -> None:
    oldest = min(world.pods(), key=lambda pod: (pod.created, pod.name))
    member = await claim(world)
    assert member is not None
    assert member.uid == oldest.uid


async def test_a_lost_race_reads_the_same_pod_again_and_then_takes_the_next(world: World) -> None:
    """sandbox-pools.md §6 no. 4, 5, 7."""
    theirs = await claim(world.another(), OTHER)
    assert theirs is not None
    world.kube.lag = 0
    stale = World(kube=world.kube)
    stale.now = world.now
    snapshot = await stale.claims.reader.snapshot("default")
    assert len([pod for pod in snapshot.pods if pod.role == labels.ROLE_STANDBY]) == 1
    mine = await claim(stale)
    assert mine is not None
    assert mine.uid != theirs.uid


async def test_a_kubelets_write_in_between_is_no_reason_to_give_a_member_up(world: World) -> None:
    target = min(world.pods(), key=lambda pod: (pod.created, pod.name))

    def touch(verb: str, resource: Resource, name: str) -> Exception | None:
        if verb == "patch" and name == target.name and not touched:
            touched.append(name)
            world.set_status(name, status(podIP="10.0.0.9"))
        return None

    touched: list[str] = []
    world.kube.fail = touch
    member = await claim(world)
    assert member is not None
    assert member.uid == target.uid
    assert world.claims.metrics.conflicts.labels("default")._value.get() == 0


async def test_an_answer_lost_on_the_way_does_not_take_a_second_member(world: World) -> None:
    """sandbox-pools.md §6 no. 2, 4: never abandon a committed assignment."""
    real = world.kube.patch

    async def cut(*args: Any, **options: Any) -> Any:
        await real(*args, **options)
        raise Unavailable("the API server", "connection reset")

    world.kube.patch = cut  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        await claim(world)
    world.kube.patch = real  # type: ignore[method-assign]
    member = await claim(world)
    assert member is not None
    assert [pod.uid for pod in world.pods(labels.ROLE_ACTIVE)] == [member.uid]


async def test_a_write_that_may_still_arrive_is_fenced_by_claiming_the_same_member(world: World) -> None:
    real, held = world.kube.patch, []

    async def delayed(*args: Any, **options: Any) -> Any:
        held.append((args, options))
        raise Unavailable("the API server", "no answer in time")

    world.kube.patch = delayed  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        await claim(world)
    world.kube.patch = real  # type: ignore[method-assign]
    member = await claim(world)
    args, options = held[0]
    with pytest.raises(Conflict):
        await real(*args, **options)
    assert member is not None
    assert member.name == args[2]
    assert len(world.pods(labels.ROLE_ACTIVE)) == 1


@pytest.mark.parametrize(
    "why", ["not ready", "deleting", "cordoned", "not ready node", "old template", "another pool's", "ended"]
)
async def test_a_member_that_cannot_serve_is_not_handed_out(world: World, why: str) -> None:
    """sandbox-pools.md §6 no. 17, 18, 21, 22, 25."""
    for body in world.kube.all(PODS):
        name = body["metadata"]["name"]
        body["spec"]["nodeName"] = "node"
        if why == "deleting":
            body["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
        if why == "old template":
            body["metadata"]["labels"][labels.TEMPLATE_HASH] = "old"
        if why == "another pool's":
            body["metadata"]["ownerReferences"][0]["uid"] = "another"
        world.kube.put(PODS, NAMESPACE, body)
        if why == "not ready":
            world.set_status(name, status(conditions=[{"type": "Ready", "status": "False"}]))
        if why == "ended":
            world.set_status(name, {"phase": "Failed"})
    if why == "cordoned":
        world.kube.put(NODES, "", {"metadata": {"name": "node", "namespace": ""}, "spec": {"unschedulable": True}})
    if why == "not ready node":
        ready = {"type": "Ready", "status": "Unknown"}
        world.kube.put(NODES, "", {"metadata": {"name": "node", "namespace": ""}, "status": {"conditions": [ready]}})
    world.later(10)
    before = {pod.uid for pod in world.pods()}
    member = await cold(world, pool="default")
    assert member is not None
    assert member.cold
    assert member.uid not in before


async def test_an_empty_pool_starts_cold_under_the_runs_own_name_up_to_its_maximum() -> None:
    """sandbox-pools.md §6 no. 8, 25b."""
    world = World()
    world.pool(replicas=0, maxSandboxes=1)
    member = await cold(world, pool="default")
    assert member is not None
    assert (member.cold, member.name) == (True, "default-11111111aaaa4444")
    assert await claim(world, OTHER) is None
    assert await claim(world) == member
    pod = await world.kube.get(PODS, NAMESPACE, member.name)
    assert pod["spec"]["activeDeadlineSeconds"] > 300


async def test_a_cold_start_that_was_begun_by_a_dead_process_is_waited_for_and_not_doubled() -> None:
    world = World()
    world.pool(replicas=0)
    begun = asyncio.create_task(claim(world))
    for _ in range(20):
        await asyncio.sleep(0)
    begun.cancel()
    await asyncio.gather(begun, return_exceptions=True)
    assert len(world.pods()) == 1
    assert await world.another().claims.find(RUN) is None
    member = await cold(world.another(), pool="default")
    assert member is None or len(world.pods()) == 1


async def test_a_sandbox_that_does_not_start_is_deleted_and_its_reason_told() -> None:
    """sandbox-pools.md §6 no. 42: a claim that never becomes ready must fail."""
    world = World()
    world.pool(replicas=0)
    task = asyncio.create_task(claim(world))
    for _ in range(20):
        await asyncio.sleep(0)
    waiting = {"name": "sandbox", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    world.set_status("default-11111111aaaa4444", {"phase": "Pending", "containerStatuses": [waiting]})
    world.later(301)
    with pytest.raises(SandboxLost, match="no such image"):
        await task
    assert world.pods() == []


async def test_a_quota_makes_a_run_wait() -> None:
    """sandbox-pools.md §6 no. 33."""
    world = World()
    world.pool(replicas=0)
    world.kube.fail = lambda verb, resource, name: (
        QuotaExceeded("the API server", "exceeded quota") if (verb, resource) == ("create", PODS) else None
    )
    assert await claim(world) is None
    assert world.claims.shortage(RUN) == "exceeded quota"
    await world.reconciler.reconcile("default")
    told = world.condition("Degraded")
    assert (told["status"], told["reason"], told["message"]) == ("True", "QuotaExceeded", "exceeded quota")
    world.kube.fail = lambda verb, resource, name: None
    assert await cold(world, pool="default") is not None
    assert world.claims.shortage(RUN) == ""
    world.later(2)
    await world.reconciler.reconcile("default")
    assert world.condition("Degraded")["status"] == "False"


async def test_a_quota_that_a_cold_start_met_is_told_no_longer_than_it_is_met() -> None:
    world = World()
    world.pool(replicas=0)
    refusal = QuotaExceeded("the API server", "exceeded quota")
    world.kube.fail = lambda verb, resource, name: refusal if (verb, resource) == ("create", PODS) else None
    assert await claim(world) is None
    await world.claims.release(RUN)
    assert world.claims.shortage(RUN) == ""
    assert await world.reconciler.reconcile("default") is not None, "it looks again by itself"
    world.later(16)
    await world.reconciler.reconcile("default")
    assert world.condition("Degraded")["status"] == "False"


def test_a_pool_without_a_cold_start_that_met_a_quota_has_the_history_that_it_had() -> None:
    """Also while the clock goes on between two looks at it, and when its own quota is long over."""
    moments = (START + timedelta(seconds=number) for number in itertools.count(60))
    shortages = Shortages(lambda: next(moments))
    for history in (History(), History(quota_until=START, quota_problem="exceeded quota")):
        assert shortages.known("default", history) == history
    shortages.met(Wish(RUN, "", "default", 60, replacement=False), "exceeded quota: q")
    assert shortages.known("default", History(quota_until=START)).quota_problem == "exceeded quota: q"
    shortages.over("default")
    assert shortages.known("default", History()) == History()


async def test_the_pool_s_own_maximum_is_no_quota() -> None:
    world = World()
    world.pool(replicas=0, maxSandboxes=1)
    assert await cold(world, pool="default") is not None
    assert await claim(world, OTHER) is None
    assert world.claims.shortage(OTHER) == ""


async def test_a_lost_member_is_deleted_and_replaced(world: World) -> None:
    """kopf.md §2 no. 32: the pod is gone while the run is Running."""
    first = await claim(world)
    assert first is not None
    ended = {"name": "sandbox", "state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}
    world.set_status(first.name, {"phase": "Failed", "containerStatuses": [ended]})
    lost = await world.claims.lost(first)
    assert lost is not None
    assert lost.cause == "OOMKilled"
    assert await world.claims.find(RUN) is None
    second = await claim(world)
    assert second is not None
    assert second.uid != first.uid
    assert first.uid not in {pod.uid for pod in world.pods()}


async def test_a_lost_cold_member_frees_its_name_before_it_is_made_again() -> None:
    world = World()
    world.kube.graceful = True
    world.pool(replicas=0)
    first = await cold(world, pool="default")
    assert first is not None
    world.set_status(first.name, {"phase": "Failed"})
    with pytest.raises(Unavailable, match=f"{first.name}, .* still being deleted"):
        await claim(world)
    world.kube.finish_deletions()
    second = await cold(world, pool="default")
    assert second is not None
    assert (second.name, second.uid != first.uid) == (first.name, True)


async def test_a_lingering_member_goes_to_its_own_session_only_and_first(world: World) -> None:
    first = await claim(world, RUN, session="mine")
    assert first is not None
    await world.claims.linger(RUN, session="mine")
    await world.claims.linger(RUN, session="mine")
    pod = await world.kube.get(PODS, NAMESPACE, first.name)
    assert labels.RUN not in pod["metadata"]["labels"]
    assert pod["metadata"]["annotations"][labels.SESSION_ID] == "mine"
    assert pod["metadata"]["annotations"][objects.SAFE_TO_EVICT] == "true"
    assert await world.claims.find(RUN) is None
    other = await claim(world, OTHER, session="another")
    assert other is not None
    assert other.uid != first.uid
    again = await claim(world, "33333333-cccc", session="mine")
    assert again is not None
    assert (again.uid, again.lingered) == (first.uid, True)
    pod = await world.kube.get(PODS, NAMESPACE, first.name)
    assert labels.SESSION_ID not in pod["metadata"]["annotations"]


async def test_two_replies_at_once_do_not_share_the_lingering_member(world: World) -> None:
    first = await claim(world, RUN, session="mine")
    await world.claims.linger(RUN, session="mine")
    both = await asyncio.gather(claim(world, "a-run", session="mine"), claim(world.another(), "b-run", session="mine"))
    assert len({member.uid for member in both if member}) == 2
    assert sum(member.lingered for member in both if member) == 1
    assert first is not None


async def test_a_lingering_member_whose_time_is_up_is_not_claimed(world: World) -> None:
    first = await claim(world, RUN, session="mine")
    await world.claims.linger(RUN, session="mine")
    world.later(301)
    again = await claim(world, OTHER, session="mine")
    assert first is not None
    assert again is not None
    assert again.uid != first.uid


async def test_a_pool_that_keeps_none_deletes_at_the_end_of_a_run() -> None:
    world = World()
    world.pool(linger={"seconds": 0, "max": 2})
    await world.fill()
    member = await claim(world)
    await world.claims.linger(RUN, session="s")
    assert member is not None
    assert await world.claims.lost(member) is not None


async def test_a_linger_rides_out_a_kubelets_write(world: World) -> None:
    member = await claim(world)
    assert member is not None
    touched: list[str] = []

    def touch(verb: str, resource: Resource, name: str) -> Exception | None:
        if verb == "patch" and len(touched) < 2:
            touched.append(name)
            world.set_status(name, status(podIP=f"10.0.0.{len(touched)}"))
        return None

    world.kube.fail = touch
    await world.claims.linger(RUN, session="s")
    assert [pod.role for pod in world.pods() if pod.uid == member.uid] == [labels.ROLE_LINGERING]


async def test_release_deletes_once_and_may_be_repeated(world: World) -> None:
    member = await claim(world)
    await world.claims.release(RUN)
    await world.claims.release(RUN)
    assert member is not None
    assert member.uid not in {pod.uid for pod in world.pods()}


async def test_a_sandbox_without_a_pool_is_isolated_before_it_is_made() -> None:
    world = World()
    member = await cold(world, pool="", template=TEMPLATE)
    assert member is not None
    assert (member.backend, member.pool) == ("k8s", "")
    created = [plural for event, plural, _ in world.kube.events if event == "ADDED"]
    assert created == [NETWORK_POLICIES.plural, PODS.plural]
    await world.claims.linger(RUN, session="s")
    assert world.pods() == []


async def test_a_template_of_the_settings_is_held_to_the_same_rules() -> None:
    """sandbox-pools.md §6 no. 24: one code path for inline and referenced templates."""
    world = World()
    greedy = {"spec": {**TEMPLATE["spec"], "hostPID": True}}
    with pytest.raises(Invalid, match="hostPID"):
        await world.claims.claim(RUN, session="s", pool="", active_seconds=1, template=greedy)
    with pytest.raises(Invalid):
        await world.claims.claim(RUN, session="s", pool="", active_seconds=1)


async def test_an_unknown_pool_and_a_refused_template_are_errors(world: World) -> None:
    """sandbox-pools.md §6 no. 25, 58."""
    with pytest.raises(NotFound):
        await claim(world, pool="nowhere")
    world.pool("greedy", pod={"template": {"spec": {**TEMPLATE["spec"], "hostIPC": True}}})
    with pytest.raises(Invalid, match=r"spec\.pod\.template\.spec\.hostIPC"):
        await claim(world, pool="greedy")


async def test_a_burst_of_claims_shares_its_reading(world: World) -> None:
    """sandbox-pools.md §3: claims of others starve on LISTs of a large pool."""
    world.pool("wide", replicas=20, maxSandboxes=60)
    await world.fill("wide")
    before = dict(world.kube.calls)
    runs = [f"{number:08d}-run" for number in range(20)]
    members = await asyncio.gather(*(claim(world, run, session=run, pool="wide") for run in runs))
    assert len({member.uid for member in members if member}) == 20
    assert world.kube.calls["get", SANDBOX_POOLS.plural] - before["get", SANDBOX_POOLS.plural] <= 3
    assert world.claims.metrics.conflicts.labels("wide")._value.get() == 0


async def test_waiting_runs_are_woken_when_a_member_may_be_free(world: World) -> None:
    event, another = world.claims.changed(), world.claims.changed()
    await claim(world)
    await world.claims.release(RUN)
    assert event.is_set()
    assert another.is_set()


async def test_a_new_run_of_the_same_name_does_not_inherit_the_old_ones_member(world: World) -> None:
    """sandbox-pools.md §6 no. 9: key everything by uid."""
    old = await claim(world, RUN)
    new = await claim(world, OTHER)
    assert old is not None
    assert new is not None
    assert old.uid != new.uid


async def test_a_member_that_is_only_not_ready_is_not_lost(world: World) -> None:
    """`find` hides it; a run that had it before a take-over was told that its sandbox was lost."""
    member = await claim(world)
    assert member is not None
    world.set_status(member.name, status(conditions=[{"type": "Ready", "status": "False"}]))
    after = world.another().claims
    assert await after.find(RUN) is None
    assert await after.lost_of(RUN, member.name, member.uid) is None
    assert await after.lost_of(RUN, member.name, "") is None


async def test_what_became_of_a_runs_member_is_told_by_its_cause(world: World) -> None:
    member = await claim(world)
    assert member is not None
    lost_of = world.claims.lost_of
    causes = []
    for run, uid in ((RUN, "another-uid"), (OTHER, member.uid)):
        causes.append(await lost_of(run, member.name, uid))
    ended = {"name": "sandbox", "state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}
    world.set_status(member.name, {"phase": "Failed", "containerStatuses": [ended]})
    causes.append(await lost_of(RUN, member.name, member.uid))
    await world.claims.release(RUN)
    causes.append(await lost_of(RUN, member.name, member.uid))
    assert [lost and lost.cause for lost in causes] == ["Deleted", "Released", "OOMKilled", "Deleted"]
    second = await claim(world)
    assert second is not None
    await world.claims.linger(RUN, session="s")
    lost = await lost_of(RUN, second.name, second.uid)
    assert lost is not None
    assert lost.cause == "Released"


async def test_pools_that_do_not_exist_leave_nothing_behind(world: World) -> None:
    await claim(world)
    for number in range(20):
        with pytest.raises(NotFound):
            await claim(world, OTHER, pool=f"invented-{number}")
    claims = asyncio.gather(*(claim(world, f"r-{n}", pool="invented") for n in range(3)), return_exceptions=True)
    assert {type(error) for error in await claims} == {NoPool}
    assert set(world.claims.reader._shared) == {"default"}
    world.pool("invented", replicas=0)
    assert await cold(world, OTHER, pool="invented") is not None
