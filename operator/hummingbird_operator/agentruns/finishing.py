"""Makes the save that a run of a session never made, from the run's journal: nothing that was paid for is forgotten.

A run's save may fail for good, or its object may be deleted before. Whoever goes on with the session looks first for
a run that went on with it too, was answered, and is not in it; that one is saved, and so on until none is missing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from hummingbird_operator.agentruns.resuming import SessionNotSaved, SessionUnreadable
from hummingbird_operator.errors import Conflict, Invalid
from hummingbird_operator.sessions.journal import RunJournal
from hummingbird_operator.sessions.rebuilding import Rebuilt, rebuilt
from hummingbird_operator.sessions.transcript import run_transcript

if TYPE_CHECKING:
    from hummingbird_operator.agentruns.doors import Doors
    from hummingbird_operator.agentruns.tasks import Task
    from hummingbird_operator.sessions.records import Opening
    from hummingbird_operator.sessions.session import SavedSession, SessionStore
    from hummingbird_operator.sessions.store import BlobStore

logger = logging.getLogger(__name__)


class Finishing:
    """Implements resuming.Finisher. The journal alone is enough: AgentRun, workflow and sandbox may be gone."""

    def __init__(self, store: BlobStore, sessions: SessionStore, doors: Doors, clean: Callable[[str], str]) -> None:
        """`clean` redacts secrets from the transcript."""
        self._store = store
        self._sessions = sessions
        self._doors = doors
        self._clean = clean

    def finish(self, task: Task, saved: SavedSession | None) -> bool:
        """See resuming.Finisher. Raises SessionLost for what cannot be read, Invalid, Unavailable.

        It has no files but those that an unfinished save of a new session left: an older conversation's archive may be
        there otherwise, and the model is told so.
        """
        try:
            left = self._left(task, saved)
            if left is None:
                return False
            journal, opening = left
            made = self._rebuilt(journal, opening, saved)
        except Invalid as error:
            raise error if isinstance(error, SessionNotSaved) else SessionUnreadable(str(error)) from error
        made.conversation.resumable_by(workflow=task.order.workflow.name, origin=task.origin)
        logger.warning("run %s was not saved: it is rebuilt from its journal", opening.name, extra={"run": task.name})
        try:
            self._save(task.session, opening, made, saved)
        except Conflict as faster:  # somebody else saved it, or went on: what is there now decides
            logger.info("it was saved meanwhile: %s", faster, extra={"run": task.name})
        return True

    def _left(self, task: Task, saved: SavedSession | None) -> tuple[RunJournal, Opening] | None:
        """The journal of the run that is missing behind `saved`, and how it began."""
        if saved is None:
            journal = RunJournal(self._store, task.session)  # a session has the uid of the run that began it
            opening = journal.opening() if _counts(journal) else None
            return None if opening is None or opening.base else (journal, opening)
        if saved.run == task.run:
            return None
        followers = RunJournal(self._store, saved.run).followers()
        if task.run in followers:  # it has begun: its own answers are about what is saved
            return None
        return next((left for uid in followers if (left := self._answered(uid, saved.run))), None)

    def _answered(self, uid: str, base: str) -> tuple[RunJournal, Opening] | None:
        journal = RunJournal(self._store, uid)
        if not _counts(journal):
            return None
        opening = journal.opening()
        if opening is None:
            raise SessionNotSaved(f"what run {uid} said in it was never saved; start a new run")
        return (journal, opening) if opening.base == base else None

    def _rebuilt(self, journal: RunJournal, opening: Opening, saved: SavedSession | None) -> Rebuilt:
        worst_case = partial(self._doors.worst_case, opening.model)
        return rebuilt(journal, opening, saved, self._doors.model(opening.model), worst_case)

    def _save(self, session: str, opening: Opening, made: Rebuilt, saved: SavedSession | None) -> None:
        transcript = run_transcript(
            made.conversation.contents,
            made.result,
            name=opening.name,
            workflow=opening.workflow,
            model=opening.model,
        )
        self._sessions.save(
            session,
            made.conversation,
            transcript=self._clean(transcript),
            archive=self._sessions.archive_there(session) if saved is None else None,
            if_match=saved.etag if saved is not None else None,
        )


def _counts(journal: RunJournal) -> bool:
    """It was answered, or it was saved once all the same: others went on with that."""
    return journal.answered() or bool(journal.followers())
