"""The door of the ingest core: one event in, one outcome out. Queue and webhook call this and nothing else."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Executor

from hummingbird_operator.config import Config
from hummingbird_operator.errors import Invalid, Unavailable
from hummingbird_operator.ingest.event import Event
from hummingbird_operator.ingest.gitlab import Forge
from hummingbird_operator.ingest.intake import NameTaken
from hummingbird_operator.ingest.metrics import IngestMetrics, known
from hummingbird_operator.ingest.reasons import Outcome, Reason
from hummingbird_operator.kube.client import KubeApi
from hummingbird_operator.workflows import Workflows

__all__ = ["Handler", "NameTaken", "Outcome", "Reason"]

_log = logging.getLogger(__name__)


class Handler:
    """Decides events of GitLab. One per process and event loop; `handle` may run many times at once.

    `executor` carries the forge's blocking calls; `clock` is monotonic seconds.
    """

    def __init__(
        self,
        config: Config,
        workflows: Workflows,
        forge: Forge,
        kube: KubeApi,
        namespace: str,
        metrics: IngestMetrics,
        executor: Executor | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if config.gitlab is None:
            raise Invalid("gitlab", "is required: ingestion needs a GitLab")
        self._metrics = metrics
        self._clock = clock

    async def handle(self, event: Event) -> Outcome:
        """What becomes of the event. Safe to repeat and to cancel at any await: everything it makes has a fixed name.

        Raises Unavailable (GitLab or the API server is away: hand in the same event again later) and NameTaken (an
        AgentRun of the name belongs to something else: a person must look). All else is an Outcome.
        """
        kind, began = event.payload.get("object_kind"), self._clock()
        try:
            outcome = await self._decide(event)
        except Unavailable as error:
            self._metrics.unavailable.labels(error.service).inc()
            raise
        except NameTaken:
            self._metrics.decided(event.source, kind, Reason.NAME_TAKEN)
            raise
        self._metrics.decided(event.source, kind, outcome.reason)
        self._metrics.seconds.labels(known(kind)).observe(self._clock() - began)
        _log.info("event %s %s: %s %s", known(kind), event.delivery, outcome.reason, outcome.detail)
        return outcome

    async def _decide(self, event: Event) -> Outcome:
        return Outcome(Reason.UNKNOWN_EVENT)
