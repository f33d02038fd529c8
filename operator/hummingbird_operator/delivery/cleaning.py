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
_LONGEST_LETTER = 64
"""Characters of what is cut as one: text made of marks alone has no letter (UAX #15 allows thirty in a row)."""
_JOINER = "\u200d"
_ATTACHED = "\u200c\u200d\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"
_FLAG_HALVES = "".join(map(chr, range(0x1F1E6, 0x1F200)))
_SURROGATES = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """Plain text with `\\n` line ends: what could steer a terminal, hide text or turn its order is gone."""
    text = _ESCAPES.sub("", text)
    text = _LINE_ENDS.sub("\n", text)
    return _SURROGATES.sub("\ufffd", _HIDDEN.sub("", text))


def cut(text: str, characters: int) -> str:
    """The first `characters` of a text, fewer where the cut would split a letter from its marks, an emoji or a flag."""
    if len(text) <= characters:
        return text
    room = max(0, characters)
    ends = (end for end in range(room, max(0, room - _LONGEST_LETTER), -1) if not _belongs_to_the_one_before(text, end))
    return text[: next(ends, room if room > _LONGEST_LETTER else 0)]


def ending(text: str, characters: int) -> str:
    """The last `characters` of a text, fewer where they would begin inside of what `cut` keeps whole."""
    start, whole = max(0, len(text) - max(0, characters)), (0, len(text))
    begins = range(start, min(len(text) + 1, start + _LONGEST_LETTER))
    return text[next((at for at in begins if at in whole or not _belongs_to_the_one_before(text, at)), start) :]


def _belongs_to_the_one_before(text: str, index: int) -> bool:
    """Marks (M*), joiners, skin colours, and the second half of a flag: the cases of UAX #29 that occur in notes."""
    before, after = text[index - 1], text[index]
    if after in _FLAG_HALVES and before in _FLAG_HALVES:
        halves = index - len(text[:index].rstrip(_FLAG_HALVES))
        return halves % 2 == 1
    return unicodedata.category(after).startswith("M") or after in _ATTACHED or before == _JOINER
