from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest
from google.genai.types import BlockedReason, FinishReason
from hypothesis import given
from hypothesis import strategies as st

from hummingbird_ai.errors import MalformedReply, ModelError, Overloaded, RateLimited
from hummingbird_ai.http import HttpReply
from hummingbird_ai.messages import Content, Finish, ModelResponse, ToolDef, Usage
from hummingbird_ai.models import build_model
from hummingbird_ai.providers.gemini.adapter import MAX_PASSES, GeminiModel
from hummingbird_ai.providers.gemini.reply import read
from hummingbird_ai.providers.google.endpoints import ApiKeyEndpoint
from hummingbird_ai.serialise import encode
from hummingbird_ai.testing import Answer, Body, GeminiServer, HttpError, Reply, Script, call, say
from hummingbird_ai.testing.replies import HALF_BODY, HTML_PAGE

RUN = ToolDef("run", "Run a command", {"type": "object"})


def answered(script: Reply | Script, name: str = "gemini-3.8-flash", **more: Any) -> ModelResponse:
    with GeminiServer(script if callable(script) else lambda body, n: script) as server:
        model = build_model(name, google_api_key="test-key", base_url=server.url, **more)
        return model.generate([model.make_user_content("go")], system="s", tools=[RUN])


def test_text_calls_and_thoughts_are_told_apart() -> None:
    response = answered(Answer(thought="hm", text="I look", calls=(("run", {"a": 1}), ("run", {}))))

    assert response.text == "I look"
    assert [(one.name, one.arguments) for one in response.tool_calls] == [("run", {"a": 1}), ("run", {})]
    assert response.finish is Finish.TOOL_CALLS
    assert response.finish_reason == "STOP"
    assert response.raw_content is not None
    assert response.raw_content["parts"][0] == {"text": "hm", "thought": True}


def test_a_call_without_arguments_has_empty_ones() -> None:
    parts = ({"functionCall": {"name": "run"}}, {"functionCall": {"name": "run", "args": None}})

    assert [one.arguments for one in answered(Answer(parts=parts)).tool_calls] == [{}, {}]


def test_unknown_parts_and_fields_are_kept_verbatim() -> None:
    parts = (
        {"executableCode": {"language": "PYTHON", "code": "1"}, "newThing": True},
        {"text": "t", "partMetadata": {"a": 1}, "thoughtSignature": "-_c2ln"},
    )
    response = answered(Answer(parts=parts))

    assert response.raw_content is not None
    assert response.raw_content["parts"] == list(parts)


