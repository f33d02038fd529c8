"""How kopf is set up: its settings, its login, and the pulse of its watch. docs/operations.md has the reasons."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import kopf

from hummingbird_operator.api.labels import FINALIZER, GROUP
from hummingbird_operator.kube.client import Kube

CLIENT_SILENCE_SECONDS = 330


class EndlessBackOff:
    """Pauses between retries of kopf's own requests: growing, capped, never ending, for an outage must not end runs."""

    def __iter__(self) -> Iterator[float]:
        pause = 0.5
        while True:
            yield pause * (0.5 + secrets.randbelow(1000) / 2000)
            pause = min(pause * 2, 30.0)


def register(registry: kopf.OperatorRegistry, kube: Kube, lease: str, seen: Callable[[], None]) -> None:
    """The login, and `seen` for every event of our own Lease: the watch is alive."""

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        """From the same place as our own client; it expires, so that a rotated token is read in time."""
        await kube.endpoint.reload()
        access = kube.endpoint.access
        words = (access.authorization() or " ").split(" ", 1)
        return kopf.ConnectionInfo(
            server=kube.endpoint.server,
            ca_path=access.configuration.ssl_ca_cert,
            certificate_path=access.configuration.cert_file,
            private_key_path=access.configuration.key_file,
            scheme=words[0] or None,
            token=words[1] or None,
            expiration=datetime.now(UTC) + timedelta(minutes=10),
        )

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
    s.background.cancellation_polling = 2
    s.background.instant_exit_timeout = 0.05
    s.process.ultimate_exiting_timeout = 55
    return s
