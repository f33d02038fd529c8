"""Clean a CI job's log while it streams: plain UTF-8 lines, whatever the chunks' edges cut through.

Facts: section markers are `ESC[0Ksection_start:<unix>:<name>[options]\\rESC[0K<title>`; GitLab Runner 18.7 and later
put `2026-08-19T21:44:16.163313Z 00O ` in front of each line (O or E for the stream, `+` in place of the space where the
line continues the one before). Any job can print either, so they are only taken away, never trusted.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator

LONGEST_CARRY = 65_536
"""Characters: a line, or a hidden string, that is longer is let through in pieces."""

_SIMPLE = re.compile("\x1b(?:\\[[0-?]*[ -/]*[@-~]|[ -/]+[0-~]|[0-OQ-WYZ\\\\`-~])")
_SIMPLE_OR_LINK = re.compile(rf"{_SIMPLE.pattern}|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)")
_NESTING = re.compile("\x1b[PX^_]")
_UNFINISHED = re.compile("\x1b(?:\\[[0-?]*[ -/]*|[ -/]*)")
_STRING_BEGINS = re.compile("\x1b[\\]PX^_]")
_OSC_ENDS = re.compile("\x07|\x1b\\\\|(?=\n)|(?=\x1b[^\\\\])")
_STRING_ENDS = re.compile("\x1b\\\\|(?=\n)")
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_CONTROL_TABLE = dict.fromkeys([*range(9), 11, 12, *range(14, 32), 127])
_SECTION = re.compile(r"section_(?:start|end):\d{1,16}:[A-Za-z0-9_.\-]{1,255}(?:\[[^\]\r\n]{0,255}\])?\r")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3,9}Z [0-9a-fA-F]{2}[OE](?P<join>\+| |$)")
_MAYBE_STAMP = re.compile(r"Z [0-9a-fA-F]{2}[OE](?:[+ \n]|$)")
_STAMPS = re.compile(r"\n\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3,9}Z [0-9a-fA-F]{2}[OE](?: |(?=\n)|$)")
_JOINS = re.compile(r"Z [0-9a-fA-F]{2}[OE]\+")


class EscapeStripper:
    """Takes terminal escapes out of text that comes in pieces; the pieces' edges make no difference.

    CSI and short sequences end by themselves. The strings of OSC end at BEL, ST or another escape, those of DCS, SOS,
    PM and APC at ST; each also at the line's end, and after 65,536 characters, so that a job cannot hide its log.
    """

    def __init__(self) -> None:
        self._tail = ""
        self._ends: re.Pattern[str] | None = None
        self._swallowed = 0

    def feed(self, text: str) -> str:
        """The visible part of one piece."""
        text = self._tail + text
        self._tail = ""
        if self._ends is None:
            if "\x1b" not in text:
                return text
            if (quick := self._without_nesting(text)) is not None:
                return quick
        return "".join(self._visible(text))

    def close(self) -> str:
        """What is left at the end: nothing visible, an unfinished escape is dropped."""
        self._tail, self._ends = "", None
        return ""

    def _without_nesting(self, text: str) -> str | None:
        """The visible part in one pass, for text whose strings all end in it and hold no other; else None."""
        stop = _unfinished_from(text, 0)
        quick = None if _NESTING.search(text) else _SIMPLE_OR_LINK.sub("", text[:stop])
        if quick is None or "\x1b]" in quick:
            return None
        self._tail = text[stop:]
        return quick.replace("\x1b", "")

    def _visible(self, text: str) -> Iterator[str]:
        position = 0
        while position < len(text):
            if self._ends is not None:
                position = self._swallow(text, position)
                continue
            begins = _STRING_BEGINS.search(text, position)
            stop = begins.start() if begins else _unfinished_from(text, position)
            yield _SIMPLE.sub("", text[position:stop]).replace("\x1b", "")
            if begins is None:
                self._tail = text[stop:]
                return
            position = begins.end()
            self._ends = _OSC_ENDS if begins.group() == "\x1b]" else _STRING_ENDS
            self._swallowed = 0

    def _swallow(self, text: str, position: int) -> int:
        """Skip a hidden string; returns where visible text goes on."""
        ends = self._ends or _OSC_ENDS
        limit = position + LONGEST_CARRY - self._swallowed
        found = ends.search(text, position)
        if found is not None and found.start() <= limit:
            self._ends = None
            return found.end()
        if limit <= len(text) - 1:
            self._ends = None
            return limit
        # A lone ESC at the edge may be the first half of the string's end.
        keep = 1 if text.endswith("\x1b") else 0
        self._swallowed += len(text) - keep - position
        self._tail = text[len(text) - keep :]
        return len(text)


class LogCleaner:
    """Bytes of a job log in, clean text out."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._escapes = EscapeStripper()
        self._pending = ""
        self._held: str | None = None
        self._broken = False

    def feed(self, chunk: bytes) -> str:
        """The text of whatever lines this chunk completes."""
        return self._take(self._escapes.feed(self._decoder.decode(chunk)), final=False)

    def close(self) -> str:
        """The rest, with the last line even where it has no line end."""
        text = self._escapes.feed(self._decoder.decode(b"", final=True)) + self._escapes.close()
        return self._take(text, final=True)

    def _take(self, text: str, *, final: bool) -> str:
        text = self._pending + text
        cut = len(text) if final else text.rfind("\n") + 1
        whole, self._pending = text[:cut], text[cut:]
        out = self._lines(whole)
        if len(self._pending) > LONGEST_CARRY:
            out += self._shorten()
        if final and self._held is not None:
            out, self._held = out + self._held, None
        return out

    def _shorten(self) -> str:
        """A line without an end in sight: forget overwritten segments, else let it through as it is."""
        segments = self._pending.rsplit("\r", 2)
        self._pending = "\r".join(segments[-2:])
        if len(self._pending) <= LONGEST_CARRY:
            return ""
        piece, self._pending = self._pending[:-1], self._pending[-1:]
        held, self._held = self._held or "", None
        self._broken = True
        return held + _CONTROLS.sub("", piece).replace("\r", "")

    def _lines(self, whole: str) -> str:
        if not whole:
            return ""
        whole = _without_controls(whole)
        if "section_" not in whole:
            whole = whole.replace("\r\n", "\n")
        if self._held is None and "\r" not in whole and not _MAYBE_STAMP.search(whole):
            self._broken = False
            return whole
        if not self._broken and "\r" not in whole and not _JOINS.search(whole):
            return self._stamped(whole)
        return "".join(self._each(_LINE.findall(whole)))

    def _stamped(self, whole: str) -> str:
        """What `_each` gives for lines of which none continues another and none was overwritten, in one pass."""
        held, self._held = self._held or "", None
        last = whole.rfind("\n", 0, -1) + 1
        if stamp := _STAMP.match(whole, last):  # the next piece may continue it
            whole, self._held = whole[:last], whole[stamp.end() :]
        return held + _STAMPS.sub("\n", "\n" + whole)[1:]

    def _each(self, lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            stamp = None if self._broken else _STAMP.match(line)
            self._broken = False
            shown = _shown(line[stamp.end() :] if stamp else line)
            if stamp and stamp["join"] == "+" and self._held is not None:
                self._held = self._held.removesuffix("\n") + shown
                if len(self._held) > LONGEST_CARRY:
                    yield self._held.removesuffix("\n")
                    self._held = "\n"
                continue
            if self._held is not None:
                yield self._held
                self._held = None
            if stamp:
                self._held = shown
            else:
                yield shown


def clean_log(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The cleaned log, chunk by chunk."""
    cleaner = LogCleaner()
    for chunk in chunks:
        if text := cleaner.feed(chunk):
            yield text.encode()
    if text := cleaner.close():
        yield text.encode()


def _without_controls(text: str) -> str:
    """A table is four times as fast as the pattern, but only for ASCII."""
    return text.translate(_CONTROL_TABLE) if text.isascii() else _CONTROLS.sub("", text)


def _unfinished_from(text: str, position: int) -> int:
    """Where an escape begins that the next piece may complete; the text's end if there is none."""
    last = text.rfind("\x1b", position)
    if last < 0 or len(text) - last > 256:
        return len(text)
    return last if _UNFINISHED.fullmatch(text, last) else len(text)


def _shown(line: str) -> str:
    """One line as a terminal would leave it: without markers, and of what was overwritten only the last segment."""
    if "\r" not in line:
        return line
    end = "\n" if line.endswith("\n") else ""
    bare = _SECTION.sub("", line)
    only_markers = bare != line and not bare.strip()
    bare = bare.removesuffix("\n").removesuffix("\r")
    if "\r" in bare:
        segments = [segment for segment in bare.split("\r") if segment.strip()]
        bare = segments[-1] if segments else ""
    return "" if only_markers else bare + end
