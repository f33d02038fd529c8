"""The oracles refuse what the providers refuse: otherwise their silence about our requests would mean nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import requests

from hummingbird_ai.testing import Answer, ClaudeServer, GeminiServer, Search, say
from hummingbird_ai.testing.gemini.answers import PrefixCache, render
from tests.oracles import claude, gemini

Change = Callable[[dict[str, Any]], object]
MARK = {"type": "ephemeral"}


def gemini_body() -> dict[str, Any]:
    """A turn with two calls and their results, everything our adapter sends in it."""
    return {
        "systemInstruction": {"parts": [{"text": "be brief"}]},
        "contents": [
            {"role": "user", "parts": [{"text": "go"}]},
            {
                "role": "model",
                "parts": [
                    {"text": "hm", "thought": True},
                    {
                        "functionCall": {"id": "a", "name": "run", "args": {"command": "ls"}},
                        "thoughtSignature": "skip_thought_signature_validator",
                    },
                    {"functionCall": {"id": "b", "name": "run"}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"id": "a", "name": "run", "response": {"output": "x"}}},
                    {"functionResponse": {"id": "b", "name": "run", "response": {"error": {"any": [1, None]}}}},
                ],
            },
        ],
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "run",
                        "description": "Run it",
                        "parametersJsonSchema": {"type": "object", "properties": {"command": {"type": "string"}}},
                    }
                ]
            },
            {"googleSearch": {}},
        ],
        "toolConfig": {"functionCallingConfig": {"mode": "NONE"}},
        "generationConfig": {"maxOutputTokens": 100},
    }


def claude_body() -> dict[str, Any]:
    """A turn with thinking, a search, citations and a call, and its result, everything our adapter sends in it."""
    return {
        "anthropic_version": "vertex-2023-10-16",
        "max_tokens": 100,
        "system": [{"type": "text", "text": "be brief", "cache_control": MARK}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "go"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "", "signature": "c2lnbmVk"},
                    {"type": "redacted_thinking", "data": "b3BhcXVl"},
                    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}},
                    {
                        "type": "web_search_tool_result",
                        "tool_use_id": "srvtoolu_1",
                        "content": [
                            {
                                "type": "web_search_result",
                                "url": "https://example.test",
                                "title": "t",
                                "encrypted_content": "e",
                                "page_age": None,
                            }
                        ],
                    },
                    {
                        "type": "text",
                        "text": "said",
                        "citations": [
                            {
                                "type": "web_search_result_location",
                                "url": "https://example.test",
                                "title": "t",
                                "encrypted_index": "i",
                                "cited_text": "c",
                            }
                        ],
                    },
                    {"type": "tool_use", "id": "toolu_1", "name": "run", "input": {"command": "ls"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_1",
                        "content": [{"type": "text", "text": "x"}],
                        "is_error": True,
                        "cache_control": {"type": "ephemeral", "ttl": "1h"},
                    },
                    {"type": "text", "text": "go on"},
                ],
            },
        ],
        "tools": [
            {"name": "run", "description": "Run it", "input_schema": {"type": "object", "properties": {}, "$defs": {}}},
            {"type": "web_search_20250305", "name": "web_search", "max_uses": 5},
        ],
        "tool_choice": {"type": "none"},
    }


@pytest.mark.parametrize("vertex", [True, False])
def test_a_good_request_to_gemini_is_accepted_by_either_route(vertex: bool) -> None:
    body = gemini_body() | ({"labels": {"team": "a"}} if vertex else {})

    assert gemini.problems(body, vertex=vertex) == []
    assert gemini.problems({**body, "continuationToken": "dG9rZW4="}, vertex=vertex) == []


def of_declaration(body: dict[str, Any]) -> dict[str, Any]:
    declaration: dict[str, Any] = body["tools"][0]["functionDeclarations"][0]
    return declaration


@pytest.mark.parametrize("vertex", [True, False])
@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda body: body.update(toolconfig=body.pop("toolConfig")), "toolconfig"),
        (lambda body: body.update(system_instruction=body.pop("systemInstruction")), "system_instruction"),
        (lambda body: body["toolConfig"]["functionCallingConfig"].update(mode="none"), "mode"),
        (lambda body: of_declaration(body).update(parameters={"$ref": "#/x"}), "parameters"),
        (lambda body: of_declaration(body).update(parameters={"type": ["STRING", "NULL"]}), "parameters"),
        (lambda body: of_declaration(body).update(notes="n"), "notes"),
        (lambda body: of_declaration(body).pop("name"), "name"),
        (lambda body: body["contents"][0].update(producer={}), "producer"),
        (lambda body: body["contents"][0].pop("parts"), "parts"),
        (lambda body: body["contents"][0]["parts"][0].update(text=None), "text"),
        (lambda body: body["contents"][1]["parts"][1].update(thoughtSignature="no base64 …"), "thoughtSignature"),
        (lambda body: body["contents"][1]["parts"][1]["functionCall"].update(arguments={}), "arguments"),
        (lambda body: body["contents"][2]["parts"][0]["functionResponse"].update(response="x"), "response"),
        (lambda body: body["contents"][2]["parts"][0]["functionResponse"].pop("response"), "response"),
        (lambda body: body["generationConfig"].update(maxOutputTokens="many"), "maxOutputTokens"),
        (lambda body: body.pop("contents"), "contents"),
    ],
)
def test_a_request_that_gemini_would_refuse_is_refused(vertex: bool, change: Change, where: str) -> None:
    body = gemini_body()
    change(body)

    assert where in str(gemini.problems(body, vertex=vertex))


def test_what_our_server_lets_through_and_the_oracle_does_not_fails_the_test_that_sent_it() -> None:
    """By the conftest, for every test of this folder."""
    body = {"contents": [{"parts": [{"text": "hi"}]}], "safetySettings": [{"categories": "all"}]}

    server = GeminiServer(lambda body, n: say("hi"))
    server.start()
    url = f"{server.url}/v1/models/gemini-3.8-flash:generateContent"
    answer = requests.post(url, json=body, headers={"x-goog-api-key": server.api_key}, timeout=5)

    assert answer.status_code == 200
    with pytest.raises(AssertionError, match="safetySettings"):
        server.close()


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body["toolConfig"].update(includeServerSideToolInvocations=True),
        lambda body: body["contents"][1]["parts"].append({"toolCall": {"id": "s", "toolType": "GOOGLE_SEARCH_WEB"}}),
        lambda body: body["contents"][1]["parts"].append({"toolResponse": {"id": "s", "response": {"x": 1}}}),
        lambda body: body["contents"][1]["parts"].append({"text": "a", "partMetadata": {"x": 1}}),
    ],
)
def test_what_only_the_gemini_api_knows_is_refused_on_vertex(change: Change) -> None:
    body = gemini_body()
    change(body)

    assert gemini.problems(body, vertex=False) == []
    assert gemini.problems(body, vertex=True) != []


def test_labels_are_refused_by_the_gemini_api() -> None:
    assert "labels" in str(gemini.problems(gemini_body() | {"labels": {"team": "a"}}, vertex=False))


def test_something_that_is_no_object_is_a_problem_and_no_error() -> None:
    assert gemini.problems([], vertex=True)
    assert claude.problems("x", {})


def test_an_answer_of_our_gemini_server_is_one_that_gemini_could_give() -> None:
    found = Search("q", (("Title", "https://example.test"),))
    answer = Answer("hi", calls=(("run", {"command": "ls"}),), thought="hm", searches=(found,))
    cache = PrefixCache()
    for vertex in (True, False):
        document = render(answer, gemini_body(), model="gemini-3.8-flash", vertex=vertex, number=0, cache=cache)
        assert gemini.response_problems(document) == []

    assert gemini.response_problems({"candidates": [{"finishReason": "MISSING_THOUGHT_SIGNATURE", "index": 0}]}) == []
    assert "finishReason" in str(gemini.response_problems({"candidates": [{"finishReason": "stop"}]}))
    assert "usage" in str(gemini.response_problems({"usage": {}}))


def test_a_good_request_to_claude_is_accepted() -> None:
    assert claude.problems(claude_body(), {}) == []


def test_each_way_to_write_a_good_body_is_accepted() -> None:
    body = claude_body()
    body["system"] = "be brief"
    body["anthropic_version"] = "2026-10-21"
    body["messages"][0]["content"] = "go"
    body["messages"][2]["content"][0].pop("content")
    body["messages"][1]["content"][3]["content"] = {"type": "web_search_tool_result_error", "error_code": "unavailable"}
    body["messages"].append({"role": "system", "content": "look out"})
    body["thinking"] = {"type": "adaptive", "display": "omitted"}

    assert claude.problems(body, {"anthropic-beta": "web-search-2025-03-05"}) == []


def of_block(body: dict[str, Any], message: int, block: int) -> dict[str, Any]:
    found: dict[str, Any] = body["messages"][message]["content"][block]
    return found


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda body: of_block(body, 1, 0).pop("signature"), "signature"),
        (lambda body: of_block(body, 1, 0).update(cache_control=MARK), "cache_control"),
        (lambda body: of_block(body, 1, 1).update(cache_control=MARK), "cache_control"),
        (lambda body: of_block(body, 1, 3)["content"][0].pop("encrypted_content"), "encrypted_content"),
        (lambda body: of_block(body, 1, 4)["citations"][0].pop("encrypted_index"), "encrypted_index"),
        (lambda body: of_block(body, 1, 5).update(input='{"command": "ls"}'), "input"),
        (lambda body: of_block(body, 1, 5).update(arguments={}), "arguments"),
        (lambda body: of_block(body, 1, 5).pop("id"), "id"),
        (lambda body: of_block(body, 2, 0).pop("tool_use_id"), "tool_use_id"),
        (lambda body: of_block(body, 2, 0)["cache_control"].update(ttl="10m"), "ttl"),
        (lambda body: of_block(body, 2, 0).update(content={"output": 1}), "content"),
        (lambda body: of_block(body, 2, 1).update(type="Text"), "Text"),
        (lambda body: of_block(body, 2, 1).pop("type"), "type"),
        (lambda body: body["messages"][1].update(producer={}), "producer"),
        (lambda body: body["messages"][0].update(role="tool"), "tool"),
        (lambda body: body["messages"].append({"role": "system", "content": [{"type": "image"}]}), "messages[3]"),
        (lambda body: body["tools"][0].update(notes="n"), "tools[0]"),
        (lambda body: body["tools"][0].update(input_schema=[]), "tools[0]"),
        (lambda body: body["tools"][1].update(type="web_search_20260209"), "tools[1]"),
        (lambda body: body["tool_choice"].update(type="NONE"), "NONE"),
        (lambda body: body.update(maxTokens=body.pop("max_tokens")), "max_tokens"),
        (lambda body: body.update(model="claude-opus-5-5"), "model"),
        (lambda body: body.pop("anthropic_version"), "anthropic_version"),
        (lambda body: body.update(anthropic_version="2023-06-01"), "2023-06-01"),
        (lambda body: body.update(temperature=0.5), "temperature"),
        (lambda body: body.update(labels={}), "labels"),
        (lambda body: body.update(thinking={"type": "adaptive", "budget_tokens": 1}), "budget_tokens"),
    ],
)
def test_a_request_that_claude_would_refuse_is_refused(change: Change, where: str) -> None:
    body = claude_body()
    change(body)

    assert where in str(claude.problems(body, {}))


@pytest.mark.parametrize(
    ("beta", "change"),
    [
        (
            claude.CLEAR_AT,
            lambda body: body["messages"].append({"role": "system", "content": "x", "clear_at": "next_user_message"}),
        ),
        (
            claude.BINDING,
            lambda body: body.update(
                thinking={"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
            ),
        ),
    ],
)
def test_a_field_of_a_beta_is_accepted_only_with_its_header(beta: str, change: Change) -> None:
    body = claude_body()
    change(body)

    assert claude.problems(body, {}) != []
    assert claude.problems(body, {"anthropic-beta": "web-search-2025-03-05"}) != []
    assert claude.problems(body, {"anthropic-beta": f"web-search-2025-03-05, {beta}"}) == []


def test_a_value_that_a_beta_does_not_know_is_refused_with_its_header_too() -> None:
    body = claude_body()
    body["messages"].append({"role": "system", "content": "x", "clear_at": "soon"})

    assert "clear_at" in str(claude.problems(body, {"anthropic-beta": claude.CLEAR_AT}))


def test_a_beta_that_vertex_does_not_offer_is_refused() -> None:
    assert "files-api-2025-04-14" in str(claude.problems(claude_body(), {"anthropic-beta": "files-api-2025-04-14"}))


def test_an_answer_is_checked_against_what_claude_could_give() -> None:
    document: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-opus-5-5",
        "content": claude_body()["messages"][1]["content"],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 2, "cache_read_input_tokens": None},
    }
    assert claude.response_problems(document) == []

    changes: tuple[Change, ...] = (
        lambda answer: answer["usage"].pop("input_tokens"),
        lambda answer: answer.update(stop_reason="stop"),
        lambda answer: answer["content"][0].pop("signature"),
        lambda answer: answer.update(finish_reason="x"),
        lambda answer: answer["content"].append({"type": "tool_result", "tool_use_id": "toolu_1"}),
    )
    for change in changes:
        broken = copy.deepcopy(document)
        change(broken)
        assert claude.response_problems(broken) != []


@pytest.mark.parametrize(
    "answer",
    [
        say("hi"),
        Answer("hi", calls=(("run", {"command": "ls"}),), thought="hm"),
        Answer(thought="hm", redacted=True, text="hi"),
        Answer("hi", searches=(Search("q", (("Title", "https://example.test"),)), Search("r", error="unavailable"))),
        Answer(searches=(Search("q", pending=True),)),
        Answer(finish="refusal", stop_details={"type": "refusal", "category": "cyber", "explanation": "no"}),
    ],
)
def test_an_answer_of_our_claude_server_is_one_that_claude_could_give_and_take_back(answer: Answer) -> None:
    body = {**claude_body(), "messages": [{"role": "user", "content": "go"}], "system": "be brief"}
    del body["tool_choice"]
    with ClaudeServer(lambda body, n: answer) as server:
        url = f"{server.url}/v1/projects/p/locations/global/publishers/anthropic/models/claude-opus-5-5:rawPredict"
        headers = {"Authorization": f"Bearer {server.bearer_token}", "anthropic-beta": "web-search-2025-03-05"}
        document = requests.post(url, json=body, headers=headers, timeout=5).json()

    assert claude.response_problems(document) == []
    body["messages"].append({"role": "assistant", "content": document["content"]})
    assert claude.problems(body, {}) == []
