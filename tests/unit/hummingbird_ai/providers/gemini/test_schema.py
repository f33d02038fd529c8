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


@pytest.mark.parametrize(
    ("keyword", "as_map"),
    [
        *(("dependentSchemas", True), ("dependencies", True), ("unevaluatedProperties", False)),
        *(("unevaluatedItems", False), ("contentSchema", False)),
    ],
)
def test_references_are_written_out_under_every_keyword_that_holds_schemas(keyword: str, as_map: bool) -> None:
    reference, text = {"$ref": "#/$defs/A"}, {"type": "string"}
    schema = {keyword: {"p": reference} if as_map else reference, "$defs": {"A": {**text, "title": "A"}}}

    assert declared(schema) == {"type": "object", keyword: {"p": text} if as_map else text}


def test_a_dependency_that_lists_names_is_kept() -> None:
    assert declared({"dependencies": {"a": ["b"]}}) == {"type": "object", "dependencies": {"a": ["b"]}}


@pytest.mark.parametrize(
    ("node", "written"),
    [
        ({"$ref": "#/$defs/a%20b"}, {"type": "string"}),
        ({"$ref": "#/$defs/u/anyOf/1"}, {"type": "null"}),
        ({"$ref": "#/$defs/yes"}, True),
        ({"$ref": "#/$defs/yes", "description": "d"}, {"description": "d"}),
        ({"$ref": "#/$defs/no"}, False),
        ({"$ref": "#/$defs/no", "description": "d"}, False),
    ],
)
def test_every_local_pointer_is_followed(node: dict[str, Any], written: Any) -> None:
    places = {"a b": {"type": "string"}, "u": {"anyOf": [{"type": "string"}, {"type": "null"}]}}
    schema = {"properties": {"p": node}, "$defs": {**places, "yes": True, "no": False}}

    assert declared(schema) == {"type": "object", "properties": {"p": written}}


@pytest.mark.parametrize("step", ["2", "-1", "01", "x", "9" * 5000])
def test_a_place_behind_the_end_of_a_list_is_not_found(step: str) -> None:
    with pytest.raises(BadRequest, match="which it does not contain"):
        declared({"properties": {"p": {"$ref": f"#/$defs/u/anyOf/{step}"}}, "$defs": {"u": {"anyOf": [True, True]}}})


def test_an_anchor_is_refused_by_its_name() -> None:
    with pytest.raises(BadRequest, match="'tool' refers to the anchor '#foo'"):
        declared({"properties": {"p": {"$ref": "#foo"}}, "$defs": {"u": {"$anchor": "foo"}}})


def test_references_that_multiply_are_refused_and_a_large_schema_without_them_is_not() -> None:
    """Twenty definitions that each name the next one twice ask for a million copies of the last."""
    twice = {f"d{n}": {"properties": {name: {"$ref": f"#/$defs/d{n + 1}"} for name in ("a", "b")}} for n in range(20)}
    words = {"enum": [{"a": str(number)} for number in range(10_000)]}
    for schema in (
        {"properties": {"p": {"$ref": "#/$defs/d0"}}, "$defs": {**twice, "d20": {}}},
        {"properties": {"p": {"$ref": "#/$defs/u"}}, "$defs": {"u": words}},
    ):
        with pytest.raises(BadRequest, match="the references in the schema of the tool 'tool' make it too large"):
            declared(schema)

    assert declared({"properties": {"p": words}}) == {"type": "object", "properties": {"p": words}}


def test_a_chain_of_references_that_nests_too_deeply_is_refused_by_the_tools_name() -> None:
    chain: dict[str, Any] = {f"d{n}": {"properties": {"a": {"$ref": f"#/$defs/d{n + 1}"}}} for n in range(1000)}
    with pytest.raises(BadRequest, match="'tool' is nested too deeply"):
        declared({"properties": {"p": {"$ref": "#/$defs/d0"}}, "$defs": {**chain, "d1000": {}}})
