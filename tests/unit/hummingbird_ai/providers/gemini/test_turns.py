"""The order of contents that goes out, whatever a program has put into its history."""

from __future__ import annotations

import copy
import json
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hummingbird_ai.canonical import NO_RESULT
from hummingbird_ai.errors import BadRequest
from hummingbird_ai.messages import Content
from hummingbird_ai.providers.gemini.turns import in_order
from hummingbird_ai.testing.gemini.rules import PLACEHOLDER_SIGNATURE, refusal

GO: Content = {"role": "user", "parts": [{"text": "go"}]}
WORD: Content = {"role": "user", "parts": [{"text": "Continue."}]}
OPENING: Content = {"role": "user", "parts": [{"text": "(the start of this conversation was not kept)"}]}


def asking(*calls: tuple[str, str]) -> Content:
    """A model turn with these calls: name, and id or none."""
    mark = {"thoughtSignature": PLACEHOLDER_SIGNATURE}
    return {
        "role": "model",
        "parts": [
            {"functionCall": ({"id": number} if number else {}) | {"name": name, "args": {}}} | ({} if index else mark)
            for index, (name, number) in enumerate(calls)
        ],
    }


def response(name: str, number: str, said: Any = 1) -> dict[str, Any]:
    return {"functionResponse": ({"id": number} if number else {}) | {"name": name, "response": {"out": said}}}


def lost(name: str, number: str) -> dict[str, Any]:
    return {"functionResponse": {**response(name, number)["functionResponse"], "response": NO_RESULT}}


def user(*parts: dict[str, Any]) -> Content:
    return {"role": "user", "parts": list(parts)}


def answer(text: str = "so") -> Content:
    return {"role": "model", "parts": [{"text": text}]}


def test_a_history_in_order_is_sent_as_it_is() -> None:
    turns = [GO, asking(("run", "a")), user(response("run", "a")), GO, answer(), GO, GO]

    assert in_order(turns) == turns


def test_a_call_that_nobody_answered_gets_a_response_that_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """Section 1.3: without one, this and every later request is refused. It is logged while it is the newest."""
    caplog.set_level(logging.WARNING)
    open_, middle = asking(("run", "a"), ("read", "")), asking(("run", "b"))

    assert in_order([GO, middle, GO, open_]) == [
        *(GO, middle, user(lost("run", "b")), GO),
        *(open_, user(lost("run", "a"), lost("read", ""))),
    ]
    assert in_order([GO, middle, answer()]) == [GO, middle, user(lost("run", "b")), answer(), WORD]
    told = [record.getMessage() for record in caplog.records]
    assert told == [f"the call of {name} got no result: the model is told so" for name in ("run", "read")]


def test_of_several_calls_the_answered_ones_keep_their_results() -> None:
    turns = [GO, asking(("run", "a"), ("run", "b")), user(response("run", "b", 2))]

    assert in_order(turns)[2] == user(lost("run", "a"), response("run", "b", 2))


@pytest.mark.parametrize("ids", [("a", "b"), ("", "")])
def test_results_in_two_contents_and_any_order_stand_in_one_in_the_order_of_the_calls(ids: tuple[str, str]) -> None:
    """Reports 1, 2 and 4."""
    calls = asking(("run", ids[0]), ("read", ids[1]))
    one, two = response("run", ids[0], "one"), response("read", ids[1], "two")

    for turns in ([user(two), user(one)], [user(one, two)], [user(two, one)]):
        assert in_order([GO, calls, *turns])[2:] == [user(one, two)]


def test_words_before_or_among_the_results_follow_them() -> None:
    """Beside a response, Gemini would take them for words of its own."""
    word, last = {"text": "before"}, {"text": "among"}
    calls = asking(("run", "a"), ("run", "b"))
    turns = [user(word), user(response("run", "b"), last, response("run", "a")), GO]

    assert in_order([GO, calls, *turns])[2:] == [
        user(response("run", "a"), response("run", "b")),
        *(user(word), user(last), GO),
    ]


def test_calls_of_one_name_without_ids_are_answered_in_their_order() -> None:
    calls = asking(("run", ""), ("run", ""))
    given_ = user(response("run", "", 1), response("run", "", 2))

    assert in_order([GO, calls, given_])[2] == given_


@pytest.mark.parametrize(
    "turns",
    [
        [GO, user(response("run", "a"))],
        [user(response("run", "a")), GO],
        [GO, answer(), user(response("run", "a"))],
        [GO, asking(("run", "a")), user(response("run", "a"), response("run", "a"))],
        [GO, asking(("run", "a")), user(response("run", "a")), user(response("run", "a"))],
        [GO, asking(("run", "a")), user(response("run", "a")), answer(), user(response("run", "a"))],
        [GO, asking(("run", "a")), user(response("run", "b"))],
        [GO, asking(("run", "a")), user(response("run", ""))],
        [GO, asking(("run", "")), user(response("run", "a"))],
        [GO, asking(("read", "")), user(response("run", ""))],
    ],
)
def test_a_result_that_no_call_right_before_it_asks_for_is_named(turns: list[Content]) -> None:
    with pytest.raises(BadRequest, match="there is a result of run that no call right before it asks for"):
        in_order(turns)


def test_between_two_turns_of_the_model_and_behind_the_last_one_stands_a_word() -> None:
    assert in_order([GO, answer("a"), answer("b")]) == [GO, answer("a"), WORD, answer("b"), WORD]
    assert in_order([answer()]) == [OPENING, answer(), WORD]


calls = st.lists(st.tuples(st.sampled_from(["run", "read"]), st.sampled_from(["", "a", "b", "c"])), max_size=3).map(
    lambda drawn: drawn if len({number for _, number in drawn if number}) == sum(bool(n) for _, n in drawn) else []
)


@st.composite
def histories(draw: st.DrawFn) -> list[Content]:
    """Model turns whose results come in any order and number of contents, with words among them, or not at all."""
    turns: list[Content] = [GO]
    for asked in draw(st.lists(calls, max_size=4)):
        turns.append(asking(*asked) if asked else answer())
        kept = [one for one in asked if draw(st.booleans())]
        parts = [response(*one) for one in kept] + [{"text": "x"}] * draw(st.integers(0, 2))
        parts = draw(st.permutations(parts))
        cut = draw(st.integers(0, len(parts)))
        turns += [user(*some) for some in (parts[:cut], parts[cut:]) if some]
    return turns


@given(histories(), st.data())
def test_gemini_takes_what_any_history_becomes_and_a_longer_one_begins_with_the_same_bytes(
    turns: list[Content], data: st.DataObject
) -> None:
    before = copy.deepcopy(turns)
    ordered = in_order(turns)

    assert refusal({"contents": ordered}, model="gemini-3.8-flash", vertex=True) is None
    assert in_order(ordered) == ordered
    assert turns == before
    cuts = [index for index, turn in enumerate(turns) if turn["role"] == "model"]
    beginning = in_order(turns[: data.draw(st.sampled_from([*cuts, len(turns)]))])
    assert json.dumps(ordered[: len(beginning)]) == json.dumps(beginning)


def test_before_a_first_turn_of_the_model_stands_a_word_that_says_so() -> None:
    """Gemini wants the user to begin; a program that cuts its history may leave a model's turn in front."""
    assert in_order([asking(("run", "a")), user(response("run", "a"))]) == [
        *(OPENING, asking(("run", "a")), user(response("run", "a"))),
    ]
