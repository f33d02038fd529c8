"""A comment as a command: `/hummingbird <workflow> [words]` as its first line that is not blank.

Only there and only at the first column: whoever quotes a command, or shows one in a code block, orders nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

COMMAND = "/hummingbird"
HELP = "help"


@dataclass(frozen=True)
class Command:
    """`word` is what stands for the workflow, `help` where nothing does; `message` all that follows."""

    word: str
    message: str


def parse(text: str) -> Command | None:
    """The command of a comment; None where it is none. Case counts, as in workflow names."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    first = next((number for number, line in enumerate(lines) if line.strip()), None)
    if first is None or not _calls(lines[first]):
        return None
    words = lines[first][len(COMMAND) :].split(maxsplit=1)
    word, trailing = (words[0] if words else HELP), (words[1] if len(words) > 1 else "")
    return Command(word, "\n".join([trailing, *lines[first + 1 :]]).strip())


def choose(word: str, names: Iterable[str]) -> str | None:
    """The workflow that a word means: that very name, else the only one that begins so."""
    known = list(names)
    if word in known:
        return word
    fitting = [name for name in known if name.startswith(word)]
    return fitting[0] if len(fitting) == 1 else None


def _calls(line: str) -> bool:
    rest = line[len(COMMAND) :]
    return line.startswith(COMMAND) and (not rest or rest[0].isspace())
