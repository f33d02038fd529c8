"""The adapter against a Claude on loopback that refuses what Claude refuses."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from google.oauth2.credentials import Credentials

from hummingbird_ai import errors
from hummingbird_ai.auth import VertexAuth
from hummingbird_ai.messages import Content, Finish, ModelResponse, Source, ToolCall, ToolDef
from hummingbird_ai.providers.claude.adapter import MAX_PASSES, AnthropicVertexModel
from hummingbird_ai.providers.google.endpoints import VertexEndpoint
from hummingbird_ai.testing import Answer, Body, ClaudeServer, HttpError, Reply, Search, call, say
from hummingbird_ai.testing.replies import Stall

RUN = ToolDef("run", "Run a command", {"type": "object", "properties": {"command": {"type": "string"}}})
NEWEST = "claude-opus-5-5"
OLDER = "claude-opus-4-7"
SEARCH = Search("what broke", (("A page", "https://example.com/a"),))
OPEN = Search("what broke", (("A page", "https://example.com/a"),), pending=True)


def model(server: ClaudeServer, name: str = NEWEST, **more: Any) -> AnthropicVertexModel:
    auth = VertexAuth("project", credentials=Credentials("test-token"))  # type: ignore[no-untyped-call]
    return AnthropicVertexModel(name, VertexEndpoint(auth, "global", server.url), **more)


def script(*replies: Reply) -> Callable[[dict[str, Any], int], Reply]:
    return lambda body, n: replies[n]


class Talk:
    """A conversation as an agent leads it."""

    def __init__(self, adapter: AnthropicVertexModel, system: str = "be brief") -> None:
        self.adapter = adapter
        self.system = system
        self.contents: list[Content] = [adapter.make_user_content("go")]

    def ask(self, *ephemeral: str, **more: Any) -> ModelResponse:
        tools = more.pop("tools", [RUN])
        answer = self.adapter.generate(self.contents, system=self.system, tools=tools, ephemeral=ephemeral, **more)
        if answer.raw_content is not None:
            self.contents.append(answer.raw_content)
        if answer.tool_calls:
            results = [{"output": f"{item.name} {item.id}"} for item in answer.tool_calls]
            self.contents.append(self.adapter.make_tool_responses(answer.tool_calls, results))
        return answer

    def say(self, words: str) -> None:
        self.contents.append(self.adapter.make_user_content(words))


def blocks_of(body: dict[str, Any], number: int) -> list[str]:
    return [block["type"] for block in body["messages"][number]["content"]]


def test_a_request_has_the_parts_of_raw_predict_and_nothing_else() -> None:
    with ClaudeServer(script(say("done"))) as server:
        labels = {"team": "ci"}
        Talk(model(server, labels=labels)).ask(max_output_tokens=100)

        sent = server.calls[0]
    assert sent.path == f"/v1/projects/project/locations/global/publishers/anthropic/models/{NEWEST}:rawPredict"
    assert list(sent.body) == ["anthropic_version", "max_tokens", "system", "tools", "messages"]
    assert sent.body["anthropic_version"] == "vertex-2023-10-16"
    assert sent.body["max_tokens"] == 100
    assert sent.headers["authorization"] == "Bearer test-token"
    assert json.loads(base64.b64decode(sent.headers["x-vertex-ai-labels"])) == labels
    assert "anthropic-beta" not in sent.headers
    assert "anthropic-version" not in sent.headers


def test_the_version_of_the_wire_format_can_be_chosen() -> None:
    """Report 40: a wrong one gives 404."""
    with ClaudeServer(script(say("done"))) as server:
        Talk(model(server, version="2026-10-21")).ask()
        assert server.calls[0].body["anthropic_version"] == "2026-10-21"
        with pytest.raises(errors.BadRequest):
            Talk(model(server, version="2023-06-01")).ask()


def test_no_sampling_parameter_and_no_way_to_think_is_sent() -> None:
    """Report 41."""
    with ClaudeServer(script(say("done"))) as server:
        Talk(model(server)).ask()
        assert not {"temperature", "top_p", "top_k", "thinking"} & server.calls[0].body.keys()


def test_parallel_calls_with_thinking_go_round_and_come_back() -> None:
    """Reports 1, 2, 3, 19."""
    calls = (("run", {"command": "a"}), ("run", {"command": "b"}))
    with ClaudeServer(script(Answer(thought="hm", text="I look.", calls=calls), say("done"))) as server:
        talk = Talk(model(server))
        first = talk.ask()
        second = talk.ask()

        assert first.text == "I look."
        assert [item.arguments["command"] for item in first.tool_calls] == ["a", "b"]
        assert first.finish is Finish.TOOL_CALLS
        assert second.text == "done"
        sent = server.calls[1].body
        assert blocks_of(sent, 1) == ["thinking", "text", "tool_use", "tool_use"]
        assert [block["tool_use_id"] for block in sent["messages"][2]["content"]] == [c.id for c in first.tool_calls]


def test_the_last_turn_forbids_calls_and_keeps_the_tools() -> None:
    """The seed's empty list of tools would cost the cache and the thinking."""
    with ClaudeServer(script(Answer(thought="hm", calls=(("run", {}),)), say("done"))) as server:
        talk = Talk(model(server))
        talk.ask()
        talk.ask("answer now", allow_tools=False)

        first, last = (received.body for received in server.calls)
        assert last["tool_choice"] == {"type": "none"}
        assert last["tools"] == first["tools"]


