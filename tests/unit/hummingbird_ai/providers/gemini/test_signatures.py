"""Sessions whose thought signatures are not taken back: the model's name is served by another one meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from hummingbird_ai.errors import BadRequest
from hummingbird_ai.messages import Content, ToolDef
from hummingbird_ai.models import build_model
from hummingbird_ai.providers.gemini.adapter import GeminiModel
from hummingbird_ai.providers.google.endpoints import ApiKeyEndpoint
from hummingbird_ai.testing import Answer, GeminiServer, HttpError, Reply, call, say

RUN = ToolDef("run", "Run a command", {"type": "object"})
PLACEHOLDER = "skip_thought_signature_validator"
MISSING = HttpError(
    400,
    "Function call is missing a thought_signature in functionCall parts. This is required for tools to work "
    "correctly. Additional data, function call `default_api:run`, position 2.",
)


def called_with(signature: str | None, name: str = "gemini-3.8-flash") -> tuple[GeminiModel, list[Content]]:
    """An own session in the middle of a turn, with this signature on its call."""
    model = GeminiModel(name, ApiKeyEndpoint("k"))
    mark = {} if signature is None else {"thoughtSignature": signature}
    part = {"functionCall": {"id": "c", "name": "run", "args": {}}, **mark}
    results: Content = {"role": "user", "parts": [{"functionResponse": {"id": "c", "name": "run", "response": {}}}]}
    thought = {"text": "hm", "thought": True}
    return model, [model.make_user_content("go"), model._raw([thought, part, {"text": "x", **mark}]), results]


def signatures_of(body: dict[str, Any]) -> list[str]:
    found = [part.get("thoughtSignature") for content in body["contents"] for part in content["parts"]]
    return [signature for signature in found if signature is not None]


@pytest.mark.parametrize("number", [1, 2])
def test_a_session_goes_on_after_google_has_rerouted_its_model(number: int) -> None:
    """Report 24 and section 1.5: an old signature is `Invalid thought signature.` for the model that serves now."""
    stored_by, contents = called_with("b2xkZXI=")
    stored = json.loads(json.dumps(stored_by.to_canonical(contents)))
    answers = [Answer(calls=(("run", {}),) * number, model_version="gemini-3.9-flash"), say("done"), say("and more")]
    with GeminiServer(lambda body, n: answers[n]) as server:
        model = build_model("gemini-3.8-flash", google_api_key="test-key", base_url=server.url)
        contents = model.from_canonical(stored)
        first = model.generate(contents, system="s", tools=[RUN])
        assert first.raw_content is not None
        contents += [first.raw_content, model.make_tool_responses(first.tool_calls, [{}] * number)]
        second = model.generate(contents, system="s", tools=[RUN])

        resumed = build_model("gemini-3.8-flash", google_api_key="test-key", base_url=server.url)
        again = resumed.from_canonical(
            json.loads(json.dumps(model.to_canonical([*contents, second.raw_content or {}])))
        )
        resumed.generate([*again, resumed.make_user_content("more")], system="s", tools=[RUN])

        calls = server.calls
    assert [received.refused is not None for received in calls] == [True, False, False, False]
    fresh = first.raw_content["parts"][0]["thoughtSignature"]
    assert signatures_of(calls[1].body) == [PLACEHOLDER]
    assert signatures_of(calls[2].body) == [PLACEHOLDER, fresh]
    assert calls[3].body["contents"][: len(contents)] == calls[2].body["contents"]  # the cache holds over the resume
    assert "notes" not in calls[3].raw.decode()


def test_a_name_of_gemini_2_that_is_served_by_a_later_model_gets_its_placeholders() -> None:
    """Section 1.4: from 2026-12-01 on `gemini-2.5-flash` is served by a model that wants signatures."""
    _, contents = called_with(None, "gemini-2.5-flash")

    def script(body: dict[str, Any], n: int) -> Reply:
        return say("done") if signatures_of(body) else MISSING

    with GeminiServer(script) as server:
        model = build_model("gemini-2.5-flash", google_api_key="test-key", base_url=server.url)
        assert model.generate(contents, system="s", tools=[RUN]).text == "done"
        assert model.generate(contents, system="s", tools=[RUN]).text == "done"
        assert [signatures_of(received.body) for received in server.calls] == [[], [PLACEHOLDER], [PLACEHOLDER]]


@pytest.mark.parametrize(
    ("problem", "calls"),
    [(MISSING, 2), (HttpError(400, "Corrupted thought signature."), 2), (HttpError(400, "Unknown name"), 1)],
)
def test_what_cannot_be_mended_is_raised_after_one_more_call_at_most(problem: HttpError, calls: int) -> None:
    _, contents = called_with(None)
    with GeminiServer(lambda body, n: problem) as server:
        model = build_model("gemini-3.8-flash", google_api_key="test-key", base_url=server.url)
        with pytest.raises(BadRequest, match=problem.message[:20]):
            model.generate(contents, system="s", tools=[RUN])
        assert len(server.calls) == calls


def test_a_pass_that_was_paid_is_not_made_again_for_a_signature() -> None:
    answers: Iterator[Reply] = iter(
        [
            Answer(text="a", finish="CONTINUATION", continuation_token="t"),
            HttpError(400, "Invalid thought signature."),
        ]
    )
    _, contents = called_with(None)
    with GeminiServer(lambda body, n: next(answers)) as server:
        model = build_model("gemini-3.8-flash", google_api_key="test-key", base_url=server.url)
        with pytest.raises(BadRequest) as caught:
            model.generate(contents, system="s", tools=[RUN])
        assert len(server.calls) == 2
    assert caught.value.billed is not None
    assert caught.value.billed.text == "a"


def test_a_signature_comes_back_in_its_own_part_character_by_character() -> None:
    """Report 24: never decoded, moved or merged; Google's own SDK writes the URL-safe alphabet."""
    odd = "-_-_AAECAwQ="
    parts = ({"text": "a", "thoughtSignature": odd}, {"text": "b"}, {"text": "", "thoughtSignature": "+/+/"})
    empty = {"text": "", "thoughtSignature": ""}
    with GeminiServer(lambda body, n: Answer(parts=(*parts, empty)) if n == 0 else call("run")) as server:
        model = build_model("gemini-3.8-flash", google_api_key="test-key", base_url=server.url)
        contents = [model.make_user_content("go")]
        first = model.generate(contents, system="s", tools=[RUN])
        stored = json.loads(json.dumps(model.to_canonical([*contents, first.raw_content or {}])))
        model.generate([*model.from_canonical(stored), model.make_user_content("more")], system="s", tools=[RUN])

        assert server.calls[1].body["contents"][1]["parts"] == list(parts)
    assert first.text == "ab"


