"""A conversation as people read it."""

from __future__ import annotations

from demo import threads
from hummingbird_operator.delivery import bodies
from hummingbird_operator.delivery.markers import Marker
from tests.standins.gitlab import GitLabStandIn
from tests.standins.gitlab.state import sample_fixture

MARKER = Marker(id="s", wf="analyze-failures", sha="4be1", run="u", key="why", state="done")
FOOTER = bodies.Footer("gemini-3.8-flash", 4, 1, 1, None)
TRANSCRIPT = "# Agent\n\n<details><summary>More</summary>\n\nthe inner plan\n\n</details>\n\nthe secret plan\n"


def test_marker_and_transcript_are_not_seen_and_the_fold_is() -> None:
    body = bodies.answer("It broke.", footer=FOOTER, marker=MARKER, transcript=TRANSCRIPT)
    shown = threads.visible(body)
    assert shown.startswith("It broke.")
    assert shown.endswith("▸ Agent transcript")
    assert "plan" not in shown
    assert "<!--" not in shown


def test_a_fold_in_a_fold_is_not_seen_at_all_and_what_stands_behind_is() -> None:
    inner = "<details><summary>b</summary>two</details>"
    assert threads.visible(f"one <details><summary>a</summary>{inner}three</details> four") == "one ▸ a four"
    assert threads.visible("one <details><summary>a</summary>never closed") == "one ▸ a"
    assert threads.visible("one </details> two") == "one </details> two"


def test_a_traceback_that_was_shown_is_shortened_the_second_time_and_what_is_new_is_not() -> None:
    def said(words: str) -> threads.Said:
        return threads.Said(1, "d", "bot", words, (), reply=False, internal=False, resolved=False)

    block, new = "```text\nFAIL\n one\n two\nERROR\n```", "```text\nFAIL\n three\n four\nERROR\n```"
    (short,) = threads.shortened([said(f"Again.\n\n{block}\n\n{new}")], [said(f"It broke.\n\n{block}")])
    assert short.words == f"Again.\n\n```text\nFAIL\n… 2 lines, as above …\nERROR\n```\n\n{new}"
    assert threads.shortened([said(block)], []) == [said(block)]


def test_replies_stand_indented_below_what_they_answer_with_their_reactions() -> None:
    with GitLabStandIn(sample_fixture()) as gitlab:
        first = gitlab.people.comments("group/app", 42, "alice", "Why?")
        gitlab.people.comments("group/app", 42, "maya", "Nice.")
        reply = gitlab.people.replies("group/app", 42, "maya", first.discussion_id, "Because.\nI think.")
        gitlab.people.reacts("group/app", 42, "alice", reply.id, "heart")
        page = threads.page("All", threads.read(gitlab, "group/app", 42))
    lines = ["  alice:", "    | Why?", "      maya:  [heart]", "        | Because.", "        | I think."]
    assert page.splitlines() == ["── All", *lines, "  maya:", "    | Nice."]
