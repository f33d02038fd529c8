"""What the pools count."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge

from hummingbird_operator.sandboxpools.decide import Counts

STATES = ("standby", "pending", "active", "lingering")


@dataclass(frozen=True)
class PoolMetrics:
    """Collectors on one registry, with the pool's name as a plain label."""

    members: Gauge
    """`hummingbird_sandboxpool_members{namespace,pool,state}`: standby, pending, active, lingering."""
    wanted: Gauge
    """`hummingbird_sandboxpool_spec_replicas{namespace,pool}`: standby members that the pool is to keep."""
    claims: Counter
    """`hummingbird_sandbox_claims_total{pool,launch}`: warm, cold or lingered; the hit rate is warm over all."""
    conflicts: Counter
    """`hummingbird_sandbox_claim_conflicts_total{pool}`: a member that somebody else took first."""
    created: Counter
    """`hummingbird_sandboxpool_created_total{pool}`."""
    reaped: Counter
    """`hummingbird_sandboxpool_reaped_total{pool,reason}`."""
    reconciles: Counter
    """`hummingbird_sandboxpool_reconciles_total{pool,result}`: done, or error."""

    @classmethod
    def on(cls, registry: CollectorRegistry | None = None) -> PoolMetrics:
        """Make the collectors; on a registry of their own where none is given."""
        registry = registry or CollectorRegistry()
        pool, prefix = "hummingbird_sandboxpool", "hummingbird_sandbox"
        return cls(
            members=Gauge(f"{pool}_members", "Members", ["namespace", "pool", "state"], registry=registry),
            wanted=Gauge(f"{pool}_spec_replicas", "Standby wanted", ["namespace", "pool"], registry=registry),
            claims=Counter(f"{prefix}_claims", "Claims", ["pool", "launch"], registry=registry),
            conflicts=Counter(f"{prefix}_claim_conflicts", "Lost races", ["pool"], registry=registry),
            created=Counter(f"{pool}_created", "Members made", ["pool"], registry=registry),
            reaped=Counter(f"{pool}_reaped", "Members deleted", ["pool", "reason"], registry=registry),
            reconciles=Counter(f"{pool}_reconciles", "Passes", ["pool", "result"], registry=registry),
        )

    def tell(self, namespace: str, pool: str, counts: Counts, *, wanted: int) -> None:
        """What a pool has and is to have."""
        for state in STATES:
            self.members.labels(namespace, pool, state).set(getattr(counts, state))
        self.wanted.labels(namespace, pool).set(wanted)

    def forget(self, namespace: str, pool: str) -> None:
        """The pool goes: a gauge that stayed would say for ever that it is empty. Counters stay, as they must."""
        for state in STATES:
            self.members.remove(namespace, pool, state)
        self.wanted.remove(namespace, pool)
