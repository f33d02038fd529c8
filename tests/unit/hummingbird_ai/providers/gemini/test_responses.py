from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hummingbird_ai.errors import MalformedReply, ModelError, Overloaded, RateLimited
from hummingbird_ai.http import HttpReply
from hummingbird_ai.messages import Finish, ModelResponse, ToolDef, Usage
from hummingbird_ai.models import build_model
from hummingbird_ai.providers.gemini.adapter import MAX_PASSES
from hummingbird_ai.providers.gemini.reply import read
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


@pytest.mark.parametrize(
    ("answer", "finish"),
    [
        (Answer(block_reason="PROHIBITED_CONTENT"), Finish.REFUSED),
        (Answer(finish="SAFETY", text="partial"), Finish.REFUSED),
        (Answer(finish="RECITATION"), Finish.REFUSED),
        (Answer(finish="MODEL_ARMOR"), Finish.REFUSED),
        (Answer(finish="MALFORMED_FUNCTION_CALL"), Finish.MALFORMED),
        (Answer(finish="UNEXPECTED_TOOL_CALL", calls=(("run", {}),)), Finish.MALFORMED),
        (Answer(finish="TOO_MANY_TOOL_CALLS"), Finish.MALFORMED),
        (Answer(finish="MISSING_THOUGHT_SIGNATURE"), Finish.MALFORMED),
        (Answer(parts=({"functionCall": {"args": {}}},)), Finish.MALFORMED),
        (Answer(finish="MAX_TOKENS", text="cut"), Finish.MAX_TOKENS),
        (Answer(finish="CONTINUATION", text="cut"), Finish.MAX_TOKENS),
        (Answer(finish="A_WORD_OF_NEXT_YEAR", text="t"), Finish.UNKNOWN),
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
    """Row 16 and section 1.4: no content, `{}` or an unknown word is never a crash, and usage is counted."""
    response = answered(answer)

    assert response.finish is finish
    assert response.usage.input_tokens > 0
    if finish in (Finish.REFUSED, Finish.MALFORMED, Finish.EMPTY):
        assert not response.usable
        assert response.raw_content is None


def test_a_response_without_candidates_is_classified_as_refused_with_the_reason() -> None:
    assert answered(Answer(block_reason="SAFETY")).finish_reason == "blocked: SAFETY"


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
    """Row 31: one normal form of four disjoint counters."""
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
    """Row 27: capped exactly."""
    asked: list[int] = []

    def script(body: dict[str, Any], n: int) -> Answer:
        asked.append(n)
        return Answer(text="x", finish="CONTINUATION", continuation_token="again")

    response = answered(script)

    assert len(asked) == MAX_PASSES
    assert response.finish is Finish.MAX_TOKENS
    assert response.text == "x" * MAX_PASSES


def test_the_paid_passes_of_a_split_answer_that_fails_are_not_lost() -> None:
    answers: list[Reply] = [Answer(text="a", finish="CONTINUATION", continuation_token="t"), HttpError(503)]

    with pytest.raises(Overloaded) as caught:
        answered(lambda body, n: answers[n])

    assert caught.value.billed is not None
    assert caught.value.billed.usage.input_tokens > 0
    assert caught.value.billed.cost_usd is not None


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
        (Body(b"[" * 100_000), "not JSON"),
        (Body(b'{"candidates": [' + b"9" * 5000 + b"]}"), "not JSON"),
    ],
)
def test_a_200_that_is_no_answer_is_malformed_and_retryable(reply: Body, problem: str) -> None:
    """Row 37: a proxy's page, a truncated body, an empty one."""
    with pytest.raises(MalformedReply, match=problem) as caught:
        answered(reply)

    assert caught.value.retryable
    assert len(str(caught.value)) < 800


def test_half_a_body_is_a_transport_failure() -> None:
    """Row 37."""
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


@given(st.binary(max_size=200))
def test_no_body_whatsoever_raises_anything_but_a_model_error(data: bytes) -> None:
    try:
        read(HttpReply(200, {}, data))
    except ModelError:
        return
