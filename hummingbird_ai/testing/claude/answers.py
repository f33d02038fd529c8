"""Rendering a script's answers as Claude's JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hummingbird_ai.serialise import encode
from hummingbird_ai.testing.claude.blocks import Block
from hummingbird_ai.testing.claude.cache import BYTES_PER_TOKEN, Counted
from hummingbird_ai.testing.claude.rules import sealed_citation, sealed_result
from hummingbird_ai.testing.claude.thinking import Prefix, signed
from hummingbird_ai.testing.replies import Answer, Search


def content_of(
    answer: Answer, prefix: Prefix, *, model: str, shown: bool, owed: Sequence[tuple[str, Search]]
) -> list[dict[str, Any]]:
    """The blocks, signed behind the request's prefix; `owed` are searches that its history left without a result.

    `shown`: whether the text of a thought is shown. Ids follow from the prefix, so that they are unique within a
    conversation also when another server goes on with it.
    """
    blocks = answer.parts
    if blocks is None:
        blocks = tuple(_blocks(answer, prefix.name, shown, owed))
    content: list[dict[str, Any]] = []
    for block in blocks:
        content.append(signed(block, prefix, model))
        prefix.add(Block("", "assistant", content[-1]))
    return content


def search_id(name: str, index: int) -> str:
    """The id of a search of the answer behind the prefix of this name."""
    return f"srvtoolu_vrtx_{name}{index}"


def _blocks(answer: Answer, name: str, shown: bool, owed: Sequence[tuple[str, Search]]) -> Iterator[dict[str, Any]]:
    for owed_id, search in owed:
        yield _result(owed_id, search)
    if answer.thought and answer.redacted:
        yield {"type": "redacted_thinking"}
    elif answer.thought:
        yield {"type": "thinking", "thinking": answer.thought if shown else ""}
    for index, search in enumerate(answer.searches):
        made = search_id(name, index)
        yield {"type": "server_tool_use", "id": made, "name": "web_search", "input": {"query": search.query}}
        if not search.pending:
            yield _result(made, search)
    if answer.text:
        found = [*(search for _, search in owed), *(search for search in answer.searches if not search.pending)]
        hits = [hit for search in found if not search.error for hit in search.results]
        cited = [sealed_citation(url, title, f"From {title}.") for title, url in hits]
        yield {"type": "text", "text": answer.text, **({"citations": cited} if cited else {})}
    for index, (tool, arguments) in enumerate(answer.calls):
        yield {"type": "tool_use", "id": f"toolu_vrtx_{name}{index}", "name": tool, "input": dict(arguments)}


def _result(made: str, search: Search) -> dict[str, Any]:
    content: Any = [sealed_result(url, title) for title, url in search.results]
    if search.error:
        content = {"type": "web_search_tool_result_error", "error_code": search.error}
    return {"type": "web_search_tool_result", "tool_use_id": made, "content": content}


def stop_reason(answer: Answer, content: Sequence[Mapping[str, Any]]) -> str | None:
    """The answer's own word, or the natural end."""
    if answer.finish != "":
        return answer.finish
    if any(block.get("type") == "tool_use" for block in content):
        return "tool_use"
    return "pause_turn" if any(search.pending for search in answer.searches) else "end_turn"


def usage_of(answer: Answer, content: Sequence[Mapping[str, Any]], counted: Counted) -> dict[str, Any]:
    """Disjoint counts of the input, and output with its thoughts; what the answer says of `usage` overrides them."""
    hidden = len(answer.thought.encode()) if answer.parts is None else 0
    thought = hidden // BYTES_PER_TOKEN
    written = sum(len(encode(block)) for block in content if block.get("type") not in ("thinking", "redacted_thinking"))
    searches = sum(1 for block in content if block.get("type") == "web_search_tool_result")
    usage: dict[str, Any] = {
        "input_tokens": counted.fresh,
        "cache_read_input_tokens": counted.read,
        "cache_creation_input_tokens": counted.written_5m + counted.written_1h,
        "cache_creation": {
            "ephemeral_5m_input_tokens": counted.written_5m,
            "ephemeral_1h_input_tokens": counted.written_1h,
        },
        "output_tokens": written // BYTES_PER_TOKEN + thought,
        "output_tokens_details": {"thinking_tokens": thought},
    }
    if searches:
        usage["server_tool_use"] = {"web_search_requests": searches, "web_fetch_requests": 0}
    usage |= answer.usage
    return {name: count for name, count in usage.items() if count is not None}
