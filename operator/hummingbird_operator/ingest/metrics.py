"""What the ingestors count."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram

from hummingbird_operator.telemetry import SECONDS

KINDS = frozenset({"pipeline", "merge_request", "note"})
SOURCES = frozenset({"gitlab"})
OTHER = "other"


@dataclass(frozen=True)
class IngestMetrics:
    """Collectors on one registry; every label is bounded, whatever comes in."""

    events: Counter
    """`hummingbird_ingest_events_total{source,event,reason}`: events that were decided."""
    seconds: Histogram
    """`hummingbird_ingest_seconds{event}`: from a decoded event to its outcome."""
    unavailable: Counter
    """`hummingbird_ingest_unavailable_total{service}`: events that must come again, since a service is away."""

    @classmethod
    def on(cls, registry: CollectorRegistry | None = None) -> IngestMetrics:
        """Make the collectors; on a registry of their own where none is given."""
        registry = registry or CollectorRegistry()
        prefix = "hummingbird_ingest"
        return cls(
            events=Counter(f"{prefix}_events", "Decided events", ["source", "event", "reason"], registry=registry),
            seconds=Histogram(f"{prefix}_seconds", "Event to outcome", ["event"], registry=registry, buckets=SECONDS),
            unavailable=Counter(
                f"{prefix}_unavailable", "Events put off, by the service that is away", ["service"], registry=registry
            ),
        )

    def decided(self, source: str, kind: object, reason: str) -> None:
        """Count an event; a kind or source that nobody knows is counted as other."""
        self.events.labels(source if source in SOURCES else OTHER, known(kind), reason).inc()


def known(kind: object) -> str:
    """The kind as a label."""
    return kind if isinstance(kind, str) and kind in KINDS else OTHER
