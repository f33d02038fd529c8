"""What is known about a run before the next step is decided. Frozen, gathered anew for every step."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from hummingbird_operator.agentruns.following import thread_of
from hummingbird_operator.agentruns.objects import lane, session_id
from hummingbird_operator.agentruns.turns import RunView
from hummingbird_operator.api import conditions as c
from hummingbird_operator.api.agentrun import AgentRun, RunnerRef

if TYPE_CHECKING:
    from hummingbird_operator.agentruns.following import Carrier
    from hummingbird_operator.agentruns.resolve import Order
    from hummingbird_operator.agentruns.turns import Turn
    from hummingbird_operator.errors import Invalid


@dataclass(frozen=True)
class Facts:
    """The live object, what the configuration says of it, and what this process knows besides."""

    now: datetime
    me: RunnerRef
    run: AgentRun
    order: Order | Invalid
    """What is in force, or why the spec cannot be carried out."""
    turn: Turn
    max_attempts: int
    sandbox_held: bool
    """This run may hold a sandbox: no process is known to have let it go.

    Also where SandboxReady does not stand: a death or a cancel may have come between a claim and its checkpoint.
    """
    delivery_after: datetime | None = None
    """The forge was away: do not try before then."""
    carrier: Carrier | None = None
    """The run that answers this one's words with its own."""
    newer: AgentRun | None = None
    """A later automatic run of the same workflow on another commit: this one may be of no use any more."""
    head_now: str = ""
    """The merge request's head, once it is sure that it is not this run's commit any more."""

    @property
    def cancelled(self) -> bool:
        """A person wants the end: cancel, or deletion."""
        return self.run.spec.cancel or self.run.metadata.deleting

    @property
    def refused(self) -> bool:
        """Its spec cannot be carried out: it was never accepted."""
        found = c.find(self.run.status.conditions, c.RunCondition.ACCEPTED)
        return found is not None and found.status == "False"

    @property
    def deadline(self) -> datetime | None:
        """When the wall time of the run is up; None before its turn came."""
        resolved, start = self.run.status.resolved, self.run.status.start_time
        if start is None or resolved is None or resolved.limits is None or resolved.limits.timeout_seconds is None:
            return None
        return start + timedelta(seconds=resolved.limits.timeout_seconds)

    def stands(self, type_: str) -> bool:
        """The condition is True."""
        return c.is_true(self.run.status.conditions, type_)

    def settled(self, type_: str) -> bool:
        """The condition is True or False: that step is over, one way or the other."""
        return settled(self.run, type_)


def settled(run: AgentRun, type_: str) -> bool:
    """Whether that checkpoint is over, one way or the other."""
    found = c.find(run.status.conditions, type_)
    return found is not None and found.status in ("True", "False")


def view(run: AgentRun, *, held: bool, carried: bool = False) -> RunView:
    """What the order of turns needs of a run.

    `held`: this process already gave it the turn; `carried`: another run answers its words.
    """
    created = run.metadata.creation_timestamp
    trigger = run.spec.trigger
    answered = settled(run, c.RunCondition.ANSWERED)
    saved = settled(run, c.RunCondition.SESSION_SAVED)
    notice = run.spec.notice is not None  # a fixed answer waits for nobody
    return RunView(
        uid=run.metadata.uid,
        name=run.metadata.name,
        created=c.rfc3339(created) if created else "",
        session=run.metadata.uid if notice else session_id(run),
        # a run that waits for its forge must not block the merge request's next one for a day
        lane="" if notice or (answered and saved) else lane(run),
        reply=not notice and run.spec.session is not None,
        automatic=bool(trigger and trigger.automatic),
        started=held or run.status.start_time is not None or (run.status.note is not None and not answered),
        over=answered and saved,
        needs_slot=not notice and not (answered and saved),
        note=(trigger and trigger.note_id) or 0,
        thread=thread_of(run.spec),
        ending=answered or run.spec.cancel or run.metadata.deleting,
        carried=carried and not answered,
    )
