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


def test_replies_stand_indented_below_what_they_answer_with_their_reactions() -> None:
    with GitLabStandIn(sample_fixture()) as gitlab:
        first = gitlab.people.comments("group/app", 42, "alice", "Why?")
        gitlab.people.comments("group/app", 42, "maya", "Nice.")
        reply = gitlab.people.replies("group/app", 42, "maya", first.discussion_id, "Because.\nI think.")
        gitlab.people.reacts("group/app", 42, "alice", reply.id, "heart")
        page = threads.page("All", threads.read(gitlab, "group/app", 42))
    lines = ["  alice:", "    | Why?", "      maya:  [heart]", "        | Because.", "        | I think."]
    assert page.splitlines() == ["── All", *lines, "  maya:", "    | Nice."]