def test_without_tools_there_is_nothing_to_choose() -> None:
    with ClaudeServer(script(say("done"))) as server:
        Talk(model(server), system=" ").ask(tools=[], allow_tools=False)
        assert not {"tools", "tool_choice", "system"} & server.calls[0].body.keys()


@pytest.mark.parametrize(
    "name", [NEWEST, "claude-sonnet-5-5", "claude-haiku-5-5", "claude-opus-4-8", OLDER, "claude-sonnet-5"]
)
def test_warnings_break_neither_thinking_nor_history(name: str) -> None:
    """Section 2.6: each model gets them in the way it can bear."""
    thinking = Answer(thought="hm", calls=(("run", {}),))
    with ClaudeServer(script(thinking, thinking, thinking, say("done"))) as server:
        talk = Talk(model(server, name))
        for warning in ("", "hurry", "hurry more", ""):
            talk.ask(warning)
        kept = "hurry" in json.dumps(server.calls[3].body)

    assert all(received.refused is None for received in server.calls)
    assert kept is (name not in (OLDER, "claude-sonnet-5"))


def test_where_system_messages_are_refused_the_warning_comes_as_text_and_stays(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refuse = HttpError(400, "messages.1: role 'system' is not supported on this model")
    with ClaudeServer(script(refuse, call("run"), say("done"))) as server:
        talk = Talk(model(server))
        with caplog.at_level(logging.WARNING):
            talk.ask("hurry")
        talk.ask()

        tried, taken, later = (received.body for received in server.calls)
    assert tried["messages"][-1]["role"] == "system"
    assert [block["text"] for block in taken["messages"][0]["content"]] == ["go", "hurry"]
    assert [block["text"] for block in later["messages"][0]["content"]] == ["go", "hurry"]
    assert "takes no system messages here" in caplog.text


def test_a_changed_prefix_is_repaired_once_and_stays_repaired(caplog: pytest.LogCaptureFixture) -> None:
    """Section 2.6: the same request fails for ever; without its old thinking the conversation goes on."""
    thinking = Answer(thought="hm", calls=(("run", {}),))
    with ClaudeServer(script(thinking, thinking, thinking, say("done"))) as server:
        talk = Talk(model(server))
        talk.ask()
        talk.system = "be long"
        with caplog.at_level(logging.WARNING):
            talk.ask()
        talk.ask()
        talk.ask()

        refused = [received.refused is not None for received in server.calls]
        last = server.calls[-1].body
    assert refused == [False, True, False, False, False]
    assert [blocks_of(last, number) for number in (1, 3, 5)] == [
        ["tool_use"],
        ["thinking", "tool_use"],
        ["thinking", "tool_use"],
    ]
    assert "its old thinking is left out" in caplog.text


def test_a_repair_survives_saving_and_loading() -> None:
    thinking = Answer(thought="hm", calls=(("run", {}),))
    with ClaudeServer(script(thinking, thinking, say("done"))) as server:
        talk = Talk(model(server))
        talk.ask()
        talk.system = "be long"
        talk.ask()
        resumed = Talk(model(server), "be long")
        resumed.contents = resumed.adapter.from_canonical(
            json.loads(json.dumps(talk.adapter.to_canonical(talk.contents)))
        )
        resumed.ask()

        assert [received.refused is None for received in server.calls] == [True, False, True, True]


def test_a_repair_that_does_not_help_is_the_error_itself() -> None:
    bound = HttpError(400, "messages.1.content.0: Invalid `signature` in `thinking` block.")
    with ClaudeServer(script(bound, bound)) as server:
        with pytest.raises(errors.BadRequest, match="Invalid `signature`"):
            Talk(model(server)).ask()
        assert len(server.calls) == 2


def test_a_changed_prefix_is_told_from_refused_system_messages() -> None:
    """The sentence of the one names a beta header, which the other is told by: one refusal, one repair."""
    thinking = Answer(thought="hm", calls=(("run", {}),))
    with ClaudeServer(script(thinking, thinking, say("done"))) as server:
        talk = Talk(model(server))
        talk.ask()
        talk.system = "be long"
        talk.ask("hurry")
        talk.ask("hurry")

        assert [received.refused is not None for received in server.calls] == [False, True, False, False]
        assert server.calls[-1].body["messages"][-1]["role"] == "system"


def test_a_repair_is_not_forgotten_between_two_attempts() -> None:
    thinking = Answer(thought="hm", calls=(("run", {}),))
    with ClaudeServer(script(thinking, HttpError(529), HttpError(529), say("done"))) as server:
        talk = Talk(model(server))
        talk.ask()
        talk.system = "be long"
        for _ in range(2):
            with pytest.raises(errors.Overloaded):
                talk.ask()
        talk.ask()

        assert sum(received.refused is not None for received in server.calls) == 1


def test_blank_text_between_thoughts_costs_nothing() -> None:
    """To take it away would be an edit, and cost the thinking of every turn."""
    silent = {"type": "thinking", "thinking": ""}

    def parts(number: int) -> tuple[dict[str, Any], ...]:
        called = {"type": "tool_use", "id": f"toolu_{number}", "name": "run", "input": {}}
        return silent, {"type": "text", "text": "\n\n"}, silent, {"type": "text", "text": "so"}, called

    with ClaudeServer(lambda body, n: Answer(parts=parts(n))) as server:
        talk = Talk(model(server))
        for _ in range(4):
            talk.ask()
        stored = json.loads(json.dumps(talk.adapter.to_canonical(talk.contents)))
        resumed = Talk(model(server))
        resumed.contents = resumed.adapter.from_canonical(stored)
        resumed.ask()

        assert [received.refused for received in server.calls] == [None] * 5


# -- searches --


def test_web_search_is_declared_last_with_the_header_that_vertex_wants() -> None:
    with ClaudeServer(script(Answer(searches=(SEARCH,), text="So it is."), say("done"))) as server:
        talk = Talk(model(server, web_search=True))
        answer = talk.ask()
        talk.say("thanks")
        talk.ask()

        first = server.calls[0]
        assert first.body["tools"][-1] == {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}
        assert first.headers["anthropic-beta"] == "web-search-2025-03-05"
    assert answer.sources == (Source("https://example.com/a", "A page"),)
    assert answer.usage.web_searches == 1
    assert answer.text == "So it is."


def test_a_pause_is_gone_on_from_and_all_passes_are_one_answer() -> None:
    """Reports 26 and 29: pause_turn taken for the end; citations lost on replay."""
    pauses = [Answer(thought="hm", searches=(OPEN,)), Answer(searches=(OPEN,)), Answer(text="So it is.")]
    with ClaudeServer(script(*pauses, say("done"))) as server:
        talk = Talk(model(server, web_search=True))
        answer = talk.ask("hurry")
        talk.say("thanks")
        talk.ask()

        assert [blocks_of(server.calls[n].body, -1) for n in (1, 2)] == [
            ["thinking", "server_tool_use"],
            ["thinking", "server_tool_use", "web_search_tool_result", "server_tool_use"],
        ]
        assert server.calls[1].body["tools"] == server.calls[0].body["tools"]
    assert answer.finish is Finish.STOP
    assert answer.text == "So it is."
    assert answer.usage.web_searches == 2
    assert answer.usage.total_tokens > answer.usage.context_tokens
    assert answer.raw_content is not None
    assert len(answer.raw_content["content"]) == 6


def test_eleven_pauses_are_one_too_many_and_all_are_billed() -> None:
    """Report 27: ten continuations are eleven requests; then an error, not half an answer."""
    with ClaudeServer(lambda body, n: Answer(searches=(OPEN,))) as server:
        with pytest.raises(errors.Unfinished) as raised:
            Talk(model(server, web_search=True)).ask()
        assert len(server.calls) == MAX_PASSES == 11
    billed = raised.value.billed
    assert billed is not None
    assert billed.raw_content is None
    assert billed.usage.web_searches == 10
    assert not raised.value.retryable


def test_what_was_paid_before_a_pass_failed_is_told() -> None:
    replies = script(Answer(searches=(OPEN,)), HttpError(529))
    with ClaudeServer(replies) as server, pytest.raises(errors.Overloaded) as raised:
        Talk(model(server, web_search=True)).ask()
    assert raised.value.billed is not None
    assert raised.value.billed.usage.output_tokens > 0


def test_a_turn_with_a_search_and_a_call_is_answered_with_results_alone() -> None:
    """Report 28: any text there is refused, so the warning waits for the next call."""
    mixed = Answer(thought="hm", searches=(OPEN,), calls=(("run", {}),))
    with ClaudeServer(script(mixed, call("run"), say("done"))) as server:
        talk = Talk(model(server, web_search=True))
        talk.ask()
        talk.ask("hurry")
        talk.ask("hurry")

        assert blocks_of(server.calls[1].body, 2) == ["tool_result"]
        assert len(server.calls[1].body["messages"]) == 3
        assert server.calls[2].body["messages"][3]["content"][0]["type"] == "web_search_tool_result"
        assert server.calls[2].body["messages"][-1]["role"] == "system"


def test_a_search_that_was_never_answered_does_not_brick_the_session() -> None:
    """Reports 10 and 28: somebody speaks, or search is turned off, before the result came."""
    mixed = Answer(thought="hm", searches=(OPEN,), calls=(("run", {}),))
    for still_on in (True, False):
        with ClaudeServer(script(mixed, say("yes?"), say("done"))) as server:
            talk = Talk(model(server, web_search=True))
            talk.ask()
            talk.adapter = model(server, web_search=still_on)
            if still_on:
                talk.say("stop that")
            talk.ask()
            talk.say("thanks")
            assert talk.ask().text == "done"


def test_a_whitespace_answer_with_a_search_is_kept_without_its_blank_text() -> None:
    """Report 14."""
    with ClaudeServer(script(Answer(searches=(Search("x"),), text="\n"), say("done"))) as server:
        talk = Talk(model(server, web_search=True))
        first = talk.ask()
        talk.ask("again")

        assert blocks_of(server.calls[1].body, 1) == ["server_tool_use", "web_search_tool_result"]
    assert first.finish is Finish.EMPTY


# -- ends --


def test_a_cut_call_is_not_handed_out() -> None:
    parts = (
        {"type": "text", "text": "I run"},
        {"type": "tool_use", "id": "toolu_1", "name": "run", "input": {"command": "ls"}},
        {"type": "tool_use", "id": "toolu_2", "name": "run", "input": {"comm": ""}},
    )
    with ClaudeServer(script(Answer(parts=parts, finish="max_tokens"), say("done"))) as server:
        talk = Talk(model(server))
        answer = talk.ask()
        talk.ask()
    assert answer.finish is Finish.MAX_TOKENS
    assert [item.id for item in answer.tool_calls] == ["toolu_1"]


def test_an_answer_whose_only_call_was_cut_is_no_answer() -> None:
    """ "I write the file now", and a call too long for the limit: the words are kept, and a nudge asks for it again."""
    parts = (
        {"type": "text", "text": "I write the file now."},
        {"type": "tool_use", "id": "toolu_1", "name": "run", "input": {"command": "cat >"}},
    )
    with ClaudeServer(script(Answer(parts=parts, finish="max_tokens"), say("done"))) as server:
        talk = Talk(model(server))
        answer = talk.ask()
        talk.ask("shorter")
        assert [block["text"] for block in server.calls[1].body["messages"][1]["content"]] == ["I write the file now."]
    assert answer.finish is Finish.MALFORMED
    assert answer.tool_calls == ()


def test_labels_with_half_a_character_are_mended() -> None:
    with ClaudeServer(script(say("done"))) as server:
        Talk(model(server, labels={"team": "ci \ud83d"})).ask()
        assert json.loads(base64.b64decode(server.calls[0].headers["x-vertex-ai-labels"])) == {"team": "ci \ufffd"}


def test_a_refusal_is_thrown_away_and_says_why() -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "not this"}
    with ClaudeServer(script(say("Well", finish="refusal", stop_details=details))) as server:
        answer = Talk(model(server)).ask()
    assert answer.finish is Finish.REFUSED
    assert (answer.text, answer.raw_content) == ("", None)
    assert answer.finish_reason == "refusal: cyber: not this"


