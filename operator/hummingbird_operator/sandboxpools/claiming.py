"""What a claim gives, and what the runs' slice may ask of claims."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from hummingbird_operator.errors import SandboxLost
from hummingbird_operator.sandboxpools import objects
from hummingbird_operator.sandboxpools.members import POD_BACKEND, POOLED_BACKEND, Pod


@dataclass(frozen=True)
class Wish:
    """What a run asks for. `pool` is empty for a sandbox without one."""

    run_uid: str
    session: str
    pool: str
    active_seconds: int
    replacement: bool
    """For one that the run held and lost."""


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

    @classmethod
    def of(cls, pod: Pod, namespace: str, run_uid: str, *, lingered: bool = False) -> Member:
        """The pod as the run's sandbox."""
        return cls(
            name=pod.name,
            uid=pod.uid,
            namespace=namespace,
            pool=pod.pool,
            backend=POOLED_BACKEND if pod.pool else POD_BACKEND,
            lingered=lingered,
            cold=objects.made_for(run_uid, pod),
        )


class Claiming(Protocol):
    """The claims of a namespace of sandboxes; `claims.Claims` says more of each."""

    async def find(self, run_uid: str) -> Member | None:
        """The member that this run holds."""

    async def claim(
        self,
        run_uid: str,
        *,
        session: str,
        pool: str,
        active_seconds: int,
        template: Mapping[str, Any] | None = None,
        replacement: bool = False,
    ) -> Member | None:
        """A member for the run, the same one when called again. None: nothing is free and there is no room."""

    async def linger(self, run_uid: str, *, session: str) -> None:
        """Keep the member for the session's next run, or delete it where the pool keeps none. Idempotent."""

    async def release(self, run_uid: str) -> None:
        """Delete the member. Idempotent."""

    def shortage(self, run_uid: str) -> str:
        """Why the run's last claim gave None: a quota's refusal, or nothing where the pool's own maximum was met."""

    async def lost(self, member: Member) -> SandboxLost | None:
        """Whether the member is gone, and why."""

    async def lost_of(self, run_uid: str, name: str, uid: str) -> SandboxLost | None:
        """Why the pod that the run held is not its sandbox any more; None: it is, and may be not Ready for now."""

    def changed(self) -> asyncio.Event:
        """Set when a member may have become free."""
