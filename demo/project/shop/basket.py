"""Prices are in cents."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Basket:
    """What a customer is about to buy."""

    lines: list[tuple[str, int, int]] = field(default_factory=list)

    def add(self, name: str, price: int, quantity: int = 1) -> None:
        """Put `quantity` pieces into the basket."""
        if quantity < 1:
            raise ValueError(f"quantity must be at least 1, not {quantity}")
        self.lines.append((name, price, quantity))

    def total(self, discount_percent: int = 0) -> int:
        """What is to be paid, in cents, after the discount."""
        full = sum(price * quantity for _, price, quantity in self.lines)
        return full - full // 100 * discount_percent
