"""How kopf is set up: its settings, its login, and the pulse of its watch. docs/operations.md has the reasons."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import kopf

from hummingbird_operator.api.labels import FINALIZER, GROUP
from hummingbird_operator.kube.client import Kube

CLIENT_SILENCE_SECONDS = 330
CREDENTIALS_SECONDS = 600.0
"""How long kopf keeps credentials: a mounted token is read anew long before the old one runs out."""
REFUSED_SECONDS = 60.0
"""A login that is asked for so soon after the last one was caused by a 401."""
THROTTLE_SECONDS = (1, 1, 2, 3, 5, 8, 13, 21, 30)
"""kopf's own list ends at ten minutes, for which it would look away from an object that it could not patch."""


class EndlessBackOff:
    """Pauses between retries of kopf's own requests: growing, capped, never ending, for an outage must not end runs."""

    def __init__(self, *, first: float = 0.5, longest: float = 30.0) -> None:
        self._first = first
        self._longest = longest

    def __iter__(self) -> Iterator[float]:
        pause = self._first
        while True:
            yield pause * (0.5 + secrets.randbelow(1000) / 2000)
            pause = min(pause * 2, self._longest)


class Login:
    """Credentials from the same place as our own client's.

    kopf asks again after each 401, at once, and takes any answer that differs from the refused one, which ours does by
    its expiry: a server that refuses every token (its store is away, say) would be asked as fast as the network allows.
    """

    def __init__(self, kube: Kube, *, seconds: float = CREDENTIALS_SECONDS) -> None:
        self._kube = kube
        self._seconds = seconds
        self._asked_at = float("-inf")
        self._pauses = iter(EndlessBackOff())

    async def __call__(self) -> kopf.ConnectionInfo:
        """They expire, so that a rotated token is read in time."""
        clock = asyncio.get_running_loop().time
        if clock() - self._asked_at < min(REFUSED_SECONDS, self._seconds):
            await asyncio.sleep(next(self._pauses))
        else:
            self._pauses = iter(EndlessBackOff())
        self._asked_at = clock()
        await self._kube.endpoint.reload()
        access = self._kube.endpoint.access
        words = (access.authorization() or " ").split(" ", 1)
        return kopf.ConnectionInfo(
            server=self._kube.endpoint.server,
            ca_path=access.configuration.ssl_ca_cert,
            insecure=not access.configuration.verify_ssl,
            certificate_path=access.configuration.cert_file,
            private_key_path=access.configuration.key_file,
            scheme=words[0] or None,
            token=words[1] or None,
            expiration=datetime.now(UTC) + timedelta(seconds=self._seconds),
        )


def register(
    registry: kopf.OperatorRegistry,
    kube: Kube,
    lease: str,
    seen: Callable[[], None],
    *,
    credentials_seconds: float = CREDENTIALS_SECONDS,
) -> None:
    """The login, and `seen` for every event of our own Lease: the watch is alive."""
    credentials = Login(kube, seconds=credentials_seconds)

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        return await credentials()

    @kopf.on.event("coordination.k8s.io", "v1", "leases", registry=registry)
    async def lease_seen(name: str, **_: Any) -> None:
        if name == lease:
            seen()


def settings() -> kopf.OperatorSettings:
    """Those of a process that leads."""
    s = kopf.OperatorSettings()
    s.peering.standalone = True
    s.scanning.disabled = True
    s.persistence.finalizer = FINALIZER
    s.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP, v1=False)
    s.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=GROUP, v1=False)
    s.posting.enabled = False
    s.networking.connect_timeout = 10
    s.networking.request_timeout = 30
    s.networking.error_backoffs = EndlessBackOff()
    s.watching.connect_timeout = 10
    s.watching.server_timeout = CLIENT_SILENCE_SECONDS - 30
    s.watching.client_timeout = CLIENT_SILENCE_SECONDS
    s.watching.reconnect_backoff = 1.0
    s.queueing.exit_timeout = 5
    s.queueing.error_delays = THROTTLE_SECONDS
    s.background.cancellation_polling = 2
    s.background.instant_exit_timeout = 0.05
    s.process.ultimate_exiting_timeout = 55
    return s
