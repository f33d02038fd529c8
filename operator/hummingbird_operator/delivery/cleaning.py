"""Characters that must not reach a note: terminal escapes, controls, marks that hide or reorder text."""

from __future__ import annotations

import re
import unicodedata

_ESCAPES = re.compile(
    "\x1b\\[[0-?]*[ -/]*[@-~]"  # CSI
    "|\x1b[\\]PX^_][^\x07\x1b]{0,4000}(?:\x07|\x1b\\\\)"  # OSC, DCS, SOS, PM, APC up to BEL or ST
    "|\x1b[ -/]*[0-~]?"
)
_LINE_ENDS = re.compile("\r\n|[\r\x0b\x0c\x85\u2028\u2029]")
_HIDDEN = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x9f"  # C0 but tab and line feed, DEL, C1
    "\u061c\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069"  # bidirectional marks, zero-width space
    "\u2060-\u2064\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"  # joiners, byte-order mark, annotations, tags
)
_SURROGATES = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """Plain text with `\\n` line ends: what could steer a terminal, hide text or turn its order is gone."""
    text = _ESCAPES.sub("", text)
    text = _LINE_ENDS.sub("\n", text)
    return _SURROGATES.sub("\ufffd", _HIDDEN.sub("", text))


def cut(text: str, characters: int) -> str:
    """The first `characters` of a text, fewer where the cut would split a letter from its accents or an emoji."""
    if len(text) <= characters:
        return text
    end = max(0, characters)
    while end > 0 and (
        unicodedata.combining(text[end]) or text[end] in "\u200c\u200d\ufe0f" or text[end - 1] == "\u200d"
    ):
        end -= 1
    return text[:end]
