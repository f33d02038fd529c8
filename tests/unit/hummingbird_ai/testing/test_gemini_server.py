from __future__ import annotations

import concurrent.futures
import copy
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
import requests
from google.genai.types import GenerateContentResponse

from hummingbird_ai.messages import ModelResponse
from hummingbird_ai.models import build_model
from hummingbird_ai.testing import Answer, GeminiServer, Search, call, say

FLASH = "/v1/models/gemini-3.8-flash:generateContent"
VERTEX = "/v1/projects/p/locations/global/publishers/google/models/gemini-3.8-flash:generateContent"


def request(server: GeminiServer, body: Any, path: str = FLASH, **headers: str) -> requests.Response:
    given = headers or {"x-goog-api-key": "test-key", "Authorization": "Bearer test-token"}
    data = body if isinstance(body, bytes) else json.dumps(body)
    return requests.post(server.url + path, data=data, headers=given, timeout=10)


def conversation() -> dict[str, Any]:
    """A body that is accepted: two calls, signed once, and their results."""
    calls: list[dict[str, Any]] = [{"functionCall": {"id": str(i), "name": "run", "args": {}}} for i in range(2)]
    calls[0]["thoughtSignature"] = "skip_thought_signature_validator"
    results = [{"functionResponse": {"id": str(i), "name": "run", "response": {"out": 1}}} for i in range(2)]
    declaration = {"name": "run", "description": "d", "parametersJsonSchema": {"type": "object"}}
    return {
        "contents": [
            {"role": "user", "parts": [{"text": "go"}]},
            {"role": "model", "parts": calls},
            {"role": "user", "parts": results},
        ],
        "tools": [{"functionDeclarations": [declaration]}],
        "toolConfig": {"functionCallingConfig": {"mode": "NONE"}},
        "generationConfig": {"maxOutputTokens": 10},
    }


def test_a_correct_conversation_is_accepted_on_every_route() -> None:
    with GeminiServer(lambda body, n: say("hi")) as server:
        paths = [FLASH, FLASH.replace("v1", "v1beta"), VERTEX, VERTEX.replace("v1", "v1beta1")]
        for path in paths:
            assert request(server, conversation(), path).status_code == 200
        assert [received.path for received in server.calls] == paths


