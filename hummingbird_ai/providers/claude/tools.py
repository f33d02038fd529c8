"""Tools as Claude takes them: JSON Schema as it is, and the provider's own web search beside them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from hummingbird_ai.errors import BadRequest
from hummingbird_ai.messages import ToolDef
from hummingbird_ai.providers import given

MAX_SEARCHES = 5
"""Searches one request may make: each is billed, so there is an end to them."""

WEB_SEARCH: dict[str, Any] = {"type": "web_search_20250305", "name": "web_search", "max_uses": MAX_SEARCHES}
"""The one version of the server tool that Vertex AI takes."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # 64 is the older limit, the newer one is 128
_AT_ROOT = frozenset({"anyOf", "oneOf", "allOf"})


def declarations(tools: Sequence[ToolDef], *, web_search: bool) -> list[dict[str, Any]]:
    """`tools` in the order given; BadRequest names the tool that cannot be declared and what would be right."""
    taken = [str(WEB_SEARCH["name"])] if web_search else []
    declared: list[dict[str, Any]] = []
    for tool, schema in given.tools(tools, names=_NAME, allowed="1 to 64 of A-Z a-z 0-9 _ -", taken=taken):
        for key in _AT_ROOT:
            if key in schema:
                raise BadRequest(
                    f"the schema of the tool {tool.name!r} has {key} at its root, which Claude cannot take"
                )
        declared.append({"name": tool.name, "description": tool.description, "input_schema": schema})
    return [*declared, dict(WEB_SEARCH)] if web_search else declared
