"""One pass over a pool: gather, decide, apply. Under one lock per pool, safe to repeat, safe to abandon."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

from hummingbird_operator.api import conditions as c
from hummingbird_operator.api import labels
from hummingbird_operator.api.sandboxpool import SandboxPool, SandboxPoolStatus
from hummingbird_operator.errors import Conflict, Invalid, NotFound
from hummingbird_operator.kube.client import PODS, SANDBOX_POOLS, KubeApi, Object, QuotaExceeded
from hummingbird_operator.sandboxpools import decide, objects
from hummingbird_operator.sandboxpools.claims import Claims
from hummingbird_operator.sandboxpools.facts import NoPool, Snapshot
from hummingbird_operator.sandboxpools.members import Pod, read
from hummingbird_operator.sandboxpools.shortages import QUOTA_SECONDS

logger = logging.getLogger(__name__)

ORPHAN_SECONDS = 30.0
"""How often the runs behind claimed members are looked at, and how old a member must be for that."""
STATUS_SECONDS = 1.0
"""At most one status write in this time."""


class Recorder(Protocol):
    """What the pool needs of kube.events.Recorder."""

    async def emit(self, reference: dict[str, str], type_: str, reason: str, message: str) -> None:
        """Write an Event, or count a repeated one up."""


@dataclass
class Memory:
    """What one process remembers of one pool between passes; lost with it, and nothing but speed with that."""

    history: decide.History = field(default_factory=decide.History)
    orphans_at: float = float("-inf")
    status_at: float = float("-inf")
    template_hash: str = ""
    degraded: str = ""


class Reconciler:
    """Keeps the pools of one namespace."""

    def __init__(
        self,
        kube: KubeApi,
        claims: Claims,
        recorder: Recorder,
        *,
        run_namespaces: Sequence[str] = (),
        orphan_seconds: float = ORPHAN_SECONDS,
        leads: Callable[[], bool] = lambda: True,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kube = kube
        self._claims = claims
        self._reader = claims.reader
        self._metrics = claims.metrics
        self._namespace = claims.namespace
        self._recorder = recorder
        self._run_namespaces = run_namespaces
        self._orphan_seconds = orphan_seconds
        self._leads = leads
        self._now = now
        self._clock = clock
        self._memories: dict[str, Memory] = {}

    async def reconcile(self, name: str) -> float | None:
        """One pass. Returns seconds after which to look again even if nothing happens; None: no hurry.

        Raises NotFound (the pool is gone) and whatever the API server raises: the caller tries again later.
        """
        async with self._claims.growth(name):
            if not self._leads():
                return 1.0
            try:
                snapshot = await self._reader.snapshot(name)
            except NoPool:
                self._metrics.forget(self._namespace, name)
                raise
            if snapshot.pool.metadata.deleting:
                return None
            memory = self._memories.setdefault(snapshot.pool.metadata.uid, Memory())
            facts = await self._gather(snapshot, memory)
            plan = decide.decide(facts)
            result = "error"
            try:
                await self._apply(snapshot.pool, facts, plan, memory)
                result = "done"
            finally:
                self._metrics.reconciles.labels(name, result).inc()
            later = await self._tell(snapshot.pool, plan, memory)
            return min((s for s in (later, plan.again_seconds, 0.2 if plan.create else None) if s), default=None)

    async def let_go(self, name: str, uid: str) -> None:
        """The pool is being deleted: delete what no run holds, with preconditions, before the collector of garbage

        comes, which works from a cache and may take a member that was claimed a moment ago (kubernetes#114603).
        """
        async with self._claims.growth(name):
            self._metrics.forget(self._namespace, name)  # whatever fails below: no pass tells of it any more
            while True:
                left = [pod for pod in await self._reader.members(name) if _unclaimed(pod, uid)]
                await asyncio.gather(*(self._delete(decide.Deletion(pod, "poolDeleted")) for pod in left))
                if not any(pod.deleting_since is None for pod in left):
                    break
            self._memories.pop(uid, None)
            held = [pod for pod in await self._reader.members(name) if pod.role == labels.ROLE_ACTIVE]
            await self._claims.policies.leave(name, held, closed=await self._closed(name))

    async def _closed(self, name: str) -> bool:
        try:
            return objects.wants_policy(SandboxPool.parse(await self._kube.get(SANDBOX_POOLS, self._namespace, name)))
        except (NotFound, Invalid):
            return True  # nothing says that they may have a network

    # --- gather ---

    async def _gather(self, snapshot: Snapshot, memory: Memory) -> decide.Facts:
        pool, refusal, template_hash = snapshot.pool, "", ""
        try:
            template_hash = objects.template_hash(objects.template_of(pool))
        except Invalid as error:
            refusal = str(error)
        if template_hash != memory.template_hash:  # a new template has not failed yet
            memory.template_hash, memory.history = template_hash, decide.History()
        if any(decide.proven(pod, self._now()) for pod in snapshot.pods):
            memory.history = replace(memory.history, failures=0, last_failure=None, problem="")
        return decide.Facts(
            pool=pool,
            pods=snapshot.pods,
            cordoned=snapshot.cordoned,
            over=await self._over(snapshot, memory),
            now=self._now(),
            template_hash=template_hash,
            refusal=refusal,
            unsupported=pool.spec.virtual_machine is not None,
            history=replace(
                self._claims.shortages.known(pool.metadata.name, memory.history), unseen=self._claims.unseen(snapshot)
            ),
        )

    async def _over(self, snapshot: Snapshot, memory: Memory) -> frozenset[str]:
        if not self._run_namespaces or self._clock() - memory.orphans_at < self._orphan_seconds:
            return frozenset()
        now = self._now()
        held = frozenset(
            pod.run
            for pod in snapshot.pods
            if pod.role == labels.ROLE_ACTIVE and (now - pod.created).total_seconds() > self._orphan_seconds
        )
        over = await self._reader.finished_or_gone(held, self._run_namespaces)
        memory.orphans_at = self._clock()
        return over

    # --- apply ---

    async def _apply(self, pool: SandboxPool, facts: decide.Facts, plan: decide.Plan, memory: Memory) -> None:
        await asyncio.gather(*(self._delete(deletion) for deletion in plan.delete))
        if plan.failed:
            memory.history = memory.history.after_failure(len(plan.failed), plan.failed[0].problem, facts.now)
        await self._claims.policies.ensure(pool)  # before anything is made, and also when nothing is
        if plan.create:
            body = objects.standby(pool)
            results = await asyncio.gather(*(self._create(body) for _ in range(plan.create)), return_exceptions=True)
            self._note_quota(results, memory)

    async def _create(self, body: Object) -> None:
        pod = read(await self._kube.create(PODS, self._namespace, body))
        self._claims.made(pod.pool).add(pod.name)
        self._metrics.created.labels(pod.pool).inc()

    def _note_quota(self, results: Sequence[BaseException | None], memory: Memory) -> None:
        errors = [error for error in results if error is not None]
        for error in errors:
            if not isinstance(error, QuotaExceeded):
                raise error
            until = self._now() + timedelta(seconds=QUOTA_SECONDS)
            memory.history = replace(memory.history, quota_until=until, quota_problem=error.problem)
        if not errors:
            memory.history = replace(memory.history, quota_until=None, quota_problem="")

    async def _delete(self, deletion: decide.Deletion) -> None:
        pod = deletion.pod
        try:
            await self._kube.delete(PODS, self._namespace, pod.name, uid=pod.uid, resource_version=pod.version)
        except (Conflict, NotFound):
            return  # somebody wrote to it, perhaps a claim: the next pass sees what it is now
        self._metrics.reaped.labels(pod.pool, deletion.reason).inc()
        logger.info("deleted", extra={"pod": pod.name, "pool": pod.pool, "reason": deletion.reason})

    # --- tell ---

    async def _tell(self, pool: SandboxPool, plan: decide.Plan, memory: Memory) -> float | None:
        counts, meta = plan.counts, pool.metadata
        self._metrics.tell(self._namespace, meta.name, counts, wanted=pool.spec.replicas)
        status = self._status(pool, plan)
        if status == pool.status:
            return None
        wait = STATUS_SECONDS - (self._clock() - memory.status_at)
        if wait > 0:
            return wait
        memory.status_at = self._clock()
        body = {"metadata": {"resourceVersion": meta.resource_version}, "status": status.as_dict()}
        try:
            await self._kube.merge(SANDBOX_POOLS, self._namespace, meta.name, body, subresource="status")
        except Conflict:
            return STATUS_SECONDS
        await self._announce(pool, plan, memory)
        return None

    def _status(self, pool: SandboxPool, plan: decide.Plan) -> SandboxPoolStatus:
        conditions, now = pool.status.conditions, self._now()
        for type_, (holds, reason, message) in (
            (c.PoolCondition.READY, plan.ready),
            (c.PoolCondition.PROGRESSING, plan.progressing),
            (c.PoolCondition.DEGRADED, plan.degraded),
        ):
            conditions = c.with_condition(
                conditions,
                type_,
                "True" if holds else "False",
                reason,
                message,
                now=now,
                generation=pool.metadata.generation,
            )
        counts = plan.counts
        return SandboxPoolStatus(
            observed_generation=pool.metadata.generation,
            standby=counts.standby,
            pending=counts.pending,
            active=counts.active,
            lingering=counts.lingering,
            replicas=counts.standby + counts.pending,
            selector=f"{labels.POOL}={pool.metadata.name},{labels.ROLE}={labels.ROLE_STANDBY}",
            conditions=conditions,
        )

    async def _announce(self, pool: SandboxPool, plan: decide.Plan, memory: Memory) -> None:
        degraded, reason, message = plan.degraded
        before = c.is_true(pool.status.conditions, c.PoolCondition.DEGRADED)
        if degraded == before and (not degraded or memory.degraded in ("", reason)):
            memory.degraded = reason if degraded else ""
            return
        memory.degraded = reason if degraded else ""
        meta = pool.metadata
        reference = {
            "apiVersion": labels.API_VERSION,
            "kind": "SandboxPool",
            "name": meta.name,
            "namespace": meta.namespace,
            "uid": meta.uid,
        }
        await self._recorder.emit(reference, "Warning" if degraded else "Normal", reason, message)


def _unclaimed(pod: Pod, uid: str) -> bool:
    mine = pod.owner == uid and pod.role == labels.ROLE_STANDBY
    return mine or pod.role == labels.ROLE_LINGERING
