"""Tool schemas as Gemini takes them in `parametersJsonSchema`.

Documented as full JSON Schema, in practice it refuses references it cannot resolve and some keywords. References are
therefore written out, and keywords it does not know become words of the description.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

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
_MAPS = frozenset({"properties", "patternProperties", "dependentSchemas", "dependencies"})
_LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_SCHEMAS = frozenset(
    {"items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else"}
    | {"unevaluatedProperties", "unevaluatedItems", "contentSchema"}
)
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
_MOST_NODES = 20_000
"""Values that references may be written out to: a schema of a kilobyte can ask for billions."""


def declarations(tools: Sequence[ToolDef]) -> list[dict[str, Any]]:
    """`functionDeclarations` in the order given; BadRequest names the tool that cannot be declared."""
    allowed = "a letter or _ and up to 63 of A-Z a-z 0-9 _ . : -"
    return [
        {
            "name": tool.name,
            "description": tool.description,
            "parametersJsonSchema": _Inliner(tool.name, schema).written_out(),
        }
        for tool, schema in given.tools(tools, names=_NAME, allowed=allowed)
    ]


class _Inliner:
    """Writes out the local references of one tool's schema."""

    def __init__(self, name: str, schema: dict[str, Any]) -> None:
        self._name = name
        self._root = schema
        self._written = 0

    def written_out(self) -> Any:
        """The whole schema. Raises BadRequest."""
        try:
            return self.schema(self._root, ())
        except RecursionError:
            pass  # raised outside: it would hold on to a thousand frames
        raise BadRequest(f"the schema of the tool {self._name!r} is nested too deeply once its references are followed")

    def schema(self, node: Any, open_references: tuple[str, ...]) -> Any:
        if open_references:
            self._count(1)
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
        if open_references:
            self._count(_nodes(value))
        return value

    def _count(self, nodes: int) -> None:
        self._written += nodes
        if self._written > _MOST_NODES:
            raise BadRequest(
                f"the references in the schema of the tool {self._name!r} make it too large: written out, as Gemini "
                f"wants them, they are more than {_MOST_NODES} values"
            )

    def _resolved(self, node: Mapping[str, Any], open_references: tuple[str, ...]) -> Any:
        reference = str(node["$ref"])
        if reference in open_references:
            raise BadRequest(f"the tool {self._name!r} has a recursive schema ({reference}), which Gemini cannot take")
        target = self._root_at(reference)
        beside = {key: value for key, value in node.items() if key != "$ref"}
        if target is False or (target is True and not beside):
            return self.schema(target, open_references)
        whole = beside if target is True else {**target, **beside}
        return self.schema(whole, (*open_references, reference))

    def _root_at(self, reference: str) -> Any:
        """The schema that a JSON pointer in a fragment names. Raises BadRequest."""
        path = unquote(reference[1:])
        if reference.startswith("#") and path and not path.startswith("/"):
            raise BadRequest(
                f"the schema of the tool {self._name!r} refers to the anchor {reference!r}, which Gemini cannot take: "
                "refer to its place, such as '#/$defs/name'"
            )
        target: Any = self._root
        steps = [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:]]
        for step in steps if reference.startswith("#") else [reference]:
            target = _inside(target, step)
        if not isinstance(target, dict | bool):
            raise BadRequest(
                f"the schema of the tool {self._name!r} refers to {reference!r}, which it does not contain"
            )
        return target


def _inside(target: Any, step: str) -> Any:
    """What stands there under a key or an index; None for nothing."""
    if isinstance(target, list):
        return target[int(step)] if _INDEX.fullmatch(step) and int(step) < len(target) else None
    return target.get(step) if isinstance(target, dict) else None


def _nodes(value: Any) -> int:
    """How many values there are in it, itself included."""
    if isinstance(value, dict):
        return 1 + sum(map(_nodes, value.values()))
    return 1 + sum(map(_nodes, value)) if isinstance(value, list) else 1
