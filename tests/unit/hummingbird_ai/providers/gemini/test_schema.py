from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from hummingbird_ai.errors import BadRequest
from hummingbird_ai.messages import ToolDef
from hummingbird_ai.providers.gemini.schema import declarations


def declared(schema: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = declarations([ToolDef("tool", "A tool", schema)])[0]["parametersJsonSchema"]
    jsonschema.Draft202012Validator.check_schema(result)
    return result


def test_a_plain_schema_is_sent_as_it_is() -> None:
    schema = {
        "type": "object",
        "properties": {"path": {"type": "string", "minLength": 1}, "lines": {"type": ["integer", "null"]}},
        "required": ["path"],
        "additionalProperties": False,
    }

    assert declared(schema) == schema


def test_local_references_are_written_out() -> None:
    """Report 39: unresolved `$defs` and keywords beside a `$ref` are refused."""
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/A", "description": "first"}, "b": {"items": {"$ref": "#/$defs/A"}}},
        "$defs": {"A": {"type": "object", "properties": {"x": {"$ref": "#/$defs/X~1Y"}}}, "X/Y": {"type": "string"}},
    }
    inlined = {"type": "object", "properties": {"x": {"type": "string"}}}

    assert declared(schema) == {
        "type": "object",
        "properties": {"a": {**inlined, "description": "first"}, "b": {"items": inlined}},
    }


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"child": {"$ref": "#"}}},
        {"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"items": {"$ref": "#/$defs/A"}}}},
    ],
)
def test_a_recursive_schema_is_refused_by_the_tools_name(schema: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match="'tool' has a recursive schema"):
        declared(schema)


@pytest.mark.parametrize("reference", ["#/$defs/Nothing", "https://example.com/schema.json", "other.json"])
def test_a_reference_to_something_else_is_refused(reference: str) -> None:
    with pytest.raises(BadRequest, match="refers to"):
        declared({"type": "object", "properties": {"a": {"$ref": reference}}})


def test_keywords_that_gemini_refuses_are_dropped_or_become_words() -> None:
    """Report 39."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Arguments",
        "type": "object",
        "properties": {
            "mode": {"const": "fast"},
            "rate": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 9, "description": "Per second"},
            "when": {"type": "string", "format": "date-time", "examples": ["now"]},
        },
    }

    assert declared(schema) == {
        "type": "object",
        "properties": {
            "mode": {"enum": ["fast"]},
            "rate": {"type": "number", "description": "Per second (greater than 0, less than 9)"},
            "when": {"type": "string", "description": "(format: date-time)"},
        },
    }


def test_properties_that_are_called_like_keywords_are_kept() -> None:
    schema = {"type": "object", "properties": {"title": {"type": "string"}, "format": {"type": "string"}}}

    assert declared(schema) == schema


def test_combinations_and_boolean_schemas_are_walked() -> None:
    schema = {"anyOf": [{"title": "A", "type": "string"}, True], "additionalProperties": {"title": "B"}}

    assert declared(schema) == {"type": "object", "anyOf": [{"type": "string"}, True], "additionalProperties": {}}


@pytest.mark.parametrize("name", ["", "1st", "a b", "a/b", "x" * 65, "naïve"])
def test_a_name_that_gemini_refuses_is_refused_here(name: str) -> None:
    with pytest.raises(BadRequest, match="the tool name"):
        declarations([ToolDef(name, "d", {})])


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(BadRequest, match="two tools"):
        declarations([ToolDef("a", "d", {}), ToolDef("a", "e", {})])
