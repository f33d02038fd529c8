"""Pure: what a pool needs next. Ordered, named checks over one reading; nothing here is remembered but `History`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from hummingbird_operator.api import conditions as c
from hummingbird_operator.api import labels
from hummingbird_operator.api.sandboxpool import SandboxPool
from hummingbird_operator.sandboxpools.members import Pod

BATCH = 50
"""Members made in one pass: the next pass follows at once and sees what these did."""
READY_SECONDS = 300.0
"""Grace for a member to become Ready: longer than the pull of a large image (sandbox-pools.md §6 no. 29)."""
BACK_OFF_CAP_SECONDS = 300.0
PROVEN_SECONDS = 60.0
"""Age at which a Ready member ends the count of failures: one that dies after five seconds was Ready too."""
DEGRADED_AFTER = 3
"""Members that ended by themselves in a row."""


@dataclass(frozen=True)
class History:
    """What no reading shows: failures in a row, until when to hold still, and writes that a reading may not show."""

    failures: int = 0
    last_failure: datetime | None = None
    problem: str = ""
    quota_until: datetime | None = None
    quota_problem: str = ""
    unseen: frozenset[str] = frozenset()
    """Names of members just made."""

    def after_failure(self, count: int, problem: str, now: datetime) -> History:
        """Members ended by themselves: a round of them counts once for the pause, each for the condition."""
        return History(self.failures + count, now, problem, self.quota_until, self.quota_problem, self.unseen)

    def resumes(self) -> datetime | None:
        """When members may be made again after failures."""
        if self.last_failure is None or self.failures == 0:
            return None
        return self.last_failure + timedelta(seconds=min(2.0 ** (self.failures - 1), BACK_OFF_CAP_SECONDS))


def proven(pod: Pod, now: datetime) -> bool:
    """Whether a standby member lived long enough to show that its template works."""
    lived = (now - pod.created).total_seconds()
    return pod.role == labels.ROLE_STANDBY and pod.live and pod.ready and lived > PROVEN_SECONDS


@dataclass(frozen=True)
class Facts:
    """One reading. `refusal` names the template's field that a sandbox may not have; `over` the runs that ended."""

    pool: SandboxPool
    pods: tuple[Pod, ...]
    cordoned: frozenset[str]
    over: frozenset[str]
    now: datetime
    template_hash: str
    refusal: str = ""
    unsupported: bool = False
    history: History = field(default_factory=History)


@dataclass(frozen=True)
class Deletion:
    """A member to delete, if it still is as it was read."""

    pod: Pod
    reason: str


@dataclass(frozen=True)
class Plan:
    """What to do. `failed` members are among the deletions: they ended by themselves."""

    create: int
    delete: tuple[Deletion, ...]
    failed: tuple[Pod, ...]
    counts: Counts
    ready: tuple[bool, c.PoolReason, str]
    progressing: tuple[bool, c.PoolReason, str]
    degraded: tuple[bool, c.PoolReason, str]
    again_seconds: float | None
    """When to look again, where nothing but time changes the answer."""


@dataclass(frozen=True)
class Counts:
    """Members by what they are for."""

    standby: int
    pending: int
    active: int
    lingering: int

    @classmethod
    def of(cls, pods: Sequence[Pod]) -> Counts:
        """Of live members."""
        live = [pod for pod in pods if pod.live]
        waiting = [pod for pod in live if pod.role == labels.ROLE_STANDBY]
        return cls(
            standby=sum(pod.ready for pod in waiting),
            pending=sum(not pod.ready for pod in waiting),
            active=sum(pod.role == labels.ROLE_ACTIVE for pod in live),
            lingering=sum(pod.role == labels.ROLE_LINGERING for pod in live),
        )


def decide(facts: Facts) -> Plan:
    """The next step of the pool."""
    deletions = tuple(_deletions(facts))
    doomed = {deletion.pod.uid for deletion in deletions}
    failed = tuple(deletion.pod for deletion in deletions if deletion.reason == "failed")
    hold, degraded = _hold(facts, failed)
    create = 0 if hold else _missing(facts)
    counts = Counts.of(facts.pods)
    usable = sum(1 for pod in facts.pods if _usable(pod, facts) and pod.uid not in doomed)
    return Plan(
        create=create,
        delete=deletions,
        failed=failed,
        counts=counts,
        ready=_ready(usable, facts),
        progressing=_progressing(facts, bool(create or deletions), counts),
        degraded=degraded,
        again_seconds=_again(facts),
    )


# --- who goes, and why; the first reason that holds is the one that is counted ---


def _deletions(facts: Facts) -> Iterator[Deletion]:
    gone: set[str] = set()
    for pod in facts.pods:
        reason = _reason(pod, facts)
        if reason and pod.deleting_since is None:
            gone.add(pod.uid)
            yield Deletion(pod, reason)
    yield from _too_many_lingering(facts, gone)
    yield from _scale_down(facts, gone)


def _reason(pod: Pod, facts: Facts) -> str:
    if pod.role == labels.ROLE_STANDBY:
        return _standby_reason(pod, facts) if pod.owner == facts.pool.metadata.uid else ""
    if pod.role == labels.ROLE_LINGERING and (pod.terminal or _due(pod, facts.now)):
        return "ended" if pod.terminal else "lingerExpired"
    if pod.role == labels.ROLE_ACTIVE:
        if pod.run in facts.over:
            return "orphaned"
        if _due(pod, facts.now):
            return "deadline"
    return ""


