"""Members that no pool looks after: made from the settings, or left behind by a pool that was deleted."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime

from hummingbird_operator.api import labels
from hummingbird_operator.errors import Conflict, HummingbirdError, Invalid, NotFound, Unavailable
from hummingbird_operator.kube.client import PODS, SANDBOX_POOLS, KubeApi
from hummingbird_operator.sandboxpools.claims import Claims
from hummingbird_operator.sandboxpools.members import Pod

logger = logging.getLogger(__name__)

SWEEP_SECONDS = 60.0
YOUNG_SECONDS = 30.0
"""A member younger than this is nobody's stray: who made it may not be done with it."""


def reason(pod: Pod, *, pools: Collection[str], owners: Collection[str], over: Collection[str], now: datetime) -> str:
    """Why the member is to be deleted; empty while it is not, or while somebody else sees to it.

    `pools` and `owners` are the names and uids of the pools that live: a collector of garbage that was restarted may
    never come for what a dead one owned (kubernetes#109748), nor does the next pool of that name.
    """
    if pod.deleting_since is not None or (now - pod.created).total_seconds() < YOUNG_SECONDS:
        return ""
    if pod.role == labels.ROLE_STANDBY:
        return "poolDeleted" if pod.owner and pod.owner not in owners else ""
    if pod.pool in pools:
        return ""
    if pod.role == labels.ROLE_LINGERING:
        return "poolDeleted"
    if pod.role == labels.ROLE_ACTIVE:
        if pod.run in over:
            return "orphaned"
        if pod.reap_by is not None and now > pod.reap_by:
            return "deadline"
    return ""


class Strays:
    """Sweeps one namespace."""

    def __init__(
        self,
        kube: KubeApi,
        claims: Claims,
        *,
        run_namespaces: Sequence[str] = (),
        leads: Callable[[], bool] = lambda: True,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._kube = kube
        self._claims = claims
        self._run_namespaces = run_namespaces
        self._leads = leads
        self._now = now

    async def sweep(self) -> int:
        """Delete the strays, under preconditions; returns how many."""
        if not self._leads():
            return 0
        namespace = self._claims.namespace
        pods = await self._claims.reader.pods(labels.POOL)
        if any(not pod.pool for pod in pods):  # those of pools have passes that look after theirs
            await self._keep_closed()
        # read after the members: a pool that owns one was there before it
        living = [pool["metadata"] for pool in await self._kube.list(SANDBOX_POOLS, namespace)]
        pools, owners = {meta["name"] for meta in living}, {meta["uid"] for meta in living}
        held = frozenset(pod.run for pod in pods if pod.role == labels.ROLE_ACTIVE and pod.pool not in pools)
        over = await self._claims.reader.finished_or_gone(held, self._run_namespaces)
        swept = 0
        for pod in pods:
            why = reason(pod, pools=pools, owners=owners, over=over, now=self._now())
            if not why:
                continue
            try:
                await self._kube.delete(PODS, namespace, pod.name, uid=pod.uid, resource_version=pod.version)
            except (Conflict, NotFound):
                continue
            self._claims.metrics.reaped.labels(pod.pool, why).inc()
            logger.info("deleted a stray", extra={"pod": pod.name, "reason": why})
            swept += 1
        return swept

    async def _keep_closed(self) -> None:
        try:
            await self._claims.policies.ensure(None)
        except (Invalid, Unavailable) as error:  # the sweep must go on: it ends what is not isolated, too
            logger.warning("the network of sandboxes without a pool may be open: %s", error)


async def keep_sweeping(strays: Strays) -> None:
    """Sweep every minute, for ever; whatever the API server answers."""
    while True:
        await asyncio.sleep(SWEEP_SECONDS * random.uniform(0.8, 1.2))  # noqa: S311 - jitter
        try:
            await strays.sweep()
        except Exception as error:  # one that cannot be read must not keep the others, nor end the process
            known = isinstance(error, HummingbirdError)
            logger.warning("strays were not looked for: %s", error, exc_info=not known)