BLOCK_REASONS = (
    *("SAFETY", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT", "IMAGE_SAFETY", "MODEL_ARMOR", "JAILBREAK"),
    "A_WORD_OF_NEXT_YEAR",
)
POLICY = (
    *("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR", "LANGUAGE", "ESCALATION"),
    *("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "PUP_LIMITED_DISABLED"),
)
NUDGE = (
    *("MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"),
    "MISSING_THOUGHT_SIGNATURE",
)
OTHERS = ("OTHER", "IMAGE_OTHER", "NO_IMAGE", "FINISH_REASON_UNSPECIFIED", "A_WORD_OF_NEXT_YEAR")


def test_every_reason_that_google_publishes_is_known_here() -> None:
    """Section 1.4, against the types of Google's own SDK: a new word there has to get its class here."""
    known = {*POLICY, *NUDGE, *OTHERS, "STOP", "MAX_TOKENS", "CONTINUATION"}

    assert {reason.value for reason in FinishReason} <= known
    assert {reason.value for reason in BlockedReason} - {"BLOCKED_REASON_UNSPECIFIED"} <= set(BLOCK_REASONS)


@pytest.mark.parametrize(
    ("answer", "finish"),
    [
        *[(Answer(block_reason=word), Finish.REFUSED) for word in BLOCK_REASONS],
        *[(Answer(finish=word, text="partial"), Finish.REFUSED) for word in POLICY],
        *[(Answer(finish=word), Finish.MALFORMED) for word in NUDGE],
        *[(Answer(finish=word, text="t"), Finish.UNKNOWN) for word in OTHERS],
        (Answer(finish="UNEXPECTED_TOOL_CALL", calls=(("run", {}),)), Finish.MALFORMED),
        (Answer(parts=({"functionCall": {"args": {}}},)), Finish.MALFORMED),
        (Answer(finish="MAX_TOKENS", text="cut"), Finish.MAX_TOKENS),
        (Answer(finish="CONTINUATION", text="cut"), Finish.MAX_TOKENS),
        (Answer(finish="OTHER"), Finish.UNKNOWN),
        (Answer(), Finish.EMPTY),
        (Answer(finish=None), Finish.EMPTY),
        (Answer(text=" \n"), Finish.EMPTY),
        (Answer(thought="only thoughts"), Finish.EMPTY),
        (Answer(text="t"), Finish.STOP),
        (Answer(finish=None, text="t"), Finish.STOP),
    ],
)
def test_every_reason_has_its_class(answer: Answer, finish: Finish) -> None:
    """Report 16 and section 1.4: no content, `{}` or an unknown word is never a crash, and usage is counted."""
    response = answered(answer)

    assert response.finish is finish
    assert response.usage.input_tokens > 0
    if finish in (Finish.REFUSED, Finish.MALFORMED, Finish.EMPTY):
        assert not response.usable
        assert response.raw_content is None


def test_a_response_without_candidates_is_classified_as_refused_with_the_reason() -> None:
    assert answered(Answer(block_reason="SAFETY")).finish_reason == "blocked: SAFETY"


def test_a_reason_of_the_candidate_comes_before_one_of_the_prompt() -> None:
    body = {"candidates": [{"finishReason": "STOP", "content": {"parts": [{"text": "t"}]}}]}
    feedback = {"promptFeedback": {"blockReason": "OTHER", "blockReasonMessage": "why"}}

    assert answered(Body(json.dumps({**body, **feedback}).encode())).finish is Finish.STOP
    blocked = answered(Body(json.dumps({"candidates": [{"content": {}}], **feedback}).encode()))
    assert (blocked.finish, blocked.finish_reason) == (Finish.REFUSED, "blocked: OTHER: why")


def test_the_providers_message_is_kept_beside_its_word() -> None:
    response = answered(Answer(finish="MALFORMED_FUNCTION_CALL", finish_message="Malformed function call: print("))

    assert response.finish_reason == "MALFORMED_FUNCTION_CALL: Malformed function call: print("


def test_the_text_beside_a_forbidden_call_is_kept_without_the_call() -> None:
    response = answered(Answer(finish="UNEXPECTED_TOOL_CALL", text="the answer", calls=(("run", {}),)))

    assert response.text == "the answer"
    assert response.tool_calls == ()
    assert response.raw_content is not None
    assert [part["text"] for part in response.raw_content["parts"]] == ["the answer"]


def usage_of(**fields: int | str | None) -> Usage:
    document = {"candidates": [{"content": {"parts": [{"text": "t"}]}}], "usageMetadata": fields}
    return read(HttpReply(200, {}, json.dumps(document).encode())).usage


def test_cached_tokens_are_not_counted_twice_and_thoughts_are_output() -> None:
    """Report 31: one normal form of four disjoint counters."""
    usage = usage_of(
        promptTokenCount=100,
        cachedContentTokenCount=60,
        candidatesTokenCount=10,
        thoughtsTokenCount=5,
        toolUsePromptTokenCount=7,
        totalTokenCount=122,
    )

    assert usage == Usage(input_tokens=47, output_tokens=15, cache_read_tokens=60, context_tokens=115)
    assert usage.total_tokens == 122


def test_a_route_that_counts_thoughts_as_output_already_is_recognised_by_its_total() -> None:
    usage = usage_of(promptTokenCount=100, candidatesTokenCount=15, thoughtsTokenCount=5, totalTokenCount=115)

    assert usage.output_tokens == 15


def test_missing_null_and_textual_counts_are_read() -> None:
    assert usage_of(promptTokenCount="12", candidatesTokenCount=None) == Usage(input_tokens=12, context_tokens=12)
    assert usage_of() == Usage()


counts = st.integers(0, 10**7)


@given(counts, counts, counts, counts, st.floats(0, 1))
def test_the_four_counters_add_up_to_the_providers_total(
    prompt: int, output: int, thoughts: int, tool_use: int, share: float
) -> None:
    usage = usage_of(
        promptTokenCount=prompt,
        cachedContentTokenCount=int(prompt * share),
        candidatesTokenCount=output,
        thoughtsTokenCount=thoughts,
        toolUsePromptTokenCount=tool_use,
        totalTokenCount=prompt + output + thoughts + tool_use,
    )

    assert usage.total_tokens == prompt + output + thoughts + tool_use
    assert min(usage.input_tokens, usage.output_tokens, usage.cache_read_tokens) >= 0


def test_a_longer_conversation_reads_its_beginning_from_the_cache() -> None:
    with GeminiServer(lambda body, n: say("ok")) as server:
        model = build_model("gemini-3.8-flash", google_api_key="test-key", base_url=server.url)
        contents = [model.make_user_content("long " * 10_000)]
        first = model.generate(contents, system="s", tools=[RUN])
        contents += [first.raw_content or {}, model.make_user_content("more")]
        second = model.generate(contents, system="s", tools=[RUN], ephemeral=["hurry"])
        third = model.generate(contents, system="s", tools=[RUN])

    assert first.usage.cache_read_tokens == 0
    assert second.usage.cache_read_tokens > 10_000
    assert third.usage.cache_read_tokens > second.usage.cache_read_tokens
    assert third.cost_usd is not None
    assert first.cost_usd is not None
    assert third.cost_usd < first.cost_usd / 5


def test_a_call_is_priced_by_the_model_that_served_it(caplog: pytest.LogCaptureFixture) -> None:
    usage = {"promptTokenCount": 1_000_000, "candidatesTokenCount": None}
    with caplog.at_level(logging.WARNING):
        response = answered(
            Answer(text="t", usage=usage, model_version="gemini-3.5-flash-lite"), name="gemini-2.5-flash"
        )

    assert response.model_version == "gemini-3.5-flash-lite"
    assert response.cost_usd == Decimal("0.3")
    assert "gemini-2.5-flash was answered by gemini-3.5-flash-lite" in caplog.text


def test_that_another_model_serves_is_logged_once_and_priced_every_time(caplog: pytest.LogCaptureFixture) -> None:
    """Section 1.4: from 2026-12-01 on the Gemini API serves its 2.5 models by later ones, at their price."""
    answer = Answer(text="t", model_version="gemini-3.5-flash-lite")
    with GeminiServer(lambda body, n: answer) as server, caplog.at_level(logging.WARNING):
        model = build_model("gemini-2.5-flash", google_api_key="test-key", base_url=server.url)
        costs = {model.generate([model.make_user_content("go")], system="s", tools=[]).cost_usd for _ in range(3)}

    assert len(costs) == 1
    assert [record.message for record in caplog.records if "answered by" in record.message] == [
        "gemini-2.5-flash was answered by gemini-3.5-flash-lite, which is priced instead"
    ]


def test_a_model_without_a_price_costs_none_and_never_zero() -> None:
    assert answered(Answer(text="t", model_version="gemini-99-ultra")).cost_usd is None


def test_a_persons_own_price_for_the_name_they_configured_applies() -> None:
    usage = {"promptTokenCount": 1_000_000, "candidatesTokenCount": None}
    answer = Answer(text="t", usage=usage, model_version="gemini-99-001")

    response = answered(answer, name="gemini-flash-latest", prices={"gemini-flash-latest": {"input": 3, "output": 1}})

    assert response.cost_usd == 3


def test_a_split_answer_is_followed_and_joined() -> None:
    answers = [
        Answer(text="first ", finish="CONTINUATION", continuation_token="t1"),
        Answer(text="second ", finish="CONTINUATION", continuation_token="t2"),
        call("run"),
    ]
    seen: list[Any] = []

    def script(body: dict[str, Any], n: int) -> Answer:
        seen.append(body.pop("continuationToken", None))
        seen.append(body)
        return answers[n]

    response = answered(script)

    assert response.text == "first second "
    assert len(response.tool_calls) == 1
    assert response.finish is Finish.TOOL_CALLS
    assert seen[0::2] == [None, "t1", "t2"]
    assert seen[1] == seen[3] == seen[5]


def test_usage_of_a_split_answer_adds_up_but_the_context_is_that_of_the_last_pass() -> None:
    """Section 0.5: billed usage is not the size of the conversation."""
    usage = {"promptTokenCount": 100, "candidatesTokenCount": 10}
    answers = [Answer(text="a", finish="CONTINUATION", continuation_token="t", usage=usage), say("b", usage=usage)]

    response = answered(lambda body, n: answers[n])

    assert response.usage == Usage(input_tokens=200, output_tokens=20, context_tokens=110)


def test_an_answer_that_is_never_finished_is_cut_after_the_cap() -> None:
    """Report 27: capped exactly."""
    asked: list[int] = []

    def script(body: dict[str, Any], n: int) -> Answer:
        asked.append(n)
        return Answer(text="x", finish="CONTINUATION", continuation_token="again")

    response = answered(script)

    assert len(asked) == MAX_PASSES
    assert response.finish is Finish.MAX_TOKENS
    assert response.text == "x" * MAX_PASSES


@pytest.mark.parametrize(("written", "asked"), [([10, 9, 1, 5], 3), ([20], 1), ([19, 0, 1], 3)])
def test_an_answer_that_has_used_up_its_tokens_is_not_continued(written: list[int], asked: int) -> None:
    """Each pass may write as many as the whole answer: without this a caller's limit would hold for no answer."""
    seen: list[int] = []

    def script(body: dict[str, Any], n: int) -> Answer:
        seen.append(n)
        usage = {"promptTokenCount": 1, "candidatesTokenCount": written[n]}
        return Answer(text="x", finish="CONTINUATION", continuation_token="again", usage=usage)

    with GeminiServer(script) as server:
        model = build_model("gemini-4-argon", google_api_key="test-key", base_url=server.url)
        response = model.generate([model.make_user_content("go")], system="s", tools=[], max_output_tokens=20)

    assert len(seen) == asked
    assert (response.text, response.finish) == ("x" * asked, Finish.MAX_TOKENS)
    assert response.usage.output_tokens == 20


@pytest.mark.parametrize(
    "document",
    [
        {"candidates": [{"finishReason": "R" * 10**6, "finishMessage": "m" * 10**6}], "modelVersion": "v" * 10**6},
        {"promptFeedback": {"blockReason": "R" * 10**6, "blockReasonMessage": "m" * 10**6}},
    ],
)
def test_what_a_broken_server_says_of_its_answer_is_bounded(document: dict[str, Any]) -> None:
    """It goes into logs, records, and the labels of metrics, which live as long as the process."""
    response = answered(Body(json.dumps(document).encode()))

    assert "R: m" in response.finish_reason
    assert len(response.finish_reason) <= 502
    assert len(response.model_version) <= 100


def test_the_paid_passes_of_a_split_answer_that_fails_are_not_lost() -> None:
    answers: list[Reply] = [Answer(text="a", finish="CONTINUATION", continuation_token="t"), HttpError(503)]

    with pytest.raises(Overloaded) as caught:
        answered(lambda body, n: answers[n])

    assert caught.value.billed is not None
    assert caught.value.billed.usage.input_tokens > 0
    assert caught.value.billed.cost_usd is not None


DEEP = b"[" * 480 + b"]" * 480


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (Body(b""), r"not JSON: \(empty\)"),
        (HTML_PAGE, "not JSON: <html>"),
        (Body(b"\x00\xff garbage"), "not JSON"),
        (Body(b"[]"), "unexpected shape"),
        (Body(b'"text"'), "unexpected shape"),
        (Body(b'{"candidates": 3}'), "unexpected shape at candidates"),
        (Body(b'{"candidates": [{"content": {"parts": ["text"]}}]}'), r"unexpected shape at candidates\.0"),
        (Body(b'{"usageMetadata": {"promptTokenCount": -1}}'), "unexpected shape at usageMetadata"),
        (Body(b'{"candidates": [{"content": {"parts": [{"text": 3}]}}]}'), r"unexpected shape at candidates\.0"),
        (Body(b'{"candidates": [{"content": {"parts": [{"functionCall": "run"}]}}]}'), "unexpected shape"),
        (Body(b'{"candidates": [{"content": {"parts": [{"functionCall": {"args": []}}]}}]}'), "unexpected shape"),
        (Body(b'{"candidates": [{"content": {"parts": [{"text": "", "x": ' + DEEP + b"}]}}]}"), "deeply"),
        (Body(b"[" * 100_000), "not JSON"),
        (Body(b'{"candidates": [{"' + b"k" * 10**6 + b'": 1, "content": 5}]}'), "unexpected shape at candidates"),
        (Body(b'{"candidates": [' + b"9" * 5000 + b"]}"), "not JSON"),
    ],
)
def test_a_200_that_is_no_answer_is_malformed_and_retryable(reply: Body, problem: str) -> None:
    """Report 37: a proxy's page, a truncated body, an empty one."""
    with pytest.raises(MalformedReply, match=problem) as caught:
        answered(reply)

    assert caught.value.retryable
    assert len(str(caught.value)) < 800
    assert caught.value.__context__ is None


