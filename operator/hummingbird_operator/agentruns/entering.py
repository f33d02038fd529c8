"""Gets a sandbox ready for a run: the script, the session's files, and the words about what a lost one took along."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from hummingbird_operator.sessions.archive import ArchiveFailed, restore_sandbox
from hummingbird_operator.sessions.spill import files_named

if TYPE_CHECKING:
    from hummingbird_operator.agentruns.tasks import Task
    from hummingbird_operator.sessions.journal import RunJournal
    from hummingbird_operator.sessions.sandbox import Sandbox
    from hummingbird_operator.sessions.session import SavedSession, SessionStore

logger = logging.getLogger(__name__)

NAMED_FILES = 20
"""How many lost files the model is told by name; the rest are counted."""


def enter(task: Task, sandbox: Sandbox, saved: SavedSession | None, sessions: SessionStore, journal: RunJournal) -> str:
    """Make it ready; what the model must be told with its next result, empty where nothing was lost. Safe to repeat.

    Files are restored once per sandbox: what the run's own commands made of them must not be undone.
    """
    sandbox.start()
    problem = ""
    if saved is not None and task.restore:
        problem = _restored_once(task, sandbox, saved, sessions, journal)
    if not task.lost or not journal.begun():  # of one in which nothing was done there is nothing to tell
        return ""
    results = journal.told()
    if any("notice" in result for result in results):
        return ""
    files = files_named(results)
    named = ", ".join(files[:NAMED_FILES]) + (f" and {len(files) - NAMED_FILES} more" if files[NAMED_FILES:] else "")
    sentences = (
        f"{task.lost[:1].upper()}{task.lost[1:]}.",
        "A new one has taken its place; every command in the old one has ended.",
        f"Gone are these files: {named}." if named else "",
        "Whatever else your commands wrote in this run is gone as well.",
        "The files from before this run were restored." if saved is not None and not problem else problem,
    )
    return " ".join(filter(None, sentences))


def _restored_once(
    task: Task, sandbox: Sandbox, saved: SavedSession, sessions: SessionStore, journal: RunJournal
) -> str:
    """What is wrong with the session's files in this sandbox, for the model."""
    if not task.lost:
        if not journal.begun() and (problem := _restore(task, sandbox, saved, sessions)):
            journal.record_notice(problem)
        return ""
    entered = journal.entered(task.sandbox)
    if entered is None:
        entered = _restore(task, sandbox, saved, sessions)
        journal.record_entered(task.sandbox, entered)
    return entered


def _restore(task: Task, sandbox: Sandbox, saved: SavedSession, sessions: SessionStore) -> str:
    """Bring the session's files back; what is wrong with them. No reply is lost to it."""
    chunks = sessions.open_archive(task.session) if saved.archive is not None else None
    if chunks is None or saved.archive is None:
        return "The files of the sandbox were not kept: /tmp/data is empty now."
    try:
        _, digest = restore_sandbox(sandbox, chunks)
    except ArchiveFailed as error:
        logger.warning("files were not restored: %s: %s", error, error.detail, extra={"run": task.name})
        sandbox.exec("true")  # one that died of it is replaced, and the files with it
        return "The files of the sandbox could not be restored: in /tmp/data, files may be missing or cut off."
    if digest != saved.archive.digest:  # of a save that was never finished
        return "The files in /tmp/data may be newer than this conversation, or missing."
    return "The files in /tmp/data are older than this conversation." if saved.archive_problem else ""