def part(content: int, index: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda body: dict.__getitem__(body["contents"][content], "parts")[index]


Change = Callable[[dict[str, Any]], Any]
REFUSED: dict[str, tuple[Change, str]] = {
    "fewer results than calls": (
        lambda b: b["contents"][2]["parts"].pop(),
        "number of function response parts is equal to the number of function call parts",
    ),
    "more results than calls": (
        lambda b: b["contents"][2]["parts"].append(copy.deepcopy(b["contents"][2]["parts"][0])),
        "number of function response parts",
    ),
    "results in two contents": (
        lambda b: b["contents"].append({"role": "user", "parts": [b["contents"][2]["parts"].pop()]}),
        "number of function response parts",
    ),
    "text among the results": (
        lambda b: b["contents"][2]["parts"].append({"text": "hurry"}),
        "number of function response parts",
    ),
    "results in another order": (lambda b: b["contents"][2]["parts"].reverse(), "does not match the function call id"),
    "a result of another tool": (
        lambda b: part(2, 0)(b)["functionResponse"].update(name="read"),
        "does not answer the function call run",
    ),
    "results without calls": (lambda b: b["contents"].pop(1), "immediately after a function call turn"),
    "a model turn first": (lambda b: b["contents"].pop(0), "immediately after a user turn"),
    "a model turn last": (lambda b: b["contents"].append({"role": "model", "parts": [{"text": "x"}]}), "last content"),
    "two model turns before a call": (
        lambda b: b["contents"].insert(1, {"role": "model", "parts": [{"text": "x"}]}),
        "immediately after a user turn",
    ),
    "no contents": (lambda b: b["contents"].clear(), "contents is not specified"),
    "a content without parts": (lambda b: b["contents"][0]["parts"].clear(), "must not be empty"),
    "another role": (lambda b: b["contents"][0].update(role="system"), "valid role"),
    "an unknown field": (
        lambda b: part(0, 0)(b).update(cache_control={}),
        "Unknown name \"cache_control\" at 'contents[0].parts[0]': Cannot find field",
    ),
    "our own producer field": (lambda b: b["contents"][1].update(producer={}), 'Unknown name "producer"'),
    "a wrong case": (lambda b: b.update(toolconfig={}), 'Unknown name "toolconfig": Cannot find field'),
    "a mode in lower case": (
        lambda b: b["toolConfig"]["functionCallingConfig"].update(mode="none"),
        "Invalid value at 'tool_config.function_calling_config.mode'",
    ),
    "allowed names without ANY": (
        lambda b: b["toolConfig"]["functionCallingConfig"].update(mode="AUTO", allowedFunctionNames=["run"]),
        "allowed_function_names",
    ),
    "no signature": (lambda b: part(1, 0)(b).pop("thoughtSignature"), "missing a thought_signature in functionCall"),
    "a foreign signature": (lambda b: part(1, 0)(b).update(thoughtSignature="c2ln"), "Invalid thought signature"),
    "a result that is no object": (
        lambda b: part(2, 0)(b)["functionResponse"].update(response=["a"]),
        "Invalid value at 'contents[2].parts[0].function_response.response'",
    ),
    "a reference in a result": (
        lambda b: part(2, 0)(b)["functionResponse"].update(response={"a": [{"$ref": "#/$defs/A"}]}),
        "The referenced name `#/$defs/A` in function_response.response does not match",
    ),
    "definitions in a result": (
        lambda b: part(2, 0)(b)["functionResponse"].update(response={"$defs": {}}),
        "The referenced name",
    ),
    "labels": (lambda b: b.update(labels={"a": "b"}), 'Unknown name "labels": Cannot find field'),
    "two tools of one name": (
        lambda b: b["tools"][0]["functionDeclarations"].append(b["tools"][0]["functionDeclarations"][0]),
        "Duplicate function declaration found: run",
    ),
    "a bad name": (lambda b: b["tools"][0]["functionDeclarations"][0].update(name="1 a"), "Invalid function name"),
    "two kinds of schema": (
        lambda b: b["tools"][0]["functionDeclarations"][0].update(parameters={}),
        "mutually exclusive",
    ),
    "two payloads in a part": (lambda b: part(1, 0)(b).update(text="x"), "oneof"),
    "an empty part": (lambda b: part(0, 0)(b).clear(), "must have one initialized field"),
    "empty text": (lambda b: part(0, 0)(b).update(text=""), "must have one initialized field"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_gemini_refuses_is_refused_with_its_status_and_message(case: str) -> None:
    change, message = REFUSED[case]
    body = conversation()
    change(body)
    with GeminiServer(lambda body, n: say("hi")) as server:
        response = request(server, body)
        refused = server.calls[0].refused

    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["code"], error["status"]) == (400, "INVALID_ARGUMENT")
    assert message in error["message"]
    assert refused is not None


def test_labels_are_accepted_on_vertex_and_its_words_for_a_missing_signature_differ() -> None:
    body = {**conversation(), "labels": {"a": "b"}}
    with GeminiServer(lambda body, n: say("hi")) as server:
        assert request(server, body, VERTEX).status_code == 200
        part(1, 0)(body).pop("thoughtSignature")
        assert "in the 1. content block is missing" in request(server, body, VERTEX).json()["error"]["message"]


def test_a_signature_is_needed_in_the_current_turn_of_gemini_3_only() -> None:
    body = conversation()
    part(1, 0)(body).pop("thoughtSignature")
    with GeminiServer(lambda body, n: say("hi")) as server:
        assert request(server, body, FLASH.replace("3.8", "2.5")).status_code == 200
        body["contents"].append({"role": "user", "parts": [{"text": "next"}]})
        assert request(server, body).status_code == 200


def test_a_signature_belongs_to_its_model_and_route() -> None:
    with GeminiServer(lambda body, n: call("run")) as server:
        given = request(server, {"contents": [{"parts": [{"text": "go"}]}]}).json()["candidates"][0]["content"]
        result = {"functionResponse": {"id": "call-0-0", "name": "run", "response": {}}}
        body = {"contents": [{"parts": [{"text": "go"}]}, given, {"parts": [result]}]}

        assert request(server, body).status_code == 200
        assert request(server, body, VERTEX).status_code == 400
        assert request(server, body, FLASH.replace("3.8-flash", "4-argon")).status_code == 400


def test_an_id_that_is_not_echoed_on_vertex_gives_an_empty_stop() -> None:
    """Row 7: status 200, and nothing in it."""
    body = conversation()
    part(2, 1)(body)["functionResponse"].pop("id")
    with GeminiServer(lambda body, n: say("hi")) as server:
        candidate = request(server, body, VERTEX).json()["candidates"][0]

    assert candidate == {"content": {}, "index": 0, "finishReason": "STOP"}


@pytest.mark.parametrize(
    ("headers", "path", "status", "word"),
    [
        ({"a": "b"}, FLASH, 403, "PERMISSION_DENIED"),
        ({"x-goog-api-key": "wrong"}, FLASH, 400, "API_KEY_INVALID"),
        ({"Authorization": "Bearer test-token"}, FLASH, 403, "PERMISSION_DENIED"),
        ({"x-goog-api-key": "test-key"}, FLASH + "?key=test-key", 404, "NOT_FOUND"),
        ({"Authorization": "Bearer wrong"}, VERTEX, 401, "UNAUTHENTICATED"),
        ({"x-goog-api-key": "test-key"}, "/v1/models/gpt-9:generateContent", 404, "NOT_FOUND"),
        ({"x-goog-api-key": "test-key"}, "/v2/models/gemini-3.8-flash:generateContent", 404, "NOT_FOUND"),
    ],
)
def test_who_asks_and_where_is_checked(headers: dict[str, str], path: str, status: int, word: str) -> None:
    with GeminiServer(lambda body, n: say("hi")) as server:
        response = request(server, conversation(), path, **headers)

    assert response.status_code == status
    assert word in response.text


def test_a_prompt_longer_than_the_window_is_an_overflow() -> None:
    with GeminiServer(lambda body, n: say("hi"), context_window=50) as server:
        message = request(server, conversation()).json()["error"]["message"]

    assert "exceeds the maximum number of tokens allowed (50)" in message


def test_usage_grows_with_the_conversation_and_adds_up() -> None:
    with GeminiServer(lambda body, n: Answer(thought="hm, hm, hm", text="text")) as server:
        body = conversation()
        first = request(server, body).json()["usageMetadata"]
        body["contents"].append({"role": "user", "parts": [{"text": "more " * 100}]})
        second = request(server, body).json()["usageMetadata"]

    assert second["promptTokenCount"] > first["promptTokenCount"] + 100
    for usage in (first, second):
        parts = usage["promptTokenCount"] + usage["candidatesTokenCount"] + usage["thoughtsTokenCount"]
        assert usage["totalTokenCount"] == parts


def test_two_hundred_agents_at_once_are_all_answered() -> None:
    gate = threading.Barrier(201)

    def script(body: dict[str, Any], n: int) -> Answer:
        gate.wait(30)
        return say("hi")

    with GeminiServer(script) as server:

        def ask(number: int) -> ModelResponse:
            model = build_model("gemini-3.8-flash", google_api_key="test-key", base_url=server.url)
            return model.generate([model.make_user_content(f"go {number}")], system="s", tools=[])

        with concurrent.futures.ThreadPoolExecutor(200) as pool:
            running = [pool.submit(ask, number) for number in range(200)]
            gate.wait(30)  # all 200 are in the script at this moment
            assert [future.result().text for future in running] == ["hi"] * 200
        assert len({received.raw for received in server.calls}) == 200


def test_searches_come_as_grounding_and_the_natural_end_is_stop() -> None:
    search = Search("q", (("Title", "https://example.org"),))
    with GeminiServer(lambda body, n: Answer(text="hi", searches=(search,))) as server:
        document = request(server, {**conversation(), "tools": [{"googleSearch": {}}]}).json()
    candidate = document["candidates"][0]

    assert candidate["finishReason"] == "STOP"
    assert candidate["groundingMetadata"] == {
        "webSearchQueries": ["q"],
        "groundingChunks": [{"web": {"uri": "https://example.org", "title": "Title"}}],
    }
    GenerateContentResponse.model_validate(document)


def test_a_finish_of_none_is_left_out() -> None:
    with GeminiServer(lambda body, n: say("hi", finish=None)) as server:
        assert "finishReason" not in request(server, conversation()).json()["candidates"][0]
