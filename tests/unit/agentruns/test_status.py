"""Who may write a run's status: its present owner, while it leads."""

from __future__ import annotations

import pytest

from hummingbird_operator.agentruns import objects
from hummingbird_operator.agentruns.status import StatusWriter
from hummingbird_operator.api.agentrun import AgentRun, RunnerRef
from hummingbird_operator.errors import Conflict, Invalid, LeadershipLost, NotFound
from hummingbird_operator.kube.client import AGENT_RUNS
from hummingbird_operator.kube.guarded import GuardedKube
from hummingbird_operator.kube.testing import FakeKube
from tests.unit.agentruns.builders import ME, NOW, UID, run

SUCCESSOR = RunnerRef(identity="operator-1-ef01", epoch=4)


class Cluster:
    def __init__(self) -> None:
        self.kube = FakeKube()
        self.leading = True
        self.kube.put(AGENT_RUNS, "hummingbird", run().as_dict())

    def writer(self, me: RunnerRef = ME) -> StatusWriter:
        return StatusWriter(GuardedKube(self.kube, self.check), me)

    def check(self) -> None:
        if not self.leading:
            raise LeadershipLost("another leads")

    async def run(self) -> AgentRun:
        return await self.writer().read("hummingbird", "why", UID)


async def taken(cluster: Cluster, me: RunnerRef) -> AgentRun:
    before = await cluster.run()
    return await cluster.writer(me).take_over(before, objects.taken_over(before, me, NOW))


async def test_a_take_over_fails_when_anybody_wrote_since_the_run_was_read() -> None:
    cluster = Cluster()
    stale = await cluster.run()
    await cluster.kube.merge(AGENT_RUNS, "hummingbird", "why", {"spec": {"cancel": True}})
    with pytest.raises(Conflict) as caught:
        await cluster.writer().take_over(stale, objects.taken_over(stale, ME, NOW))
    assert not isinstance(caught.value, LeadershipLost)
    assert (await cluster.run()).status.runner is None


async def test_of_two_processes_that_take_over_at_once_one_gets_the_run() -> None:
    cluster = Cluster()
    seen = await cluster.run()
    await cluster.writer(SUCCESSOR).take_over(seen, objects.taken_over(seen, SUCCESSOR, NOW))
    with pytest.raises(Conflict):
        await cluster.writer().take_over(seen, objects.taken_over(seen, ME, NOW))
    assert (await cluster.run()).status.runner == SUCCESSOR


async def test_the_owner_s_later_writes_do_not_mind_a_person_s_edit() -> None:
    cluster = Cluster()
    mine = await taken(cluster, ME)
    await cluster.kube.merge(AGENT_RUNS, "hummingbird", "why", {"spec": {"cancel": True}})
    written = await cluster.writer().write(mine, objects.concluded(mine, "Cancelled", "as asked", NOW))
    assert written.spec.cancel
    assert written.status.message == "as asked"


@pytest.mark.parametrize("other", [SUCCESSOR, ME.model_copy(update={"epoch": 4}), ME.model_copy(update={"epoch": 2})])
async def test_whoever_lost_the_run_can_write_it_no_more_whatever_differs(other: RunnerRef) -> None:
    cluster = Cluster()
    mine = await taken(cluster, ME)
    await taken(cluster, other)
    with pytest.raises(LeadershipLost, match="why"):
        await cluster.writer().write(mine, objects.finished(mine, NOW))
    assert (await cluster.run()).status.completion_time is None


async def test_a_conflict_of_another_kind_is_no_loss_of_leadership() -> None:
    cluster = Cluster()
    mine = await taken(cluster, ME)
    cluster.kube.fail = lambda verb, *_: Conflict("made by a test") if verb == "patch" else None
    with pytest.raises(Conflict) as caught:
        await cluster.writer().write(mine, objects.finished(mine, NOW))
    assert not isinstance(caught.value, LeadershipLost)


async def test_a_run_that_was_replaced_by_one_of_its_name_is_not_found_and_not_written() -> None:
    cluster = Cluster()
    mine = await taken(cluster, ME)
    other = run(uid="6c1d3a52-93a4-4f0e-8a6e-0c7a2c6b9a01", resourceVersion="").as_dict()
    cluster.kube.put(AGENT_RUNS, "hummingbird", {**other, "status": mine.status.as_dict()})
    with pytest.raises(NotFound):
        await cluster.run()
    with pytest.raises(NotFound, match="another one has its name"):
        await cluster.writer().write(mine, objects.finished(mine, NOW))


async def test_without_leadership_nothing_is_written_at_all() -> None:
    cluster = Cluster()
    mine = await taken(cluster, ME)
    cluster.leading = False
    writes = cluster.kube.writes
    for attempt in (cluster.writer().write, cluster.writer().take_over):
        with pytest.raises(LeadershipLost):
            await attempt(mine, objects.finished(mine, NOW))
    assert cluster.kube.writes == writes


async def test_a_run_that_cannot_be_read_is_invalid_and_its_path_named() -> None:
    cluster = Cluster()
    cluster.kube.put(AGENT_RUNS, "hummingbird", {**run().as_dict(), "spec": {"workflow": "UPPER"}})
    with pytest.raises(Invalid, match=r"spec\.workflow"):
        await cluster.run()
