"""The part of a run that a thread does: the agent loop with its sandbox, tools, journal and session.

Knows the engine (`sessions`) and what `leader` gives it; nothing here talks to Kubernetes or to the forge.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

from hummingbird_ai.abort import Abort
from hummingbird_operator.agentruns.entering import enter
from hummingbird_operator.agentruns.following import Question
from hummingbird_operator.agentruns.missing_saves import MissingSaves
from hummingbird_operator.agentruns.resuming import (
    SessionLost,
    asked,
    before_it,
    history,
    keep_unbegun,
    opening_of,
    resumed,
    settle,
)
from hummingbird_operator.agentruns.tasks import Task
from hummingbird_operator.api import conditions as c
from hummingbird_operator.errors import Aborted, HummingbirdError, SandboxLost, Unavailable
from hummingbird_operator.sessions import session as sessions
from hummingbird_operator.sessions.archive import archive_sandbox
from hummingbird_operator.sessions.budget import Budget
from hummingbird_operator.sessions.journal import RunJournal
from hummingbird_operator.sessions.loop import run_agent_loop
from hummingbird_operator.sessions.outcomes import Outcome
from hummingbird_operator.sessions.rebuilding import ended_as
from hummingbird_operator.sessions.records import RecordedAnswer
from hummingbird_operator.sessions.state import LoopResult, Progress
from hummingbird_operator.sessions.store import SERVICE
from hummingbird_operator.sessions.tools import ToolRegistry
from hummingbird_operator.sessions.transcript import NOTE_LIMIT, run_transcript
from hummingbird_operator.sessions.turns import Generate, JournaledTurns
from hummingbird_operator.telemetry import RUN

if TYPE_CHECKING:
    from hummingbird_ai.messages import ToolDef
    from hummingbird_operator.agentruns.doors import Doors
    from hummingbird_operator.sessions.sandbox import Sandbox
    from hummingbird_operator.sessions.store import BlobStore

logger = logging.getLogger(__name__)

QUIET_SECONDS = 2.0
"""How long the end of a run waits for a sandbox that does not answer; it is deleted or swept again behind the note."""

READ_SECONDS = 5.0
"""How long one record of a save that is missing is tried to be read: a rebuild of many begins anew otherwise."""


@dataclass(frozen=True)
class Conversation:
    """What the loop came to, with what a note and a save need of it."""

    result: LoopResult
    messages: Sequence[dict[str, Any]]
    """Canonical."""
    system: str
    tools: Sequence[ToolDef]
    transcript: str
    """For the note: at most 90,000 characters."""
    answer_uri: str = ""
    resumed_etag: str | None = None
    cut: bool = False
    """Of what people asked, the model has not seen all."""
    internal: bool = False
    """This run, or one before it in its session, was internal: the session is from now on."""


@dataclass(frozen=True)
class Saved:
    """Where session and transcript are; `problem`: why without the files of the sandbox, empty where they are there."""

    uri: str
    transcript: str
    problem: str


class Worker:
    """Runs the engine for one run at a time; an operator has one of these for all its threads."""

    def __init__(
        self,
        store: BlobStore,
        doors: Doors,
        generate: Generate,
        *,
        max_output_tokens: int,
        retry_seconds: float,
        clean: Callable[[str], str],
    ) -> None:
        """`clean` redacts secrets from the transcript."""
        self._clean = clean
        self._store = store
        self._sessions = sessions.SessionStore(store)
        self._doors = doors
        patience = min(retry_seconds, READ_SECONDS)
        self._missing = MissingSaves(store, self._sessions, doors, clean, retry_seconds=patience)
        self._generate = generate
        self._max_output_tokens = max_output_tokens
        self._retry_seconds = retry_seconds

    def work(
        self, task: Task, sandbox: Sandbox | None, abort: Abort, progress: Callable[[Progress], None]
    ) -> Conversation:
        """Run the agent to its end and keep the answer. Raises SandboxLost, Unavailable, Invalid, Conflict.

        A first loss of the sandbox is raised, for it will be replaced; the second one is the outcome.
        Where a process that died kept an answer already, that one stands: nothing is asked or run again.
        """
        RUN.set(task.name)
        journal = RunJournal(self._store, task.run, retry_seconds=self._retry_seconds, abort=abort)
        if (recorded := journal.answer()) is not None:
            return replace(self._recalled(task, journal, recorded), answer_uri=self._record(journal, recorded))
        if sandbox is None:
            raise SandboxLost("Deleted", "it is gone: it was deleted, or its node was lost")
        saved = self._missing.resumed(task, abort)
        settle(task, saved, journal)
        news = enter(task, sandbox, saved, self._sessions, journal)
        said = self._converse(task, saved, journal, sandbox, abort, progress, news)
        if said.result.lost is not None and not task.lost:
            raise said.result.lost  # with another one it goes on where it was
        if said.result.outcome in (Outcome.CANCELLED, Outcome.TIMED_OUT, Outcome.SUPERSEDED):
            with suppress(HummingbirdError):  # at once: note and save may take longer than anybody wants it to run
                sandbox.sweep(seconds=QUIET_SECONDS)
        if said.result.outcome in (Outcome.SHUTTING_DOWN, Outcome.STORE_UNAVAILABLE):
            return said  # the journal waited for its store already
        try:
            return replace(said, answer_uri=self._record(journal, _recorded(said.result)))
        except Unavailable as error:  # every turn is there: whoever comes next gets the same answer from them
            logger.warning("how the run ended is not in its journal: %s", error)
        except Aborted:
            if said.result.outcome is Outcome.COMPLETED:
                raise
        return said

    def asked(self, task: Task) -> Question | None:
        """What the run asks, if that is settled already; None while the words of others may join it."""
        return asked(task, RunJournal(self._store, task.run))

    def recall(self, task: Task) -> Conversation | None:
        """The conversation of a run that is settled, from its journal: no model call, no tool; None if it has none.

        Raises Unavailable at once: its caller waits without a thread.
        """
        RUN.set(task.name)
        journal = RunJournal(self._store, task.run)
        return self._recalled(task, journal, journal.answer()) if journal.begun() else None

    def _recalled(self, task: Task, journal: RunJournal, recorded: RecordedAnswer | None) -> Conversation:
        over = Abort()
        over.set(Outcome.SHUTTING_DOWN)
        said = self._converse(task, resumed(task, self._sessions, self._store), journal, None, over, lambda _: None)
        if said.result.outcome is Outcome.STORE_UNAVAILABLE:  # half a conversation must not pass for the whole
            raise Unavailable(SERVICE, said.result.message)
        if recorded is None:
            return said
        result = ended_as(said.result, recorded)
        return replace(said, result=result, transcript=_transcript(task, said.messages, result, limit=NOTE_LIMIT))

    def _record(self, journal: RunJournal, answer: RecordedAnswer) -> str:
        return journal.record_answer(answer, self._clean(answer.text))

    def unbegun(self, run: str) -> None:
        """The run with this uid ended without a word to a model. Raises Unavailable."""
        keep_unbegun(self._store, run)

    def admit(self, task: Task, abort: Abort) -> None:
        """Raise Invalid where the run may not resume the session that it names, or where that does not exist.

        What runs before it left in their journals only is saved first, which may take long: Aborted ends it.
        """
        RUN.set(task.name)
        self._missing.resumed(task, abort)

    def save(self, task: Task, said: Conversation, sandbox: Sandbox | None) -> Saved:
        """Store archive, transcript and conversation."""
        entry = task.order.workflow
        kept = sessions.Conversation(
            contents=said.messages,
            system_prompt=said.system,
            tools=said.tools,
            workflow=entry.name,
            workflow_hash=entry.hash,
            run=task.run,
            context_tokens=said.result.context_tokens,
            origin=task.origin,
            internal=said.internal,
        )
        transcript = self._clean(_transcript(task, said.messages, said.result))
        archive = archive_sandbox(sandbox) if sandbox is not None else None
        with closing(archive) if archive is not None else nullcontext():
            now = self._sessions.save(
                task.session, kept, transcript=transcript, archive=archive, if_match=said.resumed_etag
            )
        address = self._sessions.url(task.session).removesuffix("context.json")
        return Saved(address, self._sessions.url(task.session, "transcript.md"), now.archive_problem)

    def _converse(
        self,
        task: Task,
        saved: sessions.SavedSession | None,
        journal: RunJournal,
        sandbox: Sandbox | None,
        abort: Abort,
        progress: Callable[[Progress], None],
        news: str = "",
    ) -> Conversation:
        resolved = task.order.resolved
        name = resolved.model or ""
        model = self._doors.model(name)
        registry = ToolRegistry(sandbox)
        if news:
            registry.announce(news)
        self._doors.sources(registry, task.order, abort.wait)
        question = asked(task, journal) or task.question or Question(task.order.message, task.order.message_cut)
        opening = opening_of(task, saved, journal, registry, question, live=sandbox is not None)
        internal = task.order.internal or journal.internal() or (saved is not None and saved.internal)
        if task.order.internal:
            journal.record_internal()
        base = saved
        if saved is not None and (sandbox is None or saved.run == task.run):
            base = before_it(saved, opening)
        system, tools = (base.system_prompt, base.tools) if base else (opening.system, opening.tools)
        turns = JournaledTurns(
            model,
            registry,
            journal,
            system=system,
            tool_defs=tools,
            generate=self._generate,
            worst_case=partial(self._doors.worst_case, name),
            opening=opening,
            abort=abort,
        )
        contents = [*history(base, model), model.make_user_content(opening.said)]
        result = run_agent_loop(turns, contents, self._budget(task, base, name), progress=progress)
        messages = model.to_canonical(result.contents) if journal.begun() else []  # or nothing was said
        if saved is not None and opening.base == task.run:  # saved, of an older version that kept no opening
            messages = [dict(each) for each in saved.contents]
        return Conversation(
            result=result,
            messages=messages,
            system=system,
            tools=tools,
            transcript=_transcript(task, messages, result, limit=NOTE_LIMIT),
            resumed_etag=base.etag if base else None,
            cut=question.cut,
            internal=internal,
        )

    def _budget(self, task: Task, saved: sessions.SavedSession | None, model: str) -> Budget:
        limits = task.order.resolved.limits
        assert limits is not None  # noqa: S101 - resolve sets every one
        budget = Budget(
            max_iterations=limits.max_iterations or 1,
            context_tokens=limits.context_tokens or 1,
            max_output_tokens=self._max_output_tokens,
            max_cost_usd=limits.max_cost_usd or Decimal(0),
            deadline=time.monotonic() + task.seconds_left,
        )
        return budget.fitted(restored_tokens=saved.tokens_for(model) if saved else 0, window=self._doors.window(model))


def reason_of(error: Exception) -> str:
    """The outcome of a run whose work could not begin."""
    return error.reason if isinstance(error, SessionLost) else c.Failure.INVALID


def _recorded(result: LoopResult) -> RecordedAnswer:
    return RecordedAnswer(
        outcome=result.outcome,
        text=result.text,
        message=result.message,
        iterations=result.iterations,
        cost_usd=result.cost_usd,
        usage=result.usage,
        incomplete=result.incomplete,
    )


def _transcript(task: Task, messages: Sequence[dict[str, Any]], result: LoopResult, limit: int | None = None) -> str:
    entry, model = task.order.workflow.name, task.order.resolved.model or ""
    return run_transcript(messages, result, name=task.name, workflow=entry, model=model, limit=limit)
