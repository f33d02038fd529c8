"""The engine with a real adapter over HTTP, against a server that refuses what Gemini refuses."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from hummingbird_ai.calls import generate_with_retry
from hummingbird_ai.models import build_model, context_window, worst_case_cost
from hummingbird_ai.testing import Answer, GeminiServer, Reply, call, say
from hummingbird_operator.sessions.budget import Budget
from hummingbird_operator.sessions.journal import RunJournal
from hummingbird_operator.sessions.loop import run_agent_loop
from hummingbird_operator.sessions.outcomes import Outcome
from hummingbird_operator.sessions.prompts import continuation_message, first_message, system_prompt
from hummingbird_operator.sessions.session import Conversation, SessionStore
from hummingbird_operator.sessions.testing import FakeSandbox, MemoryStore
from hummingbird_operator.sessions.tools import ToolRegistry
from hummingbird_operator.sessions.transcript import render_transcript
from hummingbird_operator.sessions.turns import JournaledTurns

MODEL = "gemini-3.8-flash"
SCRIPT: list[Reply] = [
    call("sandbox_exec", command="seq 3000"),
    Answer(),
    Answer(calls=(("sandbox_exec", {"command": "echo a"}), ("nope", {}))),
    say("It failed because of a."),
    say("Only arm64 has a."),
]


@pytest.fixture
def server() -> Iterator[GeminiServer]:
    with GeminiServer(lambda _, number: SCRIPT[number]) as server:
        yield server


def test_a_run_and_its_resume_are_taken_by_gemini(tmp_path: Path, server: GeminiServer) -> None:
    store = MemoryStore()
    sandbox = FakeSandbox(tmp_path)
    sandbox.start()
    registry = ToolRegistry(sandbox)
    system = system_prompt(registry.get_tool_notes(), "Explain why it failed.")

    def turns(run: str) -> JournaledTurns:
        model = build_model(MODEL, google_api_key="test-key", base_url=server.url)
        return JournaledTurns(
            model,
            registry,
            RunJournal(store, run),
            system=system,
            tool_defs=registry.get_tool_defs(),
            generate=partial(generate_with_retry, max_attempts=1),
            worst_case=partial(worst_case_cost, MODEL),
        )

    model = build_model(MODEL, google_api_key="test-key", base_url=server.url)
    opening = [model.make_user_content(first_message("group/app", 42, "9f2c", None))]
    first = run_agent_loop(turns("u1"), opening, Budget())
    assert (first.outcome, first.text, first.iterations) == (Outcome.COMPLETED, "It failed because of a.", 4)
    assert run_agent_loop(turns("u1"), opening, Budget()) == first

    sessions = SessionStore(store)
    canonical = model.to_canonical(first.contents)
    saved = sessions.save(
        "s1",
        Conversation(canonical, system, registry.get_tool_defs(), "analyze", "h", "u1", first.context_tokens),
        transcript=render_transcript(canonical),
        archive=None,
    )
    budget = Budget().fitted(restored_tokens=saved.context_tokens, window=context_window(MODEL))
    reply = model.make_user_content(continuation_message("why only arm64?"))
    second = run_agent_loop(turns("u2"), [*model.from_canonical(saved.contents), reply], budget)
    assert (second.outcome, second.text) == (Outcome.COMPLETED, "Only arm64 has a.")
    assert second.cost_usd > 0
    assert b"It failed because of a." in store.blobs["sessions/s1/transcript.md"]
