"""What the pools count."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge


@dataclass(frozen=True)
class PoolMetrics:
    """Collectors on one registry, with the pool's name as a plain label."""

    members: Gauge
    """`hummingbird_sandboxpool_members{namespace,pool,state}`: standby, pending, active, lingering."""
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
            claims=Counter(f"{prefix}_claims", "Claims", ["pool", "launch"], registry=registry),
            conflicts=Counter(f"{prefix}_claim_conflicts", "Lost races", ["pool"], registry=registry),
            created=Counter(f"{pool}_created", "Members made", ["pool"], registry=registry),
            reaped=Counter(f"{pool}_reaped", "Members deleted", ["pool", "reason"], registry=registry),
            reconciles=Counter(f"{pool}_reconciles", "Passes", ["pool", "result"], registry=registry),
        )
