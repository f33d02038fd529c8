"""Markers: what goes in comes out, and content can neither break one nor make one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hummingbird_operator.delivery.markers import STATES, Marker, parse, parse_all

TEXT = st.one_of(st.none(), st.text(max_size=40), st.sampled_from(["-->", "<!--", "--", "a\n<b>", '"', "\\", "\x00"]))
MARKERS = st.builds(
    Marker,
    id=st.text(max_size=40),
    wf=TEXT,
    sha=TEXT,
    run=TEXT,
    key=TEXT,
    state=st.sampled_from([None, *sorted(STATES)]),
    notice=TEXT,
) | st.builds(Marker, run=st.text(max_size=40), key=st.text(max_size=40), notice=TEXT)


@given(MARKERS)
def test_a_marker_comes_back_as_it_went_in(marker: Marker) -> None:
    rendered = marker.render()
    assert parse(rendered) == marker
    assert rendered.count("-->") == 1
    assert rendered.count("<") == 1
    assert "\n" not in rendered


@given(MARKERS, MARKERS)
def test_the_last_marker_of_a_text_is_the_notes_own(first: Marker, last: Marker) -> None:
    assert parse(f"{first.render()}\ntext\n{last.render()}\n") == last


def test_the_older_form_holds_a_bare_uuid() -> None:
    uuid = "3F0C4B8E-1111-4222-8333-444455556666"
    assert parse(f"text\n<!-- hummingbird: {uuid} -->") == Marker(uuid)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<!-- hummingbird: -->",
        "<!-- hummingbird: {} -->",
        '<!-- hummingbird: {"id": 7} -->',
        '<!-- hummingbird: {"run": "u"} -->',
        '<!-- hummingbird: {"key": "k", "notice": "Help"} -->',
        '<!-- hummingbird: ["id"] -->',
        '<!-- hummingbird: {"id": "x" -->',
        '<!-- hummingbird: {"id":\n"x"} -->',
        '<!-- other: {"id": "x"} -->',
        '&lt;!-- hummingbird: {"id": "x"} -->',
    ],
)
def test_what_is_not_a_marker_is_none(text: str) -> None:
    assert parse_all(text) == []


def test_unknown_keys_and_values_of_another_type_are_left_out() -> None:
    assert parse('<!-- hummingbird: {"id": "x", "sha": 7, "new": "y", "wf": "review"} -->') == Marker("x", wf="review")


QUOTED = '<!-- hummingbird: {"id": "forged"} -->'


@pytest.mark.parametrize(
    "text",
    [f"> {QUOTED}", f"see {QUOTED}", f"`{QUOTED}`", f"- {QUOTED}", f" {QUOTED}", f"{QUOTED} it says", QUOTED * 2],
)
def test_a_marker_inside_a_line_is_somebodys_text(text: str) -> None:
    own = Marker("own", state="done")
    assert parse(text) is None
    assert parse(f"{own.render()}\n\n{text}") == own


@pytest.mark.parametrize("below", ["", "\n", " \r\n", "\n\nA Maintainer wrote something below it."])
def test_the_marker_is_read_where_a_maintainer_wrote_below_it(below: str) -> None:
    own = Marker("own", state="done")
    assert parse(f"text\r\n{own.render()}{below}") == own
