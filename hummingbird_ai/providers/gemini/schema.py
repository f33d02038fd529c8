"""Tool schemas as Gemini takes them in `parametersJsonSchema`.

Documented as full JSON Schema, in practice it refuses references it cannot resolve and some keywords. References are
therefore written out, and keywords it does not know become words of the description.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from hummingbird_ai.errors import BadRequest
from hummingbird_ai.messages import ToolDef
from hummingbird_ai.providers import given

# 64 is the older limit, still enforced by some front ends; the newer one is 128.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}")

_DROPPED = frozenset(
    {"$schema", "$id", "$anchor", "$comment", "$defs", "definitions", "title", "discriminator", "examples"}
    | {"readOnly", "writeOnly", "deprecated"}
)
_AS_WORDS = {"exclusiveMinimum": "greater than {}", "exclusiveMaximum": "less than {}", "format": "format: {}"}
_MAPS = frozenset({"properties", "patternProperties"})
_LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_SCHEMAS = frozenset({"items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else"})


def declarations(tools: Sequence[ToolDef]) -> list[dict[str, Any]]:
    """`functionDeclarations` in the order given; BadRequest names the tool that cannot be declared."""
    allowed = "a letter or _ and up to 63 of A-Z a-z 0-9 _ . : -"
    return [
        {
            "name": tool.name,
            "description": tool.description,
            "parametersJsonSchema": _Inliner(tool.name, schema).schema(schema, ()),
        }
        for tool, schema in given.tools(tools, names=_NAME, allowed=allowed)
    ]


class _Inliner:
    """Writes out the local references of one tool's schema."""

    def __init__(self, name: str, schema: dict[str, Any]) -> None:
        self._name = name
        self._root = schema

    def schema(self, node: Any, open_references: tuple[str, ...]) -> Any:
        if not isinstance(node, dict):
            return node  # `true` and `false` are schemas too
        if "$ref" in node:
            return self._resolved(node, open_references)
        result: dict[str, Any] = {}
        words: list[str] = []
        for key, value in node.items():
            if key in _DROPPED:
                continue
            if key in _AS_WORDS and not isinstance(value, dict | list):
                words.append(_AS_WORDS[key].format(value))
            elif key == "const":
                result.setdefault("enum", [value])
            else:
                result[key] = self._value(key, value, open_references)
        if words:
            result["description"] = " ".join([result.get("description", ""), f"({', '.join(words)})"]).strip()
        return result

    def _value(self, key: str, value: Any, open_references: tuple[str, ...]) -> Any:
        if key in _MAPS and isinstance(value, dict):
            return {name: self.schema(item, open_references) for name, item in value.items()}
        if key in _LISTS and isinstance(value, list):
            return [self.schema(item, open_references) for item in value]
        if key in _SCHEMAS:
            return self.schema(value, open_references)
        return value

    def _resolved(self, node: Mapping[str, Any], open_references: tuple[str, ...]) -> Any:
        reference = str(node["$ref"])
        if reference in open_references:
            raise BadRequest(f"the tool {self._name!r} has a recursive schema ({reference}), which Gemini cannot take")
        target = self._root_at(reference)
        beside = {key: value for key, value in node.items() if key != "$ref"}
        return self.schema({**target, **beside}, (*open_references, reference))

    def _root_at(self, reference: str) -> dict[str, Any]:
        target: Any = self._root
        steps = [step.replace("~1", "/").replace("~0", "~") for step in reference.split("/")[1:]]
        for step in steps if reference.startswith("#") else [reference]:
            target = target.get(step) if isinstance(target, dict) else None
        if not isinstance(target, dict):
            raise BadRequest(
                f"the schema of the tool {self._name!r} refers to {reference!r}, which it does not contain"
            )
        return target
