from __future__ import annotations

from typing import Any

import pytest

from hummingbird_ai.testing import Answer, ClaudeServer, Search, call, say
from tests.unit.hummingbird_ai.testing.claude.talk import (
    HIT,
    OLDEST,
    RUN,
    WEB_SEARCH,
    answered,
    ask,
    assistant,
    body_of,
    refused,
    text,
    user,
)

PENDING = Search("q", (("Title", "https://example.org"),), pending=True)


def kinds(content: list[dict[str, Any]]) -> list[str]:
    return [block["type"] for block in content]


def test_blocks_come_in_the_order_thought_searches_text_calls() -> None:
    answer = Answer(thought="hm", searches=(HIT,), text="found", calls=(("run", {"a": 1}), ("run", {})))
    with ClaudeServer(lambda body, n: answer) as server:
        document = ask(server, body_of(user()))

    thought, search, found, words, first, second = document["content"]
    assert kinds(document["content"]) == [
        "thinking",
        "server_tool_use",
        "web_search_tool_result",
        "text",
        "tool_use",
        "tool_use",
    ]
    assert (search["name"], search["input"]) == ("web_search", {"query": "q"})
    assert found["tool_use_id"] == search["id"]
    assert search["id"].startswith("srvtoolu_")
    assert (found["content"][0]["url"], found["content"][0]["title"]) == ("https://example.org", "Title")
    assert [citation["url"] for citation in words["citations"]] == ["https://example.org"]
    assert (first["name"], first["input"]) == ("run", {"a": 1})
    assert first["id"].startswith("toolu_")
    assert first["id"] != second["id"]
    assert document["stop_reason"] == "tool_use"
    assert document["usage"]["server_tool_use"] == {"web_search_requests": 1, "web_fetch_requests": 0}
    assert thought["signature"]


@pytest.mark.parametrize(
    ("answer", "stop"),
    [
        (say("hi"), "end_turn"),
        (call("run"), "tool_use"),
        (Answer(), "end_turn"),
        (Answer(searches=(PENDING,)), "pause_turn"),
        (Answer(searches=(PENDING,), calls=(("run", {}),)), "tool_use"),
        (say("hi", finish="max_tokens"), "max_tokens"),
        (say("hi", finish=None), None),
    ],
)
def test_an_answer_ends_naturally_or_as_it_says(answer: Answer, stop: str | None) -> None:
    with ClaudeServer(lambda body, n: answer) as server:
        assert ask(server, body_of(user()))["stop_reason"] == stop


def test_a_refusal_has_its_details() -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "no"}
    with ClaudeServer(lambda body, n: Answer(finish="refusal", stop_details=details)) as server:
        document = ask(server, body_of(user()))

    assert (document["content"], document["stop_details"]) == ([], details)


def test_an_answer_s_own_usage_and_model_replace_the_estimated_ones() -> None:
    answer = say("hi", usage={"output_tokens": 7, "cache_creation": None, "iterations": []}, model_version="claude-x")
    with ClaudeServer(lambda body, n: answer) as server:
        document = ask(server, body_of(user()))

    assert document["model"] == "claude-x"
    assert document["usage"]["output_tokens"] == 7
    assert document["usage"]["iterations"] == []
    assert "cache_creation" not in document["usage"]


def test_usage_grows_with_the_conversation_and_with_the_answer() -> None:
    answers = [say("hi"), say("hi " * 100)]
    with ClaudeServer(lambda body, n: answers[n]) as server:
        first = ask(server, body_of(user()))["usage"]
        second = ask(server, body_of(user("more " * 100)))["usage"]

    assert second["input_tokens"] > first["input_tokens"] + 100
    assert second["output_tokens"] > first["output_tokens"] + 50


def test_no_output_is_made_where_none_is_wanted() -> None:
    with ClaudeServer(lambda body, n: say("hi")) as server:
        document = ask(server, body_of(user(), max_tokens=0))

    assert (document["content"], document["stop_reason"]) == ([], "max_tokens")
    assert document["usage"]["output_tokens"] == 0


def test_parts_are_sent_as_they_are() -> None:
    parts = (text("\n"), {"type": "tool_use", "id": "toolu_x", "name": "run", "input": {}})
    with ClaudeServer(lambda body, n: Answer(text="unused", parts=parts)) as server:
        document = ask(server, body_of(user()))

    assert document["content"] == list(parts)
    assert document["stop_reason"] == "tool_use"


