"""A merge request's threads as a person reads them in the browser: no markers, transcripts folded, reactions beside."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from tests.standins.gitlab import GitLabStandIn

_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_BLOCK = re.compile(r"^```[^\n]*\n.*?^```$", re.DOTALL | re.MULTILINE)
_KEPT = 3
_FOLD = re.compile(r"<details><summary>(?P<summary>.*?)</summary>|</details>", re.DOTALL)


@dataclass(frozen=True)
class Said:
    """One note. `words` is what is visible of it, `reactions` the names of its emoji in the order they came."""

    id: int
    discussion: str
    author: str
    words: str
    reactions: tuple[str, ...]
    reply: bool
    internal: bool
    resolved: bool

    def text(self) -> str:
        """As it stands on the page, a reply indented."""
        marks = [f"[{' '.join(self.reactions)}]"] if self.reactions else []
        marks += ["(internal)"] if self.internal else []
        marks += ["(thread resolved)"] if self.resolved and not self.reply else []
        indent = "      " if self.reply else "  "
        return "\n".join([f"{indent}{self.author}:  {' '.join(marks)}".rstrip(), *_lines(self.words, indent + "  | ")])


def read(gitlab: GitLabStandIn, project: str, iid: int) -> list[Said]:
    """All notes of the merge request but GitLab's own, threads in the order in which they began."""
    found = gitlab.state.project(project)
    if found is None:
        raise KeyError(f"no project {project}")
    with gitlab.state.lock:
        notes = sorted(found.merge_requests[iid].notes.values(), key=lambda note: note.id)
        first: dict[str, int] = {}
        for note in notes:
            first.setdefault(note.discussion_id, note.id)
        said = [
            Said(
                id=note.id,
                discussion=note.discussion_id,
                author=note.author.username,
                words=visible(note.body),
                reactions=tuple(award["name"] for award in note.emoji),
                reply=note.id != first[note.discussion_id],
                internal=note.internal,
                resolved=note.resolved,
            )
            for note in notes
            if not note.system
        ]
    return sorted(said, key=lambda one: (first[one.discussion], one.id))


def visible(body: str) -> str:
    """What a browser shows of a note: a comment is hidden, a fold is closed."""
    return re.sub(r"\n{3,}", "\n\n", "".join(_unfolded(_COMMENT.sub("", body)))).strip()


def page(title: str, said: Sequence[Said]) -> str:
    """The whole merge request's conversation."""
    return "\n".join([f"── {title}", *(one.text() for one in said), ""])


def shortened(said: Sequence[Said], before: Sequence[Said]) -> list[Said]:
    """The notes, each code block of several lines that stood in the earlier ones as well cut to its first and last."""
    known = {block for one in before for block in _BLOCK.findall(one.words)}
    return [replace(one, words=_BLOCK.sub(lambda found: _cut(found[0], known), one.words)) for one in said]


def _cut(block: str, known: Collection[str]) -> str:
    fence, *lines, end = block.splitlines()
    if block not in known or len(lines) <= _KEPT:
        return block
    return "\n".join([fence, lines[0], f"… {len(lines) - 2} lines, as above …", lines[-1], end])


def _unfolded(text: str) -> Iterator[str]:
    """What stands outside of folds, each of which is its summary's line; one in another is not seen at all."""
    depth = begin = 0
    for tag in _FOLD.finditer(text):
        opens = tag["summary"] is not None
        if depth == 0:
            yield text[begin : tag.start()]
            yield f"▸ {tag['summary']}" if opens else tag[0]
        depth = depth + 1 if opens else max(0, depth - 1)
        begin = tag.end()
    if depth == 0:
        yield text[begin:]


def _lines(words: str, indent: str) -> list[str]:
    return [f"{indent}{line}".rstrip() for line in words.splitlines()]
