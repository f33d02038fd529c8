"""Make a model's text inert: it stays readable markdown, and nothing in it can act.

GitLab runs quick actions (`/merge`) and notifies people (`@name`) from a note's text, on create and on update, with the
rights of the author, who is the bot (`lib/gitlab/quick_actions/extractor.rb`, `user_reference_filter.rb`). So of a
model's text
- no line outside a fence begins with `/`, also behind spaces; inside one, a line that could be a command gets a space
  in front;
- no `@` outside code can reach a name;
- fences are written anew: at the line's start, longer than any run of backticks in them, always closed;
- `<details>` stays where it is balanced; every other tag, comment and `>>>` quote is escaped; images become links;
- our marker cannot be forged, hidden characters are gone, and the length has a bound.

Since fences and details are our own when they leave, no reader can disagree with us about where they end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hummingbird_operator.delivery.cleaning import clean, cut, ending
from hummingbird_operator.delivery.spans import broken_marker, inert_line, inert_text

MAXIMUM = 1_000_000
"""Characters of a note that GitLab takes."""

_LONGEST_RUN = 30
_RESERVE = 400
"""Room for the line that says what was cut, a closing fence and closing tags."""

# Possessive (`*+`): what a piece took it never gives back, so that no line takes more than its length in time.
_CONTAINER = r"[ \t>]*+(?:(?:[-*+]|\d{1,9}+[.)])[ \t]++[ \t>]*+)?+"
_OPENING = re.compile(rf"(?P<prefix>{_CONTAINER})(?P<fence>`{{3,}}|~{{3,}})(?P<info>.*)")
_PREFIX = re.compile(r"[ \t>]*")
_LANGUAGE = re.compile(r"[A-Za-z0-9_+#.\-]{1,30}")
_LONG_RUN = re.compile(rf"`{{{_LONGEST_RUN + 1},}}")
_LIKE_A_COMMAND = re.compile(r"/[A-Za-z_]+(?=[ \t]|$)")
_DETAILS = re.compile(r"<details(?: open)?>[ \t]*(?:<summary>(?P<summary>.*?)</summary>)?", re.IGNORECASE)
_SUMMARY = re.compile(r"<summary>(?P<summary>.*?)</summary>", re.IGNORECASE)
_DETAILS_END = re.compile(r"</details>", re.IGNORECASE)
_EMPHASIS_TAG = re.compile(r"</?(?:b|strong|em|i|code)>", re.IGNORECASE)
_LIST_ITEM = re.compile(r"[ \t>]*+(?:[-*+]|\d{1,9}[.)])[ \t]")
_FRONT_MATTER = re.compile(r"(?=(?:---|\+\+\+|;;;))")
_DEEPEST_DETAILS = 10


@dataclass(frozen=True)
class _Fence:
    char: str
    length: int
    quoted: bool
    indent: int
    language: str


def make_inert(text: str, *, limit: int = MAXIMUM) -> str:
    """The text as inert markdown of at most `limit` characters; applying it again changes nothing.

    A text that is too long ends with a line that says so.
    """
    scanner = _Scanner(limit, len(text))
    scanner.read(clean(text[: limit + _RESERVE]).split("\n"))
    return scanner.finish()


def inert_block(text: str, *, limit: int, language: str = "") -> str:
    """A text of any kind as one closed fence of at most `limit` characters, the middle cut out if need be."""
    lines = _code_lines(_without_middle(clean(text), limit - 2 * _LONGEST_RUN - _RESERVE).split("\n"))
    fence = "`" * _fence_length(lines)
    block = "\n".join([fence + language, *lines, fence])
    return block if len(block) <= limit else inert_block(text, limit=limit // 2, language=language)


def one_line(text: str, *, limit: int = 200) -> str:
    """A short value for use inside a sentence of ours: one line, no markup, no name that could be notified."""
    flat = " ".join(clean(text).split()).replace("`", "'")
    shown = cut(flat, limit)
    return inert_text(shown, everywhere=True) + ("…" if len(flat) > limit else "")


class _Scanner:
    """Reads a text line by line and writes it anew within a number of characters."""

    def __init__(self, limit: int, length: int) -> None:
        self._room = limit - _RESERVE
        self._length = length
        self._limit = limit
        self._out: list[str] = []
        self._depth = 0
        self._in_list = False
        self._doubt = False
        self._full = length > limit + _RESERVE

    def read(self, lines: Sequence[str]) -> None:
        """Take the lines block by block until the room is used up."""
        index = 0
        while index < len(lines) and self._room > 0:
            index += self._block(lines, index)
        self._full = self._full or index < len(lines)

    def finish(self) -> str:
        """Close what is open and say what was cut."""
        for _ in range(self._depth):
            self._structure("</details>")
        while self._out and not self._out[-1]:
            self._out.pop()
        if self._full:
            self._out += ["", f"*(Cut here: the text has {self._length:,} characters, room is for {self._limit:,}.)*"]
        return "\n".join(self._out)

    def _block(self, lines: Sequence[str], index: int) -> int:
        """Write one block; returns how many lines it took."""
        line = lines[index]
        fence = _opening(line)
        if fence is not None:
            content, taken = _fenced(lines, index + 1, fence)
            self._fence(content, fence.language)
            return taken + 1
        if self._is_indented_code(line):
            content = _indented(lines, index)
            self._fence([_dedented(line) for line in content], "")
            return len(content)
        bare = line.strip(" \t")
        if not bare.startswith("<"):
            self._text(line)
            return 1
        opening = _DETAILS.fullmatch(bare)
        if opening and self._depth < _DEEPEST_DETAILS:
            return self._details(opening["summary"], lines, index)
        if _DETAILS_END.fullmatch(bare) and self._depth:
            self._depth -= 1
            self._structure("</details>")
            return 1
        self._text(line)
        return 1

    def _is_indented_code(self, line: str) -> bool:
        """Four spaces after a blank line, and no list that the line could belong to."""
        after_blank = not self._out or not self._out[-1]
        return after_blank and not self._in_list and line.startswith(("    ", "\t")) and bool(line.strip(" \t"))

    def _details(self, summary: str | None, lines: Sequence[str], index: int) -> int:
        taken = 1
        if summary is None:
            following = next((i for i in range(index + 1, len(lines)) if lines[i].strip(" \t")), None)
            found = _SUMMARY.fullmatch(lines[following].strip(" \t")) if following is not None else None
            if found is not None and following is not None:
                summary, taken = found["summary"], following - index + 1
        self._depth += 1
        self._room -= len("</details>") + 2
        title = inert_text(_EMPHASIS_TAG.sub("", summary or "Details"), everywhere=True)
        self._structure(f"<details><summary>{title}</summary>")
        return taken

    def _structure(self, line: str) -> None:
        """A line of HTML between blank lines, so that its block ends with it."""
        self._blank()
        self._write(line)
        self._write("")
        self._doubt = self._in_list = False

    def _fence(self, content: Sequence[str], language: str) -> None:
        lines = _code_lines(content)
        fence = "`" * _fence_length(lines)
        self._blank()
        self._write(fence + language)
        for line in lines:
            if len(line) + 1 > self._room:
                self._write(cut(line, self._room - 1))
                self._full, self._room = True, 0
                break
            self._write(line)
        self._out.append(fence)
        self._out.append("")
        self._room -= len(fence) + 2
        self._doubt = False

    def _text(self, line: str) -> None:
        if not line.strip(" \t"):
            self._blank()
            self._doubt = False
            return
        if _LIST_ITEM.match(line):
            self._in_list = True
        elif not line.startswith((" ", "\t", ">")) and self._out[-1:] == [""]:
            self._in_list = False
        rendered, trusted = inert_line(_inert_start(line, first=not self._out), surely_text=self._doubt)
        self._doubt = self._doubt or not trusted
        if len(rendered) + 1 > self._room:
            # A cut could fall into a code span and wake what stands in it, so the rest is read as text.
            rendered = inert_text(_inert_start(cut(line, self._room // 5), first=not self._out))
            self._full = True
            self._write(rendered)
            self._room = 0
            return
        self._write(rendered)

    def _blank(self) -> None:
        if self._out and self._out[-1]:
            self._write("")

    def _write(self, line: str) -> None:
        self._out.append(line)
        self._room -= len(line) + 1


def _inert_start(line: str, *, first: bool) -> str:
    """The beginning of a line that GitLab reads: a command, a `>>>` or `$$` block, front matter on the first line."""
    bare = line.lstrip(" \t")
    if bare.startswith((">>>", "$$")):
        return line[: len(line) - len(bare)] + "\\" + bare
    if first and _FRONT_MATTER.match(bare):
        return "\\" + bare
    bare = line.lstrip()  # also behind a space of any kind: whoever strips the text must not bring the command to life
    return line[: len(line) - len(bare)] + "\\" + bare if bare.startswith("/") else line


def _opening(line: str) -> _Fence | None:
    match = _OPENING.fullmatch(line) if "```" in line or "~~~" in line else None
    if match is None or ("`" in match["fence"] and "`" in match["info"]):
        return None
    language = _LANGUAGE.match(match["info"].strip())
    name = language.group() if language and language.group().lower() != "suggestion" else ""
    prefix = match["prefix"]
    return _Fence(match["fence"][0], len(match["fence"]), ">" in prefix, len(prefix.expandtabs(4)), name)


def _fenced(lines: Sequence[str], start: int, fence: _Fence) -> tuple[list[str], int]:
    """The lines inside a fence and how many lines it took, its closing one included; the text's end closes it too."""
    content: list[str] = []
    for index in range(start, len(lines)):  # no slice: a text of many fences would be copied once for each
        line = lines[index]
        prefix = _PREFIX.match(line)
        lead = prefix.group() if prefix else ""
        if fence.quoted and ">" not in lead:
            return content, len(content)
        bare = line[len(lead) :].rstrip(" \t")
        if len(bare) >= fence.length and set(bare) == {fence.char} and len(lead.expandtabs(4)) <= fence.indent + 3:
            return content, len(content) + 1
        content.append(_without_prefix(line, fence))
    return content, len(content)


