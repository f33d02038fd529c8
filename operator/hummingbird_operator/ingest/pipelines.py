"""What must be known of a pipeline that came to its end: the commit it tested, and whether a newer one replaced it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from hummingbird_operator.errors import Invalid, NotFound
from hummingbird_operator.forges.merge_requests import GENERATED_REF
from hummingbird_operator.ingest.hooks.moments import moment
from hummingbird_operator.ingest.payloads import BadPayload
from hummingbird_operator.ingest.route import Ended, Router

if TYPE_CHECKING:
    from hummingbird_operator.delivery.lookups import MergeRequestHead, Pipeline
    from hummingbird_operator.delivery.threads import Thread
    from hummingbird_operator.ingest.forge import Forge

_log = logging.getLogger(__name__)
_SECOND = timedelta(seconds=1)
"""A webhook says no part of a second."""


class Pipelines:
    """Looks at GitLab, and resolves threads in it. Raises what the look-ups raise."""

    def __init__(self, router: Router, forge: Forge, ask: Callable[..., Awaitable[Any]]) -> None:
        """`ask` makes a blocking call."""
        self._router = router
        self._forge = forge
        self._ask = ask

    async def resolve(self, event: Ended) -> tuple[int, Invalid | None]:
        """Resolve what the bot began about pipelines: how many it were, and why others were refused.

        An event may come late: what somebody wrote in, or opened again, after the pipeline's end stays as it is.

        A thread that is gone needs it no more. A refusal does not keep runs from being made.
        """
        place, count, refusal = (event.origin.project, event.origin.iid), 0, None
        try:
            threads = await self._ask(self._forge.bot_threads, *place)
        except Invalid as error:
            return 0, error
        ended = moment(event.finished_at)
        for thread in filter(self._resolved_by_success, threads):
            if ended and thread.touched and thread.touched > ended + _SECOND:
                continue
            try:
                await self._ask(self._forge.resolve, *place, thread.discussion)
                count += 1
            except NotFound:
                continue
            except Invalid as error:
                _log.error("a thread of %s!%s stays open: %s", *place, error)
                refusal = error
        return count, refusal

    async def is_latest(self, event: Ended) -> bool:
        """Whether it is about the merge request as it is: an event that came late says nothing of a newer failure."""
        head = await self._head(event)
        if head.pipeline_id == event.id:
            return True
        if head.pipeline_id is not None and head.pipeline_id > event.id:
            return False
        pipeline = await self._pipeline(event)
        return bool(GENERATED_REF.fullmatch(pipeline.ref)) or pipeline.sha == head.sha

    async def commit(self, event: Ended) -> str | None:
        """The commit of the merge request that the pipeline tested; None when a newer pipeline replaced it.

        That of a merged result or a train is GitLab's own, and in no event: the merge request's head stands for it.
        """
        pipeline = await self._pipeline(event)
        if not GENERATED_REF.fullmatch(pipeline.ref):
            return pipeline.sha
        head = await self._head(event)
        return None if (head.pipeline_id or 0) > event.id else head.sha

    async def _head(self, event: Ended) -> MergeRequestHead:
        head: MergeRequestHead = await self._ask(self._forge.head, event.origin.project, event.origin.iid)
        _same_project(event, head.project_id)
        return head

    async def _pipeline(self, event: Ended) -> Pipeline:
        pipeline: Pipeline = await self._ask(self._forge.pipeline, event.origin.project, event.id)
        _same_project(event, pipeline.project_id)
        return pipeline

    def _resolved_by_success(self, thread: Thread) -> bool:
        marker = thread.notes[0].marker if thread.notes else None
        return thread.resolvable and not thread.resolved and bool(marker and self._router.answers_pipelines(marker.wf))


def _same_project(event: Ended, number: int | None) -> None:
    """The number makes the run's name: an invented one would make a second run of the same event."""
    if number not in (None, event.origin.project_id):
        raise BadPayload("project.id", f"{event.origin.project} has the number {number}")
