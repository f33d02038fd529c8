"""Look at the merge request before a run speaks there, and end a run that a newer commit has overtaken."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from hummingbird_operator.agentruns import objects
from hummingbird_operator.agentruns.decide import Decision, Step
from hummingbird_operator.agentruns.facts import Facts
from hummingbird_operator.agentruns.gate import RUNNING, Scan, Verdict, gate, same_event
from hummingbird_operator.errors import HummingbirdError

if TYPE_CHECKING:
    from hummingbird_operator.agentruns.control import Control
    from hummingbird_operator.agentruns.notebook import Marked, Note, Notebook
    from hummingbird_operator.agentruns.resolve import Order
    from hummingbird_operator.agentruns.runner import Apply
    from hummingbird_operator.api.agentrun import AgentRun, GitLabTarget

logger = logging.getLogger(__name__)

HEAD_LOOKS = 6
LOOK_SECONDS = 1.0
"""Between two looks whether a later run came; GitLab is asked only when one has."""
HEAD_PAUSE_SECONDS = 2.0
"""GitLab shows an older head for some seconds after a push (pipelines-as-code#2453): so long the head is read again."""


class Others(Protocol):
    """What the watch has shown of other runs."""

    def newer(self, run: AgentRun) -> AgentRun | None:
        """A later automatic run of the same workflow and merge request, for another commit."""

    def alive(self, uid: str) -> bool:
        """Whether a run of that uid is unfinished."""


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
            scan = replace(scan, head_sha=await self._head(run, target, control))
        verdict = gate(scan)
        return verdict if verdict is not None else _left_behind(run, marked, internal=order.internal)

    async def _head(self, run: AgentRun, target: GitLabTarget, control: Control) -> str:
        """The merge request's head, read again for ten seconds while it is not the run's commit."""
        assert self._notebook is not None  # noqa: S101 - looked at by its caller
        for number in range(HEAD_LOOKS):
            if number:
                await asyncio.sleep(HEAD_PAUSE_SECONDS)
            head = (await self._notebook.head(target)).sha
            if head == objects.commit(run) or control.cancelled or control.leaving:
                return head
        return head

    async def compare(self, facts: Facts, decision: Decision, control: Control) -> None:
        """Look whether the merge request's head is the run's commit still: events may come in any order."""
        assert facts.newer is not None  # noqa: S101 - decide asks for this step only then
        uid = facts.newer.metadata.uid
        (control.overtaken if await self._moved(facts.run) else control.refuted).add(uid)

    async def outdated(self, run: AgentRun, control: Control) -> str:
        """Wait until the run at work is overtaken by a newer commit, and return it."""
        while not (newer := await self._newer_commit(run, control)):  # noqa: ASYNC110 - the head is asked of GitLab
            await asyncio.sleep(LOOK_SECONDS)
        return newer

    async def _newer_commit(self, run: AgentRun, control: Control) -> str:
        newer = self._others.newer(run)
        if newer is None or newer.metadata.uid in control.refuted:
            return ""
        try:
            if await self._moved(run):
                return objects.commit(newer)
        except HummingbirdError as error:  # the work goes on, and it is looked at again
            logger.info("whether the head moved is not known: %s", error, extra={"run": control.name})
            return ""
        control.refuted.add(newer.metadata.uid)
        return ""

    async def _moved(self, run: AgentRun) -> bool:
        target = run.spec.target.gitlab if run.spec.target else None
        if target is None or self._notebook is None:
            return False
        head = await self._notebook.head(target)
        return bool(head.sha) and head.sha != objects.commit(run)


def _left_behind(run: AgentRun, marked: Sequence[Marked], *, internal: bool) -> Note | None:
    """The first note for the same event whose run is gone and never finished it."""
    for each in marked:
        if same_event(run, each.marker) and each.marker.state == RUNNING and (each.note.internal or not internal):
            return each.note
    return None