def _without_prefix(line: str, fence: _Fence) -> str:
    """A line of a fence in a list or quote, without what belongs to the list or quote."""
    if not fence.indent:
        return line
    if fence.quoted:
        return re.sub(r"^[ \t]*>[ ]?", "", line)
    return re.sub(rf"^[ ]{{1,{fence.indent}}}", "", line)


def _indented(lines: Sequence[str], start: int) -> list[str]:
    """The lines of an indented code block, without the blank ones at its end."""
    taken: list[str] = []
    for index in range(start, len(lines)):
        line = lines[index]
        if line.strip(" \t") and not line.startswith(("    ", "\t")):
            break
        taken.append(line)
    while taken and not taken[-1].strip(" \t"):
        taken.pop()
    return taken


def _dedented(line: str) -> str:
    return re.sub(r"^(?: {1,4}|\t)", "", line)


def _code_lines(lines: Sequence[str]) -> list[str]:
    return list(_inert_code(lines))


def _inert_code(lines: Sequence[str]) -> Iterator[str]:
    """Code stays as it is, but for what an older GitLab would still run and for a forged marker."""
    for line in lines:
        shortened = _LONG_RUN.sub("`" * _LONGEST_RUN + "…", line) if "`" in line else line
        yield broken_marker(f" {shortened}" if _LIKE_A_COMMAND.match(shortened) else shortened)


def _fence_length(lines: Sequence[str]) -> int:
    return max([3, *(len(run) + 1 for line in lines for run in re.findall(r"`{3,}", line))])


def _without_middle(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    head = cut(text, limit // 3)
    tail = ending(text, limit - len(head))
    return f"{head}\n\n[… {len(text) - len(head) - len(tail):,} characters left out …]\n\n{tail}"