def test_half_a_body_is_a_transport_failure() -> None:
    """Report 37."""
    with pytest.raises(ModelError, match="did not hold") as caught:
        answered(HALF_BODY)
    assert caught.value.retryable


def test_nulls_in_the_place_of_objects_are_read_as_absent() -> None:
    body = b'{"candidates": [{"content": null, "finishReason": null}], "usageMetadata": null, "promptFeedback": null}'

    assert answered(Body(body)).finish is Finish.EMPTY


def test_an_error_inside_a_200_is_classified_as_that_error() -> None:
    error: Mapping[str, Any] = {"error": {"code": 429, "message": "slow down", "status": "RESOURCE_EXHAUSTED"}}

    with pytest.raises(RateLimited, match="slow down"):
        answered(Body(json.dumps([error]).encode()))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=()), max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(st.text(max_size=3), json_values, max_size=2)
words = st.text(st.characters(exclude_categories=()), max_size=4)
payloads = {
    "text": words,
    "thought": st.booleans(),
    "thoughtSignature": words,
    "functionCall": st.fixed_dictionaries({}, optional={"id": words, "name": words, "args": objects, "more": objects}),
    "functionResponse": st.fixed_dictionaries({}, optional={"id": words, "name": words, "response": objects}),
    "toolCall": objects,
    "executableCode": objects,
    "partMetadata": objects,
    **dict.fromkeys(("type", "id", "name", "arguments", "data", "signature"), words),
}
parts = st.fixed_dictionaries({}, optional=payloads) | st.fixed_dictionaries(
    {}, optional={name: values | json_values for name, values in payloads.items()}
)
documents = st.fixed_dictionaries(
    {"candidates": st.lists(st.fixed_dictionaries({"content": st.fixed_dictionaries({"parts": st.lists(parts)})}))},
    optional={"promptFeedback": json_values, "usageMetadata": json_values, "modelVersion": json_values},
)


