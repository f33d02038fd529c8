"""Pure: which member a run may take."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from hummingbird_operator.api import labels
from hummingbird_operator.sandboxpools import objects
from hummingbird_operator.sandboxpools.facts import Snapshot
from hummingbird_operator.sandboxpools.members import Pod


def serves(pod: Pod, cordoned: Collection[str]) -> bool:
    """Ready, staying, and on a node that takes work."""
    return pod.live and pod.ready and pod.node not in cordoned


def lingering(snapshot: Snapshot, *, session: str, now: datetime, active_seconds: int) -> list[Pod]:
    """Members that kept this session's files. Not one whose time is up, which the reaper may be deleting."""
    return [
        pod
        for pod in snapshot.pods
        if pod.role == labels.ROLE_LINGERING
        and session
        and pod.session == session
        and serves(pod, snapshot.cordoned)
        and (pod.reap_by is None or pod.reap_by > now)
        and objects.lasts(pod, now=now, active_seconds=active_seconds)
    ]


def standby(snapshot: Snapshot, *, template_hash: str) -> list[Pod]:
    """Members that may be handed out, oldest first: made by this very pool, of its present template."""
    found = [
        pod
        for pod in snapshot.pods
        if pod.role == labels.ROLE_STANDBY
        and pod.owner == snapshot.pool.metadata.uid
        and pod.template_hash == template_hash
        and serves(pod, snapshot.cordoned)
    ]
    return sorted(found, key=lambda pod: (pod.created, pod.name))


def room(snapshot: Snapshot, unseen: Collection[str], *, now: datetime) -> int:
    """How many more members the pool may have; `unseen` names those just made that the reading may not show."""
    known = {pod.name for pod in snapshot.pods if pod.counts(now)}
    return snapshot.pool.spec.max_sandboxes - len(known | set(unseen))


def leaving(snapshot: Snapshot, *, run_uid: str, now: datetime) -> list[Pod]:
    """What the run held and lost, and what takes its place in the pool until it is gone."""
    return [pod for pod in snapshot.pods if pod.run == run_uid and not pod.live and pod.counts(now)]
