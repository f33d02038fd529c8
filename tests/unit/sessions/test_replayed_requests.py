"""A run that another process takes over sends the same bytes: bound thinking and prompt caches are found by them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pytest
from google.oauth2.credentials import Credentials

from hummingbird_ai.auth import VertexAuth
from hummingbird_ai.calls import generate_with_retry
from hummingbird_ai.messages import ModelAdapter, ModelResponse, ToolCall, ToolDef
from hummingbird_ai.models import build_model
from hummingbird_ai.testing import Answer, ClaudeServer, GeminiServer
from hummingbird_operator.sessions.budget import Budget
from hummingbird_operator.sessions.journal import RunJournal
from hummingbird_operator.sessions.loop import run_agent_loop
from hummingbird_operator.sessions.outcomes import Outcome
from hummingbird_operator.sessions.testing import Killed, MemoryStore
from hummingbird_operator.sessions.turns import JournaledTurns

RUN = ToolDef("run", "Run a command", {"type": "object"})
CALLS = (("run", {"z": 1, "command": "ls", "deep": {"y": [{"b": 1, "a": 2}], "x": None}}), ("run", {"b": 1, "a": 2}))
SCRIPT = [
    Answer(thought="hm", text="I look.", calls=CALLS),
    Answer(thought="hm", calls=CALLS[:1]),
    Answer(thought="hm", text="done"),
]
SERVERS: dict[str, Callable[[Any], Any]] = {
    "claude-opus-5-5": ClaudeServer,
    "claude-haiku-5-5": ClaudeServer,
    "gemini-3.8-flash": GeminiServer,
}


class Shell:
    """A tool whose results have their keys in no alphabetical order."""

    def execute(self, tool_call: ToolCall, command_id: str | None = None) -> dict[str, Any]:
        return {"stdout": "x", "exit_code": 0, "files": [{"path": "/b", "bytes": 1}], "at": {"b": 1, "a": 2}}

    def never_reuse(self, history: Sequence[Any]) -> None:
        pass


class Process:
    """One life of the operator; it dies at the model call of this number, from 0."""

    def __init__(self, model: ModelAdapter, store: MemoryStore, dies_at: int) -> None:
        self._model = model
        self._store = store
        self._left = dies_at

    def _generate(self, *given: Any, **more: Any) -> ModelResponse:
        if not self._left:
            raise Killed
        self._left -= 1
        return generate_with_retry(*given, max_attempts=1, **more)

    def run(self) -> Outcome:
        turns = JournaledTurns(
            self._model,
            Shell(),
            RunJournal(self._store, "u1"),
            system="You look into failed pipelines.",
            tool_defs=[RUN],
            generate=self._generate,
            worst_case=lambda **_: Decimal(0),
        )
        return run_agent_loop(turns, [self._model.make_user_content("go")], Budget(), clock=lambda: 0.0).outcome


@pytest.mark.parametrize("name", SERVERS)
def test_a_run_that_is_taken_over_before_every_call_makes_the_requests_of_one_that_never_died(name: str) -> None:
    auth = VertexAuth("project", credentials=Credentials("test-token"))  # type: ignore[no-untyped-call]

    def sent(lives: Sequence[int]) -> list[bytes]:
        store = MemoryStore()
        with SERVERS[name](lambda body, number: SCRIPT[number]) as server:
            for calls in lives[:-1]:
                with pytest.raises(Killed):
                    Process(build_model(name, auth=auth, base_url=server.url), store, calls).run()
            last = Process(build_model(name, auth=auth, base_url=server.url), store, lives[-1]).run()
            assert last is Outcome.COMPLETED
            assert [call.refused for call in server.calls] == [None] * len(SCRIPT)
            return [call.raw for call in server.calls]

    undisturbed = sent([len(SCRIPT)])

    assert sent([0, 1, 1, 1]) == undisturbed
    assert sent([2, 1]) == undisturbed
