"""One session of ten turns with parallel tools and thinking: from Gemini to Claude and back to Gemini."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.oauth2.credentials import Credentials

from hummingbird_ai.auth import VertexAuth
from hummingbird_ai.messages import Content, Finish, ModelAdapter, ToolDef
from hummingbird_ai.models import build_model
from hummingbird_ai.providers.gemini.parts import PLACEHOLDER_SIGNATURE
from hummingbird_ai.testing import Answer, ClaudeServer, GeminiServer, ReceivedCall

RUN = ToolDef("run", "Run a command", {"type": "object", "properties": {"command": {"type": "string"}}})
HOMES = ["gemini-3.8-flash"] * 4 + ["claude-opus-5-5"] * 3 + ["gemini-3.8-flash"] * 3


def answer(turn: int) -> Answer:
    if turn in (3, 6, 9):
        return Answer(thought=f"thought {turn}", text=f"answer {turn}")
    calls = tuple(("run", {"command": f"command {turn}.{number}"}) for number in range(3))
    return Answer(thought=f"thought {turn}", text=f"words {turn}", calls=calls)


class Session:
    def __init__(self, gemini: GeminiServer, claude: ClaudeServer) -> None:
        self.servers = {"gemini": gemini, "claude": claude}
        self.stored = json.dumps([])
        self.turn = 0

    def model(self, name: str) -> ModelAdapter:
        if name.startswith("gemini-"):
            return build_model(name, google_api_key="test-key", base_url=self.servers["gemini"].url)
        auth = VertexAuth("p", credentials=Credentials("test-token"))  # type: ignore[no-untyped-call]
        return build_model(name, auth=auth, base_url=self.servers["claude"].url)

    def play(self) -> None:
        """Each turn in a process of its own, as it were: a new adapter, loaded from what the last one saved."""
        for self.turn, home in enumerate(HOMES):
            model = self.model(home)
            contents: list[Content] = model.from_canonical(json.loads(self.stored))
            if self.turn in (0, 4, 7):
                contents.append(model.make_user_content(f"question {self.turn}"))
            reply = model.generate(contents, system="s", tools=[RUN], ephemeral=["hurry"] if self.turn % 4 == 2 else [])
            assert reply.finish is (Finish.TOOL_CALLS if reply.tool_calls else Finish.STOP)
            assert reply.raw_content is not None
            contents.append(reply.raw_content)
            if reply.tool_calls:
                results = [{"output": call.arguments["command"]} for call in reply.tool_calls]
                contents.append(model.make_tool_responses(reply.tool_calls, results))
            self.stored = json.dumps(model.to_canonical(contents))


Played = tuple[list[ReceivedCall], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def played() -> Played:
    with (
        GeminiServer(lambda body, n: answer(session.turn)) as gemini,
        ClaudeServer(lambda body, n: answer(session.turn)) as claude,
    ):
        session = Session(gemini, claude)
        session.play()
        calls = sorted([*gemini.calls, *claude.calls], key=lambda call: call.at)
        return calls, json.loads(session.stored)


def test_ten_turns_over_two_providers_are_all_accepted_and_nothing_said_is_lost(played: Played) -> None:
    calls, stored = played

    assert [call.model for call in calls] == HOMES
    assert [call.refused for call in calls] == [None] * 10
    told = json.dumps(calls[-1].body)
    for turn in range(9):
        assert f"answer {turn}" in told or f"words {turn}" in told
        assert turn in (3, 6) or told.count(f"command {turn}.1") == 2  # the call and its result
    producers = [message["producer"]["model"] for message in stored if message["role"] == "assistant"]
    assert producers == HOMES


def test_what_only_one_provider_can_read_reaches_no_other(played: Played) -> None:
    calls, _ = played

    on_claude, back_on_gemini = json.dumps(calls[6].body), json.dumps(calls[9].body)
    assert "thoughtSignature" not in on_claude
    assert [f"thought {turn}" in back_on_gemini for turn in range(9)] == [False] * 7 + [True] * 2
    spoken = [message["content"] for message in calls[6].body["messages"] if message["role"] != "system"]
    kinds = [block["type"] for content in spoken for block in content]
    assert kinds.count("thinking") == 2
    signatures = [
        part["thoughtSignature"]
        for content in calls[9].body["contents"]
        for part in content["parts"]
        if "thoughtSignature" in part
    ]
    assert signatures.count(PLACEHOLDER_SIGNATURE) == 5  # three turns of the old session, two of Claude's
    assert len(signatures) == 7


def test_ids_of_the_first_segment_stay_the_same_in_every_later_request_of_a_provider(played: Played) -> None:
    calls, _ = played

    def ids(call: ReceivedCall) -> list[str]:
        blocks = [block for message in call.body["messages"] for block in message["content"]]
        return [block["id"] for block in blocks if isinstance(block, dict) and block["type"] == "tool_use"]

    first, second, third = (ids(call) for call in calls[4:7])
    assert len(set(third)) == len(third) == 15
    assert third[: len(second)] == second
    assert second[: len(first)] == first
