"""Where kopf meets the pools: a daemon per pool that looks whenever something happened, and every ten seconds.

Events set wake-up flags and nothing else. Nothing is returned to kopf and its `patch` is never touched: a daemon whose
own patch fails to apply dies for good (kopf#642). No timer or daemon ever stands on a pod: each would put a finalizer
on it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import kopf

from hummingbird_operator.api import labels
from hummingbird_operator.errors import HummingbirdError, NotFound, Unavailable
from hummingbird_operator.kube.client import SANDBOX_POOLS, KubeApi
from hummingbird_operator.kube.finalizers import hold
from hummingbird_operator.kube.watch import LONGEST_ASKED_SECONDS
from hummingbird_operator.sandboxpools.claims import Claims
from hummingbird_operator.sandboxpools.members import read
from hummingbird_operator.sandboxpools.reconcile import ORPHAN_SECONDS, Reconciler, Recorder

logger = logging.getLogger(__name__)

Rest = Callable[[float], Awaitable[None]]

RESYNC_SECONDS = 10.0
DEBOUNCE_SECONDS = 0.05
"""A burst of pod events is one pass."""
BACK_OFF_CAP_SECONDS = 30.0
FINALIZER_SECONDS = 5.0
"""How long kopf is given to store its finalizer before we do."""
LEAD_SECONDS = 1.0
"""How often it is looked whether the lead is certain again."""
SURPRISES = 5
"""Times that letting a pool go may meet an error which nobody expected, before it goes without."""


@dataclass(frozen=True)
class Deps:
    """What the pools get from the wiring. Without `run_namespaces`, orphans wait for `reap-by`."""

    kube: KubeApi
    claims: Claims
    recorder: Recorder
    run_namespaces: Sequence[str] = ()
    orphan_seconds: float = ORPHAN_SECONDS
    leads: Callable[[], bool] = lambda: True


class Wakes:
    """One flag per pool."""

    def __init__(self) -> None:
        self._events: dict[str, asyncio.Event] = {}

    def of(self, pool: str) -> asyncio.Event:
        """The pool's flag."""
        return self._events.setdefault(pool, asyncio.Event())

    def wake(self, pool: str) -> None:
        """Something happened to it."""
        self.of(pool).set()

    def forget(self, pool: str) -> None:
        """The pool is gone."""
        self._events.pop(pool, None)


def register(registry: kopf.OperatorRegistry, deps: Deps) -> Callable[[Mapping[str, Any]], None]:
    """Put the pools' handlers on the registry; what is returned wants to be told of every member that changes.

    Members are not kopf's to watch: it would watch pods in the operator's own namespace as well.
    """
    reconciler = Reconciler(
        deps.kube,
        deps.claims,
        deps.recorder,
        run_namespaces=deps.run_namespaces,
        orphan_seconds=deps.orphan_seconds,
        leads=deps.leads,
    )
    wakes = Wakes()
    kept: set[str] = set()

    @kopf.on.event(labels.GROUP, labels.VERSION, "sandboxpools", registry=registry)
    async def pool_seen(name: str, namespace: str | None, body: Mapping[str, Any], **_: Any) -> None:
        wakes.wake(name)
        meta = body["metadata"]
        held = "deletionTimestamp" in meta and labels.FINALIZER in meta.get("finalizers", ())
        # Deleted while nobody led: kopf starts no daemon for it, and takes the finalizer once this event is handled.
        if held and meta["uid"] not in kept and namespace == deps.claims.namespace:
            await certain(deps.leads, name)
            await let_go(reconciler, name, meta["uid"])
            wakes.forget(name)

    def member_seen(body: Mapping[str, Any]) -> None:
        pod = read(body)
        wakes.wake(pod.pool)
        # one that was deleted without grace carries no sign of it: for an active one, ask once too often
        if not pod.live or pod.ready:
            deps.claims.notify()

    # No cancellation_backoff: with one, kopf sleeps it out on deletion unless an event of the pool wakes it. Without,
    # it looks every background.cancellation_polling seconds whether the daemon, which leaves by itself, is gone.
    @kopf.daemon(labels.GROUP, labels.VERSION, "sandboxpools", registry=registry)
    async def keep(
        name: str, namespace: str | None, uid: str, body: kopf.Body, stopped: kopf.DaemonStopped, **_: Any
    ) -> None:
        if namespace != deps.claims.namespace:
            logger.warning("pool %s/%s is not in the namespace of sandboxes and is not served", namespace, name)
            return
        kept.add(uid)
        try:
            await held_open(deps.kube, body, stopped)
            await keep_pool(reconciler, wakes, name, stopped)
            if stopped.reason is not None and kopf.DaemonStoppingReason.RESOURCE_DELETED in stopped.reason:
                await let_go(reconciler, name, uid, stopped)
                wakes.forget(name)
        finally:
            kept.discard(uid)

    return member_seen


