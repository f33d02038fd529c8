"""What a run says first to its model: a new question, or the next one of a session that an earlier run left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hummingbird_operator.agentruns.following import Question
from hummingbird_operator.api import conditions as c
from hummingbird_operator.errors import Invalid
from hummingbird_operator.sessions.journal import RunJournal
from hummingbird_operator.sessions.prompts import continuation_message, first_message

if TYPE_CHECKING:
    from hummingbird_ai.messages import Content, ModelAdapter
    from hummingbird_operator.agentruns.tasks import Task
    from hummingbird_operator.sessions.session import SavedSession, SessionStore
    from hummingbird_operator.sessions.store import BlobStore

CUT = "[The message was longer; its end was cut off.]"


class SessionLost(Invalid):
    """The session to resume cannot be: `reason` is the run's outcome."""

    reason: str = c.Failure.SESSION_NOT_FOUND

    def __init__(self, problem: str) -> None:
        super().__init__("spec.session", problem)


class SessionNotFound(SessionLost):
    """It does not exist (any more)."""


class SessionNotSaved(SessionLost):
    """Its run asked a model and could not save what came of it, or ended before it asked one."""

    reason = c.Failure.SESSION_NOT_SAVED


class SessionUnreadable(SessionLost):
    """It is there, and nobody can read it."""

    reason = c.Failure.SESSION_UNREADABLE


class SessionInternal(SessionLost):
    """It is internal, and the run's note would be read by everybody."""

    reason = c.Failure.SESSION_INTERNAL


def resumed(task: Task, sessions: SessionStore, store: BlobStore) -> SavedSession | None:
    """The session that the run goes on with, None for a new one. Raises SessionLost, Invalid, Unavailable."""
    if not task.resumes:
        return None
    try:
        saved = sessions.load(task.session)
    except Invalid as error:
        raise SessionUnreadable(str(error)) from error
    if saved is None:
        raise _missing(task.session, store)
    if saved.run != task.run:
        saved.resumable_by(workflow=task.order.workflow.name, origin=task.origin)
        if saved.internal and task.order.notes and not task.order.internal:
            raise SessionInternal("this conversation is internal: it goes on only where the run's note is internal too")
    return saved


def _missing(session: str, store: BlobStore) -> SessionLost:
    if RunJournal(store, session).begun():  # a session has the uid of the run that began it
        return SessionNotSaved(f"the session {session} was never saved; start a new run")
    if store.get(_unbegun(session)) is not None:
        return SessionNotSaved("its run ended before it asked a model")
    return SessionNotFound(f"there is no session {session} (any more); start a new run")


def keep_unbegun(store: BlobStore, run: str) -> None:
    """Note down that the run asked no model and never will: whoever replies to it finds no session, and reads why."""
    store.create(_unbegun(run), b"ended before its first call\n")


def _unbegun(run: str) -> str:
    return f"runs/{run}/unbegun"


def opening(
    task: Task, saved: SavedSession | None, model: ModelAdapter, question: Question, notice: str
) -> list[Content]:
    """The conversation up to and including what the model is asked now; `notice`: what it must be told before that."""
    # of several, each says itself where it is cut
    message = question.text + (f"\n\n{CUT}" if question.cut and not question.runs else "")
    if saved is not None:
        message = f"[{notice}]\n\n{message}" if notice else message
        try:
            before = saved.restored_by(model.from_canonical)
        except Invalid as error:
            raise SessionUnreadable(error.problem) from error
        return [*before, model.make_user_content(continuation_message(message))]
    target = task.order.target
    project, iid = (target.project, target.merge_request) if target else (None, None)
    return [model.make_user_content(first_message(project, iid, task.head_sha, message or None))]


def asked(task: Task, journal: RunJournal) -> Question | None:
    """The question as it stands: recorded, or settled by a call that was made. None while others may join it."""
    if (recorded := journal.question()) is not None:
        return Question(str(recorded["text"]), bool(recorded["cut"]), tuple(recorded["runs"]))
    return Question(task.order.message, task.order.message_cut) if not task.resumes or journal.begun() else None
