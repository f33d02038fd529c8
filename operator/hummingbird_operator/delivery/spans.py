"""The inside of one line of markdown: which parts are surely code, and how the rest becomes inert.

A code span is believed only where every markdown reader agrees on it. Where one could read the line in another way (an
unpaired backtick, a `|` that a table would cut at, a `$` of mathematics, a URL that swallows the backtick) it is taken
for text: then a name in it gets an invisible character, which is harmless, while the reverse error would notify people.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

WORD_JOINER = "\u2060"
"""Stands after an `@`: invisible, and no user name can follow it."""

_RUN = re.compile(r"`+")
_DOUBTFUL_BEFORE = re.compile(r"\$|\[\[|%\{|\{\{|\\$")
_MAY_OPEN = frozenset(" \t([*_|\"'>,;:/-")
_AT_ENTITY = re.compile(r"&(?:#0*+64(?![0-9])|#[xX]0*+40(?![0-9a-fA-F])|commat);?")
_URL = re.compile(r"(?:https?://|www\.)[^\s<>\"'|)\]]*")
_BEFORE_AT = re.compile(rf"(?<![A-Za-z0-9])@(?=[^\s{WORD_JOINER}])")
_ENTITY_AT = re.compile(r"(?<=&)([#A-Za-z0-9]{1,32})@(?=\S)")
_AUTOLINK = re.compile(r"<(https?://[^\s<>`]+)>(?=[\s).,;:!?]|$)")
_TAG = re.compile(r"<(?![\s\d=])")
_BREAK = re.compile(r"<(?=br ?/?>)")
_IMAGE = re.compile(r"(?<!!)!++\[")
_OUR_COMMENT = re.compile(r"<!(?=--\s*+hummingbird)", re.IGNORECASE)


def inert_line(line: str, *, surely_text: bool) -> tuple[str, bool]:
    """One line with nothing alive in it, and whether the lines after it in the same paragraph can be trusted.

    `surely_text`: an earlier line of the paragraph left a span open, so nothing on this one is believed to be code.
    """
    keep_breaks = line.lstrip(" \t").startswith("|")
    parts = None if surely_text else _split(line)
    if parts is None:
        return inert_text(line, keep_breaks=keep_breaks), "`" not in line and "$" not in line and not surely_text
    return "".join(
        broken_marker(part) if is_code else inert_text(part, keep_breaks=keep_breaks) for part, is_code in parts
    ), True


def inert_text(text: str, *, keep_breaks: bool = False, everywhere: bool = False) -> str:
    """Text outside code: no tag, comment or image, no mention. `everywhere`: also an `@` inside a word."""
    if "&" in text:
        text = _AT_ENTITY.sub("@", text)
    if "<" in text:
        text = _AUTOLINK.sub(r"\1", text)
        text = "".join(_escaped_tags(text)) if keep_breaks else _TAG.sub("&lt;", text)
    if "![" in text:
        text = _IMAGE.sub("[", text)
    if "@" not in text:
        return text
    text = _ENTITY_AT.sub(rf"\1@{WORD_JOINER}", text)  # HTML ends an entity also without its semicolon
    text = _URL.sub(lambda match: _BEFORE_AT.sub("%40", match.group()), text)
    return (
        re.sub(f"@(?!{WORD_JOINER})", f"@{WORD_JOINER}", text)
        if everywhere
        else _BEFORE_AT.sub(f"@{WORD_JOINER}", text)
    )


def broken_marker(code: str) -> str:
    """Code in which our marker, if somebody wrote one, no longer reads as a comment."""
    return _OUR_COMMENT.sub("<! ", code) if "<!" in code else code


def _escaped_tags(text: str) -> Iterator[str]:
    """Tags escaped, but the line break that a table cell needs."""
    position = 0
    for match in _TAG.finditer(text):
        yield text[position : match.start()]
        yield "<" if _BREAK.match(text, match.start()) else "&lt;"
        position = match.end()
    yield text[position:]


def _split(line: str) -> list[tuple[str, bool]] | None:
    """The line as parts of text and code; None if any reader could see it in another way."""
    parts: list[tuple[str, bool]] = []
    position = 0
    while opening := _RUN.search(line, position):
        before = line[position : opening.start()]
        closing = _closing(line, opening)
        if closing is None or not _surely_opens(before):
            return None
        inside = line[opening.end() : closing.start()]
        if "|" in inside or (("@" in inside or "&" in inside) and _has_a_url(inside)):
            return None  # a reader that looks for addresses first cuts the span there, and the name stands outside
        parts += [(before, False), (line[opening.start() : closing.end()], True)]
        position = closing.end()
    rest = line[position:]
    if "$" in rest or "[[" in rest:
        return None
    if line.count("$") > 1 and any(is_code and "@" in part for part, is_code in parts):
        return None  # a reader that looks for mathematics first finds some that begins inside one span
    return [*parts, (rest, False)]


def _closing(line: str, opening: re.Match[str]) -> re.Match[str] | None:
    length = len(opening.group())
    return next((run for run in _RUN.finditer(line, opening.end()) if len(run.group()) == length), None)


def _surely_opens(before: str) -> bool:
    doubtful = _DOUBTFUL_BEFORE.search(before) or _ends_in_a_url(before)
    return not doubtful and (not before or before[-1] in _MAY_OPEN)


def _ends_in_a_url(before: str) -> bool:
    last = "" if before[-1:].isspace() else "".join(before.rsplit(maxsplit=1)[-1:])
    return _has_a_url(last)


def _has_a_url(text: str) -> bool:
    return "://" in text or "www." in text.lower()
