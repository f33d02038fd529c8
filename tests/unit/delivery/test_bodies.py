"""The texts of a note: what stands in them, in which order, and what does not."""

from __future__ import annotations

from decimal import Decimal

import pytest

from hummingbird_operator.delivery import bodies
from hummingbird_operator.delivery.markers import Marker, parse_all

MARKER = Marker("3f0c4b8e-1111-4222-8333-444455556666", wf="review", run="uid", key="k", state="done")
FOOTER = bodies.Footer("gemini-3", 7, 51_234, 2_345, Decimal("0.4213"), sha="9f2c" * 10)
WORKFLOWS = {"review": "Look at it", "release": "Publish it"}


def test_a_project_without_workflows_is_told_so() -> None:
    assert "No workflow is set up for this project: ask" in bodies.help_text({}, marker=MARKER)


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
    assert "To start a new run" not in body
    assert body.startswith("Hummingbird analysis failed.\n\nThe model is away.")
    assert "What the agent had found until then:\n\nHalf of it" in body


def test_an_unknown_command_names_the_candidates_of_a_prefix() -> None:
    assert "could be any of: review, release." in bodies.unknown_command("re", WORKFLOWS, marker=MARKER)
    assert "No workflow “xyz”." in bodies.unknown_command("xyz", WORKFLOWS, marker=MARKER)


WITHOUT_AN_ANSWER = {
    "failure": bodies.failure("x", marker=MARKER, workflow="review"),
    "cancelled": bodies.cancelled(marker=MARKER),
    "timed out": bodies.timed_out(1, marker=MARKER),
    "superseded": bodies.superseded(marker=MARKER),
    "expired": bodies.session_expired(marker=MARKER),
    "never saved": bodies.session_never_saved(marker=MARKER, why="The store was away."),
    "unreadable": bodies.session_unreadable(marker=MARKER, why="context.json: not JSON"),
}


@pytest.mark.parametrize("name", WITHOUT_AN_ANSWER)
def test_every_end_without_an_answer_says_how_to_begin_anew(name: str) -> None:
    assert "write `/hummingbird review` as the first line of a new comment." in WITHOUT_AN_ANSWER[name]


def test_who_does_not_know_the_workflow_is_told_to_name_one() -> None:
    assert "`/hummingbird` and a workflow's name as the first line" in bodies.session_expired(marker=Marker("id"))


def test_the_ends_of_a_session_have_each_their_own_words() -> None:
    """Issue 6: an expired, never saved or broken session is answered, each in its own words."""
    texts = [WITHOUT_AN_ANSWER[name] for name in ("expired", "never saved", "unreadable")]
    assert ["not kept any more" in text for text in texts] == [True, False, False]
    assert ["was never saved" in text for text in texts] == [False, True, False]
    assert ["cannot be read back" in text for text in texts] == [False, False, True]
    assert "What is known of it: The store was away." in texts[1]
    assert "What is known of it: context.json: not JSON" in texts[2]


def test_the_reasons_of_a_lost_session_hold_no_secret() -> None:
    for body in (bodies.session_never_saved, bodies.session_unreadable):
        assert "hunter2hunter2" not in body(marker=MARKER, why="at hunter2hunter2", secrets=["hunter2hunter2"])


def test_a_superseded_run_keeps_what_was_found() -> None:
    body = bodies.superseded(
        marker=MARKER, newer_sha="4be1" * 10, partial="Half of it", footer=FOOTER, transcript="# Turn 1"
    )
    assert body.startswith("Superseded: the merge request has a newer commit (4be14be14be1), so this run was stopped.")
    assert "What the agent had found until then:\n\nHalf of it\n\n---\n\nModel gemini-3" in body
    assert "# Turn 1" in body


def test_the_prompt_says_how_this_installation_is_answered() -> None:
    by_comment = bodies.answer("x", footer=FOOTER, marker=MARKER, reply_prompt=True)
    by_object = bodies.answer("x", footer=FOOTER, marker=MARKER, reply_prompt=True, by_comment=False)
    assert "Reply to this note" in by_comment
    assert "an AgentRun with" in by_object
    assert all(f"session: {MARKER.id}" in body for body in (by_comment, by_object))


def test_a_text_that_gitlab_found_too_long_is_replaced_by_its_beginning() -> None:
    """sources.md §6 row 6: a short note, so that people see something."""
    body = bodies.too_long(marker=MARKER, partial="The cause.\n" + "word\n" * 100_000, footer=FOOTER)
    assert len(body) < 12_000
    assert "because of its length" in body
    assert "The cause." in body
    assert "Model gemini-3" in body
    assert parse_all(bodies.too_long(marker=MARKER)) == [MARKER]
