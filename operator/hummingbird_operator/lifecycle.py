"""The life of a process beside its work: signals, an end in time, background tasks that may not end, a steady beat.

Shared by the operator (leader.py) and the ingestors (ingest/serve.py). It knows no work.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from hummingbird_operator.errors import HummingbirdError, Invalid, NotFound, Unavailable

logger = logging.getLogger(__name__)

T = TypeVar("T")

LONGEST_END_SECONDS = 20.0
"""From SIGTERM on; whatever is left then is left to the next process."""
RETRY_SECONDS = 2.0
LAG_SECONDS = 0.1


def on_signals(stop: asyncio.Event) -> None:
    """Set `stop` at SIGTERM and SIGINT from now on."""
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)


def end_hard(why: str, error: BaseException | None = None) -> None:
    """End this process at once, where there is no time for anything graceful."""
    logger.critical("%s: this process ends at once", why, exc_info=error)
    os._exit(1)


async def end_in_time(stop: asyncio.Event, seconds: float = LONGEST_END_SECONDS) -> None:
    """Wait for `stop`, and end the process hard if it still lives that many seconds later."""
    await stop.wait()
    await asyncio.sleep(seconds)
    end_hard(f"the end took more than {seconds:.0f} s")


async def pause(stop: asyncio.Event, seconds: float) -> None:
    """Sleep, but no longer than until `stop`."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()


async def until_available(
    look: Callable[[], Awaitable[T]], stop: asyncio.Event, *, seconds: float = RETRY_SECONDS
) -> T | None:
    """What `look` gives, asked again every few `seconds` while it raises Unavailable; None when `stop` comes first."""
    while not stop.is_set():
        try:
            return await look()
        except Unavailable as error:
            logger.warning("%s; tried again in %.0f s", error, seconds)
            await pause(stop, seconds)
    return None


async def until_served(kind: str, look: Callable[[], Awaitable[object]], stop: asyncio.Event) -> None:
    """Wait for an API server that is away. Raises Invalid where it does not know the kind, or a Role is missing."""
    try:
        await until_available(look, stop)
    except NotFound as error:
        raise Invalid(kind, "its CRD is not installed; run: kubectl apply --server-side -k crds") from error


@contextlib.asynccontextmanager
async def background(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """A task for as long as the block lasts; one that fails by itself ends the process, which would miss it."""
    task = asyncio.create_task(work)
    task.add_done_callback(_end_with)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, HummingbirdError):
            await task


def _end_with(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        end_hard("a background task failed", error)


async def measure_lag(observe: Callable[[float], None], beat: Callable[[], None]) -> None:
    """Tell ten times a second by how many seconds a timer of the event loop fires late, and that the loop turns."""
    loop = asyncio.get_running_loop()
    while True:
        before = loop.time()
        await asyncio.sleep(LAG_SECONDS)
        observe(max(0.0, loop.time() - before - LAG_SECONDS))
        beat()
