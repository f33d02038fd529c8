"""What a run says first to its model: a new question, or the next one of a session that an earlier run left."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from hummingbird_operator.agentruns.following import Question
from hummingbird_operator.api import conditions as c
from hummingbird_operator.errors import Invalid
from hummingbird_operator.sessions.journal import RunJournal
from hummingbird_operator.sessions.prompts import continuation_message, first_message, system_prompt
from hummingbird_operator.sessions.records import Opening
from hummingbird_operator.sessions.session import check_place
from hummingbird_operator.sessions.tools import SANDBOX_TOOLS

if TYPE_CHECKING:
    from hummingbird_ai.messages import Content, ModelAdapter
    from hummingbird_operator.agentruns.tasks import Task
    from hummingbird_operator.sessions.session import SavedSession, SessionStore
    from hummingbird_operator.sessions.store import BlobStore
    from hummingbird_operator.sessions.tools import ToolRegistry

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


def resumed(task: Task, sessions: SessionStore, store: BlobStore) -> SavedSession | None:
    """The session that the run goes on with, as it is saved, None for a new one. Raises SessionLost, Unavailable.

    A run that has the session's turn asks `missing_saves.MissingSaves` for it: there may be more than what is saved.
    """
    return allowed(task, loaded(task, sessions), store) if task.resumes else None


def loaded(task: Task, sessions: SessionStore) -> SavedSession | None:
    """What is saved, if a run of that workflow and place may go on with it."""
    try:
        saved = sessions.load(task.session)
    except Invalid as error:
        raise SessionUnreadable(str(error)) from error
    if saved is not None and saved.run != task.run:
        check_place(saved, workflow=task.order.workflow.name, origin=task.origin)
    return saved


def allowed(task: Task, saved: SavedSession | None, store: BlobStore) -> SavedSession:
    """It, if it is there and is not more internal than the run's note."""
    if saved is None:
        raise _missing(task.session, store)
    if saved.run != task.run and saved.internal and task.order.notes and not task.order.internal:
        raise SessionInternal("this conversation is internal: it goes on only where the run's note is internal too")
    return saved


def _missing(session: str, store: BlobStore) -> SessionLost:
    journal = RunJournal(store, session)  # a session has the uid of the run that began it
    if journal.answered():
        return SessionNotSaved("it was not saved, and its journal does not tell enough; start a new run")
    if journal.begun():
        return SessionNotSaved("no model had answered in it when its run ended; start a new run")
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


def opening_of(
    task: Task,
    saved: SavedSession | None,
    journal: RunJournal,
    registry: ToolRegistry,
    question: Question,
    *,
    live: bool,
) -> Opening:
    """How the run's conversation begins: as its journal has it, where a model answered, whatever was changed since.

    A save that never comes is made from that. `live`: it is at work, and its sandbox is in the registry.
    """
    if (journal.answered() or not live) and (recorded := journal.opening()) is not None:
        return recorded
    said = first_words(task, saved, question, journal.notice() if saved is not None else "")
    opening = Opening(
        name=task.name,
        workflow=task.order.workflow.name,
        workflow_hash=task.order.workflow.hash,
        origin=task.origin,
        model=task.order.resolved.model or "",
        base="",
        said=said,
    )
    if saved is not None:
        return replace(opening, base=saved.run, before=len(saved.contents))
    # a recall has no sandbox, yet it must name the very tools that the session had
    tools = registry.get_tool_defs() if live else [*SANDBOX_TOOLS, *registry.get_tool_defs()]
    return replace(opening, system=system_prompt(registry.get_tool_notes(), task.order.workflow.prompt), tools=tools)


def before_it(saved: SavedSession, opening: Opening) -> SavedSession:
    """The session as it was when the run began, of one that has more by now: the run's own turns, or later runs'.

    What later runs said belongs into none of this run's notes, and what is cut off can not be saved over it.
    """
    if saved.run == opening.base:
        return saved
    return replace(saved, contents=saved.contents[: opening.before], etag="")


def asked(task: Task, journal: RunJournal) -> Question | None:
    """The question as it stands: recorded, or settled by a call that was made. None while others may join it."""
    if (recorded := journal.question()) is not None:
        return Question(str(recorded["text"]), bool(recorded["cut"]), tuple(recorded["runs"]))
    return Question(task.order.message, task.order.message_cut) if not task.resumes or journal.begun() else None


def settle(task: Task, saved: SavedSession | None, journal: RunJournal) -> None:
    """Write down, before the first call, what is asked, and with which saved conversation. Raises Unavailable."""
    if task.question is not None and asked(task, journal) is None:
        journal.record_question(asdict(task.question))
    if saved is not None and saved.run != task.run:
        journal.follow(saved.run)