def test_ids_stay_unique_when_another_server_goes_on() -> None:
    body = body_of(user())
    for _ in range(3):
        with ClaudeServer(lambda body, n: Answer(searches=(HIT,), calls=(("run", {}), ("run", {})))) as server:
            content = ask(server, body)["content"]
        body["messages"] += [assistant(content), answered(content)]
    ids = [block["id"] for message in body["messages"][1::2] for block in message["content"] if "id" in block]

    assert len(set(ids)) == len(ids) == 9


def test_a_pause_is_gone_on_from_with_the_missing_result_first() -> None:
    answers = [Answer(thought="hm", searches=(PENDING,)), Answer(thought="ah", text="found")]
    with ClaudeServer(lambda body, n: answers[n]) as server:
        body = body_of(user())
        paused = ask(server, body)
        body["messages"].append(assistant(paused["content"]))
        lost = refused(server, {**body, "tools": [RUN]})
        document = ask(server, body)
        body["messages"][-1]["content"] += document["content"]
        body["messages"].append(user("next"))
        answers.append(say("hi"))
        ask(server, body)

    assert "was found but no `web_search` tool was provided" in lost
    assert paused["stop_reason"] == "pause_turn"
    assert "server_tool_use" not in paused["usage"]
    assert kinds(document["content"]) == ["web_search_tool_result", "thinking", "text"]
    assert document["content"][0]["tool_use_id"] == paused["content"][1]["id"]
    assert document["content"][0]["content"][0]["url"] == "https://example.org"
    assert document["content"][2]["citations"]
    assert document["usage"]["server_tool_use"]["web_search_requests"] == 1


@pytest.mark.parametrize(
    "answer", [say("wait", finish="pause_turn"), say("wait", searches=(HIT,), finish="pause_turn")]
)
def test_a_pause_may_end_with_words_and_only_this_one_may_be_sent_back(answer: Answer) -> None:
    answers = [answer, say("hi")]
    with ClaudeServer(lambda body, n: answers[n]) as server:
        body = body_of(user())
        body["messages"].append(assistant(ask(server, body)["content"]))
        assert "must end with a user message" in refused(server, body_of(user(), assistant("else")))
        ask(server, body)


def test_a_mixed_turn_is_answered_with_results_only_and_gone_on_from() -> None:
    answers = [
        Answer(searches=(PENDING, Search("r", error="max_uses_exceeded", pending=True)), calls=(("run", {}),)),
        say("found"),
        say("hi"),
    ]
    with ClaudeServer(lambda body, n: answers[n]) as server:
        body = body_of(user())
        mixed = ask(server, body)
        body["messages"] += [assistant(mixed["content"]), answered(mixed["content"])]
        body["messages"][-1]["content"].append(text("hurry"))
        lost = refused(server, body)
        body["messages"][-1]["content"].pop()
        gone = refused(server, {**body, "tools": [RUN]})
        document = ask(server, body)
        body["messages"] += [assistant(document["content"]), user("next")]
        ask(server, {**body, "tools": [RUN]})

    assert mixed["stop_reason"] == "tool_use"
    assert "was found without a corresponding `web_search_tool_result` block" in lost
    assert "was found but no `web_search` tool was provided" in gone
    assert kinds(document["content"]) == ["web_search_tool_result", "web_search_tool_result", "text"]
    assert document["content"][1]["content"] == {
        "type": "web_search_tool_result_error",
        "error_code": "max_uses_exceeded",
    }
    assert document["usage"]["server_tool_use"]["web_search_requests"] == 2


def test_a_search_that_another_server_asked_for_finds_nothing() -> None:
    body = body_of(user())
    with ClaudeServer(lambda body, n: Answer(searches=(PENDING,))) as server:
        body["messages"].append(assistant(ask(server, body)["content"]))
    with ClaudeServer(lambda body, n: say("hi")) as server:
        assert ask(server, body)["content"][0]["content"] == []


@pytest.mark.parametrize("field", ["encrypted_content", "encrypted_index"])
def test_what_is_sealed_comes_back_unchanged(field: str) -> None:
    with ClaudeServer(lambda body, n: say("found", searches=(HIT,))) as server:
        body = body_of(user(), tools=[WEB_SEARCH])
        content = ask(server, body, OLDEST)["content"]
        body["messages"] += [assistant(content), user("next")]
        ask(server, body, OLDEST)
        sealed = content[1]["content"][0] if field == "encrypted_content" else content[2]["citations"][0]
        for change in ({"url": "https://example.com"}, {"title": "Other"}, {field: sealed[field][:-4]}):
            before = dict(sealed)
            sealed.update(change)
            assert f"Invalid `{field}`" in refused(server, body, OLDEST)
            sealed.update(before)
