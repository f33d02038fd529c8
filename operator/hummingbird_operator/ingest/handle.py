"""The door of the ingest core: one event in, one outcome out. Queue and webhook call this and nothing else."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Protocol

from hummingbird_operator.config import Config
from hummingbird_operator.delivery.refusals import Forbidden, TooLarge
from hummingbird_operator.errors import Invalid, NotFound, Unavailable
from hummingbird_operator.ingest.away import GITLAB, Away, Barred
from hummingbird_operator.ingest.event import Event
from hummingbird_operator.ingest.forge import Forge
from hummingbird_operator.ingest.gitlab import LAG_SECONDS, REACTION_SECONDS, Desk
from hummingbird_operator.ingest.intake import Intake, NameTaken, Refused
from hummingbird_operator.ingest.metrics import KINDS, SOURCES, IngestMetrics, known
from hummingbird_operator.ingest.payloads import BadPayload, home
from hummingbird_operator.ingest.reasons import Outcome, Reason
from hummingbird_operator.ingest.route import Asked, Router
from hummingbird_operator.ingest.telling import Teller
from hummingbird_operator.kube.client import KubeApi
from hummingbird_operator.workflows import Workflows

__all__ = ["Handler", "Handles", "NameTaken", "Outcome", "Reason"]

_log = logging.getLogger(__name__)


class Handles(Protocol):
    """What makes AgentRuns of events: `Handler`."""

    async def handle(self, event: Event) -> Outcome:
        """Safe to repeat. Raises Unavailable (the same event again later) and NameTaken."""

    async def away(self) -> Unavailable | None:
        """Asked after Unavailable: what is away for every event; None where only this event failed."""


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
        reaction_seconds: float = REACTION_SECONDS,
        lag_seconds: float = LAG_SECONDS,
    ) -> None:
        if config.gitlab is None:
            raise Invalid("gitlab", "is required: ingestion needs a GitLab")
        self._metrics = metrics
        self._clock = clock
        self._router = Router(config, workflows)
        intake = Intake(kube, namespace)
        self._desk = Desk(self._router, forge, intake, executor, clock, reaction_seconds, lag_seconds)
        self._away = Away(forge, kube, namespace, clock)
        self._teller = Teller(self._router.like)

    async def away(self) -> Unavailable | None:
        """What is away for every event; None where GitLab and the API server answer, and one event failed alone.

        Ask it right after `handle` raised Unavailable, before anybody else's events are held back. It costs a request
        to each service, and its answer is remembered for three seconds. Takes no longer than five.
        """
        return await self._away.look()

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
            if isinstance(error, Barred):
                self._away.bar(error)
            raise
        except NameTaken:
            self._metrics.decided(event.source, kind, Reason.NAME_TAKEN)
            raise
        self._metrics.decided(event.source, kind, outcome.reason)
        self._metrics.seconds.labels(known(kind)).observe(self._clock() - began)
        self._teller.tell(event, outcome)
        return outcome

    async def _decide(self, event: Event) -> Outcome:
        """The outcome, with what is wrong with the event or with the bot's rights turned into a reason.

        A right that is missing in one project is no reason to hold back everybody's events. What people wrote comes
        again until it is mended, or given up; of what happened by itself it is told as an error, for the next push or
        pipeline comes anyway. Where even the bot's own account is refused, nothing is missing in one project only.
        """
        try:
            return await self._routed(event)
        except Refused as error:
            _log.error("the run of an event is refused, and the event is gone: %s", error)
            return Outcome(Reason.BAD_PAYLOAD, str(error))
        except BadPayload as error:
            return Outcome(Reason.BAD_PAYLOAD, str(error))
        except NotFound as error:
            return Outcome(Reason.NO_TARGET, str(error))
        except NameTaken:
            raise
        except TooLarge as error:
            return Outcome(Reason.TOO_LARGE, str(error))
        except Invalid as error:
            away = await self.away()
            if away is not None:
                raise away from error
            if isinstance(error, Forbidden) and event.payload.get("object_kind") == "note":
                raise Unavailable(GITLAB, str(error)) from error
            return Outcome(Reason.FORBIDDEN, str(error))

    async def _routed(self, event: Event) -> Outcome:
        kind = event.payload.get("object_kind") if event.source in SOURCES else None
        host = home(event.payload) if known(kind) in KINDS else ""
        if host and not await self._desk.is_ours(host):
            return Outcome(Reason.OTHER_GITLAB, ascii(host)[1:-1])
        if kind == "pipeline":
            ended = self._router.pipeline(event.payload)
            return ended if isinstance(ended, Outcome) else await self._desk.ended(ended)
        if kind == "merge_request":
            proposed = self._router.merge_request(event.payload)
            if isinstance(proposed, Outcome):
                return proposed
            if proposed.origin.author_id == await self._desk.bot_id():  # it resolved the last thread, for instance
                return Outcome(Reason.SELF_EVENT)
            return await self._desk.proposed(proposed)
        if kind == "note":
            return await self._noted(event)
        return Outcome(Reason.UNKNOWN_EVENT)

    async def _noted(self, event: Event) -> Outcome:
        note = self._router.note(event.payload)
        if isinstance(note, Outcome):
            return note
        found = self._router.addressed(note, await self._desk.bot_id())
        if isinstance(found, Outcome):
            if found.reason is Reason.SELF_EVENT:
                self._desk.heard(note.project.path_with_namespace, note.object_attributes.discussion_id)
            return found
        return await (self._desk.asked(found) if isinstance(found, Asked) else self._desk.replied(found))
