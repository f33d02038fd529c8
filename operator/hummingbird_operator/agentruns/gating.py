"""Look at the merge request before a run speaks there, and end a run that a newer commit has overtaken."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from hummingbird_operator.agentruns import objects
from hummingbird_operator.agentruns.decide import Decision, Step
from hummingbird_operator.agentruns.facts import Facts
from hummingbird_operator.agentruns.gate import RUNNING, Scan, Verdict, gate, same_event
from hummingbird_operator.errors import HummingbirdError
from hummingbird_operator.forges.merge_requests import SHUT

if TYPE_CHECKING:
    from hummingbird_operator.agentruns.control import Control
    from hummingbird_operator.agentruns.notebook import Head, Marked, Note, Notebook
    from hummingbird_operator.agentruns.resolve import Order
    from hummingbird_operator.agentruns.runner import Apply
    from hummingbird_operator.api.agentrun import AgentRun, GitLabTarget

logger = logging.getLogger(__name__)

HEAD_SECONDS = 10.0
LOOK_SECONDS = 2.0
"""Between two looks whether a later run came; GitLab is asked only when one has."""
SETTLED_SECONDS = 15.0
"""So long after an event GitLab shows the head that it made."""
STEADY_SECONDS = 60.0
"""A commit whose run was seen so long ago was surely the head once."""
HEAD_PAUSE_SECONDS = 2.0
"""GitLab shows an older head for some seconds after a push (pipelines-as-code#2453): so long the head is read again."""


class Others(Protocol):
    """What the watch has shown of other runs."""

    def newer(self, run: AgentRun, refuted: Collection[str]) -> AgentRun | None:
        """The latest automatic run of the same workflow and merge request after it, for another commit."""

    def age(self, uid: str) -> float:
        """Seconds since the run was first seen."""

    def alive(self, uid: str) -> str | None:
        """None where no unfinished run has that uid; else its outcome so far, empty while it works."""


class Gating:
    """The gate of the step PLACEHOLDER, and the step COMPARE."""

    def __init__(self, notebook: Notebook | None, others: Others) -> None:
        self._notebook = notebook
        self._others = others

    def steps(self) -> Mapping[Step, Apply]:
        """What this module can do."""
        return {Step.COMPARE: self.compare}

    async def look(self, run: AgentRun, order: Order, target: GitLabTarget, control: Control) -> Verdict | Note | None:
        """Why the run has nothing to say, or the note that a deleted run left for the same event; None: post one."""
        trigger = run.spec.trigger
        if self._notebook is None or trigger is None or not (trigger.key or trigger.automatic):
            return None
        marked = [each for each in await self._notebook.marked(target) if each.marker.run != run.metadata.uid]
        scan = Scan(run, [each.marker for each in marked], "", order.most_runs, self._others.alive)
        if trigger.automatic:
            head = await self._head(run, target, control)
            drafted = head.draft and trigger.event == "merge_request"  # a draft's pipeline is explained all the same
            shut = head.state if head.state in SHUT else "a draft" if drafted else ""
            scan = replace(scan, head_sha=head.sha, shut=shut)
        verdict = gate(scan)
        left = _left_behind(run, marked)
        kept = next((note for note in left if note.internal or not order.internal), None) if verdict is None else None
        for note in left:  # of a run that is gone: nobody else would ever end it
            if note is not kept:
                await self._notebook.delete(target, note.id)
        return verdict or kept

    async def _head(self, run: AgentRun, target: GitLabTarget, control: Control) -> Head:
        """The merge request's head, read again while it is not the commit of a run that is younger than ten seconds."""
        assert self._notebook is not None  # noqa: S101 - looked at by its caller
        while True:
            head = await self._notebook.head(target)
            old = self._others.age(run.metadata.uid) >= HEAD_SECONDS
            if old or head.sha == objects.commit(run) or control.cancelled or control.leaving:
                return head
            await asyncio.sleep(HEAD_PAUSE_SECONDS)

    async def compare(self, facts: Facts, decision: Decision, control: Control) -> None:
        """Look whether the merge request's head is the run's commit still: events may come in any order."""
        if not await self._judged(facts.run, control):
            await control.pause(LOOK_SECONDS)

    async def outdated(self, run: AgentRun, control: Control) -> str:
        """Wait until the run at work is overtaken by a newer commit, and return it."""
        while not control.head_now:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._judged(run, control)
            except HummingbirdError as error:  # the work goes on, and it is looked at again
                logger.info("whether the head moved is not known: %s", error, extra={"run": control.name})
        return control.head_now

    async def _judged(self, run: AgentRun, control: Control) -> bool:
        """Whether it is known now what a later run means for this one.

        No verdict rests on one look: for some seconds after a push GitLab shows an older head, and the event of an
        older commit may be the later one. Once the later run, or this one, is that old, what GitLab shows is true.
        """
        later = self._others.newer(run, control.refuted)
        target = run.spec.target.gitlab if run.spec.target else None
        if later is None or target is None or self._notebook is None:
            return True
        head = (await self._notebook.head(target)).sha
        settled = self._others.age(later.metadata.uid) >= SETTLED_SECONDS
        if head == objects.commit(run):
            if settled:
                control.refuted.add(later.metadata.uid)
            return settled
        if head and (settled or self._others.age(run.metadata.uid) >= STEADY_SECONDS):
            control.head_now = head
            return True
        return False


def _left_behind(run: AgentRun, marked: Sequence[Marked]) -> list[Note]:
    """The notes for the same event whose runs are gone and never finished them, oldest first."""
    return [each.note for each in marked if same_event(run, each.marker) and each.marker.state == RUNNING]
