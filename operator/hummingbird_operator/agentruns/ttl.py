"""Deletes finished runs after their `ttlSecondsAfterFinished`: a plain task of the leader, for a kopf timer would put a
finalizer on every finished run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from hummingbird_operator.api import conditions as c
from hummingbird_operator.api.agentrun import AgentRun
from hummingbird_operator.errors import Conflict, HummingbirdError, NotFound
from hummingbird_operator.kube.client import AGENT_RUNS, KubeApi

logger = logging.getLogger(__name__)

SWEEP_SECONDS = 60.0


def expired(runs: Iterable[AgentRun], now: datetime) -> list[AgentRun]:
    """Finished runs whose time to live is over; a run without one is kept for ever."""
    return [run for run in runs if (end := end_of_life(run)) is not None and end <= now]


def end_of_life(run: AgentRun) -> datetime | None:
    """When the run may be deleted; None while it works, without a time to live, or when it is being deleted."""
    ttl, done = run.spec.ttl_seconds_after_finished, run.status.completion_time
    if ttl is None or done is None or run.metadata.deleting:
        return None
    return done + timedelta(seconds=ttl) if c.is_true(run.status.conditions, c.RunCondition.FINISHED) else None


async def sweep(kube: KubeApi, namespace: str, now: datetime) -> int:
    """Delete what is expired, by live reads; the number of deleted runs."""
    runs = [AgentRun.parse(raw) for raw in await kube.list(AGENT_RUNS, namespace)]
    deleted = 0
    for run in expired(runs, now):
        try:
            await kube.delete(AGENT_RUNS, namespace, run.metadata.name, uid=run.metadata.uid)
            deleted += 1
        except (Conflict, NotFound):
            continue  # somebody was faster
    return deleted


async def keep_sweeping(kube: KubeApi, namespace: str, clock: Callable[[], datetime]) -> None:
    """Sweep once a minute, for ever."""
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        try:
            if deleted := await sweep(kube, namespace, clock()):
                logger.info("deleted %d finished runs after their ttlSecondsAfterFinished", deleted)
        except HummingbirdError as error:
            logger.warning("finished runs were not swept: %s", error)