def test_an_empty_end_is_not_kept() -> None:
    with ClaudeServer(script(Answer(thought="hm"), say("done"))) as server:
        talk = Talk(model(server))
        assert talk.ask().finish is Finish.EMPTY
        assert len(talk.contents) == 1
        assert talk.ask("say it").text == "done"


def test_a_full_window_is_an_overflow_that_was_paid_for() -> None:
    replies = script(say("half", finish="model_context_window_exceeded"))
    with ClaudeServer(replies) as server, pytest.raises(errors.ContextOverflow) as raised:
        Talk(model(server)).ask()
    assert raised.value.billed is not None
    assert raised.value.billed.usage.output_tokens > 0


def test_a_call_without_a_name_is_malformed_and_leaves_the_history_alone() -> None:
    parts = ({"type": "text", "text": "I run"}, {"type": "tool_use", "id": "toolu_1", "input": {}})
    with ClaudeServer(script(Answer(parts=parts))) as server:
        answer = Talk(model(server)).ask()
    assert answer.finish is Finish.MALFORMED
    assert answer.raw_content is not None
    assert [block["type"] for block in answer.raw_content["content"]] == ["text"]


@pytest.mark.parametrize(
    "call_block",
    [
        {"id": "toolu_1", "name": "x" * 201, "input": {}},
        {"id": "toolu 1", "name": "run", "input": {}},
        {"id": 1, "name": "run", "input": {}},
        {"id": "toolu_0", "name": "run", "input": {}},
        {"id": "toolu_1", "name": "run", "input": []},
    ],
    ids=["long name", "odd id", "id is a number", "id twice", "input is a list"],
)
def test_a_call_that_claude_would_refuse_to_read_again_is_malformed(call_block: dict[str, Any]) -> None:
    """A name of 304 characters was written, answered, and bricked its session."""
    first = {"type": "tool_use", "id": "toolu_0", "name": "run", "input": {}}
    parts = ({"type": "text", "text": "I run"}, first, {"type": "tool_use", **call_block})
    with ClaudeServer(script(Answer(parts=parts), say("done"))) as server:
        talk = Talk(model(server))
        answer = talk.ask()
        talk.ask("again")
        assert [received.refused for received in server.calls] == [None, None]
    assert answer.finish is Finish.MALFORMED
    assert answer.tool_calls == ()


