"""Waiting out a service that is away, for what may take its time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from hummingbird_operator.errors import Unavailable
from hummingbird_operator.ingest.handle import Handles

logger = logging.getLogger(__name__)
T = TypeVar("T")

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 2.0, 60.0
ASIDE_SECONDS = 600.0
"""Until what was put aside is tried again; no hint of GitLab's is sat out for longer."""


@dataclass(frozen=True)
class Patience:
    """`pauses` are seconds: the first one, and the longest."""

    handler: Handles
    pauses: tuple[float, float] = (FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)

    async def until_done(self, act: Callable[[], Awaitable[T]]) -> T:
        """Again and again while a service is away. Raises Unavailable where none is, and it failed a second time.

        Where GitLab says how long to wait (a rate limit), that is heeded: a hint of more than ten minutes is raised at
        once, so that only who was told so waits for it.
        """
        pause, alone = self.pauses[0], False
        while True:
            try:
                return await act()
            except Unavailable as error:
                if (error.retry_after or 0.0) > ASIDE_SECONDS:
                    raise
                away = await self.handler.away()
                if away is None and alone:
                    raise
                alone = away is None  # once more: the service may have come back between the two calls
                wait = max(pause, error.retry_after or 0.0)
                logger.info("looking for what was missed waits %.0f s: %s", wait, away or error)
                await asyncio.sleep(wait)
                pause = self.pauses[0] if alone else min(pause * 2, self.pauses[1])

    async def ask(self, call: Callable[..., T], *arguments: object) -> T:
        """A blocking call, in a thread."""
        return await self.until_done(lambda: asyncio.to_thread(call, *arguments))
