"""Events for `kubectl describe`, on transitions only; the same one again raises a count instead of making another."""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from hummingbird_operator.errors import HummingbirdError, NotFound
from hummingbird_operator.kube.client import EVENTS, AlreadyExists, KubeApi, Object

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

logger = logging.getLogger(__name__)

MESSAGE_LIMIT = 1024
"""Characters, as the API server bounds them."""
REMEMBERED = 1000
"""Events whose count can be raised; an older one is made anew."""


class Recorder:
    """Writes Events as `component`, from this `instance`."""

    def __init__(
        self,
        kube: KubeApi,
        *,
        component: str,
        instance: str,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._kube = kube
        self._component = component
        self._instance = instance
        self._now = now
        self._counts: OrderedDict[tuple[str, str], int] = OrderedDict()

    async def emit(self, reference: Mapping[str, str], type_: str, reason: str, message: str) -> None:
        """One Event about that object (kind, name, namespace, uid …). Never raises: losing one costs nothing."""
        namespace, text = reference["namespace"], message[:MESSAGE_LIMIT]
        digest = hashlib.sha256("\n".join((reference["uid"], type_, reason, text)).encode()).hexdigest()[:16]
        name = f"{reference['name'][:200]}.{digest}"
        count = self._counts.get((namespace, name), 0) + 1
        try:
            if count == 1 or not await self._raise(namespace, name, count):
                count = 1  # the API server forgets events after an hour
                await self._create(namespace, name, reference, type_, reason, text)
        except HummingbirdError as error:
            logger.info("an event was lost: %s: %s (%s)", reason, text, error)
            return
        self._counts[(namespace, name)] = count
        self._counts.move_to_end((namespace, name))
        if len(self._counts) > REMEMBERED:
            self._counts.popitem(last=False)

    async def _create(
        self, namespace: str, name: str, reference: Mapping[str, str], type_: str, reason: str, text: str
    ) -> None:
        moment = self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
        body: Object = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": dict(reference),
            "type": type_,
            "reason": reason,
            "message": text,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._instance[:128],
            "firstTimestamp": moment,
            "lastTimestamp": moment,
            "count": 1,
        }
        try:
            await self._kube.create(EVENTS, namespace, body)
        except AlreadyExists:  # made by the process before us
            await self._raise(namespace, name, 2)

    async def _raise(self, namespace: str, name: str, count: int) -> bool:
        """Raise the count; False when there is nothing to raise any more."""
        moment = self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
        try:
            await self._kube.merge(EVENTS, namespace, name, {"count": count, "lastTimestamp": moment})
        except NotFound:
            return False
        return True
