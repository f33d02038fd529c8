"""Leader election by a Lease: who may write to runs, pools, forges and stores.

Durations are measured with a clock of this machine that also runs while it sleeps; a holder's Lease is judged by how
long *we* have seen it unchanged, never by comparing clocks. A leader that could not renew for RENEW_SECONDS writes
nothing from then on, well before another one may take over after LEASE_SECONDS; it goes on where it can renew again,
which is only possible while nobody else has written to the Lease, and ends hard where somebody has. The figures are
those of client-go; its exit at the deadline is not: an API server that is away for a minute would end every run's
call in flight.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from hummingbird_operator.errors import Conflict, Doubt, HummingbirdError, LeadershipLost, NotFound
from hummingbird_operator.kube.client import LEASES, AlreadyExists, KubeApi, Object

logger = logging.getLogger(__name__)

LEASE_SECONDS = 15
RENEW_SECONDS = 10.0
RETRY_SECONDS = 2.0
RELEASE_SECONDS = 2.0


def machine_clock() -> float:
    """Seconds that go on while the machine is suspended: a Lease runs out meanwhile."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


@dataclass(frozen=True)
class Held:
    """A Lease as it stood, and since when we have seen it so."""

    version: str
    since: float


class Election:
    """One candidate: `acquire`, lead while `is_leader()`, then `release`. `on_lost` ends the process.

    `check` and `is_leader` may be called from any thread.
    """

    def __init__(
        self,
        kube: KubeApi,
        namespace: str,
        name: str,
        *,
        identity: str,
        on_lost: Callable[[], None],
        clock: Callable[[], float] = machine_clock,
        retry_seconds: float = RETRY_SECONDS,
        renew_seconds: float = RENEW_SECONDS,
    ) -> None:
        self.identity = identity
        self.epoch = 0
        """leaseTransitions at our acquisition: it grows with every change of the holder."""
        self.renewals = 0
        """How often it was renewed: a watch that lives has shown some of them."""
        self._kube = kube
        self._namespace = namespace
        self._name = name
        self._on_lost = on_lost
        self._clock = clock
        self._retry_seconds = retry_seconds
        self._renew_seconds = renew_seconds
        self._renewed = float("-inf")
        self._over = "this process does not lead yet"
        self._seen: Held | None = None
        self._lease: Object = {}
        self._renewal: asyncio.Task[None] | None = None

    def is_leader(self) -> bool:
        """Whether this process may still write: its last renewal is younger than the renew deadline."""
        return not self._over and self._clock() - self._renewed < self._renew_seconds

    def check(self) -> None:
        """To be called right before any write to a forge, a store, a run or a sandbox.

        Raises LeadershipLost when that is over, Doubt while nobody can tell whether it is.
        """
        if self._over:
            raise LeadershipLost(self._over)
        if not self.is_leader():
            text = "the Lease could not be renewed in time: nothing is written until it can"
            raise Doubt("the API server", text, retry_after=self._retry_seconds)

    async def acquire(self, stop: asyncio.Event) -> bool:
        """Wait for the Lease and keep renewing it; False when `stop` was set first."""
        while not stop.is_set():
            try:
                async with asyncio.timeout(self._renew_seconds):
                    taken = await self._try_to_take()
            except (HummingbirdError, TimeoutError) as error:
                logger.warning("the lease cannot be looked at: %s", error)
                taken = False
            if taken:
                self._over = ""
                self._renewal = asyncio.create_task(self._keep_renewing())
                return True
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._retry_seconds):
                    await stop.wait()
        return False

    async def release(self) -> None:
        """Give the Lease up, so that a successor need not wait for it to run out."""
        if self._renewal is not None:
            self._renewal.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._renewal
        led, self._over = self.is_leader(), self._over or "this process handed over"
        if not led:
            return
        nobody = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _now()}
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                await self._write_ours(nobody)
        except (HummingbirdError, TimeoutError) as error:
            logger.warning("the lease was not released and will run out instead: %s", error)

    async def _try_to_take(self) -> bool:
        began = self._clock()
        try:
            lease = await self._kube.get(LEASES, self._namespace, self._name)
        except NotFound:
            return await self._write_first(began)
        spec = lease.get("spec") or {}
        if not self._may_take(lease, spec):
            return False
        transitions = int(spec.get("leaseTransitions") or 0) + 1
        try:
            mine = {**self._mine(), "acquireTime": _now(), "leaseTransitions": transitions}
            self._lease = await self._swap(lease, mine)
        except Conflict:
            return False
        self._renewed, self.epoch = began, transitions
        return True

    async def _write_first(self, began: float) -> bool:
        body: Object = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": {**self._mine(), "acquireTime": _now(), "leaseTransitions": 1},
        }
        try:
            self._lease = await self._kube.create(LEASES, self._namespace, body)
        except AlreadyExists:
            return False
        self._renewed, self.epoch = began, 1
        return True

    def _may_take(self, lease: Object, spec: Object) -> bool:
        if not spec.get("holderIdentity"):
            return True
        version = str(lease["metadata"]["resourceVersion"])
        if self._seen is None or self._seen.version != version:
            self._seen = Held(version, self._clock())
            return False
        return self._clock() - self._seen.since > int(spec.get("leaseDurationSeconds") or LEASE_SECONDS)

    async def _keep_renewing(self) -> None:
        while True:
            await asyncio.sleep(self._retry_seconds)
            try:
                await self._renew()
            except (Conflict, NotFound) as error:  # somebody took it, or took it away: there is nothing to wait for
                self._over = f"the Lease is not this process's any more: {error}"
                self._on_lost()
                return
            except (HummingbirdError, TimeoutError) as error:
                doubt = "" if self.is_leader() else "; nothing is written until it can"
                logger.warning("the lease was not renewed: %s%s", error or "no answer in time", doubt)

    async def _renew(self) -> None:
        self._renewed = await self._write_ours(self._mine())
        self.renewals += 1

    async def _write_ours(self, spec: Object) -> float:
        """Write to the Lease that we hold; when that began. Raises Conflict where somebody else has it."""
        try:
            return await self._timed_swap(spec)
        except Conflict:
            # an earlier renewal whose answer was lost, or came too late, leaves a newer version of our own
            async with asyncio.timeout(self._renew_seconds):
                lease = await self._kube.get(LEASES, self._namespace, self._name)
            if (lease.get("spec") or {}).get("holderIdentity") != self.identity:
                raise
            self._lease = lease
            return await self._timed_swap(spec)

    async def _timed_swap(self, spec: Object) -> float:
        """Each call has a time of its own: an API server that is slow, but not too slow, must not end the lead."""
        began = self._clock()
        async with asyncio.timeout(self._renew_seconds):
            self._lease = await self._swap(self._lease, spec)
        return began

    async def _swap(self, lease: Object, spec: Object) -> Object:
        """Write those fields, if the Lease is still the one that was read."""
        body = {"metadata": {"resourceVersion": lease["metadata"]["resourceVersion"]}, "spec": spec}
        return await self._kube.merge(LEASES, self._namespace, self._name, body)

    def _mine(self) -> Object:
        return {"holderIdentity": self.identity, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": _now()}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
