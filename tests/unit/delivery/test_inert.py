"""Nothing in a model's text may act: properties against the stand-in, and what must stay readable."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, example, given, settings

from hummingbird_operator.delivery.bodies import Footer, answer
from hummingbird_operator.delivery.inert import MAXIMUM, inert_block, make_inert
from hummingbird_operator.delivery.markers import Marker, parse_all
from hummingbird_operator.delivery.notes import Notes
from tests.standins.gitlab import GitLabStandIn
from tests.standins.gitlab.markdown import extract, mentions
from tests.unit.delivery.texts import ATTACKS, TEXTS

MARKER = Marker("3f0c4b8e-1111-4222-8333-444455556666", wf="review", run="uid-1", key="note-1", state="done")
FOOTER = Footer("gemini", 3, 100, 20, Decimal("0.01"), sha="9f2c" * 10)


def body_of(text: str) -> str:
    return answer(text, footer=FOOTER, marker=MARKER, transcript=text, reply_prompt=True)


def assert_inert(body: str) -> None:
    content, commands = extract(body)
    assert commands == []
    assert content == body.rstrip()
    assert mentions(body) == []
    assert parse_all(body) == [MARKER]
    assert len(body) <= MAXIMUM


@settings(max_examples=400, deadline=None)
@given(TEXTS)
def test_no_text_becomes_a_command_a_mention_or_a_second_marker(text: str) -> None:
    """sources.md §6 rows 8, 9, 21 and §9 row 7."""
    assert_inert(body_of(text))


@pytest.mark.parametrize("text", ATTACKS)
def test_every_known_attack_is_inert_alone_and_after_prose(text: str) -> None:
    assert_inert(body_of(text))
    assert_inert(body_of(f"Some prose\n{text}\nmore"))
    assert_inert(body_of(text.replace("\n", "\n> ")))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TEXTS)
@example("/merge\n/approve")
@example("")
def test_a_note_with_any_text_survives_create_and_update(
    lasting_gitlab: GitLabStandIn, lasting_notes: Notes, text: str
) -> None:
    """sources.md §9 rows 7 and 8: nothing runs, nobody is notified, the note still exists with one marker."""
    note = lasting_notes.create("group/app", 42, body_of(text), internal=False)
    updated = lasting_notes.update("group/app", 42, note.id, body_of(text))
    assert parse_all(updated.body) == [MARKER]
    assert lasting_gitlab.state.executed == []
    assert lasting_gitlab.state.mentions == []
    assert lasting_gitlab.state.destroyed == []
    lasting_notes.delete("group/app", 42, note.id)


@settings(max_examples=300, deadline=None)
@given(TEXTS)
def test_making_inert_twice_is_making_inert_once(text: str) -> None:
    once = make_inert(text)
    assert make_inert(once) == once


def test_a_text_of_more_than_a_million_characters_is_cut_and_says_so(
    lasting_gitlab: GitLabStandIn, lasting_notes: Notes
) -> None:
    """sources.md §6 rows 6 and 7."""
    for text in ("word @alice <b> " * 80_000, "x" * 1_200_000, "```\n" + "/merge\n" * 200_000, "`@alice " * 150_000):
        body = body_of(text)
        assert len(body) <= MAXIMUM
        assert "Cut here: the text has" in body
        note = lasting_notes.create("group/app", 42, body, internal=False)
        assert parse_all(note.body) == [MARKER]
    assert lasting_gitlab.state.mentions == []
    assert lasting_gitlab.state.executed == []


def test_a_cut_never_falls_between_a_letter_and_its_accent() -> None:
    """sources.md §6 row 21."""
    text = "e\u0301" * 400_000
    shown = make_inert(text, limit=10_000).split("\n")[0]
    assert shown.endswith("e\u0301")


@pytest.mark.parametrize("length", [3, 4, 7, 29])
def test_a_fence_is_longer_than_any_run_of_backticks_in_it(length: int) -> None:
    """sources.md §6 row 21."""
    block = inert_block(f"a\n{'`' * length}\nb", limit=5_000)
    assert block.split("\n")[0] == "`" * (length + 1)
    assert block.split("\n")[-1] == "`" * (length + 1)


def test_a_run_of_a_million_backticks_does_not_grow_the_note() -> None:
    assert len(make_inert("~~~\n" + "`" * 1_000_000)) < 200


def test_paths_in_code_are_left_as_they_are() -> None:
    """sources.md §6 row 8: the guard against commands must not damage /usr/bin lines inside fences."""
    text = "```sh\n/usr/bin/make all\nnpm i @types/node\nvector<int> x;\n```"
    assert make_inert(text) == text


def test_a_command_inside_a_fence_gets_one_space_because_older_servers_would_run_it() -> None:
    assert make_inert("````\n```\n/merge\n````").split("\n")[2] == " /merge"


def test_a_slash_in_the_middle_of_a_line_is_no_command_and_stays() -> None:
    """sources.md §6 row 9."""
    assert make_inert("see src/merge and a/approve b") == "see src/merge and a/approve b"


MARKDOWN_THAT_STAYS = [
    "# Title\n\nText with **bold**, *emphasis*, `code`, and [a link](https://example.com/x?y=1#z).",
    "| job | result |\n|-----|--------|\n| `build` | failed<br>twice |",
    "- one\n- two\n  - three\n\n1. a\n2. b",
    "> quoted\n> twice",
    "- [x] done\n- [ ] open",
    "a < b, 3 <4, a <= b, x > y, &amp; and AT&T",
    "mail bob@example.com, see #12, !34, ~bug",
    "`Vec<T>` and `npm i @types/node`",
    "```diff\n-old\n+new\n```",
    "<details><summary>More</summary>\n\ntext\n\n</details>",
]


@pytest.mark.parametrize("text", MARKDOWN_THAT_STAYS)
def test_ordinary_markdown_is_not_touched(text: str) -> None:
    assert make_inert(text) == text


def test_a_fence_in_a_list_moves_to_the_margin_with_its_text_dedented() -> None:
    assert make_inert("1. run\n   ```sh\n   make\n     -j\n   ```\n2. next").split("\n") == [
        "1. run", "", "```sh", "make", "  -j", "```", "", "2. next",
    ]  # fmt: skip


def test_an_unclosed_fence_and_unclosed_details_are_closed() -> None:
    assert make_inert("<details>\n```\ncode").split("\n") == [
        "<details><summary>Details</summary>", "", "```", "code", "```", "", "</details>",
    ]  # fmt: skip


def test_an_end_of_details_that_nothing_opened_cannot_close_ours() -> None:
    assert make_inert("</details>") == "&lt;/details>"


def test_an_image_becomes_a_link_because_rendering_it_would_call_its_address() -> None:
    assert make_inert("![x](https://e.example/?q=secret)") == "[x](https://e.example/?q=secret)"


def test_a_name_gets_an_invisible_character_and_stays_readable() -> None:
    assert make_inert("thanks @alice") == "thanks @\u2060alice"


def test_terminal_escapes_and_hidden_characters_are_gone() -> None:
    text = "\x1b[31mred\x1b[0m \x1b]8;;http://x\x07link\x1b]8;;\x07 a\u202eb\u200bc\x00d\ud800"
    assert make_inert(text) == "red link abcd\ufffd"


def test_no_line_outside_a_fence_begins_with_a_slash() -> None:
    """sources.md §9 row 7."""
    text = make_inert("\n".join(["/a", "text", "/b c", "> /d", "/usr/bin/x", " /e", "\u00a0/f", "\t\u3000/g"]))
    assert not re.search(r"^\s*/", text, re.MULTILINE)
