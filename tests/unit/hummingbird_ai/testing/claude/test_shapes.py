from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import requests

from hummingbird_ai.testing import ClaudeServer
from tests.unit.hummingbird_ai.testing.claude.talk import (
    BINDING,
    CLEAR_AT,
    MARKER,
    NEWEST,
    RUN,
    WEB_SEARCH,
    ask,
    assistant,
    body_of,
    conversation,
    path,
    refused,
    result,
    text,
    tool_use,
    user,
)

Change = Callable[[dict[str, Any]], Any]


def block(body: dict[str, Any], message: int, index: int) -> dict[str, Any]:
    found: dict[str, Any] = body["messages"][message]["content"][index]
    return found


REFUSED: dict[str, tuple[Change, str]] = {
    "no max_tokens": (lambda b: b.pop("max_tokens"), "max_tokens: Field required"),
    "no messages": (lambda b: b.pop("messages"), "messages: Field required"),
    "no version": (lambda b: b.pop("anthropic_version"), "anthropic_version: Field required"),
    "the model in the body": (lambda b: b.update(model=NEWEST), "model: Extra inputs are not permitted"),
    "betas in the body": (lambda b: b.update(anthropic_beta=[]), "anthropic_beta: Extra inputs are not permitted"),
    "the automatic marker": (lambda b: b.update(cache_control=MARKER), "cache_control: Extra inputs are not permitted"),
    "a fallback": (lambda b: b.update(fallbacks=[]), "fallbacks: Extra inputs are not permitted"),
    "a stream": (lambda b: b.update(stream=True), "stream: this method does not stream"),
    "a null": (lambda b: b.update(thinking=None), "thinking: Input should be a valid dictionary or object"),
    "a number as text": (lambda b: b.update(max_tokens="10"), "max_tokens: Input should be a valid integer"),
    "a producer of ours": (lambda b: b["messages"][1].update(producer={}), "messages.1.producer: Extra inputs"),
    "an unknown role": (lambda b: b["messages"][0].update(role="model"), "messages.0: Input tag 'model' found using"),
    "an unknown block": (
        lambda b: b["messages"][1]["content"].insert(0, {"type": "tool_call"}),
        "messages.1.content.0: Input tag 'tool_call' found using",
    ),
    "a user's thought": (
        lambda b: b["messages"][0].update(content=[{"type": "thinking", "thinking": "", "signature": ""}]),
        "messages.0.content.0: Input tag 'thinking' found using",
    ),
    "content that is neither text nor blocks": (
        lambda b: b["messages"][0].update(content=1),
        "messages.0.content: Input should be a valid list",
    ),
    "a call without input": (
        lambda b: block(b, 1, 1).pop("input"),
        "messages.1.content.1.tool_use.input: Field required",
    ),
    "a call's id with a colon": (
        lambda b: block(b, 1, 1).update(id="functions.x:0"),
        "messages.1.content.1.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
    ),
    "a result without the call's id": (
        lambda b: block(b, 2, 0).pop("tool_use_id"),
        "messages.2.content.0.tool_result.tool_use_id: Field required",
    ),
    "a result that is an object": (
        lambda b: block(b, 2, 0).update(content={"a": 1}),
        "messages.2.content.0.tool_result.content: Input should be a valid list",
    ),
    "a name in a result": (lambda b: block(b, 2, 0).update(name="run"), "tool_result.name: Extra inputs"),
    "a thought without signature": (
        lambda b: b["messages"][1]["content"].insert(0, {"type": "thinking", "thinking": "hm"}),
        "messages.1.content.0.thinking.signature: Field required",
    ),
    "a marker on a thought": (
        lambda b: b["messages"][1]["content"].insert(
            0, {"type": "thinking", "thinking": "", "signature": "s", "cache_control": MARKER}
        ),
        "messages.1.content.0.thinking.cache_control: Extra inputs are not permitted",
    ),
    "a marker on a redacted thought": (
        lambda b: b["messages"][1]["content"].insert(
            0, {"type": "redacted_thinking", "data": "", "cache_control": MARKER}
        ),
        "messages.1.content.0.redacted_thinking.cache_control: Extra inputs are not permitted",
    ),
    "a marker inside a result": (
        lambda b: block(b, 2, 0).update(content=[text("x", cache_control=MARKER)]),
        "messages.2.content.0.tool_result.content.0.text.cache_control: Extra inputs are not permitted",
    ),
    "a marker of another time": (
        lambda b: block(b, 2, 0).update(cache_control={**MARKER, "ttl": "2h"}),
        "messages.2.content.0.tool_result.cache_control.ttl: Input should be '5m' or '1h'",
    ),
    "a server tool's foreign id": (
        lambda b: b["messages"][1]["content"].insert(
            0, {"type": "server_tool_use", "id": "call-1", "name": "web_search", "input": {}}
        ),
        "server_tool_use.id: String should match pattern '^srvtoolu_[a-zA-Z0-9_]+$'",
    ),
    "a hit without its content": (
        lambda b: b["messages"][1]["content"].insert(
            0,
            {
                "type": "web_search_tool_result",
                "tool_use_id": "srvtoolu_1",
                "content": [{"type": "web_search_result", "url": "u", "title": "t"}],
            },
        ),
        "encrypted_content: Field required",
    ),
    "clear_at without its beta": (
        lambda b: b["messages"].append({"role": "system", "content": "x", "clear_at": "next_user_message"}),
        "messages.3.clear_at: Extra inputs are not permitted",
    ),
    "block_binding without its beta": (
        lambda b: b.update(thinking={"type": "adaptive", "block_binding": {}}),
        "thinking.adaptive.block_binding: Extra inputs are not permitted",
    ),
    "clear_at on a user": (
        lambda b: b["messages"][0].update(clear_at="never"),
        "messages.0.clear_at: Extra inputs are not permitted",
    ),
    "an unknown effort": (
        lambda b: b.update(output_config={"effort": "huge"}),
        "output_config.effort: Input should be 'low'",
    ),
    "another web search": (
        lambda b: b["tools"].append({**WEB_SEARCH, "type": "web_search_20260209"}),
        "tools.2: Input tag 'web_search_20260209' found using",
    ),
    "another server tool": (
        lambda b: b["tools"].append({"type": "web_fetch_20250910", "name": "web_fetch"}),
        "tools.2: Input tag 'web_fetch_20250910' found using",
    ),
    "a tool without schema": (
        lambda b: b["tools"].append({"name": "x"}),
        "tools.2.custom.input_schema: Field required",
    ),
    "a tool of gemini's": (
        lambda b: b["tools"].append({**RUN, "parametersJsonSchema": {}}),
        "tools.2.custom.parametersJsonSchema: Extra inputs",
    ),
    "a bad tool name": (
        lambda b: b["tools"][0].update(name="run it"),
        "tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'",
    ),
    "an image by its address": (
        lambda b: b["messages"][0].update(content=[{"type": "image", "source": {"type": "url", "url": "u"}}]),
        "messages.0.content.0.image.source.type: Input should be 'base64' or 'text'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_field_that_does_not_fit_is_refused_with_its_path(greeter: ClaudeServer, case: str) -> None:
    change, message = REFUSED[case]
    body = conversation()
    change(body)
    assert message in refused(greeter, body)
    assert greeter.calls[-1].refused is not None


SYSTEM_NOTE = {"role": "system", "content": "hurry", "clear_at": "next_user_message"}
ACCEPTED: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "every parameter": (
        conversation(
            stop_sequences=["x"],
            metadata={"user_id": "u"},
            stream=False,
            output_config={"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}},
            thinking={"type": "adaptive", "display": "summarized"},
            tool_choice={"type": "auto", "disable_parallel_tool_use": True},
        ),
        {},
    ),
    "no tool allowed": (conversation(tool_choice={"type": "none"}), {}),
    "markers where they may stand": (
        body_of(
            user([text("go", cache_control=MARKER)]),
            assistant([tool_use("a", cache_control=None)]),
            user([result("a", cache_control={**MARKER, "ttl": "5m"})]),
            system=[text("s", cache_control={**MARKER, "ttl": "1h"})],
            tools=[{**RUN, "cache_control": {**MARKER, "ttl": "1h"}}],
        ),
        {},
    ),
    "results of every kind": (
        body_of(
            user(),
            assistant([tool_use("a"), tool_use("b"), tool_use("c")]),
            user(
                [
                    {"type": "tool_result", "tool_use_id": "a"},
                    result("b", content=[text("x")], is_error=True),
                    result(
                        "c",
                        content=[
                            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
                        ],
                    ),
                ]
            ),
        ),
        {},
    ),
    "all of a web search": (
        conversation(
            tools=[
                RUN,
                {
                    **WEB_SEARCH,
                    "max_uses": 3,
                    "allowed_domains": ["example.org"],
                    "user_location": {"type": "approximate", "city": "Berlin"},
                },
            ]
        ),
        {},
    ),
    "clear_at with its beta": (body_of(user(), SYSTEM_NOTE), CLEAR_AT),
    "block_binding with its beta": (
        conversation(thinking={"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}),
        BINDING,
    ),
    "two betas": (
        body_of(user(), SYSTEM_NOTE),
        {"anthropic-beta": f"web-search-2025-03-05, {CLEAR_AT['anthropic-beta']}"},
    ),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_every_field_is_accepted_in_its_legal_form(greeter: ClaudeServer, case: str) -> None:
    body, headers = ACCEPTED[case]
    ask(greeter, body, **headers)


def test_an_unknown_beta_is_refused(greeter: ClaudeServer) -> None:
    message = refused(greeter, conversation(), **{"anthropic-beta": "files-api-2025-04-14"})

    assert message.startswith("Unexpected value(s) `files-api-2025-04-14` for the `anthropic-beta` header.")


def test_web_search_without_its_header_is_an_unknown_tool(greeter: ClaudeServer) -> None:
    headers = {"Authorization": "Bearer test-token"}

    answer = requests.post(greeter.url + path(), json=conversation(), headers=headers, timeout=10)

    assert answer.status_code == 400
    assert "Input tag 'web_search_20250305' found using 'type' does not match" in answer.json()["error"]["message"]
