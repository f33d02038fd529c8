"""Whether GitLab or the API server is away for everybody, or one event alone always fails.

A merge request whose look-up GitLab answers with 500 for ever is no outage: whoever took it for one would hold back
everybody's events, and anybody can make such a merge request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from hummingbird_operator.api import labels
from hummingbird_operator.errors import HummingbirdError, Unavailable
from hummingbird_operator.kube.client import AGENT_RUNS, KubeApi
from hummingbird_operator.kube.refusals import SERVICE

GITLAB = "GitLab"
REMEMBERED_SECONDS = 3.0
"""How long one answer serves all who ask: in an outage that is everybody at once."""
PROBE_SECONDS = 5.0
"""Longest time of a probe; a service that does not answer a small question by then is away."""
_NOBODY = f"{labels.SESSION}=none"


class Barred(Unavailable):
    """Nobody's event passes, though the service answers: the Role, the namespace, a quota or the token is at fault."""


class Probed(Protocol):
    """What is asked of GitLab, by a blocking call: `delivery.notes.Notes`."""

    def probe(self) -> None:
        """Ask for the bot's account, now and once. Raises Unavailable, or Invalid where even that is refused."""


class Away:
    """Looks by two small questions. One per process and event loop; any number may ask at once."""

    def __init__(self, forge: Probed, kube: KubeApi, namespace: str, clock: Callable[[], float]) -> None:
        """`clock` is monotonic seconds."""
        self._forge = forge
        self._kube = kube
        self._namespace = namespace
        self._clock = clock
        self._lock = asyncio.Lock()
        self._answer: Unavailable | None = None
        self._until = float("-inf")
        self._barred: Barred | None = None
        self._barred_until = float("-inf")

    async def look(self) -> Unavailable | None:
        """What is away; None where both services answer."""
        async with self._lock:
            if self._clock() < self._barred_until:
                return self._barred
            if self._clock() >= self._until:
                self._answer = await self._probe()
                self._until = self._clock() + REMEMBERED_SECONDS
            return self._answer

    def bar(self, error: Barred) -> None:
        """An event met what every other one meets: no probe sees that."""
        self._barred, self._barred_until = error, self._clock() + REMEMBERED_SECONDS

    async def _probe(self) -> Unavailable | None:
        found = await asyncio.gather(
            # in a thread beside those of the look-ups, which may all be hanging in one bad merge request
            _met(GITLAB, asyncio.to_thread(self._forge.probe)),
            _met(SERVICE, self._kube.list(AGENT_RUNS, self._namespace, label_selector=_NOBODY)),
        )
        return next((error for error in found if error), None)


async def _met(service: str, question: Awaitable[object]) -> Unavailable | None:
    """What the question met. A refusal of it concerns everybody as well, so it is an outage."""
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            await question
    except Unavailable as error:
        return error
    except HummingbirdError as error:
        return Unavailable(service, str(error))
    except TimeoutError:
        return Unavailable(service, f"it has not answered for {PROBE_SECONDS:.0f} s")
    return None