def test_a_refusal_with_a_broken_call_is_a_refusal() -> None:
    parts = ({"type": "text", "text": "forbidden"}, {"type": "tool_use", "id": "toolu_1", "name": "", "input": {}})
    with ClaudeServer(script(Answer(parts=parts, finish="refusal"))) as server:
        answer = Talk(model(server)).ask()
    assert (answer.finish, answer.text, answer.raw_content) == (Finish.REFUSED, "", None)


def test_arguments_that_a_tool_changes_do_not_change_the_history() -> None:
    with ClaudeServer(script(call("run", deep={"a": 1}), say("done"))) as server:
        talk = Talk(model(server))
        answer = talk.ask()
        answer.tool_calls[0].arguments["deep"].clear()
        talk.ask()
        assert server.calls[1].body["messages"][1]["content"][0]["input"] == {"deep": {"a": 1}}


def test_a_provider_s_words_are_bounded() -> None:
    long = "x" * 100_000
    with ClaudeServer(script(say("hi", finish=long, stop_details={"explanation": long}, model_version=long))) as server:
        answer = Talk(model(server)).ask()
    assert len(answer.finish_reason) < 700
    assert len(answer.model_version) == 100


def test_the_cost_is_that_of_the_model_that_served() -> None:
    usage = {"input_tokens": 1000, "output_tokens": 100, "cache_creation": None, "cache_creation_input_tokens": 0}
    with ClaudeServer(script(say("done", usage=usage), say("done", model_version="claude-next-9"))) as server:
        talk = Talk(model(server))
        assert talk.ask().cost_usd == Decimal("0.006")
        assert talk.ask().cost_usd is None


