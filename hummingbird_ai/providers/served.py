"""What one adapter's answers cost: by the model that really served, pass by pass."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from decimal import Decimal

from hummingbird_ai.messages import Usage
from hummingbird_ai.pricing import Prices, estimate_cost, find_price

_log = logging.getLogger(__name__)


class Tariff:
    """The prices of one adapter: the name it was asked for, the region it calls, and what a person has set."""

    def __init__(self, name: str, region: str, prices: Prices | None = None) -> None:
        self._name = name
        self._region = region
        self._prices = prices
        self._rerouted: set[str] = set()

    def cost(self, passes: Iterable[tuple[str, Usage]]) -> Decimal | None:
        """USD of all passes (model that served, usage): each is billed as a request of its own. None: no price."""
        total = Decimal(0)
        for version, usage in passes:
            cost = estimate_cost(self._served(version), usage, prices=self._prices, region=self._region)
            if cost is None:
                return None
            total += cost
        return total

    def _served(self, version: str) -> str:
        """The name to price by; a person's own price for the name they configured stands for what it leads to."""
        if not version or (find_price(version, self._prices) is None and self._name in (self._prices or {})):
            return self._name
        asked = self._name.replace("@", "-")  # a release is written with @ in the address and with - in the answer
        if not version.replace("@", "-").startswith(asked) and version not in self._rerouted:
            self._rerouted.add(version)
            _log.warning("%s was answered by %s, which is priced instead", self._name, version)
        return version
