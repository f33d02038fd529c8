"""Runs that the watch has shown once and that are not there any more: they would hold a session, a lane and a slot.

A watch that is opened anew shows what is there, not what went meanwhile; and of a run that nothing drives, nobody
would notice.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from hummingbird_operator.errors import HummingbirdError, NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hummingbird_operator.agentruns.status import StatusWriter
    from hummingbird_operator.api.agentrun import AgentRun

logger = logging.getLogger(__name__)

UNDRIVEN_SECONDS = 60.0
"""A run that has been live for so long without a daemon is looked at."""


class Shown(Protocol):
    """What the watch has shown."""

    def undriven(self, seconds: float) -> Sequence[AgentRun]:
        """Live runs that were seen so long ago and that nothing drives."""

    def forget(self, uid: str) -> None:
        """The run is not there any more."""


async def keep_looking(shown: Shown, status: StatusWriter) -> None:
    """Forget what is gone, for ever."""
    while True:
        await asyncio.sleep(UNDRIVEN_SECONDS)
        await look(shown, status)


async def look(shown: Shown, status: StatusWriter) -> None:
    """One look at each run that nothing drives."""
    for run in shown.undriven(UNDRIVEN_SECONDS):
        meta = run.metadata
        try:
            await status.read(meta.namespace, meta.name, meta.uid)
        except NotFound:
            logger.warning("a run went unseen", extra={"run": meta.name})
            shown.forget(meta.uid)
        except HummingbirdError as error:
            logger.info("whether a run is there is not known: %s", error, extra={"run": meta.name})