def _standby_reason(pod: Pod, facts: Facts) -> str:
    if pod.terminal:
        resumes = facts.history.resumes()
        # it stays for people to look at, and in its successor's place, until the pause is over
        return "failed" if resumes is None or facts.now >= resumes else ""
    if pod.template_hash != facts.template_hash and not facts.refusal:
        return "templateChanged"
    if pod.node and pod.node in facts.cordoned:
        return "cordoned"
    late = (facts.now - pod.created).total_seconds() > READY_SECONDS
    return "neverReady" if late and not pod.ready and not pod.gated else ""


def _due(pod: Pod, now: datetime) -> bool:
    return pod.reap_by is not None and now > pod.reap_by


def _too_many_lingering(facts: Facts, gone: set[str]) -> Iterator[Deletion]:
    staying = [pod for pod in facts.pods if pod.role == labels.ROLE_LINGERING and pod.live and pod.uid not in gone]
    staying.sort(key=lambda pod: (pod.reap_by or facts.now, pod.name))
    for pod in staying[: max(0, len(staying) - facts.pool.spec.linger.max)]:
        yield Deletion(pod, "lingerMax")


def _scale_down(facts: Facts, gone: set[str]) -> Iterator[Deletion]:
    """Those that serve nobody yet go first, then the newest."""
    staying = [pod for pod in _standby(facts) if pod.live and pod.uid not in gone]
    staying.sort(key=lambda pod: (pod.ready, -pod.created.timestamp(), pod.name))
    for pod in staying[: max(0, len(staying) - facts.pool.spec.replicas)]:
        yield Deletion(pod, "scaleDown")


# --- how many come ---


def _standby(facts: Facts) -> list[Pod]:
    uid = facts.pool.metadata.uid
    return [pod for pod in facts.pods if pod.role == labels.ROLE_STANDBY and pod.owner == uid]


def _missing(facts: Facts) -> int:
    """Pending and terminating members count, and so do those just made that the reading does not show."""
    names = {pod.name for pod in facts.pods}
    unseen = len(facts.history.unseen - names)
    standing = sum(1 for pod in _standby(facts) if not pod.stuck(facts.now)) + unseen
    total = sum(1 for pod in facts.pods if pod.counts(facts.now)) + unseen
    spec = facts.pool.spec
    return max(0, min(spec.replicas - standing, spec.max_sandboxes - total, BATCH))


def _hold(facts: Facts, failed: Sequence[Pod]) -> tuple[bool, tuple[bool, c.PoolReason, str]]:
    """Whether nothing may be made now, and the condition Degraded."""
    history = facts.history
    waiting = [pod for pod in _standby(facts) if pod.live and pod.failing]
    if facts.refusal:
        reason = c.PoolReason.NOT_SUPPORTED if facts.unsupported else c.PoolReason.TEMPLATE_REFUSED
        return True, (True, reason, facts.refusal)
    if history.quota_until is not None and facts.now < history.quota_until:
        return True, (True, c.PoolReason.QUOTA_EXCEEDED, history.quota_problem)
    failures = history.failures + len(failed)
    resumes = history.resumes()
    pausing = bool(failed) or (resumes is not None and facts.now < resumes)
    if failures >= DEGRADED_AFTER:
        problem = failed[0].problem if failed else history.problem
        text = f"{failures} members in a row ended by themselves; the last: {problem}"
        return pausing, (True, c.PoolReason.MEMBERS_FAILING, text)
    if waiting:  # more of the same would not start either
        return True, (True, c.PoolReason.MEMBERS_FAILING, waiting[0].problem)
    return pausing, (False, c.PoolReason.HEALTHY, "members start")


# --- what is told ---


def _usable(pod: Pod, facts: Facts) -> bool:
    return (
        pod.role == labels.ROLE_STANDBY
        and pod.owner == facts.pool.metadata.uid
        and pod.live
        and pod.ready
        and pod.template_hash == facts.template_hash
        and pod.node not in facts.cordoned
    )


def _ready(usable: int, facts: Facts) -> tuple[bool, c.PoolReason, str]:
    wanted = facts.pool.spec.replicas
    if usable >= wanted:
        return True, c.PoolReason.STANDBY_READY, f"{wanted} of {wanted} members stand by"
    return False, c.PoolReason.STANDBY_MISSING, f"{usable} of {wanted} members stand by"


def _progressing(facts: Facts, acting: bool, counts: Counts) -> tuple[bool, c.PoolReason, str]:
    gated = next((pod for pod in _standby(facts) if pod.live and pod.gated), None)
    if gated is not None:
        return True, c.PoolReason.REPLENISHING, f"a member waits for room: {gated.problem}"
    if acting or counts.pending:
        return True, c.PoolReason.REPLENISHING, "members are being made or replaced"
    return False, c.PoolReason.UP_TO_DATE, "nothing to do"


def _again(facts: Facts) -> float | None:
    moments = [pod.reap_by for pod in facts.pods if pod.live and pod.reap_by is not None]
    moments += [moment for moment in (facts.history.resumes(), facts.history.quota_until) if moment is not None]
    ahead = [(moment - facts.now).total_seconds() for moment in moments if moment > facts.now]
    return min(ahead) + 0.05 if ahead else None
