from __future__ import annotations

from typing import Any

import pytest

from hummingbird_ai.errors import BadRequest
from hummingbird_ai.messages import ToolDef
from hummingbird_ai.providers.claude.tools import WEB_SEARCH, declarations


def tool(name: str = "run", **schema: Any) -> ToolDef:
    return ToolDef(name, "Run it", schema)


def test_tools_keep_their_order_and_their_schema_and_the_search_comes_last() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"n": {"$ref": "#/$defs/n"}},
        "$defs": {"n": {"const": 1}},
    }

    assert declarations([tool(**schema), tool("list")], web_search=True) == [
        {"name": "run", "description": "Run it", "input_schema": schema},
        {"name": "list", "description": "Run it", "input_schema": {"type": "object"}},
        WEB_SEARCH,
    ]


def test_without_tools_and_search_nothing_is_declared() -> None:
    assert declarations([], web_search=False) == []


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        ([tool("a b")], "'a b' must be 1 to 64"),
        ([tool("x" * 65)], "must be 1 to 64"),
        ([tool(), tool()], "two tools have the name 'run'"),
        ([tool("web_search")], "two tools have the name 'web_search'"),
        ([tool(type="array")], "has the type 'array', it must be object"),
        ([tool(type="object", anyOf=[{}])], "has anyOf at its root"),
    ],
)
def test_a_tool_that_cannot_be_declared_is_named(tools: list[ToolDef], words: str) -> None:
    """Report 39: the provider would say so in the middle of a run."""
    with pytest.raises(BadRequest, match=words):
        declarations(tools, web_search=True)


def test_a_tool_may_be_called_web_search_where_the_provider_does_not_search() -> None:
    assert declarations([tool("web_search")], web_search=False)[0]["name"] == "web_search"
