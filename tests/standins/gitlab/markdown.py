"""How GitLab reads a note's text: quick actions and mentions.

Two readings of quick actions are known from GitLab's source (`lib/gitlab/quick_actions/extractor.rb`): the older one
finds them with one regular expression over the whole text, the current one in top-level paragraphs of the parsed
markdown. The stand-in executes what either of them would, and where it cannot tell (lazy continuation lines) it
executes. It shares nothing with the operator's own code that makes text inert.
"""

from __future__ import annotations

import bisect
import html
import re
from dataclasses import dataclass

_WORDS = """
add_child add_contacts add_email approve assign assign_reviewer award blocked_by blocks board_move cc child_of
clear_health_status clear_weight clone close confidential copy_metadata create_merge_request done draft due
duplicate epic estimate estimate_time health_status invite_email iteration label labels link lock merge milestone
move page parent_epic promote promote_to promote_to_incident publish react ready reassign reassign_reviewer rebase
relabel relate remove remove_child remove_child_epic remove_contacts remove_due_date remove_email remove_epic
remove_estimate remove_estimate_time remove_iteration remove_label remove_milestone remove_parent remove_parent_epic
remove_reviewer remove_time_spent remove_weight remove_zoom reopen request_changes request_review review set_parent
severity ship shrug spend spend_time spent submit_review subscribe tableflip tag target_branch title todo type
unapprove unassign unassign_reviewer unlabel unlink unlock unsubscribe weight zoom
"""
NAMES = tuple(_WORDS.split())

_NAMES = "|".join(sorted(NAMES, key=len, reverse=True))
_COMMAND = re.compile(rf"^/(?P<cmd>{_NAMES})(?:[ ](?P<arg>[^\n]*))?(?:\s*\n|$)", re.IGNORECASE | re.MULTILINE)
_LINE_COMMAND = re.compile(rf"/(?P<cmd>{_NAMES})(?: (?P<arg>.*))?\s*", re.IGNORECASE)
_OLD_READING = re.compile(
    r"(?P<code>^```.+?\n```$)"
    r"|(?P<inline>^.*`\n*.+?\n*`$)"
    r"|(?P<html>^<[^>]+?>\n.+?\n</[^>]+?>$)"
    r"|(?P<quote>^>>>.+?\n>>>$)"
    rf"|(?:^/(?P<cmd>{_NAMES})(?:[ ](?P<arg>[^\n]*))?(?:\s*\n|$))",
    re.IGNORECASE | re.MULTILINE | re.DOTALL,
)
_FENCE = re.compile(r" {0,3}(?P<fence>`{3,}|~{3,})(?P<info>.*)")
_HTML_BLOCK = re.compile(
    r" {0,3}</?(?:address|article|aside|blockquote|details|div|dl|dt|dd|fieldset|figure|footer|form"
    r"|h[1-6]|header|hr|iframe|li|main|nav|ol|p|section|summary|table|tbody|td|tfoot|th|thead|tr|ul)(?:[\s/>]|$)",
    re.IGNORECASE,
)
_MENTION = re.compile(r"(?<![A-Za-z0-9])@(?P<user>[A-Za-z0-9_.][A-Za-z0-9_.\-]*(?:/[A-Za-z0-9_.\-]+)*)")
_READINGS = (
    re.compile(r"(?!)"),  # the plain one: nothing comes before code spans
    re.compile(r"\|"),  # a table cuts its cells before it looks for code
    re.compile(r"(?:\w+://|www\.)[^\s<]*"),  # a bare link swallows what touches it
    re.compile(r"\$[^$\n]+\$"),  # mathematics
    re.compile(r"\[\[.*?\]\]"),  # wiki links
)
"""What some markdown reader takes out of a paragraph before code spans are paired: a name is live if any says so."""
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)


@dataclass(frozen=True)
class Command:
    """A quick action: its name in lower case and the rest of its line."""

    name: str
    argument: str
    line: int


@dataclass(frozen=True)
class Line:
    """One line with the block it stands in: text, code, html or quote."""

    text: str
    block: str


def extract(body: str) -> tuple[str, list[Command]]:
    """The text that is stored and the commands that run: `\\r` goes first, then every live line is taken out."""
    text = body.replace("\r", "")
    if not _COMMAND.search(text):  # nothing looks like a command: both readings agree, and the old one is slow
        return text.rstrip(), []
    found = {command.line: command for command in [*_old_commands(text), *_current_commands(text)]}
    lines = text.split("\n")
    kept = [line for number, line in enumerate(lines) if number not in found]
    return "\n".join(kept).rstrip(), [found[number] for number in sorted(found)]


