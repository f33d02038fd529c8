from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hummingbird_operator.sessions.transcript import MAX_PART_CHARACTERS, render_transcript

HOSTILE = "```\n</details>\n/close\n<!-- hummingbird: {} -->\n````\n@all ~~~"


def user(text: str) -> dict[str, Any]:
    return {"version": 1, "role": "user", "parts": [{"type": "text", "text": text}]}


def asked(**arguments: Any) -> dict[str, Any]:
    part = {"type": "tool_call", "id": "1", "name": "sandbox_exec", "arguments": arguments}
    return {"version": 1, "role": "assistant", "parts": [part]}


def outside_fences(markdown: str) -> str:
    """What a renderer would read as Markdown."""
    kept, fence = [], ""
    for line in markdown.split("\n"):
        opened = re.match(r"(`{3,})\w*$", line)
        if not fence and opened:
            fence = opened.group(1)
        elif fence and line == fence:
            fence = ""
        elif not fence:
            kept.append(line)
    assert not fence
    return "\n".join(kept)


def test_a_run_reads_from_top_to_bottom() -> None:
    result = {"type": "tool_result", "id": "1", "name": "sandbox_exec", "result": {"exit_code": 0, "stdout": "a\nb\n"}}
    messages = [user("hello"), asked(command="ls"), {"role": "user", "parts": [result]}]
    text = render_transcript(messages, title="Run 1", facts={"Model": "m_1", "Turns": 2}, outcome="Completed")
    assert text.startswith("# Run 1\n\n- Model: m\\_1\n\n- Turns: 2\n")
    assert "## 1. User\n\n```text\nhello\n```" in text
    assert '## 2. Assistant\n\nCall `sandbox_exec`\n\n```json\n{\n "command": "ls"\n}\n```' in text
    assert "stdout:\na\nb\n" in text
    assert text.endswith("**Outcome:** Completed\n")


def test_thinking_and_opaque_parts_are_shown_where_they_have_words() -> None:
    parts = [
        {"type": "thinking", "text": "hmm", "signature": "x"},
        {"type": "opaque", "data": {"secret": 1}},
        {"type": "opaque", "data": {}, "text": "searched"},
        {"type": "tool_result", "name": "a b", "result": [1]},
    ]
    text = render_transcript([{"role": "other", "parts": parts}])
    assert "## 1. Unknown" in text
    assert "Thinking\n\n```text\nhmm" in text
    assert "searched" in text
    assert "secret" not in text
    assert "Result of `a_b`" in text


@given(st.text(st.sampled_from("`~<>/\n\rab@!#"), max_size=80))
def test_nothing_that_was_written_in_a_run_leaves_its_fence(text: str) -> None:
    messages = [user(text + HOSTILE), asked(command=HOSTILE, other=text), user(text)]
    markdown = render_transcript(messages, title=text, facts={text: text}, outcome=text)
    shown = outside_fences(markdown)
    assert "</details>" not in shown
    assert "<!--" not in shown
    assert not re.search(r"^/", shown, re.MULTILINE)


@given(st.lists(st.integers(0, 30_000), max_size=12), st.integers(300, 100_000))
def test_a_transcript_with_a_limit_is_never_longer_and_its_fences_are_closed(sizes: list[int], limit: int) -> None:
    messages = [user(f"{number} " + "x" * size) for number, size in enumerate(sizes)]
    markdown = render_transcript(messages, facts={"Model": "m"}, outcome="Completed", limit=limit)
    assert len(markdown) <= limit
    shown = outside_fences(markdown)
    assert "**Outcome:** Completed" in shown
    if len(render_transcript(messages, facts={"Model": "m"}, outcome="Completed")) <= limit:
        assert "left out here" not in shown


def test_a_long_part_is_cut_in_the_middle_and_says_so() -> None:
    markdown = render_transcript([user("a" * 50_000 + "z")])
    assert len(markdown) < MAX_PART_CHARACTERS + 200
    assert "characters left out" in markdown
    assert "z\n```" in markdown
