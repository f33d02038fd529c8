"""Job logs: the chunks' edges must not matter, and nothing that a job prints can hide its log."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hummingbird_operator.sources.job_log import LONGEST_CARRY, LogCleaner, clean_log

BEL, ESC, ST = "\x07", "\x1b", "\x1b\\"
STAMP = "2026-08-19T21:44:16.163313Z"

SEQUENCES = {
    "CSI": (f"a{ESC}[31;1mred{ESC}[0m b\n", "ared b\n"),
    "CSI with private mark": (f"{ESC}[?25lx{ESC}[2K{ESC}[1Gy\n", "xy\n"),
    "OSC ended by BEL": (f"a{ESC}]0;title{BEL}b\n", "ab\n"),
    "OSC ended by ST": (f"a{ESC}]0;title{ST}b\n", "ab\n"),
    "OSC 8 link": (f"{ESC}]8;;https://example.com/a/long/address{ST}link{ESC}]8;;{ST}\n", "link\n"),
    "DCS with an OSC inside": (f"a{ESC}Pq{ESC}]0;t{BEL}more{ST}b\n", "ab\n"),
    "PM": (f"a{ESC}^private{ST}b\n", "ab\n"),
    "APC": (f"a{ESC}_application{ST}b\n", "ab\n"),
    "SOS": (f"a{ESC}Xstring{ST}b\n", "ab\n"),
    "character set": (f"a{ESC}(Bb{ESC}=c{ESC}7\n", "abc\n"),
    "OSC broken off by another escape": (f"a{ESC}]0;t{ESC}[31mb\n", "ab\n"),
    "OSC that never ends": (f"a{ESC}]0;title\nnext\n", "a\nnext\n"),
    "DCS that never ends": (f"a{ESC}Pdata\nnext\n", "a\nnext\n"),
    "lone ESC at the end": (f"done{ESC}", "done"),
    "unfinished CSI at the end": (f"done{ESC}[3", "done"),
    "four-byte characters": ("ok 🎉 größe 漢字\n", "ok 🎉 größe 漢字\n"),
    "progress": ("10%\r50%\r100%\nnext\n", "100%\nnext\n"),
    "progress that ends with CR": ("10%\r100%\r\nnext\r\n", "100%\nnext\n"),
    "section": (
        f"{ESC}[0Ksection_start:1:build[collapsed=true]\r{ESC}[0KBuilding\nx\n{ESC}[0Ksection_end:2:build\r{ESC}[0K\ny\n",
        "Building\nx\ny\n",
    ),
    "section end with CRLF behind it": (f"{ESC}[0Ksection_end:1560896353:build\r\r\ny\n", "y\n"),
    "section in milliseconds": (f"{ESC}[0Ksection_start:1560896352123:a\r{ESC}[0KTitle\n", "Title\n"),
    "forged marker": (f"real{ESC}[0Ksection_end:1:x\r{ESC}[0K text\n", "real text\n"),
    "runner timestamps": (f"{STAMP} 00O one\n{STAMP} 01E two\n", "one\ntwo\n"),
    "runner continuation": (f"{STAMP} 00O one \n{STAMP} 00O+and half\n{STAMP} 00O two\n", "one and half\ntwo\n"),
    "runner section": (f"{STAMP} 00O {ESC}[0Ksection_start:1:a\r{ESC}[0KTitle\n{STAMP} 00O x\n", "Title\nx\n"),
    "runner empty line": (f"{STAMP} 00O \n{STAMP} 00O x\n", "\nx\n"),
    "controls": ("a\x00b\x08c\x7fd\te\n", "abcd\te\n"),
    "no line end": ("last words", "last words"),
}


def cleaned(*chunks: bytes) -> str:
    return b"".join(clean_log(chunks)).decode()


@pytest.mark.parametrize("name", SEQUENCES)
def test_every_split_in_two_and_three_gives_the_text_of_the_whole(name: str) -> None:
    """sources.md §6 rows 19 and 20, §9 rows 5 and 6."""
    raw, expected = SEQUENCES[name]
    data = raw.encode()
    assert cleaned(data) == expected
    for first, second in itertools.combinations_with_replacement(range(len(data) + 1), 2):
        assert cleaned(data[:first], data[first:second], data[second:]) == expected


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([raw for raw, _ in SEQUENCES.values()]), max_size=8), st.integers(1, 17))
def test_any_mix_of_sequences_is_the_same_at_any_chunk_size(parts: list[str], size: int) -> None:
    data = "".join(parts).encode()
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    assert cleaned(*pieces) == cleaned(data)


@given(st.binary(max_size=300))
def test_no_bytes_at_all_make_it_fail_or_leave_an_escape(data: bytes) -> None:
    text = cleaned(data)
    assert "\x1b" not in text
    assert "\x00" not in text


@given(st.text(alphabet=st.characters(blacklist_categories=["C"]), max_size=200))
def test_plain_text_is_left_as_it_is(text: str) -> None:
    assert cleaned(text.encode()) == text


def test_a_line_without_an_end_is_let_through_and_held_in_bounded_memory() -> None:
    cleaner = LogCleaner()
    received = sum(len(cleaner.feed(b"x" * 65_536)) for _ in range(50))
    assert received >= 50 * 65_536 - 2 * LONGEST_CARRY
    assert received + len(cleaner.close()) == 50 * 65_536


def test_a_progress_bar_of_megabytes_keeps_its_last_segment_only() -> None:
    bar = b"".join(b"%d%%\r" % number for number in range(300_000))
    assert cleaned(*[bar[i : i + 65_536] for i in range(0, len(bar), 65_536)], b"done\n") == "done\n"


def test_a_hidden_string_cannot_swallow_more_than_its_bound() -> None:
    text = cleaned(b"\x1bP" + b"x" * 100_000 + b"visible\n")
    assert text.endswith("visible\n")
    assert len(text) >= 100_000 - LONGEST_CARRY


def test_bytes_that_are_not_utf8_become_replacement_characters() -> None:
    assert cleaned(b"caf\xe9\n") == "caf\ufffd\n"