def _old_commands(text: str) -> list[Command]:
    return [
        Command(match["cmd"].lower(), (match["arg"] or "").strip(), text.count("\n", 0, match.start()))
        for match in _OLD_READING.finditer(text)
        if match["cmd"]
    ]


def _current_commands(text: str) -> list[Command]:
    commands = []
    for number, line in enumerate(blocks(text)):
        match = _LINE_COMMAND.fullmatch(line.text) if line.block == "text" else None
        if match:
            commands.append(Command(match["cmd"].lower(), (match["arg"] or "").strip(), number))
    return commands


def blocks(text: str, *, top_level: bool = False) -> list[Line]:
    """Sort lines into blocks by CommonMark's rules for top-level fences, HTML blocks and GitLab's `>>>` quotes."""
    lines: list[Line] = []
    fence, quoted, in_html = "", False, False
    for line in text.split("\n"):
        opening = None if top_level and line.startswith(" ") else _FENCE.fullmatch(line)
        if quoted and line.strip() == ">>>":
            fence, quoted, in_html = "", False, False
            lines.append(Line(line, "quote"))
        elif fence:
            closed = opening and opening["fence"].startswith(fence) and not opening["info"].strip()
            fence = "" if closed else fence
            lines.append(Line(line, "code"))
        elif opening and not in_html and not ("`" in opening["fence"] and "`" in opening["info"]):
            fence = opening["fence"]
            lines.append(Line(line, "code"))
        elif line.startswith(">>>") and not line[3:].strip() and not quoted:
            quoted = True
            lines.append(Line(line, "quote"))
        else:
            in_html = bool(line.strip()) and (in_html or bool(_HTML_BLOCK.match(line)))
            lines.append(Line(line, "html" if in_html else "quote" if quoted else "text"))
    return lines


def mentions(body: str) -> list[str]:
    """Names that GitLab would notify: `@name` in rendered text, so entities count and code does not."""
    if "@" not in body and "&" not in body:
        return []
    found: dict[str, None] = {}
    text = body.replace("\r", "")
    for paragraph, block in [*_paragraphs(text, top_level=False), *_paragraphs(text, top_level=True)]:
        for name in _names(_COMMENT.sub(" ", paragraph), block):
            found[name] = None
    return list(found)


def _names(paragraph: str, block: str) -> list[str]:
    """Names in one paragraph in any reading of it."""
    found: list[str] = []
    for reading in _READINGS:
        for part in reading.split(paragraph):
            shown = part if block == "html" else _without_code_spans(part)
            rendered = html.unescape(re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", shown))
            found += [match["user"] for match in _MENTION.finditer(rendered)]
    return found


def _paragraphs(text: str, *, top_level: bool) -> list[tuple[str, str]]:
    """Runs of lines of one block without blank lines between them; code is left out.

    `top_level`: an indented fence belongs to a list item, which a line at the margin ends, so it hides nothing.
    """
    runs: list[tuple[list[str], str]] = []
    previous = ""
    for line in blocks(text, top_level=top_level):
        if line.block == "code" or not line.text.strip():
            previous = ""
            continue
        if line.block != previous:
            runs.append(([], line.block))
        runs[-1][0].append(line.text)
        previous = line.block
    return [("\n".join(lines), block) for lines, block in runs]


def _without_code_spans(paragraph: str) -> str:
    """Cut out code spans: a run of backticks up to the next run of the same length; a backslash takes one away."""
    runs = [(run.start(), run.end()) for run in re.finditer(r"`+", paragraph)]
    starts: dict[int, list[int]] = {}
    for index, (start, end) in enumerate(runs):
        starts.setdefault(end - start, []).append(index)
    kept, position, index = [], 0, 0
    while index < len(runs):
        start, end = runs[index]
        length = end - start - _escaping(paragraph, start)
        same = starts.get(length, [])
        following = bisect.bisect_right(same, index)
        if not length or following == len(same):
            index += 1
            continue
        kept.append(paragraph[position : end - length] + " ")
        position = runs[same[following]][1]
        index = same[following] + 1
    return "".join([*kept, paragraph[position:]])


def _escaping(text: str, position: int) -> int:
    """1 if the character at `position` is escaped by a backslash, else 0."""
    count = 0
    while position - count > 0 and text[position - count - 1] == "\\":
        count += 1
    return count % 2