CALLED = {"functionCall": {"id": "c", "name": "run", "args": {}}, "thoughtSignature": "c2ln"}
CODE = {"executableCode": {"language": "PYTHON", "code": "1"}}
RESPONSE = {"functionResponse": {"name": "run", "response": {}}}


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"thoughtSignature": "c2ln"}, {"text": "", "thoughtSignature": "c2ln"}),
        ({"text": None, "thoughtSignature": "c2ln"}, {"text": "", "thoughtSignature": "c2ln"}),
        (
            {"thought": True, "thoughtSignature": "c2ln"},
            {"text": "", "thought": True, "thoughtSignature": "c2ln"},
        ),
        (
            {"partMetadata": {"a": 1}, "thoughtSignature": "c2ln"},
            {"text": "", "thoughtSignature": "c2ln", "partMetadata": {"a": 1}},
        ),
        ({**CODE, "text": ""}, CODE),
        (RESPONSE, None),
        ({**RESPONSE, "thoughtSignature": "c2ln"}, {"text": "", "thoughtSignature": "c2ln"}),
        ({**RESPONSE, "text": "x"}, {"text": "x"}),
    ],
)
def test_a_part_that_gemini_gives_but_does_not_take_back_is_sent_as_one_it_takes(
    given: dict[str, Any], sent: dict[str, Any] | None
) -> None:
    """A signature alone, two payloads in a part, a response of the model's own: each would end the conversation."""
    with GeminiServer(lambda body, n: Answer(parts=({"text": "a"}, given)) if n == 0 else say("ok")) as server:
        model = build_model("gemini-3.8-flash", google_api_key="test-key", base_url=server.url)
        contents = [model.make_user_content("go")]
        first = model.generate(contents, system="s", tools=[RUN])
        contents += [first.raw_content or {}, model.make_user_content("more")]
        model.generate(contents, system="s", tools=[RUN])
        stored = json.loads(json.dumps(model.to_canonical(contents)))
        model.generate(model.from_canonical(stored), system="s", tools=[RUN])

        assert server.calls[1].body["contents"][1]["parts"] == [{"text": "a"}, *([sent] if sent else [])]
        assert server.calls[2].raw == server.calls[1].raw


