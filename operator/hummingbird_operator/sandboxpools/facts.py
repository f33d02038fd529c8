"""What there is, read live: the pool, its members, the nodes that take no more work, the runs that hold members."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from hummingbird_operator.api import labels
from hummingbird_operator.api.conditions import Condition, RunCondition, is_true
from hummingbird_operator.api.sandboxpool import SandboxPool
from hummingbird_operator.errors import Invalid, NotFound
from hummingbird_operator.kube.client import AGENT_RUNS, NODES, PODS, SANDBOX_POOLS, KubeApi, Object
from hummingbird_operator.sandboxpools.members import Pod, read

logger = logging.getLogger(__name__)

NODES_SECONDS = 5.0
"""Age up to which the list of cordoned nodes is good enough: a cordon need not take effect at once."""

T = TypeVar("T")


@dataclass(frozen=True)
class Snapshot:
    """A pool and its members at one moment. `cordoned` names nodes that a member must not be handed out from."""

    pool: SandboxPool
    pods: tuple[Pod, ...]
    cordoned: frozenset[str]


class NoPool(NotFound):
    """There is no such SandboxPool, or it is being deleted. Any other NotFound says nothing of the pool."""


class Shared(Generic[T]):
    """One read for many askers: nobody gets an answer whose reading began before they asked."""

    def __init__(self, read: Callable[[], Awaitable[T]]) -> None:
        self._read = read
        self._running: asyncio.Task[T] | None = None
        self._next: asyncio.Task[T] | None = None

    async def get(self) -> T:
        """A reading that begins no earlier than now. Errors go to all who share it."""
        if self._running is None or self._running.done():
            task = self._running = asyncio.create_task(self._first())
        elif self._next is None or self._next.done():
            task = self._next = asyncio.create_task(self._after(self._running))
        else:
            task = self._next
        return await asyncio.shield(task)

    async def _first(self) -> T:
        return await self._read()

    async def _after(self, running: asyncio.Task[T]) -> T:
        await asyncio.wait({running})
        self._running, self._next = self._next, None
        return await self._read()


class Reader:
    """Live reads of one namespace of sandboxes."""

    def __init__(self, kube: KubeApi, namespace: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._kube = kube
        self._namespace = namespace
        self._clock = clock
        self._shared: dict[str, Shared[Snapshot]] = {}
        self._cordoned: tuple[float, frozenset[str]] = (float("-inf"), frozenset())

    async def snapshot(self, pool: str) -> Snapshot:
        """The pool and its members; burst of claims share the reading. Raises NoPool, Invalid (its spec)."""
        shared = self._shared.setdefault(pool, Shared(lambda: self._snapshot(pool)))
        try:
            return await shared.get()
        except NoPool:  # runs may name any pool: what does not exist must not be kept
            if self._shared.get(pool) is shared:
                del self._shared[pool]
            raise

    async def _snapshot(self, name: str) -> Snapshot:
        raw, pods, cordoned = await asyncio.gather(self._pool(name), self.members(name), self.cordoned())
        return Snapshot(SandboxPool.parse(raw), tuple(pods), cordoned)

    async def _pool(self, name: str) -> Object:
        try:
            return await self._kube.get(SANDBOX_POOLS, self._namespace, name)
        except NotFound as error:
            raise NoPool(str(error)) from error

    async def members(self, pool: str) -> list[Pod]:
        """Pods with the pool's label, from birth to death."""
        return await self.pods(f"{labels.POOL}={pool}")

    async def held_by(self, run_uid: str) -> list[Pod]:
        """Pods with the run's uid."""
        return await self.pods(f"{labels.RUN}={run_uid}")

    async def pods(self, selector: str) -> list[Pod]:
        """Sandboxes of any pool."""
        selector = f"{labels.APP_NAME}={labels.SANDBOX_APP},{selector}"
        return [read(raw) for raw in await self._kube.list(PODS, self._namespace, label_selector=selector)]

    async def cordoned(self) -> frozenset[str]:
        """Nodes that are unschedulable or not Ready; empty where the Role does not let us look."""
        read_at, names = self._cordoned
        if self._clock() - read_at < NODES_SECONDS:
            return names
        try:
            names = frozenset(node["metadata"]["name"] for node in await self._kube.list(NODES, "") if _avoided(node))
        except Invalid as error:
            logger.warning("cordoned nodes cannot be told: %s", error)
            names = frozenset()
        self._cordoned = (self._clock(), names)
        return names

    async def finished_or_gone(self, uids: frozenset[str], namespaces: Sequence[str]) -> frozenset[str]:
        """Of these runs, the ones that need no sandbox any more. Read after the members were: a run that holds one

        was there before, so that its absence means that it was deleted (sandbox-pools.md §6 no. 45).
        """
        if not uids or not namespaces:
            return frozenset()
        alive: set[str] = set()
        for namespace in namespaces:
            for run in await self._kube.list(AGENT_RUNS, namespace):
                if not _finished(run):
                    alive.add(run["metadata"]["uid"])
        return frozenset(uids - alive)


def _avoided(node: Object) -> bool:
    if (node.get("spec") or {}).get("unschedulable"):
        return True
    conditions = (node.get("status") or {}).get("conditions") or []
    ready = next((entry for entry in conditions if entry.get("type") == "Ready"), None)
    return ready is not None and ready.get("status") != "True"


def _finished(run: dict[str, Any]) -> bool:
    raw = (run.get("status") or {}).get("conditions") or []
    return is_true([Condition.from_dict(entry) for entry in raw], RunCondition.FINISHED)
