"""Sessions whose runs stand in their journals only, as the engine leaves them, and whoever goes on with one."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

from hummingbird_ai.abort import Abort
from hummingbird_ai.messages import Finish, ModelResponse, ToolCall, Usage
from hummingbird_ai.testing import ScriptedModel
from hummingbird_operator.agentruns.missing_saves import MissingSaves
from hummingbird_operator.agentruns.tasks import Task, task_of
from hummingbird_operator.sessions.journal import RunJournal
from hummingbird_operator.sessions.records import Opening
from hummingbird_operator.sessions.session import SavedSession, SessionStore
from hummingbird_operator.sessions.testing import MemoryStore
from tests.unit.agentruns.builders import NOW, facts, run
from tests.unit.agentruns.process import SECRET, Doors

MODEL = ScriptedModel(["never"])
ORIGIN = "hummingbird/group/app!42"
FIRST, REPLY = "0f9b7c1e-8a51-4f5e-9d2e-000000000001", "0f9b7c1e-8a51-4f5e-9d2e-000000000002"
ME = "0f9b7c1e-8a51-4f5e-9d2e-000000000009"


def uid(number: int) -> str:
    return f"{FIRST[:-1]}{number}"


def task(**changes: Any) -> Task:
    """A reply in the session of the first run."""
    made = task_of(facts(run({"session": FIRST, "message": "and?"}, uid=ME)), NOW)
    return replace(made, **changes)


def spoke(store: MemoryStore, number: int, *, base: int = 0, answered: bool = True, **how: Any) -> None:
    """A run of two turns in the journals, as the engine leaves it; nobody saved it."""
    opening = Opening(
        name=f"run-{number}",
        workflow="analyze-failures",
        workflow_hash="h",
        origin=ORIGIN,
        model="scripted-model",
        base=uid(base) if base else "",
        said=f"question {number}",
        system="" if base else "Look.",
    )
    journal = RunJournal(store, uid(number))
    if base:
        journal.follow(uid(base))
    attempt = journal.intent(1, worst_case_usd=Decimal(1), model="m", opening=replace(opening, **how))
    if not answered:
        return
    calls = (ToolCall("c", "sandbox_exec", {"command": "ls"}),)
    journal.record_response(1, response("", calls), attempt=attempt, final=False)
    journal.record_results(1, [{"stdout": "a"}])
    attempt = journal.intent(2, worst_case_usd=Decimal(1), model="m")
    journal.record_response(2, response(f"answer {number}"), attempt=attempt, final=False)


def response(text: str, calls: tuple[ToolCall, ...] = ()) -> ModelResponse:
    parts: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    parts += [{"type": "tool_call", "id": call.id, "name": call.name, "arguments": {}} for call in calls]
    producer = {"provider": "scripted", "transport": "in-process", "model": "scripted-model"}
    raw = {"version": 1, "role": "assistant", "parts": parts, "producer": producer}
    usage = Usage(input_tokens=10, output_tokens=1, context_tokens=11)
    finish = Finish.TOOL_CALLS if calls else Finish.STOP
    return ModelResponse(text=text, tool_calls=calls, raw_content=raw, usage=usage, finish=finish)


def go_on(store: MemoryStore, asking: Task | None = None) -> SavedSession:
    sessions = SessionStore(store)
    saves = MissingSaves(store, sessions, Doors(MODEL), lambda text: text.replace(SECRET, "[gone]"))
    found = saves.resumed(asking or task(), Abort())
    assert found is not None
    return found


def answers(saved: SavedSession) -> list[str]:
    parts = (part for each in saved.contents if each["role"] == "assistant" for part in each["parts"])
    return [part["text"] for part in parts if part["type"] == "text"]


def missing(runs: int, *, kept: int = 0) -> MemoryStore:
    """A session of so many runs, of which the first `kept` are saved."""
    store = MemoryStore()
    for number in range(1, runs + 1):
        spoke(store, number, base=number - 1)
        if number == kept:
            go_on(store)
    return store
