"""A member of a pool, as far as decisions need it: one frozen value read from a pod."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from hummingbird_operator.api import labels

POD_BACKEND, POOLED_BACKEND = "k8s", "k8spool"

STUCK_SECONDS = 120.0
"""A member that is still being deleted after this (its node is dead) no longer stands in a successor's way."""

FAILING_REASONS = frozenset(
    {
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
    }
)
"""Why a container waits although nobody but a person can help; every other reason is a start under way."""


@dataclass(frozen=True)
class Pod:
    """A member. Times are UTC; `reap_by` was written with the operator's clock, the others with the server's."""

    name: str
    uid: str
    version: str
    pool: str
    role: str
    run: str
    session: str
    template_hash: str
    node: str
    created: datetime
    started: datetime | None
    deleting_since: datetime | None
    reap_by: datetime | None
    deadline: int | None
    owner: str
    phase: str
    ready: bool
    gated: bool
    """It waits for room or for permission: unschedulable, or held by a scheduling gate."""
    problem: str
    """The kubelet's or the scheduler's own words on why it is not ready."""
    failing: bool
    has_owners: bool

    @property
    def terminal(self) -> bool:
        """Its containers ended and never start again."""
        return self.phase in ("Failed", "Succeeded")

    @property
    def live(self) -> bool:
        """Neither ended nor on its way out."""
        return not self.terminal and self.deleting_since is None

    def stuck(self, now: datetime) -> bool:
        """It has been on its way out for so long that nobody may end it: its node is dead."""
        # the server's clock wrote it; the margin is wide enough for two clocks
        return self.deleting_since is not None and (now - self.deleting_since).total_seconds() > STUCK_SECONDS

    def counts(self, now: datetime) -> bool:
        """It takes one of the places that the pool's maximum leaves. One that is being deleted does, until then."""
        return not self.terminal and not self.stuck(now)


def read(pod: Mapping[str, Any]) -> Pod:
    """From the object as the API server returns it; whatever is missing reads as absent."""
    meta, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    marks, notes = meta.get("labels") or {}, meta.get("annotations") or {}
    conditions = {entry.get("type"): entry for entry in status.get("conditions") or []}
    scheduled = conditions.get("PodScheduled") or {}
    waiting = _waiting(status)
    return Pod(
        name=meta["name"],
        uid=meta["uid"],
        version=str(meta["resourceVersion"]),
        pool=marks.get(labels.POOL, ""),
        role=marks.get(labels.ROLE, ""),
        run=marks.get(labels.RUN, ""),
        session=notes.get(labels.SESSION_ID, ""),
        template_hash=marks.get(labels.TEMPLATE_HASH, ""),
        node=spec.get("nodeName") or "",
        created=moment(meta.get("creationTimestamp")) or datetime.min.replace(tzinfo=UTC),
        started=moment(status.get("startTime")),
        deleting_since=moment(meta.get("deletionTimestamp")),
        reap_by=moment(notes.get(labels.REAP_BY)),
        deadline=spec.get("activeDeadlineSeconds"),
        owner=_controller(meta),
        phase=status.get("phase") or "Pending",
        ready=(conditions.get("Ready") or {}).get("status") == "True",
        gated=scheduled.get("status") == "False",
        problem=_problem(status, scheduled, waiting),
        failing=waiting.get("reason") in FAILING_REASONS,
        has_owners=bool(meta.get("ownerReferences")),
    )


def moment(text: object) -> datetime | None:
    """A time of the API, or None where there is none to be read."""
    if not isinstance(text, str) or not text:
        return None
    try:
        found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)  # people write annotations too


def _controller(meta: Mapping[str, Any]) -> str:
    """The uid of the pool that owns it. Kind and uid say it; the version of the API may change under us (#1191)."""
    for owner in meta.get("ownerReferences") or []:
        if owner.get("controller") and owner.get("kind") == "SandboxPool":
            return str(owner.get("uid") or "")
    return ""


def _waiting(status: Mapping[str, Any]) -> Mapping[str, Any]:
    for key in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(key) or []:
            waiting = (container.get("state") or {}).get("waiting")
            if waiting and waiting.get("reason") in FAILING_REASONS:
                return dict(waiting)
    return {}


def _problem(status: Mapping[str, Any], scheduled: Mapping[str, Any], waiting: Mapping[str, Any]) -> str:
    if waiting:
        return f"{waiting['reason']}: {waiting.get('message') or 'no message'}"
    if scheduled.get("status") == "False":
        return f"{scheduled.get('reason') or 'Unschedulable'}: {scheduled.get('message') or 'no message'}"
    if status.get("phase") in ("Failed", "Succeeded"):
        return _ended(status)
    return ""


def _ended(status: Mapping[str, Any]) -> str:
    for container in status.get("containerStatuses") or []:
        ended = (container.get("state") or {}).get("terminated")
        if ended:
            text = ended.get("message") or f"exit code {ended.get('exitCode')}"
            return f"{ended.get('reason') or 'Ended'}: container {container.get('name')}: {text}"
    return f"{status.get('reason') or status.get('phase')}: {status.get('message') or 'no message'}"
