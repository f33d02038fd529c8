"""What `rawPredict` answers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hummingbird_ai.errors import MalformedReply, ModelError, Overloaded
from hummingbird_ai.http import HttpReply
from hummingbird_ai.messages import Finish, Source, Usage
from hummingbird_ai.providers.claude.reply import Pass, finish_of, read, sources_of, text_of


def answer(*blocks: Any, **more: Any) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-opus-5-5",
        "content": list(blocks),
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 10, "output_tokens": 5},
        **more,
    }


def passed(document: Any) -> Pass:
    return read(HttpReply(200, {}, json.dumps(document).encode()))


def text(words: str, *urls: str) -> dict[str, Any]:
    cited = [{"type": "web_search_result_location", "url": url, "title": f"on {url}"} for url in urls]
    return {"type": "text", "text": words} | ({"citations": cited} if cited else {})


def test_usage_is_four_disjoint_counters() -> None:
    """Report 31: cache tokens counted twice, or the rest priced at nothing."""
    usage = {
        "input_tokens": 10,
        "output_tokens": 20,
        "cache_read_input_tokens": 300,
        "cache_creation_input_tokens": 4000,
        "cache_creation": {"ephemeral_5m_input_tokens": 1000, "ephemeral_1h_input_tokens": 3000},
        "output_tokens_details": {"thinking_tokens": 15},
        "server_tool_use": {"web_search_requests": 2, "web_fetch_requests": 0},
        "service_tier": "standard",
    }

    assert passed(answer(usage=usage)).usage == Usage(10, 20, 300, 4000, 4330, 3000, 2)


def test_the_size_of_the_conversation_is_that_of_the_last_look_at_it() -> None:
    looks = [
        {"type": "message", "input_tokens": 100, "output_tokens": 10},
        {"type": "message", "input_tokens": 50, "output_tokens": 20, "cache_read_input_tokens": 100},
        {"type": "compaction", "input_tokens": 9},
        {"type": None, "input_tokens": 9},
    ]
    usage = {"input_tokens": 150, "output_tokens": 30, "cache_read_input_tokens": 100, "iterations": looks}

    found = passed(answer(usage=usage)).usage

    assert found.total_tokens == 280
    assert found.context_tokens == 170


@pytest.mark.parametrize("usage", [None, {}, {"cache_read_input_tokens": None, "cache_creation": None}])
def test_counters_may_be_missing(usage: Any) -> None:
    assert passed(answer(usage=usage)).usage == Usage()


def test_a_refusal_before_the_first_word_is_not_billed_and_a_later_one_is() -> None:
    details = {"category": "cyber", "explanation": "no"}

    early = passed(answer(stop_reason="refusal", stop_details=details))
    late = passed(answer(text("Well"), stop_reason="refusal"))

    assert early.usage == Usage(context_tokens=15)
    assert early.message == "cyber: no"
    assert late.usage.total_tokens == 15


@pytest.mark.parametrize(
    ("reason", "words", "calls", "finish"),
    [
        ("end_turn", "x", 0, Finish.STOP),
        ("end_turn", " ", 0, Finish.EMPTY),
        ("end_turn", "", 1, Finish.TOOL_CALLS),
        ("stop_sequence", "x", 0, Finish.STOP),
        ("tool_use", "", 2, Finish.TOOL_CALLS),
        ("tool_use", "", 0, Finish.EMPTY),
        ("max_tokens", "x", 1, Finish.MAX_TOKENS),
        ("pause_turn", "x", 0, Finish.MAX_TOKENS),
        ("model_context_window_exceeded", "x", 0, Finish.MAX_TOKENS),
        ("refusal", "x", 0, Finish.REFUSED),
        ("of_next_year", "x", 0, Finish.UNKNOWN),
        ("", "x", 0, Finish.UNKNOWN),
    ],
)
def test_every_stop_reason_has_its_class(reason: str, words: str, calls: int, finish: Finish) -> None:
    assert finish_of(reason, text=words, calls=calls) is finish


def test_words_that_a_search_came_between_stand_apart_and_cited_ones_together() -> None:
    found = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}

    assert text_of([text("I look."), found, text("It is "), text("so", "u"), text(".")]) == "I look.\n\nIt is so."
    assert text_of([found, text("So."), found]) == "So."
    assert text_of([text("a"), found, text(" "), text("b")]) == "a b"


def test_sources_are_named_once_in_their_order() -> None:
    blocks = [text("a", "https://b.example", "https://a.example"), text("b", "https://b.example")]
    blocks.append(
        {"type": "text", "text": "c", "citations": [{"type": "page"}, "strange", {"url": "https://c.example"}]}
    )

    assert sources_of(blocks) == (
        Source("https://b.example", "on https://b.example"),
        Source("https://a.example", "on https://a.example"),
        Source("https://c.example"),
    )


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not JSON"),
        (b"<html>bad gateway</html>", "not JSON.*<html>"),
        (b'{"content": [{"type": "te', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not an answer of Claude"),
        (b'{"id": "msg"}', r"not an answer of Claude \(content: Field required\)"),
        (b'{"content": [1]}', "content.0"),
        (b'{"content": [], "usage": {"input_tokens": -1}}', "usage.input_tokens"),
        (b'{"content": [{"text": "x"}]}', "type: a block has one"),
        (b'{"content": [{"type": "tool_result"}]}', "type: a model writes no tool_result"),
        (b'{"content": [{"type": "text"}]}', "text: Field required"),
        (b'{"content": [{"type": "text", "text": null}]}', "text: Input should be a valid string"),
        (b'{"content": [{"type": "text", "text": "x", "citations": 5}]}', "citations: Input should be a valid list"),
        (b'{"content": [{"type": "thinking", "thinking": "x", "signature": null}]}', "signature: Input should"),
        (b'{"content": [{"type": "redacted_thinking"}]}', "data: Field required"),
        (b'{"content": [{"type": "server_tool_use", "id": []}]}', "id: Input should be a valid string"),
        (b'{"content": [{"type": "web_search_tool_result", "content": []}]}', "tool_use_id: Field required"),
        (b'{"content": [{"type": "web_search_tool_result", "tool_use_id": "s", "content": null}]}', "content"),
        (b'{"content": [{"type": "x", "x": ' + b"[" * 900 + b"]" * 900 + b"}]}", "too deeply"),
    ],
)
def test_what_is_no_answer_is_retried_and_shown(body: bytes, words: str) -> None:
    """Report 37: a 200 with half a body or a proxy's page."""
    with pytest.raises(MalformedReply, match=words) as raised:
        read(HttpReply(200, {}, body))
    assert len(str(raised.value)) < 900


def test_an_error_that_comes_with_a_200_is_that_error() -> None:
    with pytest.raises(Overloaded):
        passed({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}})


keys = st.sampled_from(["content", "type", "usage", "stop_reason", "text", "iterations", "error"])
documents = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner) | st.dictionaries(keys, inner),
    max_leaves=12,
)


@given(documents)
def test_nothing_that_a_server_may_say_breaks_the_reader(document: Any) -> None:
    try:
        found = passed(document)
    except ModelError:
        return
    assert found.usage.total_tokens >= 0
