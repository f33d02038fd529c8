"""Claims: one member of a pool for one run, by compare-and-swap on the member itself.

The patch of the pod is both the commit and the journal: it holds only if nobody wrote to the pod since it was read,
and the run's uid stands on it from then on, so that a new process finds it by one LIST. A conflict is answered by
reading the *same* pod again; only if it turns out to be somebody else's is the next one tried (agent-sandbox#1277).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from weakref import WeakSet, WeakValueDictionary

from prometheus_client import CollectorRegistry

from hummingbird_operator.errors import Conflict, Invalid, NotFound, SandboxLost, Unavailable
from hummingbird_operator.kube.client import PODS, KubeApi, QuotaExceeded
from hummingbird_operator.sandboxpools import choose, objects, templates
from hummingbird_operator.sandboxpools.claiming import Claiming, Member, Wish
from hummingbird_operator.sandboxpools.facts import NoPool, Reader, Snapshot
from hummingbird_operator.sandboxpools.lingering import Lingering
from hummingbird_operator.sandboxpools.members import Pod, read
from hummingbird_operator.sandboxpools.metrics import PoolMetrics
from hummingbird_operator.sandboxpools.policies import Policies
from hummingbird_operator.sandboxpools.shortages import Shortages
from hummingbird_operator.sandboxpools.starts import Leaving, Recent, Starts

__all__ = ["Claiming", "Claims", "Member"]

logger = logging.getLogger(__name__)


class Claims:
    """The claims of one namespace of sandboxes. One instance per process: it reserves what it is about to take."""

    def __init__(
        self,
        kube: KubeApi,
        namespace: str,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: Callable[[], float] = time.monotonic,
        metrics: CollectorRegistry | None = None,
    ) -> None:
        self.namespace = namespace
        self.reader = Reader(kube, namespace, clock=clock)
        self.policies = Policies(kube, namespace, clock=clock)
        self.metrics = PoolMetrics.on(metrics)
        self.shortages = Shortages(now)
        self._kube = kube
        self._now = now
        self._clock = clock
        self._starts = Starts(kube, namespace, now=now, clock=clock, changed=self.changed)
        self._taken = Recent(clock)  # uids of members that this process claimed or is claiming
        self._lingering = Lingering(kube, namespace, self.reader, self._starts, now=now, kept=self._taken.discard)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._made: dict[str, Recent] = {}  # by pool
        self._growth: dict[str, asyncio.Lock] = {}  # by pool
        self._tried: dict[str, str] = {}  # by run: the member whose claim may have been written
        self._waiting: WeakSet[asyncio.Event] = WeakSet()

    # --- the runs' side ---

    async def find(self, run_uid: str) -> Member | None:
        """The member that the run holds and that serves, by a live LIST on its label. One that is dead or not Ready is

        not found: `claim` waits for it or replaces it.
        """
        held = await self._held(run_uid, await self.reader.held_by(run_uid))
        pods = [pod for pod in held if pod.ready]
        return Member.of(pods[0], self.namespace, run_uid) if pods else None

    async def claim(
        self,
        run_uid: str,
        *,
        session: str,
        pool: str,
        active_seconds: int,
        template: Mapping[str, Any] | None = None,
        replacement: bool = False,
    ) -> Member | None:
        """A member for the run, the same one when called again. None: nothing is free and there is no room.

        `pool` names a SandboxPool; empty, a member is made from `template`, a PodTemplateSpec. A member that the run
        held and lost is deleted; a `replacement` of it can be made although its node never lets it go. Raises NotFound
        (no such pool, and nothing else), Invalid (naming what a person must mend), SandboxLost (one was made and did
        not start), Unavailable (try again: what was begun is found).
        """
        wish = Wish(run_uid, session, pool, active_seconds, replacement)
        async with self._locks.setdefault(run_uid, asyncio.Lock()):
            self.shortages.forget(run_uid)
            try:
                return await (self._from_pool(wish) if pool else self._unpooled(wish, template))
            except NoPool:
                raise
            except NotFound as error:  # such as the namespace: a run must not be told that its pool is missing
                raise Unavailable("the API server", str(error)) from error

    async def linger(self, run_uid: str, *, session: str) -> None:
        """Keep the member for the session's next run, or delete it where its pool keeps none. Idempotent."""
        await self._lingering.keep(run_uid, session)
        self._tried.pop(run_uid, None)
        self.shortages.forget(run_uid)
        self.notify()

    async def release(self, run_uid: str) -> None:
        """Delete what the run holds. Idempotent."""
        for pod in await self.reader.held_by(run_uid):
            await self._starts.delete(pod)
        self._tried.pop(run_uid, None)
        self.shortages.forget(run_uid)
        self.notify()

    def shortage(self, run_uid: str) -> str:
        """Why the run's last claim gave None: a quota's refusal, or nothing where the pool's own maximum was met."""
        return self.shortages.of_run(run_uid)

    async def lost(self, member: Member) -> SandboxLost | None:
        """Whether the member is gone, and why, by a live GET."""
        return await self._starts.lost(member.name, member.uid)

    async def lost_of(self, run_uid: str, name: str, uid: str) -> SandboxLost | None:
        """Whether the pod that the run held is gone, or no longer the run's, and why, by a live GET.

        None: it is alive and the run's, and may be not Ready for now. An empty `uid` means whatever pod has the name.
        """
        return await self._starts.lost(name, uid, run_uid)

    def changed(self) -> asyncio.Event:
        """An event that is set whenever a member may have become free: get one, try once more, wait for it."""
        event = asyncio.Event()
        self._waiting.add(event)
        return event

    def notify(self) -> None:
        """Wake whoever waits for a member."""
        for event in list(self._waiting):
            event.set()

    # --- the pools' side ---

    def growth(self, pool: str) -> asyncio.Lock:
        """Whoever makes members of the pool, waiting ones or a run's own, holds this from reading to making."""
        return self._growth.setdefault(pool, asyncio.Lock())

    def made(self, pool: str) -> Recent:
        """Names of members that this process made."""
        return self._made.setdefault(pool, Recent(self._clock))

    def unseen(self, snapshot: Snapshot) -> frozenset[str]:
        """Names of members just made that the reading does not show yet: they count against the maximum."""
        recent = self.made(snapshot.pool.metadata.name)
        recent.seen(pod.name for pod in snapshot.pods)
        return frozenset(recent.all())

    # --- taking one ---

    async def _held(self, run_uid: str, found: Sequence[Pod]) -> list[Pod]:
        """Of the pods that were found, and of the one whose claim may not show yet, those that the run holds."""
        pods = {pod.uid: pod for pod in found if pod.run == run_uid}
        tried = self._tried.get(run_uid)
        if tried and not any(pod.name == tried for pod in pods.values()):
            pod = await self._starts.get(tried)  # its claim's answer never came, or a reading does not show it
            if pod is not None and pod.run == run_uid:
                pods[pod.uid] = pod
            elif pod is not None:
                self._taken.discard(pod.uid)
        return sorted((pod for pod in pods.values() if pod.live), key=lambda pod: (pod.created, pod.name))

    async def _resume(self, run_uid: str, found: Sequence[Pod]) -> Member | None:
        """What the run holds already; what it held and lost is deleted."""
        held = await self._held(run_uid, found)
        for pod in found:
            if pod.run == run_uid and not pod.live:
                await self._starts.delete(pod)
        return Member.of(await self._starts.ready(held[0]), self.namespace, run_uid) if held else None

    async def _from_pool(self, wish: Wish) -> Member | None:
        run_uid, snapshot = wish.run_uid, await self.reader.snapshot(wish.pool)
        # a member keeps its pool's label from birth to death, so one reading shows what the run holds as well
        if held := await self._resume(run_uid, snapshot.pods):
            return held
        spec = snapshot.pool.spec
        wish = replace(wish, active_seconds=min(wish.active_seconds, spec.active_deadline_seconds))
        again = choose.lingering(snapshot, session=wish.session, now=self._now(), active_seconds=wish.active_seconds)
        template = objects.template_of(snapshot.pool)
        free = choose.standby(snapshot, template_hash=objects.template_hash(template))
        # the one whose claim may still be on its way comes first: a second write to it fences the first
        tried = self._tried.get(run_uid)
        for pod in sorted((*again, *free), key=lambda pod: pod.name != tried):
            taken = await self._take(pod, run_uid, wish.active_seconds, spec.linger.seconds)
            if taken is not None:
                self.metrics.claims.labels(wish.pool, "lingered" if pod.session else "warm").inc()
                return Member.of(taken, self.namespace, run_uid, lingered=bool(pod.session))
        if not self._room(snapshot, run_uid):
            return None
        return await self._cold_in_pool(wish)

    def _room(self, snapshot: Snapshot, run_uid: str) -> bool:
        """Whether the pool may have one more. Raises Leaving where it may as soon as the run's own old one is gone."""
        now = self._now()
        room = choose.room(snapshot, self.unseen(snapshot), now=now)
        own = choose.leaving(snapshot, run_uid=run_uid, now=now)
        if room <= 0 < room + len(own):
            raise Leaving(f"{own[0].name}, which this run had before, is still being deleted and has its place")
        return room > 0

    async def _take(self, pod: Pod, run_uid: str, active_seconds: int, linger_seconds: int) -> Pod | None:
        """The compare-and-swap. None: it is somebody else's, or about to be."""
        if pod.uid in self._taken.all():
            return None
        self._taken.add(pod.uid)
        self._tried[run_uid] = pod.name
        patch = objects.claim_patch(
            pod, run_uid=run_uid, now=self._now(), active_seconds=active_seconds, linger_seconds=linger_seconds
        )
        try:
            return read(await self._kube.patch(PODS, self.namespace, pod.name, patch))
        except NotFound:
            self._taken.discard(pod.uid)
        except Conflict:
            # the same pod once more: the write may be our own, with its answer lost on the way
            now = await self._starts.get(pod.name)
            if now is not None and now.uid == pod.uid and now.run == run_uid and now.live:
                return now
            if now is None or now.run or not now.live:
                self.metrics.conflicts.labels(pod.pool).inc()
            self._taken.discard(pod.uid)
            if now is not None and now.uid == pod.uid and _only_status_changed(pod, now):
                return await self._take(now, run_uid, active_seconds, linger_seconds)
        del self._tried[run_uid]
        return None

    async def _cold_in_pool(self, wish: Wish) -> Member | None:
        async with self.growth(wish.pool):
            snapshot = await self.reader.snapshot(wish.pool)
            if snapshot.pool.metadata.deleting:  # its policy is about to be left to the members that it has
                raise NoPool(f"SandboxPool {wish.pool} is being deleted")
            if not self._room(snapshot, wish.run_uid):
                return None
            template = objects.template_of(snapshot.pool)
            await self.policies.ensure(snapshot.pool)
            pod = await self._cold(wish, template, snapshot.pool.spec.linger.seconds)
        return await self._started(pod, wish.run_uid)

    async def _unpooled(self, wish: Wish, template: Mapping[str, Any] | None) -> Member | None:
        if held := await self._resume(wish.run_uid, await self.reader.held_by(wish.run_uid)):
            return held
        if template is None:
            raise Invalid("sandbox", "neither a pool nor a template was given")
        templates.check(template, "sandbox")
        await self.policies.ensure(None)
        return await self._started(await self._cold(wish, template, 0), wish.run_uid)

    async def _cold(self, wish: Wish, template: Mapping[str, Any], linger_seconds: int) -> Pod | None:
        name = objects.cold_name(wish.pool, wish.run_uid, replacement=wish.replacement)
        self._tried[wish.run_uid], made = name, self.made(wish.pool)
        made.add(name)
        try:
            pod = await self._starts.make(wish, template, linger_seconds=linger_seconds)
        except QuotaExceeded as error:  # others have to finish first
            logger.warning("no room for a cold start: %s", error.problem)
            self.shortages.met(wish, error.problem)
            made.discard(name)
            return None
        except (Leaving, Invalid, NotFound):  # refused for certain
            made.discard(name)
            raise
        self.shortages.over(wish.pool)
        return pod

    async def _started(self, pod: Pod | None, run_uid: str) -> Member | None:
        if pod is None:
            return None
        self.metrics.claims.labels(pod.pool, "cold").inc()
        return Member.of(await self._starts.ready(pod), self.namespace, run_uid)


def _only_status_changed(before: Pod, now: Pod) -> bool:
    """A kubelet wrote to it meanwhile: it is as free as it was."""
    return now.live and now.ready and (now.role, now.run, now.session) == (before.role, before.run, before.session)
