"""No text takes more than its length in time: everything here runs where a slow text would cost the leader its lease.

Work is measured as the thread's own processor time, and only as a ratio, so that a busy machine changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from decimal import Decimal

import pytest

from hummingbird_operator.delivery import bodies, markers
from hummingbird_operator.delivery.cleaning import clean, cut
from hummingbird_operator.delivery.inert import inert_block, make_inert, one_line
from hummingbird_operator.delivery.markers import Marker
from hummingbird_operator.delivery.redact import redact

LENGTH = 16_000
FOOTER = bodies.Footer(model="m", turns=1, input_tokens=1, output_tokens=1, cost_usd=Decimal(0))
MARKER = Marker("3f0c4b8e-51f2-4c7d-9a43-0b6c1f0e7d55", state=markers.DONE)

FUNCTIONS: dict[str, Callable[[str], object]] = {
    "make_inert": make_inert,
    "inert_block": lambda text: inert_block(text, limit=90_000),
    "one_line": one_line,
    "clean": clean,
    "cut": lambda text: cut(text, len(text) - 1),
    "redact": lambda text: redact(text, ["a secret of ours"]),
    "answer": lambda text: bodies.answer(text, footer=FOOTER, marker=MARKER, transcript=text, secrets=["s3cret"]),
    "parse_all": markers.parse_all,
}

# `{}` is where the piece is repeated
SHAPES = {
    **{f"only {piece!r}": ("", piece, "x") for piece in " \t>`<&@/[!*_|-+~$\\.;\"'1a\u0301\x1b"},
    "addresses": ("", "://", " `x` x"),
    "web addresses": ("", "www.", " `x` x"),
    "halves of tokens": ("", "eyJ.eyJ.", "x"),
    "tokens behind dashes": ("", "-eyJaaaaaaaaaa", "x"),
    "two thirds of tokens": ("", "-eyJaaaaaaaaaa.eyJaaaaaaaaaa", ""),
    "a header of spaces": ("authorization:", " ", "x"),
    "a header without an end": ("authorization", " ", "x"),
    "headers": ("", "authorization: bearer ", "x"),
    "quotes of a list": ("> - ", " ", "x"),
    "quotes and spaces": ("", "> ", "x"),
    "items": ("", "- ", "x"),
    "numbers": ("", "1. ", "x"),
    "entities": ("&#", "0", "@"),
    "many entities": ("", "&#0", "@x"),
    "images": ("", "![", "@x"),
    "code spans": ("", "`a` ", "`"),
    "code of growing length": ("", "`a``b```c", "@x"),
    "closed details": ("<details>", " ", "x"),
    "summaries": ("<details>", "<summary>", "x"),
    "tags": ("", "</b><i>", "@x"),
    "comments": ("", "<!-- hummingbird", "x"),
    "a comment of spaces": ("<!-- hummingbird: ", " -- ", "x"),
    "nested json": ("<!-- hummingbird: ", "[", " -->"),
    "keys": ("", "-----BEGIN PRIVATE " + "KEY-----", "x"),
    "passwords": ("", "://a:", "x"),
    "escapes": ("\x1b[", "0", "\n"),
    "strings": ("", "\x1b]", "x"),
    "a command": ("/", "a", "."),
    "fences": ("", "```\n```\n", "x"),
    "quoted fences": ("", "> ```\nx\n", "x"),
    "deep fences": (" " * 3000 + "```\n", " " * 3000 + "x\n", "x"),
    "indented blocks": ("", "    x\n\ny\n\n", "x"),
    "blank lines": ("<details>", "\n", "x"),
    "details": ("", "<details>\n\n</details>\n", "x"),
}


def text_of(shape: str, length: int) -> str:
    before, piece, behind = SHAPES[shape]
    return before + piece * (length // len(piece)) + behind


def seconds(function: Callable[[str], object], text: str) -> float:
    begin = time.thread_time()
    function(text)
    return time.thread_time() - begin


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_four_times_the_text_takes_about_four_times_the_work(name: str, shape: str) -> None:
    function = FUNCTIONS[name]
    text, longer = text_of(shape, LENGTH), text_of(shape, 4 * LENGTH)
    for _ in range(3):  # what a collection of garbage falls into is measured again
        # below a hundredth of a second the clock says nothing; what is quadratic is far above it
        if (took := seconds(function, longer)) < 8 * max(0.01, seconds(function, text)):
            return
    pytest.fail(f"{name} takes {took:.2f} s of {len(longer):,} characters")
