"""Makes the save that a run of a session never made, from the run's journal: nothing that was paid for is forgotten.

A run's save may fail for good, or its object may be deleted before. Whoever goes on with the session looks first for
a run that went on with it too, was answered, and is not in it; that one is saved, and so on until none is missing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from hummingbird_operator.agentruns.resuming import (
    SessionLost,
    SessionNotSaved,
    SessionUnreadable,
    allowed,
    loaded,
)
from hummingbird_operator.errors import Conflict, Invalid, Unavailable
from hummingbird_operator.sessions.journal import RunJournal
from hummingbird_operator.sessions.rebuilding import Rebuilt, rebuilt
from hummingbird_operator.sessions.session import check_place
from hummingbird_operator.sessions.store import SERVICE
from hummingbird_operator.sessions.transcript import run_transcript

if TYPE_CHECKING:
    from hummingbird_ai.abort import Abort
    from hummingbird_operator.agentruns.doors import Doors
    from hummingbird_operator.agentruns.tasks import Task
    from hummingbird_operator.sessions.records import Opening
    from hummingbird_operator.sessions.session import SavedSession, SessionStore
    from hummingbird_operator.sessions.store import BlobStore

logger = logging.getLogger(__name__)


class MissingSaves:
    """Makes them. The journal alone is enough: AgentRun, workflow and sandbox may be gone."""

    def __init__(
        self,
        store: BlobStore,
        sessions: SessionStore,
        doors: Doors,
        clean: Callable[[str], str],
        *,
        retry_seconds: float = 0.0,
    ) -> None:
        """`clean` redacts secrets from the transcript; `retry_seconds`: how long one reading is tried again."""
        self._store = store
        self._sessions = sessions
        self._doors = doors
        self._clean = clean
        self._retry_seconds = retry_seconds

    def resumed(self, task: Task, abort: Abort) -> SavedSession | None:
        """The session that the run goes on with, None for a new one, once no save is missing in it.

        For a run that has the session's turn: without that, a run of it may be at work now. Raises SessionLost,
        Invalid, Unavailable, and Aborted between two turns.
        """
        if not task.resumes:
            return None
        saved = loaded(task, self._sessions)
        while self._save_missing(task, saved, abort):
            before, saved = saved, loaded(task, self._sessions)
            if (before and before.etag) == (saved and saved.etag):
                raise Unavailable(SERVICE, "it takes no save, and says that somebody else made one, but nobody did")
        return allowed(task, saved, self._store)

    def _save_missing(self, task: Task, saved: SavedSession | None, abort: Abort) -> bool:
        """Save the run that follows `saved`; False where none does. To be asked again with what is there then."""
        if saved is not None and saved.run == task.run:
            return False
        with _readable():
            left = self._first_run(task.session, abort) if saved is None else self._behind(saved.run, task.run, abort)
        if left is None:
            return False
        journal, opening = left
        check_place(opening, workflow=task.order.workflow.name, origin=task.origin)
        logger.warning("run %s was not saved: it is rebuilt from its journal", opening.name)
        with _readable():
            worst_case = partial(self._doors.worst_case, opening.model)
            made = rebuilt(journal, opening, saved, self._doors.model(opening.model), worst_case, abort)
            try:
                self._save(task.session, journal, opening, made, saved)
            except Conflict as faster:  # somebody else saved it, or went on: what is there now decides
                logger.info("it was saved meanwhile: %s", faster)
        return True

    def _first_run(self, session: str, abort: Abort) -> tuple[RunJournal, Opening] | None:
        """The journal of the run that began the session, and how it did: a session has that run's uid."""
        journal = self._journal(session, abort)
        opening = journal.opening() if _counts(journal) else None
        return None if opening is None or opening.base else (journal, opening)

    def _behind(self, base: str, run: str, abort: Abort) -> tuple[RunJournal, Opening] | None:
        """The same of the run that went on with what that one saved."""
        followers = self._journal(base, abort).followers()
        if run in followers:  # it has begun: its own answers are about what is saved
            return None
        left = [found for uid in followers if (found := self._answered(uid, base, abort))]
        if len(left) > 1:  # to forget any of them is not ours to choose
            names = ", ".join(f"runs/{journal.run}/" for journal, _ in left)
            raise SessionUnreadable(f"more than one run went on behind run {base}; delete all but one of {names}")
        return left[0] if left else None

    def _answered(self, uid: str, base: str, abort: Abort) -> tuple[RunJournal, Opening] | None:
        journal = self._journal(uid, abort)
        if not _counts(journal):
            return None
        opening = journal.opening()
        if opening is None:
            raise SessionNotSaved(f"what run {uid} said in it was never saved; start a new run")
        return (journal, opening) if opening.base == base else None

    def _journal(self, uid: str, abort: Abort) -> RunJournal:
        return RunJournal(self._store, uid, retry_seconds=self._retry_seconds, abort=abort)

    def _save(
        self, session: str, journal: RunJournal, opening: Opening, made: Rebuilt, saved: SavedSession | None
    ) -> None:
        """It has no files but those that an unfinished save of a new session left: an older conversation's archive may

        be there otherwise, or a newer one's, and the model is told so.
        """
        transcript = run_transcript(
            made.conversation.contents,
            made.result,
            name=opening.name,
            workflow=opening.workflow,
            model=opening.model,
        )
        own = saved is None and not journal.followers()
        self._sessions.save(
            session,
            made.conversation,
            transcript=self._clean(transcript),
            archive=self._sessions.archive_there(session) if own else None,
            if_match=saved.etag if saved is not None else None,
        )


def _counts(journal: RunJournal) -> bool:
    """It was answered, or it was saved once all the same: others went on with that."""
    return journal.answered() or bool(journal.followers())


@contextmanager
def _readable() -> Iterator[None]:
    """What cannot be read in a session's records is the session's fault, not that of the run that asks for it."""
    try:
        yield
    except SessionLost:
        raise
    except Invalid as error:
        raise SessionUnreadable(str(error)) from error
