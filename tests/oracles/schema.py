"""Fast checks against large JSON Schemas.

A schema's unions are told apart by a `type` or `role` where their members have one. So a wrong block is compared with
its own kind only, which is quick, and what is said about it names the key at fault instead of twenty kinds.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pydantic
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match
from jsonschema.validators import extend
from pydantic import BaseModel

Schema = dict[str, Any]
_KINDS = ("type", "role")
_UNIONS = ("anyOf", "oneOf")
_MOST_PROBLEMS, _LONGEST_PROBLEM = 20, 300


class Oracle:
    """Checks documents against `schema`, whose references name members of `definitions`; both are kept, not copied."""

    def __init__(self, schema: Schema, definitions: Mapping[str, Schema]) -> None:
        def reference(validator: Any, name: str, instance: Any, schema: Schema) -> Iterator[ValidationError]:
            yield from validator.descend(instance, definitions[name.removeprefix("#/$defs/")])

        kind = extend(Draft202012Validator, {"$ref": reference, "byKind": _by_kind})  # type: ignore[no-untyped-call]
        self._validator = kind(schema)

    def problems(self, document: object) -> list[str]:
        """What is wrong, as `path: words`; empty if nothing is."""
        errors = itertools.islice(self._validator.iter_errors(document), _MOST_PROBLEMS)
        return [_words(error) for error in errors]


def _by_kind(validator: Any, rule: Schema, instance: Any, schema: Schema) -> Iterator[ValidationError]:
    word = instance.get(rule["key"]) if isinstance(instance, dict) else None
    known = rule["kinds"].get(word) if isinstance(word, str) else None
    if known is not None:
        yield from validator.descend(instance, known)
    elif rule["others"]:
        yield from validator.descend(instance, {"anyOf": rule["others"]})
    else:
        yield ValidationError(f"{rule['key']} is {word!r}, which is none of {', '.join(rule['kinds'])}")


def told_apart(node: Any, definitions: Mapping[str, Schema]) -> Any:
    """A copy of a schema in which unions of objects are told apart by their kind."""
    if isinstance(node, list):
        return [told_apart(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    copy = {key: told_apart(value, definitions) for key, value in node.items() if key not in _UNIONS}
    union = next((node[key] for key in _UNIONS if key in node), None)
    if union is None:
        return copy
    members = told_apart(union, definitions)
    for key in _KINDS:
        kinds = {_kind(member, key, definitions): member for member in members}
        others = [member for member in members if _kind(member, key, definitions) is None]
        kinds.pop(None, None)
        if len(kinds) + len(others) == len(members) and len(kinds) > 1:
            return {**copy, "byKind": {"key": key, "kinds": kinds, "others": others}}
    return {**copy, "anyOf": members}


def _kind(member: Schema, key: str, definitions: Mapping[str, Schema]) -> str | None:
    """The one word that `key` has in this kind of object, None if it may have several or be missing."""
    target = definitions[member["$ref"].removeprefix("#/$defs/")] if "$ref" in member else member
    word = target.get("properties", {}).get(key, {}).get("const")
    return word if key in target.get("required", ()) else None


def _words(error: ValidationError) -> str:
    """The most telling of the errors that made this one: `content: […] is not valid under any of` says nothing."""
    told = best_match([error]) or error
    return f"{_path(told.absolute_path)}: {told.message}"[:_LONGEST_PROBLEM]


def _path(steps: Sequence[str | int]) -> str:
    words = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return words.removeprefix(".") or "the body"


def mismatch(kind: type[BaseModel], document: object, where: str = "") -> list[str]:
    """What a type of a provider's own package does not take of a document, as `path: words`."""
    try:
        kind.model_validate(document)
    except pydantic.ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        return [f"{_path([*([where] if where else []), *item['loc']])}: {item['msg']}" for item in found]
    return []
