"""What the demo prints about a note."""

from __future__ import annotations

from demo.words import without_transcript
from hummingbird_operator.delivery import bodies
from hummingbird_operator.delivery.markers import Marker

MARKER = Marker(id="s", wf="analyze-failures", sha="4be1", run="u", key="why", state="done")
FOOTER = bodies.Footer("gemini-3.8-flash", 4, 1, 1, None)
TRANSCRIPT = "# Agent\n\n<details><summary>Agent transcript</summary>\n\n</details>\n\nthe secret plan\n"


def test_the_transcript_is_left_out_whole_and_counted() -> None:
    bare = bodies.answer("It broke.", footer=FOOTER, marker=MARKER)
    full = bodies.answer("It broke.", footer=FOOTER, marker=MARKER, transcript=TRANSCRIPT)
    shown = without_transcript(full, "file:///store/transcript.md")
    left_out = len(full.splitlines()) - len(shown.splitlines()) + 1
    told = f"[{left_out} lines with the agent's transcript are left out here; all of it: file:///store/transcript.md]"
    assert [line for line in shown.splitlines() if line != told] == [*bare.splitlines()[:-1], "", MARKER.render()]


def test_a_note_without_a_transcript_is_shown_as_it_is() -> None:
    body = bodies.answer("It broke.", footer=FOOTER, marker=MARKER)
    assert without_transcript(body, "nowhere") == body
