"""Keeps the network of sandboxes closed: one check for all who are about to make one, and for the pools' passes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from hummingbird_operator.api import labels
from hummingbird_operator.api.sandboxpool import SandboxPool
from hummingbird_operator.errors import Conflict, Invalid, NotFound, Unavailable
from hummingbird_operator.kube.client import NETWORK_POLICIES, AlreadyExists, KubeApi, Object
from hummingbird_operator.sandboxpools import objects
from hummingbird_operator.sandboxpools.members import Pod

POLICY_SECONDS = 10.0
"""How long a policy that was as wanted is taken to be so still."""


class Policies:
    """The NetworkPolicies of one namespace of sandboxes."""

    def __init__(self, kube: KubeApi, namespace: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._kube = kube
        self._namespace = namespace
        self._clock = clock
        self._seen: dict[str, tuple[float, tuple[str, bool]]] = {}  # by name: when, and what was wanted then

    async def ensure(self, pool: SandboxPool | None) -> None:
        """Return when the policy of the pool, or (None) of sandboxes without one, stands as it must.

        It is made, repaired, or dropped where the pool's network is not ours. Raises Unavailable or Invalid naming
        the policy: nothing may be made then.
        """
        name = objects.policy_name(pool.metadata.name if pool else "")
        wanted = (pool.metadata.uid, objects.wants_policy(pool)) if pool else ("", True)
        seen_at, seen = self._seen.get(name, (0.0, None))
        if seen == wanted and self._clock() - seen_at < POLICY_SECONDS:
            return
        self._seen.pop(name, None)
        began = self._clock()
        try:
            if wanted[1]:
                await self._keep(name, pool)
            else:
                await self._drop(name)
        except Invalid as error:
            raise Invalid(f"NetworkPolicy {name}", str(error)) from error
        except Unavailable as error:
            raise Unavailable(f"NetworkPolicy {name}", str(error), retry_after=error.retry_after) from error
        except (Conflict, NotFound) as error:  # somebody else writes to it: look again in a moment
            raise Unavailable(f"NetworkPolicy {name}", str(error)) from error
        self._seen[name] = began, wanted

    async def leave(self, pool: str, members: Sequence[Pod], *, closed: bool) -> None:
        """The pool goes, and these members stay until their runs end: the policy must go with the last of them.

        Where their network is `closed`, one that was collected already (a deletion in the foreground) is made anew.
        """
        name = objects.policy_name(pool)
        self._seen.pop(name, None)
        owners = [objects.member_owner(pod) for pod in members]
        if not owners:
            return
        found = await self._get(name)
        if found is not None and found["metadata"].get("deletionTimestamp"):
            raise Conflict(f"NetworkPolicy {name} is being deleted")
        if found is not None:
            await self._kube.patch(NETWORK_POLICIES, self._namespace, name, objects.owners_patch(owners))
        elif closed:
            body = objects.policy(self._namespace, pool, None)
            body["metadata"]["ownerReferences"] = owners
            await self._kube.create(NETWORK_POLICIES, self._namespace, body)

    async def _keep(self, name: str, pool: SandboxPool | None) -> None:
        owner = objects.owner_of(pool) if pool else None
        wanted = objects.policy(self._namespace, pool.metadata.name if pool else "", owner)
        found = await self._get(name)
        if found is not None and found["metadata"].get("deletionTimestamp"):
            raise Conflict("it is being deleted")
        if not objects.policy_drifted(found, wanted):
            return
        try:
            made = await self._kube.create(NETWORK_POLICIES, self._namespace, wanted)
        except AlreadyExists:
            made = await self._kube.patch(NETWORK_POLICIES, self._namespace, name, objects.policy_patch(wanted))
        if objects.policy_drifted(made, wanted):
            raise Conflict("something in the cluster changes what is written to it")

    async def _drop(self, name: str) -> None:
        found = await self._get(name)
        if found is None or (found["metadata"].get("labels") or {}).get(labels.MANAGED_BY) != labels.MANAGER:
            return
        try:
            await self._kube.delete(NETWORK_POLICIES, self._namespace, name)
        except NotFound:
            return

    async def _get(self, name: str) -> Object | None:
        try:
            return await self._kube.get(NETWORK_POLICIES, self._namespace, name)
        except NotFound:
            return None
