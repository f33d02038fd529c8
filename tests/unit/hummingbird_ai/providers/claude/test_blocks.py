"""Blocks to and from the canonical form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hummingbird_ai.canonical import Producer, message
from hummingbird_ai.messages import Content
from hummingbird_ai.providers.claude.blocks import load, normalised, result_block, save, to_stored

SYSTEM = {"role": "system", "content": "x", "clear_at": "next_user_message"}
OWN = Producer("anthropic", "vertex", "claude-opus-5-5")
CITED = {
    "type": "text",
    "text": "so it is",
    "citations": [
        {
            "type": "web_search_result_location",
            "url": "https://example.com",
            "title": "A page",
            "encrypted_index": "Eo8B==",
            "cited_text": "so",
        }
    ],
}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [
        {
            "type": "web_search_result",
            "url": "https://example.com",
            "title": "A page",
            "encrypted_content": "Eq==",
            "page_age": None,
        },
        {"type": "web_search_result", "url": "https://example.org", "title": None, "encrypted_content": "Er=="},
    ],
}
TURN: list[dict[str, Any]] = [
    {"type": "thinking", "thinking": "", "signature": "sig-1=="},
    {"type": "redacted_thinking", "data": "EmwK=="},
    {"type": "thinking", "thinking": "hm", "signature": "sig_2-url", "next_year": 1},
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}},
    FOUND,
    CITED,
    {"type": "tool_use", "id": "toolu_1", "name": "run", "input": {"b": 1, "a": [None]}, "caller": {"type": "direct"}},
    {"type": "of_next_year", "data": {"deep": ["x"]}},
]


def conversation() -> list[Content]:
    return [
        {"role": "user", "content": [{"type": "text", "text": "go"}]},
        {
            "role": "assistant",
            "content": [normalised(block) for block in TURN],
            "producer": OWN.to_dict(),
            "request": {"cached_to": 0, "before": [SYSTEM]},
        },
        {"role": "user", "content": [result_block("toolu_1", {"out": 1.5})]},
    ]


@pytest.mark.parametrize("block", TURN, ids=lambda block: str(block["type"]))
def test_every_block_comes_back_with_all_it_had(block: dict[str, Any]) -> None:
    """Reports 20, 21 and 29: one whole list of blocks, with signatures, citations and what nobody knows yet."""
    assert normalised(block) == block
    assert json.dumps(normalised(normalised(block))) == json.dumps(normalised(block))


def test_an_empty_list_of_citations_is_none() -> None:
    assert normalised({"type": "text", "text": "x", "citations": None}) == {"type": "text", "text": "x"}


def test_a_session_of_ones_own_comes_back_byte_for_byte() -> None:
    stored = json.loads(json.dumps(save(conversation())))

    assert json.dumps(load(stored, OWN)) == json.dumps(conversation())


def test_the_stored_form_names_the_producer_and_has_no_provider_s_shape_but_in_opaque_parts() -> None:
    stored = save(conversation())

    assert [part["type"] for part in stored[1]["parts"]] == [
        "thinking", "opaque", "thinking", "opaque", "opaque", "text", "tool_call", "opaque",
    ]  # fmt: skip
    assert stored[1]["producer"] == OWN.to_dict()
    assert stored[2]["parts"] == [{"type": "tool_result", "id": "toolu_1", "name": "run", "result": {"out": 1.5}}]


def test_another_model_gets_words_calls_and_results_but_nothing_it_cannot_read() -> None:
    """Reports 10 and 25: foreign thinking and foreign server blocks are never forwarded."""
    other = Producer("anthropic", "vertex", "claude-sonnet-5-5")

    loaded = load(save(conversation()), other)

    *words, call = loaded[1]["content"]
    assert words == [
        {"type": "text", "text": "Found on the web:\n- A page: https://example.com\n- page: https://example.org"},
        {"type": "text", "text": "so it is"},
    ]
    assert call == {"type": "tool_use", "id": call["id"], "name": "run", "input": {"b": 1, "a": [None]}}
    assert "request" not in loaded[1]
    assert loaded[2]["content"] == [{**conversation()[2]["content"][0], "tool_use_id": call["id"]}]


def test_a_failure_is_marked_as_one() -> None:
    """Report 3: also a call that was not made has a result."""
    assert result_block("t", {"error": "no such file"})["is_error"] is True
    assert "is_error" not in result_block("t", {"exit_code": 1})


def test_a_result_is_json_text_whatever_is_in_it() -> None:
    """Reports 12 and 17: references stay words, and a lone surrogate is replaced."""
    assert result_block("t", {"$ref": "#/x", "s": "\ud83d", "n": float("nan")})["content"] == (
        '{"$ref":"#/x","s":"\ufffd","n":"NaN"}'
    )


def test_a_search_without_hits_or_with_an_error_is_nothing_to_tell_others() -> None:
    nothing: list[Any] = [[], {"type": "web_search_tool_result_error", "error_code": "unavailable"}, None]
    for content in nothing:
        assert to_stored({**FOUND, "content": content}, {})["text"] == ""


def test_blocks_that_are_not_what_their_type_says_are_kept_as_they_are() -> None:
    for block in ({"type": "text"}, {"type": "thinking", "thinking": "no signature"}, {"no": "type"}):
        assert normalised(block) == block


def test_a_turn_of_somebody_else_keeps_its_producer() -> None:
    gemini = {"provider": "google", "transport": "vertex", "model": "gemini-3.8-flash"}
    call = {"type": "tool_call", "id": "functions.a:0", "name": "run", "arguments": {}, "signature": "s"}
    stored = [
        message("user", [{"type": "text", "text": "go"}]),
        message("assistant", [call], gemini),
        message("user", [{"type": "tool_result", "id": "functions.a:0", "name": "run", "result": {}}]),
    ]

    loaded = load(stored, OWN)

    (block,) = loaded[1]["content"]
    assert block == {"type": "tool_use", "id": block["id"], "name": "run", "input": {}}
    assert loaded[2]["content"][0]["tool_use_id"] == block["id"]
    assert loaded[1]["producer"] == gemini
    assert load(save(loaded), OWN) == loaded


def test_a_thought_that_has_lost_its_signature_is_dropped() -> None:
    thought = {"type": "thinking", "text": "hm"}
    stored = [message("user", [{"type": "text", "text": "go"}]), message("assistant", [thought], OWN.to_dict())]

    assert load(stored, OWN)[1]["content"] == []


def test_what_is_loaded_shares_nothing_with_what_was_stored() -> None:
    contents = conversation()
    stored = save(contents)
    loaded = load(stored, OWN)
    loaded[1]["request"]["before"][0]["content"] = "changed"
    stored[1]["extra"]["before"].clear()

    assert contents == conversation()


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda turn: turn["parts"][1].update(data={}), r"messages\[1\]\.parts\[1\]\.data\.type: a block has one"),
        (lambda turn: turn["parts"][1].update(data={"type": "text"}), r"parts\[1\]\.data\.text: Field required"),
        (lambda turn: turn["parts"][3]["data"].pop("id"), r"parts\[3\]\.data\.id: Field required"),
        (lambda turn: turn["parts"][4]["data"].pop("tool_use_id"), r"parts\[4\]\.data\.tool_use_id: Field required"),
        (lambda turn: turn["extra"].update(before="x"), r"messages\[1\]\.extra\.before: Input should be a valid list"),
        (lambda turn: turn["extra"].update(before=[{}]), r"extra\.before\.0: Unable to extract tag"),
        (lambda turn: turn["extra"].update(before=[{"role": "user", "content": "x"}]), r"extra\.before\.0\.user"),
        (lambda turn: turn["extra"].update(before=[SYSTEM, SYSTEM]), r"extra\.before: List should have at most 1"),
        (lambda turn: turn["extra"].update(cached_to="x"), r"extra\.cached_to: Input should be a valid integer"),
    ],
)
def test_a_stored_turn_of_ones_own_that_was_damaged_names_the_place(change: Any, place: str) -> None:
    stored = save(conversation())
    change(stored[1])

    with pytest.raises(ValueError, match=place):
        load(stored, OWN)
