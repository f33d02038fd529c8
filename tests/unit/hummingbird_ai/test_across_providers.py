"""Laws of conversations that move between providers, judged by servers that refuse what the providers refuse."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from google.oauth2.credentials import Credentials
from hypothesis import given, settings
from hypothesis import strategies as st

from hummingbird_ai.auth import VertexAuth
from hummingbird_ai.messages import Content, ModelAdapter, ModelResponse, ToolDef
from hummingbird_ai.providers.claude.adapter import AnthropicVertexModel
from hummingbird_ai.providers.gemini.adapter import GeminiModel
from hummingbird_ai.providers.google.endpoints import ApiKeyEndpoint, VertexEndpoint
from hummingbird_ai.testing import Answer, ClaudeServer, GeminiServer, Search

TOOLS = [
    ToolDef("run", "Run a command", {"type": "object", "properties": {"command": {"type": "string"}}}),
    ToolDef("read", "Read a file", {"type": "object"}),
]
SYSTEM = "You look into failed pipelines."
HOMES = (
    "gemini-3.8-flash by key",
    "gemini-3.8-flash",
    "gemini-2.5-flash",
    "claude-opus-5-5",
    "claude-sonnet-5-5",
    "claude-opus-4-7",
    "claude-haiku-4-5@20251001",
)


@dataclass
class World:
    """Both servers; `coming` is what the next call is answered with, by whichever of them is asked."""

    claude: ClaudeServer
    gemini: GeminiServer
    coming: Answer = field(default_factory=Answer)

    def answer(self) -> Answer:
        """What is coming, once; a search that was paused for comes to its end with the next pass."""
        given, self.coming = self.coming, Answer(text="so")
        return given

    def adapter(self, home: str) -> ModelAdapter:
        name, _, by_key = home.partition(" by ")
        if by_key:
            return GeminiModel(name, ApiKeyEndpoint("test-key", self.gemini.url))
        auth = VertexAuth("project", credentials=Credentials("test-token"))  # type: ignore[no-untyped-call]
        if name.startswith("gemini-"):
            return GeminiModel(name, VertexEndpoint(auth, "global", self.gemini.url))
        return AnthropicVertexModel(name, VertexEndpoint(auth, "global", self.claude.url), web_search=True)

    def refused(self) -> list[str]:
        return [call.refused.message for call in (*self.claude.calls, *self.gemini.calls) if call.refused]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with ExitStack() as stack:
        claude = stack.enter_context(ClaudeServer(lambda body, n: made.answer()))
        gemini = stack.enter_context(GeminiServer(lambda body, n: made.answer()))
        made = World(claude, gemini)
        yield made


words = st.text(min_size=1, max_size=6).filter(lambda text: bool(text.strip()))
arguments = st.dictionaries(
    st.sampled_from(["command", "path", "$ref"]), words | st.lists(words, max_size=2), max_size=2
)
calls = st.lists(st.tuples(st.sampled_from(["run", "read"]), arguments), max_size=3).map(tuple)
searches = st.lists(
    st.builds(
        Search,
        query=words,
        results=st.lists(st.tuples(words, st.sampled_from(["https://a.example", "https://b.example"])), max_size=2).map(
            tuple
        ),
        pending=st.booleans(),
    ),
    max_size=2,
).map(tuple)
answers = st.builds(
    Answer,
    text=st.just("") | words,
    thought=st.just("") | words,
    calls=calls,
    redacted=st.booleans(),
    searches=st.just(()) | searches,
    finish=st.sampled_from(["", "", "", "max_tokens", "refusal"]),
)
results = st.dictionaries(st.sampled_from(["output", "error", "$defs"]), words | st.none() | st.floats(), max_size=2)


@dataclass(frozen=True)
class Turn:
    """One call; `home` asks for a move before it."""

    answer: Answer
    home: str | None
    warning: str
    says: str
    result: dict[str, Any]
    allow_tools: bool


turns = st.builds(
    Turn,
    answer=answers,
    home=st.none() | st.sampled_from(HOMES),
    warning=st.sampled_from(["", "", "hurry", " "]),
    says=st.sampled_from(["", "", "go on", "\ud83d"]),
    result=results,
    allow_tools=st.sampled_from([True, True, False]),
)


def play(world: World, home: str, plan: list[Turn]) -> Iterator[tuple[ModelAdapter, list[Content], ModelResponse]]:
    model = world.adapter(home)
    contents = [model.make_user_content("go")]
    for turn in plan:
        if turn.home is not None:
            stored = json.loads(json.dumps(model.to_canonical(contents)))
            model = world.adapter(turn.home)
            contents = model.from_canonical(stored)
        if turn.says:
            contents.append(model.make_user_content(turn.says))
        world.coming = fitting(turn.answer, model)
        before = copy.deepcopy(contents)
        reply = model.generate(
            contents, system=SYSTEM, tools=TOOLS, ephemeral=[turn.warning], allow_tools=turn.allow_tools
        )
        assert contents == before
        if reply.raw_content is not None:
            contents.append(reply.raw_content)
        if reply.tool_calls:
            contents.append(model.make_tool_responses(reply.tool_calls, [turn.result for _ in reply.tool_calls]))
        yield model, contents, reply


def fitting(answer: Answer, model: ModelAdapter) -> Answer:
    """What this family can answer: only Claude pauses, and only it searches here."""
    if isinstance(model, AnthropicVertexModel):
        return answer
    finish = {"max_tokens": "MAX_TOKENS", "refusal": "SAFETY"}.get(answer.finish or "", "")
    return Answer(text=answer.text, thought=answer.thought, calls=answer.calls, finish=finish)


@settings(max_examples=40, deadline=None)
@given(home=st.sampled_from(HOMES), plan=st.lists(turns, min_size=1, max_size=7))
def test_wherever_a_conversation_moves_every_request_is_taken_and_no_history_changes(
    world: World, home: str, plan: list[Turn]
) -> None:
    already = len(world.refused())

    for model, contents, _ in play(world, home, plan):
        stored = model.to_canonical(contents)
        assert model.from_canonical(json.loads(json.dumps(stored))) == contents

    assert world.refused()[already:] == []


@settings(max_examples=12, deadline=None)
@given(home=st.sampled_from(HOMES), plan=st.lists(turns, min_size=1, max_size=3))
def test_equal_input_makes_equal_bytes(world: World, home: str, plan: list[Turn]) -> None:
    """Whatever an adapter did before: a cache is found by bytes."""
    *_, (model, contents, _) = play(world, home, plan)
    contents = [*contents, model.make_user_content("and now?")]
    server = world.claude if isinstance(model, AnthropicVertexModel) else world.gemini
    same = world.adapter(plan_home(home, plan))

    for each in (model, model, same):
        world.coming = Answer(text="done")
        each.generate(contents, system=SYSTEM, tools=TOOLS, ephemeral=["hurry"])

    assert len({call.raw for call in server.calls[-3:]}) == 1


def plan_home(home: str, plan: list[Turn]) -> str:
    return next((turn.home for turn in reversed(plan) if turn.home is not None), home)