@given(documents)
def test_whatever_an_answer_holds_it_is_malformed_or_can_be_stored_and_sent_again(document: dict[str, Any]) -> None:
    """Reports 13, 16 and 17: odd content must not come to light in a later call only."""
    model = GeminiModel("gemini-3.8-flash", ApiKeyEndpoint("k"))
    try:
        answer = read(HttpReply(200, {}, json.dumps(document).encode()))
    except MalformedReply:
        return
    response = model._response([answer], [model.make_user_content("go")])
    if response.raw_content is not None:
        contents = [model.make_user_content("go"), response.raw_content, model.make_user_content("on")]
        stored = json.loads(json.dumps(model.to_canonical(contents)))
        loaded = model.from_canonical(stored)

        assert body_of(model, loaded) == body_of(model, model.from_canonical(model.to_canonical(loaded)))
        if not response.tool_calls:
            assert body_of(model, loaded) == body_of(model, contents)


def body_of(model: GeminiModel, contents: list[Content]) -> bytes:
    return encode(model._request(contents, "s", [RUN], (), True, 10))


@given(st.binary(max_size=200))
def test_no_body_whatsoever_raises_anything_but_a_model_error(data: bytes) -> None:
    try:
        read(HttpReply(200, {}, data))
    except ModelError:
        return
