"""How figures are printed, and the little statistics that they need."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence

MB = 1 << 20


def line(what: str, figure: str) -> None:
    """One figure, with the load of the machine over the last minute."""
    print(f"  {what:<72} {figure}  [load {os.getloadavg()[0]:.1f}]", flush=True)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that `share` of all do not exceed (nearest rank)."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)]


def milliseconds(values: Sequence[float], *shares: float) -> str:
    """Percentiles of seconds, such as `57 / 89 ms`."""
    return " / ".join(f"{percentile(values, share) * 1e3:.0f}" for share in shares) + " ms"


def timed(call: Callable[[], object]) -> float:
    """Seconds that the call took."""
    began = time.monotonic()
    call()
    return time.monotonic() - began
