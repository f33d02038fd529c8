"""A small client of `ClaudeServer`: bodies that are accepted, and a conversation that goes on."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any

import requests
from anthropic.types import Message

from hummingbird_ai.testing import ClaudeServer, Search

NEWEST = "claude-opus-5-5"
"""Bound to its prefix, adaptive thinking only, no prefill."""
OLDEST = "claude-haiku-4-5@20251001"
CLEAR_AT = {"anthropic-beta": "mid-conversation-system-clear-at-2026-08-21"}
SEARCHES = {"anthropic-beta": "web-search-2025-03-05"}
BINDING = {"anthropic-beta": "thinking-binding-controls-2026-08-01"}
RUN: dict[str, Any] = {"name": "run", "description": "d", "input_schema": {"type": "object"}}
WEB_SEARCH: dict[str, Any] = {"type": "web_search_20250305", "name": "web_search"}
HIT = Search("q", (("Title", "https://example.org"),))
MARKER = {"type": "ephemeral"}


def path(model: str = NEWEST, prefix: str = "") -> str:
    return f"{prefix}/v1/projects/p/locations/global/publishers/anthropic/models/{model}:rawPredict"


def post(server: ClaudeServer, body: Any, model: str = NEWEST, **headers: str) -> requests.Response:
    data = body if isinstance(body, bytes) else json.dumps(body)
    given = {"Authorization": "Bearer test-token", **{name.replace("_", "-"): value for name, value in headers.items()}}
    given["anthropic-beta"] = ",".join([*SEARCHES.values(), *filter(None, [given.get("anthropic-beta")])])
    return requests.post(server.url + path(model), data=data, headers=given, timeout=10)


def ask(server: ClaudeServer, body: Any, model: str = NEWEST, **headers: str) -> dict[str, Any]:
    """The document of a 200, which the anthropic package can read."""
    response = post(server, body, model, **headers)
    assert response.status_code == 200, response.text
    document: dict[str, Any] = response.json()
    Message.model_validate(document, strict=True)
    return document


def refused(server: ClaudeServer, body: Any, model: str = NEWEST, **headers: str) -> str:
    """The message of a 400 in Anthropic's shape."""
    response = post(server, body, model, **headers)
    document = response.json()
    assert response.status_code == 400, response.text
    assert (document["type"], document["error"]["type"]) == ("error", "invalid_request_error")
    return str(document["error"]["message"])


def body_of(*messages: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A body of these messages; `more` are further keys."""
    head = {"anthropic_version": "vertex-2023-10-16", "max_tokens": 4096, "system": "be brief"}
    return copy.deepcopy({**head, "tools": [RUN, WEB_SEARCH], "messages": list(messages), **more})


def user(content: Any = "go") -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def tool_use(call_id: str = "toolu_1", **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "run", "input": {}, **more}


def result(call_id: str = "toolu_1", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": "done", **more}


def answered(content: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The user message with a result for every call of an answer."""
    return user([result(block["id"]) for block in content if block["type"] == "tool_use"])


def conversation(**more: Any) -> dict[str, Any]:
    """A body that is accepted: two calls and their results."""
    calls = [text("let me see"), tool_use("toolu_1"), tool_use("toolu_2")]
    return body_of(user(), assistant(calls), user([result("toolu_1"), result("toolu_2")]), **more)
