"""Expected against found, as people read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from tests.e2e.evening.oracle import Expected
from tests.e2e.evening.verdict import Verdict


def table(verdict: Verdict) -> str:
    """Expected against found, with how the runs ended."""
    rows = [("what", "expected", "found", "missing", "unexpected", "ended")]
    named = {name: _label(one) for name, one in verdict.expected.items()}
    for label in sorted(set(named.values())):
        mine = [name for name, each in named.items() if each == label]
        found = [name for name in mine if name in verdict.runs]
        surely = sum(not verdict.expected[name].optional for name in mine)
        missing = sum(not verdict.expected[name].optional for name in mine if name not in verdict.runs)
        ends = Counter(verdict.runs[name].reason or "NOT FINISHED" for name in found)
        wanted = str(surely) if surely == len(mine) else f"{surely} to {len(mine)}"
        rows.append((label, wanted, str(len(found)), str(missing), "", _counts(ends)))
    strange = [run for name, run in verdict.runs.items() if name not in named]
    rows.append(("runs of nobody", "0", str(len(strange)), "", str(len(strange)), ""))
    marks = Counter(mark.get("state", "none") for _, _, mark in verdict.bots)
    noted = sum(1 for run in verdict.runs.values() if "id" in run.status.get("note", {}))
    rows.append(("notes of the bot", str(noted), str(marks.total()), "", "", _counts(marks)))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return "\n".join(_line(row, widths) for row in rows)


def _label(one: Expected) -> str:
    return f"notice {one.notice}" if one.notice else f"{one.kind} {one.workflow}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items(), key=lambda each: -each[1]))


def _line(row: Sequence[str], widths: Iterable[int]) -> str:
    cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
    return "  ".join([*cells, row[5]]).rstrip()
