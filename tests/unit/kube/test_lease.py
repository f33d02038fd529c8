"""The election, two candidates on one Lease in memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from hummingbird_operator.errors import Doubt, LeadershipLost, Unavailable
from hummingbird_operator.kube.client import LEASES, Object
from hummingbird_operator.kube.lease import Election, machine_clock
from hummingbird_operator.kube.testing import FakeKube


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Candidate(Election):
    def __init__(self, kube: FakeKube, clock: Callable[[], float], identity: str, renew_seconds: float = 10.0) -> None:
        self.lost: list[str] = []
        super().__init__(
            kube,
            "n",
            "operator",
            identity=identity,
            on_lost=lambda: self.lost.append(identity),
            clock=clock,
            retry_seconds=0.02,
            renew_seconds=renew_seconds,
        )

    async def once(self) -> bool:
        """One attempt: acquire, unless that would mean to wait."""
        stop = asyncio.Event()
        task = asyncio.create_task(self.acquire(stop))
        for _ in range(20):
            await asyncio.sleep(0)
        stop.set()
        return await task

    async def stop(self) -> None:
        self._clock = lambda: float("inf")
        await self.release()


def spec(kube: FakeKube) -> Object:
    return dict(kube.all(LEASES)[0]["spec"])


async def test_one_leads_and_the_other_waits() -> None:
    kube, clock = FakeKube(), Clock()
    first, second = Candidate(kube, clock, "a"), Candidate(kube, clock, "b")
    assert await first.once()
    assert not await second.once()
    assert first.is_leader()
    assert not second.is_leader()
    assert (first.epoch, spec(kube)["holderIdentity"]) == (1, "a")
    await first.stop()


async def test_two_that_start_at_once_do_not_both_lead() -> None:
    kube, clock = FakeKube(), Clock()
    both = [Candidate(kube, clock, name) for name in "ab"]
    results = await asyncio.gather(*(candidate.once() for candidate in both))
    assert sorted(results) == [False, True]
    for candidate in both:
        await candidate.stop()


async def test_a_released_lease_is_taken_at_once_with_the_next_epoch() -> None:
    """DESIGN §12: after SIGTERM at most 3 s; a candidate looks every two."""
    kube, clock = FakeKube(), Clock()
    first, second = Candidate(kube, clock, "a"), Candidate(kube, clock, "b")
    await first.once()
    await first.release()
    assert not first.is_leader()
    assert await second.once()
    assert second.epoch == 2
    await second.stop()


async def test_a_release_after_a_write_whose_answer_was_lost_still_frees_the_lease() -> None:
    kube, clock = FakeKube(), Clock()
    first, second = Candidate(kube, clock, "a"), Candidate(kube, clock, "b")
    await first.once()
    kube.put(LEASES, "n", kube.all(LEASES)[0])
    await first.release()
    assert await second.once()
    await second.stop()


async def test_a_dead_leaders_lease_is_taken_only_after_it_was_seen_unchanged_for_its_whole_duration() -> None:
    """kopf.md §1.9, sandbox-pools.md §6 no. 47: no clock of another machine is ever compared."""
    kube, clock = FakeKube(), Clock()
    first, second = Candidate(kube, clock, "a"), Candidate(kube, clock, "b")
    await first.once()
    await first.stop()
    kube.put(
        LEASES, "n", {**kube.all(LEASES)[0], "spec": {**spec(kube), "holderIdentity": "a", "leaseDurationSeconds": 15}}
    )
    assert not await second.once()
    clock.now = 14.9
    assert not await second.once()
    clock.now = 15.1
    assert await second.once()
    assert second.epoch == 2
    await second.stop()


async def test_a_leader_that_was_frozen_knows_that_it_may_not_write() -> None:
    """kopf.md §0 no. 10: two runs of one session interleaved under a frozen leader."""
    kube, clock = FakeKube(), Clock()
    first = Candidate(kube, clock, "a")
    await first.once()
    clock.now = 9.9
    assert first.is_leader()
    clock.now = 10.1
    assert not first.is_leader()
    await first.stop()


async def test_a_leader_that_cannot_renew_in_time_writes_nothing_and_goes_on_where_nobody_took_the_lease() -> None:
    """An API server that is away for a minute must end neither the leader nor the calls of its runs."""
    kube, clock = FakeKube(), Clock()
    first = Candidate(kube, clock, "a")
    await first.once()
    first.check()
    kube.fail = lambda verb, resource, name: Unavailable("the API server", "away")
    await asyncio.sleep(0.1)
    first.check()
    clock.now = 60.0
    await asyncio.sleep(0.1)
    with pytest.raises(Doubt, match="nothing is written until it can"):
        first.check()
    assert (first.lost, first.is_leader()) == ([], False)
    kube.fail = lambda *_: None
    await asyncio.sleep(0.1)
    first.check()
    assert (first.lost, first.epoch, spec(kube)["leaseTransitions"]) == ([], 1, 1)
    await first.stop()


@pytest.mark.parametrize("holder", ["b", ""])
async def test_a_leader_that_was_away_ends_hard_where_another_one_led_meanwhile(holder: str) -> None:
    """kopf.md §2 no. 34: no graceful hooks in between. The other one may have handed over already."""
    kube, clock = FakeKube(), Clock()
    first = Candidate(kube, clock, "a")
    await first.once()
    kube.fail = lambda verb, resource, name: Unavailable("the API server", "away")
    clock.now = 20.0
    await asyncio.sleep(0.1)
    assert first.lost == []
    other = {**spec(kube), "holderIdentity": holder, "leaseTransitions": 2}
    kube.put(LEASES, "n", {**kube.all(LEASES)[0], "spec": other})
    kube.fail = lambda *_: None
    await asyncio.sleep(0.1)
    assert first.lost == ["a"]
    with pytest.raises(LeadershipLost):
        first.check()
    assert spec(kube) == other
    await first.stop()


async def test_a_leader_whose_lease_was_deleted_ends() -> None:
    kube, clock = FakeKube(), Clock()
    first = Candidate(kube, clock, "a")
    await first.once()
    await kube.delete(LEASES, "n", "operator")
    await asyncio.sleep(0.1)
    assert first.lost == ["a"]
    await first.stop()


async def test_a_process_that_never_led_or_handed_over_may_not_write() -> None:
    kube, clock = FakeKube(), Clock()
    first = Candidate(kube, clock, "a")
    with pytest.raises(LeadershipLost, match="does not lead yet"):
        first.check()
    await first.once()
    await first.release()
    with pytest.raises(LeadershipLost, match="handed over"):
        first.check()


def test_the_clock_goes_on_while_the_machine_sleeps() -> None:
    """A monotonic clock may stand still in a suspended machine, and its Lease would seem young afterwards."""
    assert abs(machine_clock() - time.clock_gettime(time.CLOCK_BOOTTIME)) < 5


async def test_a_leader_whose_lease_was_taken_ends() -> None:
    kube, clock = FakeKube(), Clock()
    first = Candidate(kube, clock, "a")
    await first.once()
    kube.put(LEASES, "n", {**kube.all(LEASES)[0], "spec": {**spec(kube), "holderIdentity": "b"}})
    await asyncio.sleep(0.1)
    assert first.lost == ["a"]
    await first.stop()


async def test_renewals_go_on_and_a_lost_answer_is_no_loss() -> None:
    kube, clock = FakeKube(), Clock()
    first = Candidate(kube, clock, "a")
    await first.once()
    held = kube.all(LEASES)[0]
    kube.put(LEASES, "n", held)  # as if a renewal had been written and its answer lost
    clock.now = 5.0
    await asyncio.sleep(0.1)
    assert first.lost == []
    clock.now = 14.0
    assert first.is_leader()
    await first.stop()


class Slow(FakeKube):
    """An API server that takes its time; a call that is given up there has its effect all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.delay = 0.0
        self.begun: list[asyncio.Task[Object]] = []

    async def merge(self, *args: Any, **kwargs: Any) -> Object:
        self.begun.append(asyncio.create_task(self._late(partial(super().merge, *args, **kwargs))))
        return await asyncio.shield(self.begun[-1])

    async def get(self, *args: Any, **kwargs: Any) -> Object:
        return await self._late(partial(super().get, *args, **kwargs))

    async def _late(self, call: Callable[[], Coroutine[Any, Any, Object]]) -> Object:
        delay = self.delay / 2
        await asyncio.sleep(delay)
        answer = await call()
        await asyncio.sleep(delay)
        return answer


async def test_an_answer_that_came_too_late_once_does_not_end_the_lead_on_a_slow_server() -> None:
    """A renewal that landed without its answer leaves a version to be learned, however slow the next calls are."""
    kube = Slow()
    first = Candidate(kube, time.monotonic, "a", renew_seconds=0.2)
    await first.once()
    kube.delay = 0.05
    await asyncio.sleep(0.4)
    assert first.is_leader()
    kube.delay = 0.4
    await asyncio.sleep(0.6)
    assert not first.is_leader()
    kube.delay = 0.05
    await asyncio.sleep(0.8)
    assert first.is_leader()
    assert first.lost == []
    await first.stop()
    await asyncio.gather(*kube.begun, return_exceptions=True)