async def held_open(kube: KubeApi, body: Mapping[str, Any], stopped: Any, seconds: float = FINALIZER_SECONDS) -> None:
    """Return once our finalizer is on the live object: kopf starts us before it is stored.

    Without it a pool that is deleted takes along its NetworkPolicy, from under the members that a run holds. `body` is
    kopf's live view.
    """
    give_up = asyncio.get_running_loop().time() + seconds
    while not stopped and labels.FINALIZER not in body["metadata"].get("finalizers", ()):
        await _first(None, stopped, min(0.05, seconds))
        if asyncio.get_running_loop().time() < give_up:
            continue
        meta = body["metadata"]
        try:
            await hold(kube, SANDBOX_POOLS, meta["namespace"], meta["name"], uid=meta["uid"])
            return
        except HummingbirdError as error:
            logger.warning("pool %s has no finalizer yet: %s", meta["name"], error)
            give_up += seconds


async def keep_pool(reconciler: Reconciler, wakes: Wakes, name: str, stopped: Any, *, rest: Rest | None = None) -> None:
    """Pass after pass until `stopped`; whatever fails is logged and tried again. `rest` waits after an error."""
    rest = rest or (lambda seconds: _first(None, stopped, seconds))
    wake, failures = wakes.of(name), 0
    while not stopped:
        wake.clear()
        try:
            again = await reconciler.reconcile(name)
            failures = 0
        except NotFound:
            again = None
        except Exception as error:  # a daemon that ends by an error is never started again
            failures += 1
            again = max(min(2.0 ** (failures - 1), BACK_OFF_CAP_SECONDS), _asked_for(error))
            known = isinstance(error, HummingbirdError)
            logger.warning("pool %s: %s; tried again in %g s", name, error, again, exc_info=not known)
        resync = RESYNC_SECONDS * random.uniform(0.8, 1.2)  # noqa: S311 - jitter
        await _first(wake, stopped, min(resync, again) if again else resync)
        if failures:  # a storm of events is no reason to hurry after an error
            await rest(again or 0)
        elif not stopped:
            await asyncio.sleep(DEBOUNCE_SECONDS)


async def _first(wake: asyncio.Event | None, stopped: Any, seconds: float) -> None:
    """Until one of them is set, or the time is over."""
    waits = [asyncio.ensure_future(stopped.wait())]
    if wake is not None:
        waits.append(asyncio.ensure_future(wake.wait()))
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def _asked_for(error: Exception) -> float:
    """What the API server wants us to wait, as far as it is obeyed."""
    return min(error.retry_after or 0.0, LONGEST_ASKED_SECONDS) if isinstance(error, Unavailable) else 0.0


async def certain(leads: Callable[[], bool], name: str) -> None:
    """Return once this process leads for certain. Where the lead is lost the process ends, and this with it: a handler

    that returned would let kopf take the finalizer of a pool that the next leader has to let go.
    """
    if not leads():
        logger.warning("pool %s is being deleted: it waits until it is certain who leads", name)
    while not leads():  # noqa: ASYNC110 - a lead is told by a clock
        await asyncio.sleep(LEAD_SECONDS)


async def let_go(
    reconciler: Reconciler, name: str, uid: str, stopped: Any = None, *, rest: Rest = asyncio.sleep
) -> None:
    """The pool is being deleted: tried until it is done, or until this process leaves it to the next leader."""
    delay, surprises = 0.5, 0
    while not _leaving(stopped):
        try:
            await reconciler.let_go(name, uid)
            return
        except Exception as error:
            known = isinstance(error, HummingbirdError)
            logger.warning("pool %s is being deleted: %s; tried again in %g s", name, error, delay, exc_info=not known)
            surprises += not known
            if surprises >= SURPRISES:  # a pool that can never be deleted is worse; strays are swept
                logger.error("pool %s goes without having been tidied up", name)
                return
            await rest(max(delay, _asked_for(error)))
            delay = min(delay * 2, BACK_OFF_CAP_SECONDS)


def _leaving(stopped: Any) -> bool:
    reason = getattr(stopped, "reason", None)
    return reason is not None and kopf.DaemonStoppingReason.OPERATOR_EXITING in reason
