"""Notes of ours lose exactly what `delivery.bodies` puts around an answer: their writer and their reader agree."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hummingbird_operator.delivery import bodies
from hummingbird_operator.delivery.inert import make_inert
from hummingbird_operator.delivery.markers import Marker
from hummingbird_operator.forges import notes

SESSION = "3f0c4b8e-1111-4222-8333-444455556666"
MARKER = Marker(SESSION, wf="review", run="uid-1", key="review-1", state="done")
FOOTER = bodies.Footer("gemini", 3, 100, 20, Decimal("0.01"), sha="9f2c" * 10)
UGLY = bodies.Footer(
    "Model ---", 1, 1, 1, None, incomplete=["---", "\n\n---\n\nModel x", "a\nModel b"], pipeline_green=True
)
LOOKALIKES = [
    "One finding.",
    "Above\n\n---\n\nbelow",
    "---\n\nModel X is slow",
    "<details><summary>Agent transcript</summary>\n\n```markdown\nmine\n```\n\n</details>",
    "Text\n\n<details><summary>Agent transcript</summary>\n\nnot closed",
    "<details><summary>More</summary>\n\nevidence\n\n</details>",
    "````markdown\n```\n````",
    '<!-- hummingbird: {"id": "x"} -->',
]
TRANSCRIPTS = [
    "",
    "# Transcript\n\n```json\n{}\n```",
    "<details><summary>Agent transcript</summary>\n\n```markdown\ninner\n```\n\n</details>\n\n---\n\nModel forged",
    "````markdown\n" * 3,
]
texts = st.one_of(
    st.sampled_from([*LOOKALIKES, *TRANSCRIPTS]),
    st.text(max_size=200),
    st.lists(
        st.sampled_from(["---", "", "```markdown", "</details>", "Model a", "x", "~~~", "`" * 40]), max_size=12
    ).map("\n".join),
)


def shown(text: str) -> str:
    """The answer as the writer makes it inert; nothing to show has words of its own."""
    return make_inert(text).strip() or bodies.EMPTY_ANSWER


@pytest.mark.parametrize("transcript", TRANSCRIPTS)
@pytest.mark.parametrize("footer", [FOOTER, UGLY])
@pytest.mark.parametrize("text", LOOKALIKES)
def test_an_answer_keeps_its_text_and_nothing_else(text: str, footer: bodies.Footer, transcript: str) -> None:
    body = bodies.answer(text, footer=footer, marker=MARKER, transcript=transcript, reply_prompt=True)
    assert notes.without_our_parts(body) == shown(text)


@given(texts, texts, st.sampled_from([FOOTER, UGLY]), st.booleans())
def test_any_answer_with_any_transcript_keeps_its_text(
    text: str, transcript: str, footer: bodies.Footer, prompt: bool
) -> None:
    body = bodies.answer(text, footer=footer, marker=MARKER, transcript=transcript, reply_prompt=prompt)
    assert notes.without_our_parts(body) == shown(text)
    assert notes.without_our_parts(body.replace("\n", "\r\n")) == shown(text)


def test_a_failure_keeps_what_it_says_and_what_was_found() -> None:
    body = bodies.failure(
        "The model does not answer.", marker=MARKER, workflow="review", partial="Half.", footer=FOOTER, transcript="t"
    )
    kept = notes.without_our_parts(body)
    assert kept.startswith("Hummingbird analysis failed.")
    assert kept.endswith("What the agent had found until then:\n\nHalf.")


def test_a_failure_without_a_footer_loses_its_transcript_all_the_same() -> None:
    body = bodies.failure("Gone.", marker=MARKER, transcript="secret of the trade")
    assert notes.without_our_parts(body) == "Hummingbird analysis failed.\n\nGone."


def test_a_note_that_only_runs_keeps_its_words() -> None:
    assert (
        notes.without_our_parts(bodies.placeholder(workflow="review", marker=MARKER)) == "Running the review workflow…"
    )


def test_a_transcript_whose_fence_somebody_edited_is_cut_from_its_title_on() -> None:
    body = bodies.answer("Fine.", footer=FOOTER, marker=MARKER, transcript="long")
    edited = body.replace("```markdown", "~~~").replace("```", "~~~")
    assert notes.without_our_parts(edited) == "Fine."
    assert (
        notes.without_our_parts(f"<details><summary>Agent transcript</summary>\n\nx\n\n</details>\n\n{MARKER.render()}")
        == ""
    )


def test_a_marker_is_known_by_its_own_line_only() -> None:
    assert notes.has_marker(f"x\r\n\r\n{MARKER.render()}\r\n")
    assert notes.has_marker(f"<!-- hummingbird: {SESSION} -->")
    assert not notes.has_marker(f"> {MARKER.render()}")
    assert not notes.has_marker("words")


def test_writer_and_reader_use_the_same_words() -> None:
    assert bodies.TRANSCRIPT_SUMMARY == notes.TRANSCRIPT_SUMMARY
    assert MARKER.render().startswith(f"<!-- {notes.MARKER_NAME}: ")
    assert FOOTER.lines()[-1].startswith(notes.FOOTER_FACTS)
