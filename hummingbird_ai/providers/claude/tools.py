"""Tools as Claude takes them: JSON Schema as it is, and the provider's own web search beside them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from hummingbird_ai.errors import BadRequest
from hummingbird_ai.messages import ToolDef
from hummingbird_ai.serialise import clean

MAX_SEARCHES = 5
"""Searches one request may make: each is billed, so there is an end to them."""

WEB_SEARCH: dict[str, Any] = {"type": "web_search_20250305", "name": "web_search", "max_uses": MAX_SEARCHES}
"""The one version of the server tool that Vertex AI takes."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # 64 is the older limit, the newer one is 128
_AT_ROOT = ("anyOf", "oneOf", "allOf")


def declarations(tools: Sequence[ToolDef], *, web_search: bool) -> list[dict[str, Any]]:
    """`tools` in the order given; BadRequest names the tool that cannot be declared and what would be right."""
    declared: list[dict[str, Any]] = []
    taken = {"web_search"} if web_search else set()
    for tool in tools:
        if not _NAME.fullmatch(tool.name):
            raise BadRequest(f"the tool name {tool.name!r} is not 1 to 64 of A-Z a-z 0-9 _ -")
        if tool.name in taken:
            raise BadRequest(f"two tools have the name {tool.name!r}")
        taken.add(tool.name)
        declared.append({"name": tool.name, "description": tool.description, "input_schema": _schema(tool)})
    return [*declared, dict(WEB_SEARCH)] if web_search else declared


def _schema(tool: ToolDef) -> dict[str, Any]:
    schema: dict[str, Any] = clean(tool.parameters)
    if schema.get("type", "object") != "object":
        raise BadRequest(f"the schema of the tool {tool.name!r} has the type {schema['type']!r}, it must be object")
    found = [key for key in _AT_ROOT if key in schema]
    if found:
        raise BadRequest(f"the schema of the tool {tool.name!r} has {found[0]} at its root, which Claude cannot take")
    return {"type": "object", **{key: value for key, value in schema.items() if key != "type"}}