def test_a_call_beside_an_empty_text_is_sent_without_it() -> None:
    with GeminiServer(lambda body, n: Answer(parts=({"text": "", **CALLED},)) if n == 0 else say("ok")) as server:
        model = build_model("gemini-2.5-flash", google_api_key="test-key", base_url=server.url)
        contents = [model.make_user_content("go")]
        first = model.generate(contents, system="s", tools=[RUN])
        contents += [first.raw_content or {}, model.make_tool_responses(first.tool_calls, [{}])]
        model.generate(contents, system="s", tools=[RUN])

        assert server.calls[1].body["contents"][1]["parts"] == [CALLED]


@pytest.mark.parametrize(
    ("part", "sent"),
    [
        ({"type": "opaque", "data": {"thoughtSignature": "c2ln"}}, {"text": "", "thoughtSignature": "c2ln"}),
        (
            {"type": "opaque", "data": {"thought": True, "thoughtSignature": "c2ln"}},
            {"text": "", "thought": True, "thoughtSignature": "c2ln"},
        ),
        (
            {"type": "tool_call", "id": "c", "name": "run", "arguments": {}, "extra": {"text": ""}},
            {"functionCall": {"id": "c", "name": "run", "args": {}}},
        ),
    ],
)
def test_a_stored_part_of_an_earlier_version_is_mended_when_it_is_loaded(
    part: dict[str, Any], sent: dict[str, Any]
) -> None:
    model, _ = called_with(None)
    stored = model.to_canonical([model.make_user_content("go"), model._raw([{"text": "a"}])])
    stored[1]["parts"].append(part)

    assert model.from_canonical(stored)[1]["parts"] == [{"text": "a"}, sent]


def test_a_repair_whose_answer_was_not_kept_is_noted_by_the_next_turn() -> None:
    """The caller goes on with words of its own, so that turn does not stand where the repair was made."""
    stored_by, contents = called_with("b2xkZXI=")
    stored = json.loads(json.dumps(stored_by.to_canonical(contents)))
    lost = Answer(parts=(), finish="MALFORMED_FUNCTION_CALL")
    answers = [lost, call("run"), call("run")]
    with GeminiServer(lambda body, n: answers.pop(0) if answers else say("done")) as server:
        model = build_model("gemini-3.8-flash", google_api_key="test-key", base_url=server.url)
        contents = model.from_canonical(stored)
        assert model.generate(contents, system="s", tools=[RUN]).raw_content is None
        contents.append(model.make_user_content("again"))
        for _ in range(2):
            answer = model.generate(contents, system="s", tools=[RUN])
            contents += [answer.raw_content or {}, model.make_tool_responses(answer.tool_calls, [{}])]
        model.generate(contents, system="s", tools=[RUN])

        resumed = build_model("gemini-3.8-flash", google_api_key="test-key", base_url=server.url)
        again = resumed.from_canonical(json.loads(json.dumps(model.to_canonical(contents))))
        resumed.generate(again, system="s", tools=[RUN])

        assert [received.refused is not None for received in server.calls] == [True, *[False] * 5]
        assert server.calls[-1].raw == server.calls[-2].raw
    assert ["notes" in content for content in contents if content["role"] == "model"] == [False, True, False]
