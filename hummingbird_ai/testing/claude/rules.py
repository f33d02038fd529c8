"""What Claude refuses besides shapes and order: parameters of the model, tools, cache markers, sealed content."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from hummingbird_ai.testing.claude.blocks import Block, Conversation
from hummingbird_ai.testing.claude.models import Traits
from hummingbird_ai.testing.claude.seals import digest, seal

NEWER_VERSION = "2026-10-21"
VERSIONS = ("vertex-2023-10-16", NEWER_VERSION)
MARKERS = 4
BETAS = frozenset(
    {
        "web-search-2025-03-05",
        "thinking-binding-controls-2026-08-01",
        "mid-conversation-system-clear-at-2026-08-21",
        "mid-conversation-tool-changes-2026-07-01",
        "context-management-2025-06-27",
        "interleaved-thinking-2025-05-14",
        "model-context-window-exceeded-2025-08-26",
    }
)
"""The beta features that Vertex AI takes in the `anthropic-beta` header."""


def parameter_problems(asked: Conversation, model: str, traits: Traits) -> Iterator[str]:
    """`model` is the name for messages."""
    body = asked.body
    if body.get("stream"):
        yield "stream: this method does not stream; use streamRawPredict"
    limit = body["max_tokens"]
    if limit > traits.max_output:
        rule = "which is the maximum allowed number of output tokens for"
        yield f"max_tokens: {limit} > {traits.max_output}, {rule} {model}"
    yield from _sampling_problems(body, traits)
    yield from _thinking_problems(body, traits)
    yield from _tool_problems(body, traits)
    yield from _marker_problems(asked.blocks)
    yield from _sealed_problems(asked.blocks)
    for block in asked.blocks:
        if block.role == "top" and not block.data["text"].strip():
            yield f"{block.path}: text content blocks must be non-empty"
        if block.role == "user" and block.data.get("citations") and body["anthropic_version"] == NEWER_VERSION:
            yield f"{block.path}.text.citations: Extra inputs are not permitted"


def _sampling_problems(body: Mapping[str, Any], traits: Traits) -> Iterator[str]:
    given = [name for name in ("temperature", "top_p", "top_k") if body.get(name) is not None]
    for name in given:
        usual = name == "temperature" and body[name] == 1
        if body["anthropic_version"] == NEWER_VERSION or not (traits.sampling or usual):
            yield f"{name}: `{name}` is not supported for this model. Remove it from the request."


def _thinking_problems(body: Mapping[str, Any], traits: Traits) -> Iterator[str]:
    thinking = body.get("thinking")
    if thinking is None:
        return
    kind = thinking["type"]
    if kind not in traits.thinking:
        usable = ", ".join(sorted(traits.thinking))
        yield f'"thinking.type.{kind}" is not supported for this model. Use one of: {usable}.'
    if kind == "enabled" and thinking["budget_tokens"] >= body["max_tokens"]:
        yield "`max_tokens` must be greater than `thinking.budget_tokens`."
    if kind == "enabled" and (body.get("tool_choice") or {}).get("type") in ("any", "tool"):
        yield "Thinking may not be enabled when tool_choice forces tool use."


def _tool_problems(body: Mapping[str, Any], traits: Traits) -> Iterator[str]:
    tools = body.get("tools") or []
    names = [tool["name"] for tool in tools]
    for index, tool in enumerate(tools):
        if names.count(tool["name"]) > 1:
            yield "tools: Tool names must be unique."
        schema = tool.get("input_schema", {"type": "object"})
        if schema.get("type") != "object":
            yield f"tools.{index}.custom.input_schema.type: Input should be 'object'"
        if any(key in schema for key in ("anyOf", "oneOf", "allOf")):
            yield (
                f"tools.{index}.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top "
                "level"
            )
        if tool.get("allowed_domains") and tool.get("blocked_domains"):
            yield f"tools.{index}: only one of `allowed_domains` and `blocked_domains` may be given"
    choice = body.get("tool_choice")
    if choice is None:
        return
    if choice["type"] in ("auto", "any", "tool") and not tools:
        yield "tool_choice: tool_choice may only be specified while providing tools"
    if choice["type"] in ("any", "tool") and not traits.forced_tools:
        yield f"tool_choice: `{choice['type']}` is not supported for this model; use `auto` or `none`"
    if choice["type"] == "tool" and choice["name"] not in names:
        yield f"tool_choice: Tool '{choice['name']}' not found in provided tools"


def _marker_problems(blocks: Sequence[Block]) -> Iterator[str]:
    marked = [block for block in blocks if block.marker is not None]
    if len(marked) > MARKERS:
        yield f"A maximum of {MARKERS} blocks with cache_control may be provided. Found {len(marked)}."
    for block in marked:
        if block.type == "text" and not block.data["text"].strip():
            yield f"{block.path}.text: cache_control cannot be set for empty text blocks"
    for earlier, later in pairwise(marked):
        if _ttl(earlier) == "5m" and _ttl(later) == "1h":
            yield (
                f"{later.path}.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' "
                "cache_control block. Note that blocks are processed in the following order: `tools`, `system`, "
                "`messages`."
            )


def _ttl(block: Block) -> str:
    return (block.marker or {}).get("ttl") or "5m"


def sealed_result(url: str, title: str) -> dict[str, Any]:
    """One hit of a web search."""
    content = seal("result", digest(url, title))
    return {"type": "web_search_result", "url": url, "title": title, "encrypted_content": content, "page_age": None}


def sealed_citation(url: str, title: str, cited: str) -> dict[str, Any]:
    """A citation of one hit."""
    index = seal("index", digest(url, title, cited))
    place = {"type": "web_search_result_location", "url": url, "title": title}
    return {**place, "encrypted_index": index, "cited_text": cited}


def _sealed_problems(blocks: Sequence[Block]) -> Iterator[str]:
    for block in blocks:
        if block.type == "web_search_tool_result" and isinstance(block.data["content"], list):
            for hit in block.data["content"]:
                if hit["encrypted_content"] != sealed_result(hit["url"], hit["title"])["encrypted_content"]:
                    yield f"{block.path}: Invalid `encrypted_content` in `web_search_result` block"
        for cited in block.data.get("citations") or () if block.role == "assistant" else ():
            known = sealed_citation(cited["url"], cited["title"] or "", cited["cited_text"])
            if cited["encrypted_index"] != known["encrypted_index"]:
                yield f"{block.path}: Invalid `encrypted_index` in `web_search_result_location` citation"
