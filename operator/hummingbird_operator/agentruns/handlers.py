"""kopf's part: what the watch shows goes to `Runs`, and each unfinished run is driven by one daemon.

No change-detecting handlers (kopf would store a copy of the spec on the object, and hold back every later event while
one runs), no `patch`, no returned values: reference in docs/agentruns.md.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import kopf

from hummingbird_operator.api import conditions as c
from hummingbird_operator.api.agentrun import AgentRun
from hummingbird_operator.api.labels import FINALIZER, GROUP, VERSION
from hummingbird_operator.errors import HummingbirdError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hummingbird_operator.agentruns.control import Control
    from hummingbird_operator.agentruns.runner import Runner
    from hummingbird_operator.agentruns.runs import Runs
    from hummingbird_operator.agentruns.ttl import Reaper

logger = logging.getLogger(__name__)

CLEANING_SECONDS = 25.0
"""How long a deleted run may take to stop its command, say so in its note and delete its sandbox."""


def register(registry: kopf.OperatorRegistry, runs: Runs, runner: Runner, reaper: Reaper) -> None:
    """Put the handlers of AgentRuns into that registry."""

    @kopf.on.event(GROUP, VERSION, "agentruns", registry=registry)
    async def seen(event: Mapping[str, Any], **_: Any) -> None:
        if (run := parsed(event["object"])) is not None:
            gone = event.get("type") == "DELETED"
            runs.observe(run, gone=gone)
            reaper.observe(run, gone=gone)
            if not gone:
                await runner.acknowledge(run)
            if not gone and run.metadata.deleting and FINALIZER in run.metadata.finalizers and not runs.driven(run):
                await _tidy(run, runs, runner)

    @kopf.daemon(
        GROUP,
        VERSION,
        "agentruns",
        registry=registry,
        when=_unfinished,
        cancellation_backoff=CLEANING_SECONDS,
        cancellation_timeout=5.0,
    )
    async def drive(body: kopf.Body, stopped: kopf.DaemonStopped, **_: Any) -> None:
        run = parsed(body)
        if run is None:
            return
        control = runs.open(run)
        watcher = asyncio.create_task(_watch(stopped, control))
        try:
            await runner.drive(control)
        finally:
            watcher.cancel()
            runs.close(control)


async def _tidy(run: AgentRun, runs: Runs, runner: Runner) -> None:
    """End a run that was deleted while no operator was there.

    kopf starts no daemon for what is being deleted already, and takes its finalizer away once this event is handled.
    """
    control = runs.open(run)
    try:
        async with asyncio.timeout(CLEANING_SECONDS):
            await runner.drive(control)
    except TimeoutError:
        logger.warning("a deleted run was not tidied up in time", extra={"run": control.name})
    finally:
        runs.close(control)


def parsed(body: Mapping[str, Any]) -> AgentRun | None:
    """The run, or None (and a line in the log) where this version cannot read it."""
    try:
        return AgentRun.parse(dict(body))
    except HummingbirdError as error:  # written under an older schema: leave it alone, visibly
        logger.warning("an AgentRun cannot be read and is left alone: %s", error)
        return None


def _unfinished(status: Mapping[str, Any], **_: Any) -> bool:
    return not any(
        condition.get("type") == c.RunCondition.FINISHED and condition.get("status") == "True"
        for condition in status.get("conditions") or ()
    )


async def _watch(stopped: kopf.DaemonStopped, control: Control) -> None:
    """Tell the run why kopf wants its daemon to end."""
    await stopped.wait()
    reasons = stopped.reason
    if reasons is None or kopf.DaemonStoppingReason.FILTERS_MISMATCH in reasons:
        return  # it just finished
    if kopf.DaemonStoppingReason.RESOURCE_DELETED in reasons:
        control.cancelled = control.deleted = True
        control.end(c.Failure.CANCELLED)
    else:
        control.leaving = True
        control.end("ShuttingDown")