def test_a_prompt_that_should_have_been_cached_and_was_not_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """Report 32: caching is silently off below a minimum that changes."""
    silent = {"cache_read_input_tokens": None, "cache_creation_input_tokens": 0, "cache_creation": None}
    replies = [say("done", usage={**silent, "input_tokens": count}) for count in (512, 513, 9000)]
    with ClaudeServer(script(*replies, say("x"))) as server, caplog.at_level(logging.WARNING):
        talk = Talk(model(server))
        for _ in replies:
            talk.ask()
        cached = Talk(model(server))
        cached.ask()
    told = [record.getMessage() for record in caplog.records]
    assert told == ["claude-opus-5-5 cached nothing of a prompt of 513 tokens"]


# -- transport --


def test_too_many_bytes_are_refused_before_they_are_sent() -> None:
    with ClaudeServer(script()) as server:
        talk = Talk(model(server))
        talk.say("x" * 30_000_000)
        with pytest.raises(errors.RequestTooLarge, match="the provider takes 30,000,000"):
            talk.ask()
        assert server.calls == ()


def test_a_body_that_stalls_is_ended_by_the_clock() -> None:
    too_late = pytest.raises(errors.TransportFailed, match=r"no answer within 0\.2 s")
    with ClaudeServer(lambda body, n: Stall(after_headers=True)) as server, too_late:
        Talk(model(server, seconds=0.2)).ask()


