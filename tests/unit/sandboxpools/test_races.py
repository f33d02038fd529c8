"""Laws under random interleavings and stale readings: nobody shares, nobody overshoots, nobody takes what is held."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from hummingbird_operator.api import labels
from hummingbird_operator.errors import Conflict, NotFound
from hummingbird_operator.kube.client import PODS
from hummingbird_operator.kube.testing import FakeKube
from hummingbird_operator.sandboxpools import choose, objects
from hummingbird_operator.sandboxpools.members import read
from tests.unit.sandboxpools.world import NAMESPACE, World, status

REPLICAS, MAXIMUM = 4, 9


class Judge:
    """Looks at every write that FakeKube accepted."""

    def __init__(self, world: World, replicas: int, maximum: int) -> None:
        self.kube, self.replicas, self.maximum = world.kube, replicas, maximum
        self.checked = 0
        self.holder: dict[str, str] = {}

    def check(self) -> None:
        for event, plural, body in self.kube.events[self.checked :]:
            if plural != "pods":
                continue
            pod = read(body)
            before = self.holder.get(pod.uid, "")
            if pod.role == labels.ROLE_ACTIVE:
                assert before in ("", pod.run), "a member went from one run to another"
                self.holder[pod.uid] = pod.run
                if event == "DELETED":
                    assert pod.run.startswith("over"), "a claimed member was deleted under its run"
            elif pod.role == labels.ROLE_LINGERING:
                self.holder.pop(pod.uid, None)
        self.checked = len(self.kube.events)
        pods = [read(body) for body in self.kube.all(PODS)]
        assert sum(pod.role == labels.ROLE_STANDBY for pod in pods) <= self.replicas
        assert len(pods) <= self.maximum
        held = Counter(pod.run for pod in pods if pod.role == labels.ROLE_ACTIVE)
        assert not held or max(held.values()) == 1, "two members for one run"


class Game:
    """Runs, a kubelet and the pool's controller, all at once, each in an order that the seed decides."""

    def __init__(self, seed: int, lag: int, *, resize: bool) -> None:
        self.seed, self.resize = seed, resize
        self.world = World(seed=seed)
        self.world.kube.lag = lag
        self.world.pool(replicas=REPLICAS, maxSandboxes=MAXIMUM)
        self.judge = Judge(self.world, REPLICAS, MAXIMUM)
        self.dice = random.Random(seed)  # noqa: S311 - reproducible on purpose
        self.over = asyncio.Event()

    async def play(self, runs: int) -> None:
        await self.world.fill()
        helpers = [asyncio.create_task(self.kubelet()), asyncio.create_task(self.controller())]
        await asyncio.gather(*(self.run(number) for number in range(runs)))
        self.over.set()
        await asyncio.gather(*helpers)
        self.judge.check()

    async def run(self, number: int) -> None:
        uid, session = f"{number:08d}-{self.seed}", f"s{number % 5}"
        for _ in range(self.dice.randint(0, 5)):
            await asyncio.sleep(0)
        for _ in range(50):
            member = await self.world.claims.claim(uid, session=session, pool="default", active_seconds=60)
            if member is not None:
                break
            await asyncio.sleep(0)
        else:
            return
        self.judge.check()
        if self.dice.random() < 0.5:  # else it is still held when the game ends
            await self.world.claims.linger(uid, session=session)

    async def kubelet(self) -> None:
        while not self.over.is_set():
            self.world.start_all()
            pods = self.world.kube.all(PODS)
            if pods and self.dice.random() < 0.3:
                name = self.dice.choice(pods)["metadata"]["name"]
                self.world.set_status(name, status(podIP=f"10.0.0.{self.dice.randint(1, 99)}"))
            await asyncio.sleep(0)

    async def controller(self) -> None:
        while not self.over.is_set():
            if self.resize and self.dice.random() < 0.1:
                self.world.pool(replicas=self.dice.randint(0, REPLICAS), maxSandboxes=MAXIMUM)
            await self.world.reconciler.reconcile("default")
            self.judge.check()
            self.world.later(0.3)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), lag=st.integers(0, 6), runs=st.integers(1, 12), resize=st.booleans())
def test_whatever_the_order_no_member_is_shared_and_no_pool_overshoots(
    seed: int, lag: int, runs: int, resize: bool
) -> None:
    """sandbox-pools.md §8 no. 9, 10, 11."""

    async def play() -> None:
        await Game(seed, lag, resize=resize).play(runs)

    asyncio.run(play())


async def test_ten_thousand_claims_from_two_processes_never_share_a_member() -> None:
    """DESIGN §12: 0 double claims in 10,000 with lagging readings. Two processes must not happen; it holds anyway."""
    rounds, size = 250, 20
    claimed = 0
    for number in range(rounds):
        kube = FakeKube(seed=number)
        kube.lag = 5
        first = World(kube=kube)
        first.pool(replicas=size, maxSandboxes=size)
        pool = (await first.claims.reader.snapshot("default")).pool
        for index in range(size):
            body = objects.standby(pool)
            body["metadata"]["name"] = f"m{index:03d}"
            kube.put(PODS, NAMESPACE, body)
            kube.set_status(PODS, NAMESPACE, f"m{index:03d}", status())
        second = World(kube=kube)
        tasks = [
            (first if index % 2 else second).claims.claim(
                f"{number}-{index}", session=f"{index}", pool="default", active_seconds=60
            )
            for index in range(2 * size)
        ]
        members = [member for member in await asyncio.gather(*tasks) if member]
        claimed += len(tasks)
        assert len({member.uid for member in members}) == len(members)
        assert size - kube.lag <= len(members) <= size  # a reading that lags may not show the last ones as Ready
        holders = [pod.run for pod in first.pods(labels.ROLE_ACTIVE)]
        assert len(set(holders)) == len(holders) == len(members)
    assert claimed == 10_000


async def test_a_delete_that_races_with_a_claim_has_one_winner() -> None:
    """sandbox-pools.md §6 no. 10: both act on the same reading."""
    for seed in range(50):
        world = World(seed=seed)
        world.pool(replicas=1)
        await world.fill()
        pod = world.pods()[0]
        claim = world.kube.patch(
            PODS,
            NAMESPACE,
            pod.name,
            objects.claim_patch(pod, run_uid="r", now=world.now, active_seconds=1, linger_seconds=1),
        )
        delete = world.kube.delete(PODS, NAMESPACE, pod.name, uid=pod.uid, resource_version=pod.version)
        order = [claim, delete] if seed % 2 else [delete, claim]
        results = await asyncio.gather(*order, return_exceptions=True)
        assert sum(isinstance(result, Conflict | NotFound) for result in results) == 1


def test_room_counts_what_a_reading_does_not_show() -> None:
    world = World()
    world.pool(replicas=0, maxSandboxes=3)

    async def room() -> int:
        return choose.room(await world.claims.reader.snapshot("default"), {"x", "y"}, now=world.now)

    assert asyncio.run(room()) == 1
