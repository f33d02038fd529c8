"""What an operator process says of itself: its memory as the kernel counts it, its histograms as it publishes them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families


@dataclass(frozen=True)
class Memory:
    """MiB resident: now, and at most since `forget_peak`."""

    now: float
    peak: float
    threads: int


def memory(pid: int) -> Memory:
    """The process's memory, from /proc."""
    text = Path(f"/proc/{pid}/status").read_text()
    values = {name: int(value) for name, value in re.findall(r"^(VmRSS|VmHWM|Threads):\s+(\d+)", text, re.MULTILINE)}
    return Memory(values["VmRSS"] / 1024, values["VmHWM"] / 1024, values["Threads"])


def cpu_seconds(pid: int) -> float:
    """What the process has used so far, all threads together: less at the mercy of the machine's load than time is."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def forget_peak(pid: int) -> None:
    """Count the peak from now on."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


@dataclass(frozen=True)
class Histogram:
    """A Prometheus histogram of seconds: cumulative counts by upper bound."""

    buckets: Mapping[float, float]
    total: float
    count: float

    def __sub__(self, earlier: Histogram) -> Histogram:
        """What came since."""
        buckets = {bound: count - earlier.buckets.get(bound, 0) for bound, count in self.buckets.items()}
        return Histogram(buckets, self.total - earlier.total, self.count - earlier.count)

    @property
    def mean(self) -> float:
        """Of all observations."""
        return self.total / self.count if self.count else float("nan")

    def below(self, share: float) -> float:
        """The bound of the bucket that holds this share: the true percentile is at most that."""
        return min(
            (bound for bound, count in self.buckets.items() if count >= share * self.count), default=float("nan")
        )


def histogram(page: str, name: str, **labels: str) -> Histogram:
    """One of a metrics page; empty where it was never observed."""
    buckets: dict[float, float] = {}
    total = count = 0.0
    for family in text_string_to_metric_families(page):
        if family.name != name:
            continue
        for sample in family.samples:
            if any(sample.labels.get(key) != value for key, value in labels.items()):
                continue
            if sample.name.endswith("_bucket"):
                buckets[float(sample.labels["le"])] = sample.value
            elif sample.name.endswith("_sum"):
                total = sample.value
            elif sample.name.endswith("_count"):
                count = sample.value
    return Histogram(buckets, total, count)


LAG = "hummingbird_event_loop_lag_seconds"
