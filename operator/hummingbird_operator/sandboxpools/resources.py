"""Pure: what a sandbox may use at most where its template says nothing (seed 003 §8.5)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

REQUESTS = {"cpu": "100m", "memory": "256Mi", "ephemeral-storage": "0"}
"""Of disk nothing, where the seed has 256Mi: a node whose kubelet does not account for it (rootless ones, with
localStorageCapacityIsolation off) offers none and would take no sandbox at all. Left out, it would be the limit."""
LIMITS = {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "2Gi"}

_QUANTITY = re.compile(r"\+?(\d+\.?\d*|\.\d+)(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?\d{1,2}))?")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}


def bounded(resources: Mapping[str, Any]) -> dict[str, Any]:
    """The container's resources with what is missing filled in, by resource.

    What the template says stands: a default request is never above its limit, nor a default limit below its request,
    which the API server would refuse. A quantity that cannot be read is left to the API server to refuse.
    """
    limits, requests = dict(resources.get("limits") or {}), dict(resources.get("requests") or {})
    for name, default in LIMITS.items():
        limits[name] = limits[name] if name in limits else _larger(default, requests.get(name))
    for name, default in REQUESTS.items():
        requests[name] = requests[name] if name in requests else _smaller(default, limits[name])
    return {**resources, "requests": requests, "limits": limits}


def _larger(default: str, asked: object) -> object:
    return asked if (_amount(asked) or 0) > (_amount(default) or 0) else default


def _smaller(default: str, allowed: object) -> object:
    amount = _amount(allowed)
    return allowed if amount is not None and amount < (_amount(default) or 0) else default


def _amount(quantity: object) -> Decimal | None:
    """A Kubernetes quantity as a number, None for what is none."""
    found = _QUANTITY.fullmatch(str(quantity).strip()) if isinstance(quantity, str | int | float) else None
    if found is None:
        return None
    number, suffix, exponent = found.groups()
    if suffix in _BINARY:
        return Decimal(number) * Decimal(1024) ** _BINARY[suffix]
    return Decimal(number).scaleb(_DECIMAL.get(suffix or "", int(exponent or 0)))
