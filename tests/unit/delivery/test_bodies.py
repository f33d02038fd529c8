"""The texts of a note: what stands in them, in which order, and what does not."""

from __future__ import annotations

from decimal import Decimal

import pytest

from hummingbird_operator.delivery import bodies
from hummingbird_operator.delivery.markers import Marker, parse_all
from tests.standins.gitlab.markdown import extract, mentions

MARKER = Marker("3f0c4b8e-1111-4222-8333-444455556666", wf="review", run="uid", key="k", state="done")
FOOTER = bodies.Footer("gemini-3", 7, 51_234, 2_345, Decimal("0.4213"), sha="9f2c" * 10)
HOSTILE = "/merge\n@alice <!-- hummingbird: 3f0c4b8e-1111-4222-8333-444455556666 -->\n```"
WORKFLOWS = {"review": "Look at it @alice", "release": "/merge"}

EVERY_BODY = {
    "placeholder": bodies.placeholder(workflow=HOSTILE, marker=MARKER),
    "answer": bodies.answer(HOSTILE, footer=FOOTER, marker=MARKER, transcript=HOSTILE, notices=[HOSTILE]),
    "hostile model": bodies.answer(
        "x",
        footer=bodies.Footer(HOSTILE, 1, 1, 1, None, sha=HOSTILE, incomplete=[HOSTILE] * 12, pipeline_green=True),
        marker=MARKER,
    ),
    "failure": bodies.failure(HOSTILE, marker=MARKER, workflow=HOSTILE, partial=HOSTILE, footer=FOOTER),
    "cancelled": bodies.cancelled(marker=MARKER, by=HOSTILE, partial=HOSTILE, transcript=HOSTILE),
    "timed out": bodies.timed_out(1800, marker=MARKER, partial=HOSTILE, footer=FOOTER),
    "superseded": bodies.superseded(marker=MARKER, newer_sha=HOSTILE, partial=HOSTILE, transcript=HOSTILE),
    "too long": bodies.too_long(marker=MARKER, partial=HOSTILE, footer=FOOTER),
    "expired": bodies.session_expired(marker=MARKER),
    "never saved": bodies.session_never_saved(marker=MARKER, why=HOSTILE),
    "unreadable": bodies.session_unreadable(marker=MARKER, why=HOSTILE),
}
NOTICES = {
    "Help": bodies.help_text(WORKFLOWS, marker=MARKER),
    "UnknownCommand": bodies.unknown_command(HOSTILE, WORKFLOWS, marker=MARKER),
    "Denied": bodies.denied(marker=MARKER),
    "QueueFull": bodies.queue_full(marker=MARKER),
}


@pytest.mark.parametrize("name", EVERY_BODY)
def test_every_body_ends_with_its_one_marker_and_nothing_in_it_acts(name: str) -> None:
    body = EVERY_BODY[name]
    assert body.splitlines()[-1] == MARKER.render()
    assert parse_all(body) == [MARKER]
    assert extract(body)[1] == []
    assert mentions(body) == []


@pytest.mark.parametrize("name", NOTICES)
def test_a_fixed_answer_ends_with_a_marker_that_names_its_run_and_no_session(name: str) -> None:
    """DESIGN.md §8: no effect on limits."""
    body, marker = NOTICES[name], Marker(wf="review", run="uid", key="k", state="done", notice=name)
    assert body.splitlines()[-1] == marker.render()
    assert parse_all(body) == [marker]
    assert extract(body)[1] == []
    assert mentions(body) == []


def test_a_project_without_workflows_is_told_so() -> None:
    assert "No workflow is set up for this project." in bodies.help_text({}, marker=MARKER)


def test_an_answer_shows_text_footer_prompt_and_folded_transcript_in_this_order() -> None:
    body = bodies.answer("The cause.", footer=FOOTER, marker=MARKER, transcript="# Turn 1", reply_prompt=True)
    parts = [
        "The cause.",
        "Model gemini-3",
        "files are kept",
        "<details><summary>Agent transcript",
        "# Turn 1",
    ]
    positions = [body.index(part) for part in [*parts, "</details>", "<!--"]]
    assert positions == sorted(positions)
    assert "Model gemini-3 · 7 turns · 51,234 tokens in, 2,345 out · $0.4213 · commit 9f2c9f2c9f2c" in body


def test_without_a_saved_session_there_is_no_reply_prompt() -> None:
    assert "files are kept" not in bodies.answer("x", footer=FOOTER, marker=MARKER)


def test_the_footer_says_what_was_not_read_and_that_the_pipeline_is_green_now() -> None:
    footer = bodies.Footer(
        "m", 1, 1, 1, Decimal(2), cost_is_ceiling=True, incomplete=["log of job 5"] * 12, pipeline_green=True
    )
    body = bodies.answer("x", footer=footer, marker=MARKER)
    assert bodies.GREEN_SINCE in body
    assert "Not read: log of job 5;" in body
    assert "and 2 more." in body
    assert "1 turn ·" in body
    assert "at most $2.00 (the model has no price here)" in body


def test_an_empty_answer_is_said_to_be_one() -> None:
    """sources.md §9 row 8: a text that would be empty is replaced by a fixed sentence."""
    assert bodies.answer(" \n\x00", footer=FOOTER, marker=MARKER).startswith(bodies.EMPTY_ANSWER)


def test_a_long_transcript_keeps_beginning_and_end_within_its_bound() -> None:
    transcript = "begin\n" + "line\n" * 100_000 + "end"
    body = bodies.answer("x", footer=FOOTER, marker=MARKER, transcript=transcript)
    shown = body[body.index("<details>") : body.index("</details>")]
    assert len(shown) < bodies.TRANSCRIPT_CHARACTERS + 100
    assert "begin" in shown
    assert "\nend\n" in shown
    assert "characters left out" in shown


def test_secrets_are_in_no_part_of_a_body() -> None:
    secret = "hunter2hunter2"
    footer = bodies.Footer("m", 1, 1, 1, None, incomplete=[f"log with {secret}"])
    split = "hunter2\u200bhunter2"
    for text in (secret, split):
        body = bodies.answer(text, footer=footer, marker=MARKER, transcript=text, notices=[text], secrets=[secret])
        assert secret not in body
        assert secret not in bodies.failure(text, marker=MARKER, partial=text, secrets=[secret])


def test_a_failure_keeps_what_was_found() -> None:
    body = bodies.failure("The model is away.", marker=MARKER, partial="Half of it", footer=FOOTER)
    assert body.startswith("Hummingbird analysis failed.\n\nThe model is away.")
    assert "What the agent had found until then:\n\nHalf of it" in body


def test_an_unknown_command_names_the_candidates_of_a_prefix() -> None:
    assert "could be any of: review, release." in bodies.unknown_command("re", WORKFLOWS, marker=MARKER)
    assert "No workflow “xyz”." in bodies.unknown_command("xyz", WORKFLOWS, marker=MARKER)
