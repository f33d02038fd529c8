"""Sandboxes that are made for one run, because none was ready."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from hummingbird_operator.errors import Conflict, NotFound, SandboxLost, Unavailable
from hummingbird_operator.kube.client import PODS, AlreadyExists, KubeApi
from hummingbird_operator.sandboxes.causes import cause_of
from hummingbird_operator.sandboxpools import objects
from hummingbird_operator.sandboxpools.claiming import Wish
from hummingbird_operator.sandboxpools.members import Pod, read

logger = logging.getLogger(__name__)

START_SECONDS = 300.0
"""How long a member that was made for a run may take to become Ready: a large image may have to be pulled."""
POLL_SECONDS = 0.25
REMEMBERED_SECONDS = 60.0
"""How long what this process wrote is remembered, in case a reading does not show it yet."""


class Recent:
    """Names or uids, each forgotten after a while."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}

    def add(self, key: str) -> None:
        """Remember it from now on."""
        self._until[key] = self._clock() + REMEMBERED_SECONDS

    def discard(self, key: str) -> None:
        """Forget it."""
        self._until.pop(key, None)

    def seen(self, keys: Iterable[str]) -> None:
        """A reading shows these: what a later one does not show is gone, for readings never go back in time."""
        for key in keys:
            self.discard(key)

    def all(self) -> set[str]:
        """What is still remembered."""
        now = self._clock()
        self._until = {key: until for key, until in self._until.items() if until > now}
        return set(self._until)


class Leaving(Unavailable):
    """The run has to wait until a pod is gone: tried again when a pod that can still be reached has ended."""

    def __init__(self, problem: str) -> None:
        super().__init__("the sandbox", problem, retry_after=objects.GRACE_SECONDS)


class Starts:
    """Makes pods under deterministic names, and deletes them with their uid as precondition."""

    def __init__(
        self,
        kube: KubeApi,
        namespace: str,
        *,
        now: Callable[[], datetime],
        clock: Callable[[], float] = time.monotonic,
        changed: Callable[[], asyncio.Event],
    ) -> None:
        self._kube = kube
        self._namespace = namespace
        self._now = now
        self._clock = clock
        self._changed = changed

    async def make(self, wish: Wish, template: Mapping[str, Any], *, linger_seconds: int) -> Pod:
        """The run's pod, made or found; not Ready yet. Raises Leaving while its name is taken."""
        reap_by = self._now() + timedelta(seconds=wish.active_seconds + objects.MARGIN_SECONDS + START_SECONDS)
        body = objects.cold(
            template,
            namespace=self._namespace,
            pool=wish.pool,
            run_uid=wish.run_uid,
            reap_by=reap_by,
            active_seconds=wish.active_seconds + round(START_SECONDS),
            linger_seconds=linger_seconds,
            replacement=wish.replacement,
        )
        name = body["metadata"]["name"]
        try:
            return read(await self._kube.create(PODS, self._namespace, body))
        except AlreadyExists:
            found = await self.get(name)
        if found is not None and found.run != wish.run_uid:
            raise Leaving(f"the pod {name}, which is not this run's, has the name that its sandbox must have")
        if found is not None and found.live:
            return found
        if found is not None:
            await self.delete(found)
        # its name is free in a moment, or never where its node is dead
        raise Leaving(f"{name}, which this run had before, is still being deleted")

    async def ready(self, pod: Pod) -> Pod:
        """Wait until it serves; else delete it and raise SandboxLost with the kubelet's or scheduler's words."""
        give_up = self._clock() + START_SECONDS
        while not pod.ready:
            changed = self._changed()
            try:
                raw = await self._kube.get(PODS, self._namespace, pod.name)
            except NotFound as error:  # of a pod, not of a pool
                raise SandboxLost("Deleted", f"{pod.name} was deleted while it was being started") from error
            lost = cause_of(raw, pod.uid)
            if raw["metadata"]["uid"] == pod.uid:  # else another has its name, and is not ours to delete
                pod = read(raw)
            if lost is None and self._clock() < give_up:
                if not pod.ready:
                    await _wait(changed, POLL_SECONDS)
                continue
            await self.delete(pod)
            raise lost or SandboxLost("StartTimeout", pod.problem or f"not Ready within {START_SECONDS:g} s")
        return pod

    async def get(self, name: str) -> Pod | None:
        """A pod by name, read live."""
        try:
            return read(await self._kube.get(PODS, self._namespace, name))
        except NotFound:
            return None

    async def lost(self, name: str, uid: str, run_uid: str = "") -> SandboxLost | None:
        """Why the pod is gone, or no longer that run's, read live; an empty `uid` means whatever has the name."""
        try:
            raw = await self._kube.get(PODS, self._namespace, name)
        except NotFound:
            return cause_of(None, uid)
        lost = cause_of(raw, uid or raw["metadata"]["uid"])
        if lost is None and run_uid and read(raw).run != run_uid:
            return SandboxLost("Released", "the pod is no longer held by this run")
        return lost

    async def delete(self, pod: Pod) -> None:
        """Delete this very pod; gone is fine."""
        if pod.deleting_since is not None:
            return
        try:
            await self._kube.delete(PODS, self._namespace, pod.name, uid=pod.uid)
        except (NotFound, Conflict):
            logger.debug("%s is gone already", pod.name)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
