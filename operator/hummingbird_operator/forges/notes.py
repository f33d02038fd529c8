"""What a note of ours looks like, as far as its writer and its reader must agree: marker, footer, transcript.

`delivery` writes these parts, `sources` takes them away again before a model reads the note (seed 000 §9.1).
"""

from __future__ import annotations

import re

MARKER_NAME = "hummingbird"
"""The word that begins our hidden comment, `<!-- hummingbird: {…} -->`."""
FOOTER_RULE = "---"
"""The line above a footer."""
FOOTER_FACTS = "Model "
"""How the footer's line of facts begins; it tells a footer from a rule that the answer itself holds."""
TRANSCRIPT_SUMMARY = "Agent transcript"
"""The title of the collapsed transcript."""

_MARKER_LINE = re.compile(rf"^<!-- {MARKER_NAME}: [^<>\n]* -->[ \t]*$", re.MULTILINE)
_TRANSCRIPT_LINE = f"<details><summary>{TRANSCRIPT_SUMMARY}</summary>"
_DETAILS_END = "</details>"


def has_marker(body: str) -> bool:
    """Whether a marker stands on a line of its own. It proves nothing: anybody can write one."""
    return _MARKER_LINE.search(body.replace("\r\n", "\n")) is not None


def without_our_parts(body: str) -> str:
    """A note of ours as its readers see it: no marker, no transcript, no footer."""
    text = _MARKER_LINE.sub("", body.replace("\r\n", "\n")).strip()
    return _without_footer(_without_transcript(text))


def _without_transcript(text: str) -> str:
    """The transcript is the last thing in a note, and its fence is longer than any run of backticks inside it.

    So its beginning is searched for from the end: the answer above may well show a block of the same title.
    """
    if not text.endswith(_DETAILS_END):
        return text
    lines = text.removesuffix(_DETAILS_END).rstrip().rsplit("\n", 1)
    fence = lines[-1]
    opening = f"\n{_TRANSCRIPT_LINE}\n\n{fence}markdown\n"
    begin = f"\n{text}".rfind(opening) if len(fence) >= 3 and set(fence) == {"`"} else -1
    if begin < 0:  # somebody edited the note: rather too little of it than a transcript
        begin = f"\n{text}".find(f"\n{_TRANSCRIPT_LINE}")
    return text[:begin].rstrip() if begin > 0 else "" if begin == 0 else text


def _without_footer(text: str) -> str:
    """The last rule and what stands below it, if that is a footer: none of its paragraphs is a rule itself."""
    answer, rule, below = f"\n\n{text}".rpartition(f"\n\n{FOOTER_RULE}\n\n")
    is_footer = bool(rule) and any(line.startswith(FOOTER_FACTS) for line in below.split("\n"))
    return answer.strip() if is_footer else text
