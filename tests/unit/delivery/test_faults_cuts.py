"""Reports of texts that were cut inside a letter (S21 of docs/faults.md): at whatever place the room ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hummingbird_operator.delivery.cleaning import cut, ending
from hummingbird_operator.delivery.inert import inert_block, make_inert

LETTERS = {
    "accent": "e\u0301",
    "two accents": "a\u0323\u0302",
    "four bytes": "\U0001f389",
    "skin": "\U0001f44d\U0001f3fd",
    "family": "\U0001f469\u200d\U0001f469\u200d\U0001f467",
    "heart": "\u2764\ufe0f",
    "key": "3\ufe0f\u20e3",
    "flag": "\U0001f1e9\U0001f1ea",
    "vowel sign": "\u0915\u093f",
}


@pytest.mark.parametrize("letter", LETTERS.values(), ids=LETTERS)
@pytest.mark.parametrize("before", ["", "x", "xy"])
def test_wherever_the_room_ends_the_last_letter_is_whole(letter: str, before: str) -> None:
    text = before + letter * 20
    for room in range(len(text) + 2):
        shown = cut(text, room)
        assert text.startswith(shown)
        assert room - len(letter) < len(shown) or len(shown) == len(text)
        assert len(shown) <= room
        rest = shown.removeprefix(before) if len(shown) > len(before) else ""
        assert rest == letter * (len(rest) // len(letter))


@pytest.mark.parametrize("letter", LETTERS.values(), ids=LETTERS)
def test_a_note_that_is_cut_ends_with_a_whole_letter_too(letter: str) -> None:
    for offset in range(len(letter) + 1):
        shown = make_inert("x" * offset + letter * 20_000, limit=3_000).split("\n")[0]
        letters = shown.lstrip("x")
        assert letters
        assert letters == letter * (len(letters) // len(letter))


@pytest.mark.parametrize("letter", LETTERS.values(), ids=LETTERS)
def test_where_the_middle_is_left_out_the_rest_begins_with_a_whole_letter_too(letter: str) -> None:
    for offset in range(len(letter) + 1):
        block = inert_block(letter * 4_000 + "x" * offset, limit=2_500)
        assert "characters left out" in block
        for letters in (line.strip("x") for line in block.split("\n") if letter in line):
            assert letters == letter * (len(letters) // len(letter))
    for room in range(2 * len(letter)):
        assert ending(letter * 5, room) == letter * (room // len(letter))


@given(st.text(), st.integers(-2, 60))
def test_a_cut_text_is_a_beginning_or_an_ending_within_its_room(text: str, room: int) -> None:
    assert text.endswith(ending(text, room))
    assert len(ending(text, room)) <= max(0, room)
    assert text.startswith(cut(text, room))
    assert len(cut(text, room)) <= max(0, room)


@pytest.mark.parametrize("characters", ["\u0301", "\u200d", "\U0001f1e9"])
def test_a_text_that_is_no_letters_at_all_is_cut_where_the_room_ends(characters: str) -> None:
    assert 9_998 <= len(cut(characters * 1_000_000, 9_999)) <= 9_999
