"""What globs have to do with each other: which fits all that another one fits, and which share something."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase

_PARTS = re.compile(r"\[!?.[^]]*\]|.", re.DOTALL)
_REGULAR = re.compile(r"^\^|\$$|\\|\(.*\|.*\)|(?<![0-9xX*?\]])\.[*+]")


def is_glob(text: str) -> bool:
    """Whether it may fit more than itself."""
    return re.search(r"[*?\[]", text) is not None


def is_regular(text: str) -> bool:
    """Whether it looks like a regular expression."""
    return _REGULAR.search(text) is not None


def covers(first: str, second: str) -> bool:
    """Whether all that the second fits, the first does too. Says no where it is not sure, as with some sets."""
    return _walk(_parts(first), _parts(second), _takes)


def overlap(first: str, second: str) -> bool:
    """Whether some text fits both; a set in brackets counts as any character."""
    one, other = (["?" if len(part) > 1 else part for part in _parts(glob)] for glob in (first, second))
    return _walk(one, other, lambda a, b: a == b or "?" in (a, b), both=True)


def _parts(glob: str) -> list[str]:
    """Its characters, sets and wildcards; of a row of wildcards the star comes last, and once."""
    found: list[str] = []
    for part in _PARTS.findall(glob):
        if part == "*" and found[-1:] == ["*"]:
            continue
        if part == "?" and found[-1:] == ["*"]:
            found.insert(-1, part)
        else:
            found.append(part)
    return found


def _takes(part: str, other: str) -> bool:
    """Whether the part of the covering glob fits whatever one character the other's may be."""
    return part == other or (part == "?" and other != "*") or (len(other) == 1 < len(part) and fnmatchcase(other, part))


def _walk(first: list[str], second: list[str], alike: Callable[[str, str], bool], *, both: bool = False) -> bool:
    reached = {(0, 0)}
    waiting = [(0, 0)]
    while waiting:
        for step in _steps(first, second, *waiting.pop(), alike, both=both):
            if step not in reached:
                reached.add(step)
                waiting.append(step)
    return (len(first), len(second)) in reached


def _steps(
    first: list[str], second: list[str], i: int, j: int, alike: Callable[[str, str], bool], *, both: bool
) -> Iterator[tuple[int, int]]:
    """Where a match may go on: past a star, over what a star takes, or over parts that are alike.

    `both`: the second one's star is a wildcard as well; else it stands for any text, which only a star takes.
    """
    a, b = first[i : i + 1], second[j : j + 1]
    if a == ["*"]:
        yield i + 1, j
        if b:
            yield i, j + 1
    elif both and b == ["*"]:
        yield i, j + 1
        if a:
            yield i + 1, j
    elif a and b and b != ["*"] and alike(a[0], b[0]):
        yield i + 1, j + 1
