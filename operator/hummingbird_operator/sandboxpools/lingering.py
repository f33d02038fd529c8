"""A member that a run is done with and its session may want again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from hummingbird_operator.errors import Conflict, Invalid, NotFound
from hummingbird_operator.kube.client import PODS, KubeApi
from hummingbird_operator.sandboxpools import objects
from hummingbird_operator.sandboxpools.facts import Reader
from hummingbird_operator.sandboxpools.members import Pod
from hummingbird_operator.sandboxpools.starts import Starts

LINGER_TRIES = 5
"""Kubelets write to the pod as well; their writes are no reason to give it up."""


class Lingering:
    """Keeps members for their sessions. `kept` is told the uid of each that may be claimed again."""

    def __init__(
        self,
        kube: KubeApi,
        namespace: str,
        reader: Reader,
        starts: Starts,
        *,
        now: Callable[[], datetime],
        kept: Callable[[str], None],
    ) -> None:
        self._kube = kube
        self._namespace = namespace
        self._reader = reader
        self._starts = starts
        self._now = now
        self._kept = kept

    async def keep(self, run_uid: str, session: str) -> None:
        """Keep what the run holds for the session's next one, or delete it where its pool keeps none."""
        for pod in await self._reader.held_by(run_uid):
            seconds = await self._seconds(pod.pool)
            if seconds > 0 and pod.live:
                await self._keep(pod, run_uid, session, seconds)
            else:
                await self._starts.delete(pod)

    async def _keep(self, pod: Pod, run_uid: str, session: str, seconds: int) -> None:
        for _ in range(LINGER_TRIES):
            operations = objects.linger_patch(pod, session=session, now=self._now(), seconds=seconds)
            try:
                await self._kube.patch(PODS, self._namespace, pod.name, operations)
            except Conflict:
                again = await self._starts.get(pod.name)
                if again is None or again.uid != pod.uid or again.run != run_uid:
                    return
                pod = again
            except NotFound:
                return
            else:
                self._kept(pod.uid)
                return
        raise Conflict(f"{pod.name} was written to {LINGER_TRIES} times while it was to linger")

    async def _seconds(self, pool: str) -> int:
        """How long the pool's members linger; 0 without a pool, and where the pool is gone or broken."""
        if not pool:
            return 0
        try:
            linger = (await self._reader.snapshot(pool)).pool.spec.linger
        except (NotFound, Invalid):
            return 0
        return linger.seconds if linger.max else 0
