"""One event that comes late, handed to the handler: what becomes of it, and what keeps it from holding others back."""

from __future__ import annotations

import logging
from enum import StrEnum
from functools import partial

from hummingbird_operator.errors import HummingbirdError
from hummingbird_operator.ingest.event import Event
from hummingbird_operator.ingest.handle import NameTaken
from hummingbird_operator.ingest.missed.patience import Patience
from hummingbird_operator.ingest.reasons import Reason

logger = logging.getLogger(__name__)

_STARTS = frozenset({Reason.FIRED, Reason.NOTICE, Reason.RESOLVED})


class Result(StrEnum):
    """What became of an event."""

    STARTED = "started"
    """A run, a fixed answer, or resolved threads."""
    NOTHING = "nothing"
    """It was handled before, or is none of ours."""
    FAILED = "failed"
    """For good: it is not to be tried again."""
    PUT_OFF = "put_off"
    """It fails though nothing is away: to be tried later."""


async def hand_in(patience: Patience, event: Event, what: str) -> Result:
    """Have it handled while the services answer; `what` names it in the log. Never raises."""
    try:
        outcome = await patience.until_done(partial(patience.handler.handle, event))
    except NameTaken as error:
        logger.warning("%s: %s", what, error)
        return Result.FAILED
    except HummingbirdError as error:
        logger.warning("%s is put aside, the others go on: %s", what, error)
        return Result.PUT_OFF
    except Exception as error:  # noqa: BLE001 - a fault of ours; its text could hold the payload
        logger.error("%s failed: %s", what, type(error).__name__)
        return Result.FAILED
    return Result.STARTED if outcome.reason in _STARTS else Result.NOTHING