def test_a_token_that_is_refused_is_renewed_once() -> None:
    class Renewed(Credentials):
        def refresh(self, request: Any) -> None:
            self.token = "test-token"

    stale: Any = Renewed

    with ClaudeServer(script(say("done"))) as server:
        auth = VertexAuth("project", credentials=stale("old"))
        adapter = AnthropicVertexModel(NEWEST, VertexEndpoint(auth, "global", server.url))
        assert Talk(adapter).ask().text == "done"
        assert len(server.calls) == 2
        auth = VertexAuth("project", credentials=stale("old"))
    with ClaudeServer(script(), bearer_token="another") as server:
        adapter = AnthropicVertexModel(NEWEST, VertexEndpoint(auth, "global", server.url))
        with pytest.raises(errors.AuthFailed):
            Talk(adapter).ask()
        assert len(server.calls) == 2


def test_a_broken_answer_is_one_to_try_again() -> None:
    with ClaudeServer(lambda body, n: Body(b'{"content": [', cut=True)) as server, pytest.raises(errors.Transient):
        Talk(model(server)).ask()


def test_every_call_gets_a_result() -> None:
    with ClaudeServer(script()) as server, pytest.raises(ValueError, match="1 calls but 0 results"):
        model(server).make_tool_responses([ToolCall("a", "run", {})], [])


def test_nothing_secret_is_shown() -> None:
    with ClaudeServer(script()) as server:
        assert "test-token" not in repr(model(server))
        assert repr(model(server)).startswith("AnthropicVertexModel('claude-opus-5-5'")
