"""A run as Markdown that people read: every turn, with results cut to what a reader can use.

Everything that a model, a tool or a person wrote stands inside code fences longer than any in the text itself, so it
can neither close a `<details>` block nor start a quick action. It is read from canonical messages, so it does not
depend on the model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hummingbird_operator.sessions.outcomes import Outcome

if TYPE_CHECKING:
    from hummingbird_operator.sessions.state import LoopResult

MAX_PART_CHARACTERS = 8_000
"""Characters of one text, call or result; more is cut in the middle, and said."""

NOTE_LIMIT = 90_000
"""Characters that fit into a note beside its answer (DESIGN §8)."""

_TITLES = {"user": "User", "assistant": "Assistant"}


def render_transcript(
    messages: Iterable[Mapping[str, Any]],
    *,
    title: str = "Transcript",
    facts: Mapping[str, object] | None = None,
    outcome: str = "",
    limit: int | None = None,
) -> str:
    """Canonical messages as Markdown; `facts` (model, turns, cost, …) stand as a list on top.

    With `limit` the result has at most so many characters: messages from the middle are left out, whole ones only.
    """
    head = [f"# {_line(title)}", *(f"- {_line(key)}: {_line(value)}" for key, value in (facts or {}).items())]
    entries = [_entry(number, message) for number, message in enumerate(messages, start=1)]
    foot = [f"**Outcome:** {_line(outcome)}"] if outcome else []
    if limit is not None:
        entries = _within(entries, limit - len(_joined([*head, *foot])) - 2)
    return _joined([*head, *entries, *foot])


def run_transcript(
    messages: Iterable[Mapping[str, Any]],
    result: LoopResult,
    *,
    name: str,
    workflow: str,
    model: str,
    limit: int | None = None,
) -> str:
    """The transcript of a run by that name, with what it came to."""
    return render_transcript(
        messages,
        title=f"Run {name}: {workflow}",
        facts={
            "Model": model,
            "Turns": result.iterations,
            "Tokens": result.usage.total_tokens,
            "Cost": f"${result.cost_usd:.4f}",
        },
        outcome=f"{result.outcome} {result.message}".strip() if result.outcome is not Outcome.SHUTTING_DOWN else "",
        limit=limit,
    )


def _entry(number: int, message: Mapping[str, Any]) -> str:
    parts = [shown for part in message.get("parts", []) if (shown := _part(part))]
    return "\n\n".join([f"## {number}. {_TITLES.get(str(message.get('role')), 'Unknown')}", *parts])


def _part(part: Mapping[str, Any]) -> str:
    kind = part.get("type")
    if kind == "text":
        return _fenced(str(part.get("text", "")), "text")
    if kind == "tool_call":
        return f"Call `{_name(part)}`\n\n{_fenced(_pretty(part.get('arguments', {})), 'json')}"
    if kind == "tool_result":
        return f"Result of `{_name(part)}`\n\n{_fenced(_pretty(part.get('result', {})), 'json')}"
    if kind == "thinking":
        return _titled("Thinking", part)
    return _titled("Provider's own part", part)


def _titled(title: str, part: Mapping[str, Any]) -> str:
    text = str(part.get("text") or "")
    return f"{title}\n\n{_fenced(text, 'text')}" if text.strip() else ""


def _name(part: Mapping[str, Any]) -> str:
    return re.sub(r"[^A-Za-z0-9_.:-]", "_", str(part.get("name", "")))[:128]


def _line(value: object) -> str:
    """One line that HTML and Markdown leave alone."""
    text = " ".join(str(value).split())[:500]
    return re.sub(r"([\\`*_\[\]<>@/#|~!])", r"\\\1", text)


def _pretty(value: object) -> str:
    """Command lines and outputs stay readable: an object's long strings are shown with their line breaks."""
    if not isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False, indent=1, default=str)
    long = {key: text for key, text in value.items() if isinstance(text, str) and "\n" in text}
    short = {key: item for key, item in value.items() if key not in long}
    texts = [f"{key}:\n{text}" for key, text in long.items()]
    return "\n".join([json.dumps(short, ensure_ascii=False, indent=1, default=str), *texts])


def _fenced(text: str, language: str) -> str:
    cut = _cut(text.replace("\r\n", "\n").replace("\r", "\n"))
    longest = max((len(run) for run in re.findall(r"`+", cut)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{cut}\n{fence}"


def _cut(text: str) -> str:
    if len(text) <= MAX_PART_CHARACTERS:
        return text
    head, tail = text[: MAX_PART_CHARACTERS * 3 // 4], text[-MAX_PART_CHARACTERS // 4 :]
    return f"{head}\n[... {len(text) - len(head) - len(tail)} characters left out ...]\n{tail}"


def _within(entries: Sequence[str], room: int) -> list[str]:
    """As many whole entries from both ends as fit; the first one and the newest ones matter most."""
    notice_room = 80
    if sum(len(entry) + 2 for entry in entries) <= room:
        return list(entries)
    left = room - notice_room
    kept_first = [entry for entry in entries[:1] if len(entry) + 2 <= left // 2]
    left -= sum(len(entry) + 2 for entry in kept_first)
    kept_last: list[str] = []
    for entry in reversed(entries[len(kept_first) :]):
        left -= len(entry) + 2
        if left < 0:
            break
        kept_last.insert(0, entry)
    omitted = len(entries) - len(kept_first) - len(kept_last)
    notice = f"_{omitted} messages are left out here; the stored transcript has them._"
    return [*kept_first, notice, *kept_last] if room >= notice_room else []


def _joined(blocks: Sequence[str]) -> str:
    return "\n\n".join(blocks) + "\n"
