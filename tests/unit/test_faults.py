"""docs/faults.md: every number that our collections of reports have stands there, with tests that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
TRAPS = {
    "1": "abc",
    "2": "abc",
    "3": "abcdef",
    "4": "abcd",
    "5": "abc",
    "6": "ab",
    "7": "abcdefgh",
    "8": "abcd",
    "9": "abc",
    "10": "a",
    "11": "abcd",
    "12": "abc",
    "13": "abcd",
    "14": "a",
}
"""Chapters on kopf, and the traps in each."""
ELSEWHERE = {10, 25, 26, 30, 31, 32, 33, 45, 46}
"""Reports of ingestors that a bot at GitLab cannot meet; the page says why."""
NUMBERS = {
    *(f"F{number}" for number in range(1, 11)),
    *(f"T1.{chapter}{letter}" for chapter, letters in TRAPS.items() for letter in letters),
    *(f"R{number}" for number in range(1, 36)),
    *(f"P{number}" for number in range(1, 60)),
    *(f"M{number}" for number in range(1, 42)),
    *("P25a", "P25b", "P41a", "P41b", "P41c"),
    *(f"S{number}" for number in range(1, 32)),
    *(f"C{number}" for number in (*range(1, 15), 20, 21)),
    *(f"I{number}" for number in set(range(1, 64)) - ELSEWHERE),
}
UNTOUCHED = "does not touch: "


def rows() -> Iterator[list[str]]:
    """Number, what broke, what we do, tests."""
    for line in (ROOT / "docs" / "faults.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and re.fullmatch(r"[FTRPMSCI]\d[\d.]*[a-h]?", cells[0]):
            assert len(cells) == 4, line
            yield cells


@cache
def functions_of(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / "tests" / path).read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_every_number_of_the_reports_stands_on_the_page_once() -> None:
    found = [number for number, *_ in rows()]
    assert sorted(NUMBERS - set(found)) == []
    assert sorted(set(found) - NUMBERS) == []
    assert sorted({number for number in found if found.count(number) > 1}) == []


def test_every_fault_that_touches_us_names_a_test_and_every_test_that_is_named_exists() -> None:
    for number, broke, ours, tests in rows():
        assert broke, number
        assert ours.removeprefix(UNTOUCHED), number
        named = re.findall(r"`([\w/]+\.py)::(test_\w+)`", tests)
        assert len(named) == tests.count("::"), f"{number}: {tests}"
        assert named or ours.startswith(UNTOUCHED), f"{number} touches us and has no test"
        for path, test in named:
            assert (ROOT / "tests" / path).exists(), f"{number}: tests/{path}"
            assert test in functions_of(path), f"{number}: tests/{path}::{test}"


def test_every_report_of_an_ingestor_without_a_row_is_named_with_its_reason() -> None:
    page = (ROOT / "docs" / "faults.md").read_text()
    _, _, section = page.partition("## Ingestors: the reports")
    introduction = section[: section.index("| no. |")]
    assert {int(number) for number in re.findall(r"\bI(\d+)\b", introduction)} == ELSEWHERE


def test_what_stood_in_for_the_queue_is_named_with_its_version_and_nobody_claims_amazon() -> None:
    pinned = re.search(r"ministack==([\d.]+)", (ROOT / "requirements" / "servers.txt").read_text())
    assert pinned
    assert f"ministack {pinned[1]} and not Amazon" in (ROOT / "tests" / "e2e" / "test_ingest_sqs.py").read_text()
    assert "no real SQS was tried: a stand-in, and ministack" in (ROOT / "docs" / "ingest.md").read_text()
    claim = re.compile(r"(tested|tried|verified) (against|with|on) (a )?(real )?(aws|amazon|sqs)", re.IGNORECASE)
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    assert [page.name for page in pages if claim.search(page.read_text())] == []
