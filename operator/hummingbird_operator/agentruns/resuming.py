"""What a run says first to its model: a new question, or the next one of a session that an earlier run left."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol

from hummingbird_operator.agentruns.following import Question
from hummingbird_operator.api import conditions as c
from hummingbird_operator.errors import Invalid
from hummingbird_operator.sessions.journal import RunJournal
from hummingbird_operator.sessions.prompts import continuation_message, first_message
from hummingbird_operator.sessions.records import Opening

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hummingbird_ai.messages import Content, ModelAdapter, ToolDef
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
    """No model had answered when its run ended, or it could not be saved and its journal does not tell enough."""

    reason = c.Failure.SESSION_NOT_SAVED


class SessionUnreadable(SessionLost):
    """It is there, and nobody can read it."""

    reason = c.Failure.SESSION_UNREADABLE


class SessionInternal(SessionLost):
    """It is internal, and the run's note would be read by everybody."""

    reason = c.Failure.SESSION_INTERNAL


class Finisher(Protocol):
    """Saves what a run of the session left in its journal only; `finishing.Finishing` does."""

    def finish(self, task: Task, saved: SavedSession | None) -> bool:
        """Save the one that follows `saved`; False where none does. To be asked again with what is there then."""


def resumed(
    task: Task, sessions: SessionStore, store: BlobStore, finisher: Finisher | None = None
) -> SavedSession | None:
    """The session that the run goes on with, None for a new one. Raises SessionLost, Invalid, Unavailable.

    `finisher` is for a run that has the session's turn: without that, a run of it may be at work now.
    """
    if not task.resumes:
        return None
    saved = _loaded(task, sessions)
    while finisher is not None and finisher.finish(task, saved):
        saved = _loaded(task, sessions)
    if saved is None:
        raise _missing(task.session, store)
    if saved.run != task.run and saved.internal and task.order.notes and not task.order.internal:
        raise SessionInternal("this conversation is internal: it goes on only where the run's note is internal too")
    return saved


def _loaded(task: Task, sessions: SessionStore) -> SavedSession | None:
    """What is saved, if this run may go on with it."""
    try:
        saved = sessions.load(task.session)
    except Invalid as error:
        raise SessionUnreadable(str(error)) from error
    if saved is not None and saved.run != task.run:
        saved.resumable_by(workflow=task.order.workflow.name, origin=task.origin)
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


def first_words(task: Task, saved: SavedSession | None, question: Question, notice: str) -> str:
    """The user turn that the model is asked with; `notice`: what it must be told before that."""
    # of several, each says itself where it is cut
    message = question.text + (f"\n\n{CUT}" if question.cut and not question.runs else "")
    if saved is not None:
        return continuation_message(f"[{notice}]\n\n{message}" if notice else message)
    target = task.order.target
    project, iid = (target.project, target.merge_request) if target else (None, None)
    return first_message(project, iid, task.head_sha, message or None)


def history(saved: SavedSession | None, model: ModelAdapter) -> list[Content]:
    """The conversation before that, in the model's own form. Raises SessionUnreadable."""
    try:
        return saved.restored_by(model.from_canonical) if saved is not None else []
    except Invalid as error:
        raise SessionUnreadable(error.problem) from error


def beginning(task: Task, saved: SavedSession | None, said: str, system: str, tools: Sequence[ToolDef]) -> Opening:
    """What the journal is told of the conversation: a save that never comes is made from that."""
    entry, own = task.order.workflow, saved is None
    return Opening(
        name=task.name,
        workflow=entry.name,
        workflow_hash=entry.hash,
        origin=task.origin,
        internal=task.order.internal,
        model=task.order.resolved.model or "",
        base=saved.run if saved is not None else "",
        said=said,
        system=system if own else "",
        tools=tools if own else (),
    )


def asked(task: Task, journal: RunJournal) -> Question | None:
    """The question as it stands: recorded, or settled by a call that was made. None while others may join it."""
    if (recorded := journal.question()) is not None:
        return Question(str(recorded["text"]), bool(recorded["cut"]), tuple(recorded["runs"]))
    return Question(task.order.message, task.order.message_cut) if not task.resumes or journal.begun() else None


def settle(task: Task, saved: SavedSession | None, journal: RunJournal) -> None:
    """Write down, before the first call, what is asked, and with which saved conversation. Raises Unavailable."""
    if task.question is not None and asked(task, journal) is None:
        journal.record_question(asdict(task.question))
    if saved is not None and saved.run != task.run and not journal.answered():
        journal.follow(saved.run)


def up_to_its_end(
    task: Task, saved: SavedSession, journal: RunJournal, own: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The conversation as it was when the run ended, of a session that has its turns; empty where it has not.

    Later runs may have gone on with it since: what they said belongs into none of this run's notes. `own` are its
    turns, its first words included.
    """
    if saved.run == task.run:
        return [dict(each) for each in saved.contents]
    opening = journal.opening() if journal.answered() else None
    if opening is None or opening.base == saved.run:
        return []
    beginning_of_it = list(own[:2])
    for start in range(len(saved.contents) - len(beginning_of_it), -1, -1):
        if list(saved.contents[start : start + len(beginning_of_it)]) == beginning_of_it:
            return [*(dict(each) for each in saved.contents[:start]), *own]
    return list(own)
