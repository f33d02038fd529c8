"""Claims: one member of a pool for one run, by compare-and-swap on the member itself."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from hummingbird_operator.errors import SandboxLost


@dataclass(frozen=True)
class Member:
    """A sandbox that a run holds. `pool` is empty for one made from a template of the settings (backend `k8s`)."""

    name: str
    uid: str
    namespace: str
    pool: str
    backend: str
    lingered: bool
    cold: bool


class Claiming(Protocol):
    """The claims of a namespace of sandboxes, as the runs' slice uses them."""

    async def find(self, run_uid: str) -> Member | None:
        """The member that this run holds, by a live LIST on its label."""

    async def claim(
        self,
        run_uid: str,
        *,
        session: str,
        pool: str,
        active_seconds: int,
        template: Mapping[str, Any] | None = None,
    ) -> Member | None:
        """A member for the run, the same one when called again. None: nothing is free and there is no room."""

    async def linger(self, run_uid: str, *, session: str) -> None:
        """Keep the member for the session's next run, or delete it where the pool keeps none. Idempotent."""

    async def release(self, run_uid: str) -> None:
        """Delete the member. Idempotent."""

    async def lost(self, member: Member) -> SandboxLost | None:
        """Whether the member is gone, and why."""

    def changed(self) -> asyncio.Event:
        """Set whenever a member may have become free: clear it, try again, wait for it."""
