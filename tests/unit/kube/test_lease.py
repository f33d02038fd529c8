"""One leader at a time, and a former one that knows it: over the in-memory API server, with a clock of our own."""

from __future__ import annotations

import asyncio

from hummingbird_operator.errors import Unavailable
from hummingbird_operator.kube.client import LEASES
from hummingbird_operator.kube.lease import LEASE_SECONDS, RENEW_SECONDS, Election
from hummingbird_operator.kube.testing import FakeKube


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def candidate(kube: FakeKube, name: str, clock: Clock, lost: list[str] | None = None) -> Election:
    seen = [] if lost is None else lost
    return Election(
        kube, "runs", "operator", identity=name, on_lost=lambda: seen.append(name), clock=clock, retry_seconds=0.01
    )


async def taken(election: Election) -> bool:
    """Whether it acquires within a moment."""
    stop = asyncio.Event()
    task = asyncio.create_task(election.acquire(stop))
    await asyncio.wait({task}, timeout=0.1)
    stop.set()
    return await task


async def test_the_first_candidate_leads_with_epoch_one() -> None:
    election = candidate(FakeKube(), "a", Clock())
    assert not election.is_leader()
    assert await taken(election)
    assert election.is_leader()
    assert election.epoch == 1
    await election.release()


async def test_a_second_candidate_waits_while_the_first_renews() -> None:
    kube, clock = FakeKube(), Clock()
    first, second = candidate(kube, "a", clock), candidate(kube, "b", clock)
    assert await taken(first)
    clock.now += 1
    assert not await taken(second)
    await first.release()


async def test_a_released_lease_is_taken_at_once_and_the_epoch_grows() -> None:
    kube, clock = FakeKube(), Clock()
    first, second = candidate(kube, "a", clock), candidate(kube, "b", clock)
    assert await taken(first)
    await first.release()
    assert not first.is_leader()
    assert await taken(second)
    assert second.epoch == 2
    await second.release()


async def test_a_lease_that_stood_still_for_its_whole_length_is_taken_whatever_its_clock_says() -> None:
    kube, clock = FakeKube(), Clock()
    first, second = candidate(kube, "a", clock), candidate(kube, "b", clock)
    assert await taken(first)
    first._renewal.cancel()  # type: ignore[union-attr]
    await kube.merge(LEASES, "runs", "operator", {"spec": {"renewTime": "2099-01-01T00:00:00.000000Z"}})
    assert not await taken(second)
    clock.now += LEASE_SECONDS + 1
    assert await taken(second)
    await second.release()


async def test_a_leader_that_cannot_renew_stops_leading_before_its_lease_runs_out_and_ends() -> None:
    kube, clock, lost = FakeKube(), Clock(), list[str]()
    election = candidate(kube, "a", clock, lost)
    assert await taken(election)
    kube.fail = lambda verb, resource, name: Unavailable("the API server", "away")
    await asyncio.sleep(0.03)
    assert election.is_leader()
    assert not lost
    clock.now += RENEW_SECONDS
    assert not election.is_leader()
    await asyncio.sleep(0.05)
    assert lost == ["a"]
    assert RENEW_SECONDS < LEASE_SECONDS


async def test_a_leader_whose_lease_another_one_took_ends_at_once() -> None:
    kube, clock, lost = FakeKube(), Clock(), list[str]()
    election = candidate(kube, "a", clock, lost)
    assert await taken(election)
    await kube.merge(LEASES, "runs", "operator", {"spec": {"holderIdentity": "b"}})
    await asyncio.sleep(0.05)
    assert lost == ["a"]


async def test_two_candidates_that_find_a_free_lease_never_both_lead() -> None:
    for seed in range(20):
        kube, clock = FakeKube(seed=seed), Clock()
        both = [candidate(kube, "a", clock), candidate(kube, "b", clock)]
        led = await asyncio.gather(*(taken(election) for election in both))
        assert sorted(led) == [False, True]
        for election in both:
            await election.release()


async def test_an_api_server_that_is_away_is_waited_for() -> None:
    kube, clock = FakeKube(), Clock()
    election = candidate(kube, "a", clock)
    kube.fail = lambda verb, resource, name: Unavailable("the API server", "away")
    assert not await taken(election)
    kube.fail = lambda verb, resource, name: None
    assert await taken(election)
    await election.release()
