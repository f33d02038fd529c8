"""Writes crds/*.yaml from the models: `python -m hummingbird_operator.api.schema --check | --write`.

The models are the source; the files are committed so that `kubectl apply -f crds` needs no Python, and a test fails on
any difference. The rewriting here is what a structural schema asks for: no $ref, no null, no titles.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from hummingbird_operator.api import labels
from hummingbird_operator.api.fields import Model
from hummingbird_operator.api.kinds import KINDS, Kind, Schema

_HEADER = "# Generated from the models by `python -m hummingbird_operator.api.schema --write`. Do not edit.\n"
_RULES = "x-kubernetes-validations"
_ORDER = (
    *("rule", "message", "fieldPath"),
    *("description", "type", "format", "enum", "pattern", "minLength", "maxLength", "minimum", "maximum", "default"),
    *("minItems", "maxItems", "maxProperties", "required", "properties", "additionalProperties", "items"),
)


def structural(model: type[Model], *, defaults: bool) -> Schema:
    """The model as a structural schema: references inlined, null folded away, titles dropped, keys in a fixed order.

    `defaults` keeps the models' defaults: only where nothing else may set the field.
    """
    raw = model.model_json_schema(by_alias=True)
    return _Rewriter(raw.get("$defs", {}), defaults).schema(raw)


class _Rewriter:
    def __init__(self, definitions: Mapping[str, Schema], defaults: bool) -> None:
        self._definitions = definitions
        self._defaults = defaults

    def schema(self, raw: Schema) -> Schema:
        flat = self._flat(raw)
        if "properties" in flat:
            flat["properties"] = {name: self.schema(one) for name, one in flat["properties"].items()}
        for key in ("items", "additionalProperties"):
            if isinstance(flat.get(key), dict):
                flat[key] = self.schema(flat[key])
        if flat.get("type") == "integer":
            flat["format"] = "int32" if flat.get("maximum", 2**31) < 2**31 else "int64"
        if _RULES in flat:
            flat[_RULES] = [{key: rule[key] for key in sorted(rule, key=_rank)} for rule in flat[_RULES]]
        if "description" in flat:
            flat["description"] = " ".join(flat["description"].split())
        return {key: flat[key] for key in sorted(flat, key=_rank)}

    def _flat(self, raw: Schema) -> Schema:
        """One level without $ref, anyOf and what a structural schema forbids; what stands beside a $ref wins."""
        own = {key: value for key, value in raw.items() if key not in ("$ref", "anyOf", "$defs", "title")}
        if not self._defaults or own.get("default", ...) is None:
            own.pop("default", None)
        if own.get("additionalProperties") is False:
            del own["additionalProperties"]
        if "$ref" in raw:
            return {**self._flat(self._definitions[raw["$ref"].rsplit("/", 1)[-1]]), **own}
        options = [one for one in raw.get("anyOf", ()) if one.get("type") != "null"]
        if len(options) > 1:
            raise ValueError(f"a structural schema has no unions: {options}")
        return {**self._flat(options[0]), **own} if options else own


def _rank(key: str) -> tuple[int, str]:
    return (_ORDER.index(key), "") if key in _ORDER else (len(_ORDER), key)


def immutability(model: type[Model], mutable: frozenset[str]) -> list[Schema]:
    """A rule for each field that is not among the `mutable` attributes, at the level of the spec.

    A rule at the field itself is not asked when an optional field is added or removed later; `has` on both sides is.
    """
    rules = []
    for attribute, field in model.model_fields.items():
        name = field.alias or attribute
        if attribute in mutable:
            continue
        same = f"self.{name} == oldSelf.{name}"
        if not field.is_required():
            same = f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || {same})"
        rules.append(
            {
                "rule": same,
                "message": f"{name} cannot change after creation: make a new AgentRun",
                "fieldPath": f".{name}",
            }
        )
    return rules


def crd(kind: Kind) -> Schema:
    """The CustomResourceDefinition of that kind."""
    name = kind.model.__name__
    spec = structural(kind.spec, defaults=kind.defaults)
    if kind.mutable is not None:
        rules = immutability(kind.spec, kind.mutable)
        spec[_RULES] = [*rules, *spec.get(_RULES, ())]
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    version = {
        "name": labels.VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}, **({"scale": scale} if kind.scale else {})},
        "additionalPrinterColumns": [column.as_dict() for column in kind.columns],
        "schema": {
            "openAPIV3Schema": {
                "description": " ".join((kind.model.__doc__ or "").split()),
                "type": "object",
                "required": ["spec"],
                "properties": {
                    "apiVersion": {"description": f"Always {labels.API_VERSION}.", "type": "string"},
                    "kind": {"description": f"Always {name}.", "type": "string"},
                    "metadata": {"type": "object"},
                    "spec": spec,
                    "status": structural(kind.status, defaults=False),
                },
                _RULES: list(kind.rules),
            }
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{labels.GROUP}"},
        "spec": {
            "group": labels.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": name,
                "listKind": f"{name}List",
                "plural": kind.plural,
                "singular": name.lower(),
                "shortNames": [kind.short_name],
                "categories": [labels.CATEGORY],
            },
            "versions": [version],
        },
    }


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


def render() -> dict[str, str]:
    """File names below crds/ and their contents."""
    return {
        f"{kind.plural}.yaml": _HEADER + yaml.dump(crd(kind), Dumper=_Dumper, sort_keys=False, width=120)
        for kind in KINDS
    }


def differences(directory: Path) -> str:
    """A unified diff from the files in `directory` to what the models say; empty when they agree."""
    parts: list[str] = []
    for name, wanted in render().items():
        path = directory / name
        there = path.read_text(encoding="utf-8") if path.exists() else ""
        parts += difflib.unified_diff(
            there.splitlines(keepends=True), wanted.splitlines(keepends=True), str(path), f"models/{name}"
        )
    return "".join(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Check or write the files; returns the exit code: 1 where a check finds a difference."""
    parser = argparse.ArgumentParser(prog="python -m hummingbird_operator.api.schema", description=__doc__)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--check", action="store_true", help="fail with a diff if the files differ from the models")
    action.add_argument("--write", action="store_true", help="write the files")
    parser.add_argument("--directory", type=Path, default=Path("crds"), help="where the files are (default: crds)")
    options = parser.parse_args(arguments)
    if options.write:
        options.directory.mkdir(parents=True, exist_ok=True)
        for name, content in render().items():
            (options.directory / name).write_text(content, encoding="utf-8")
        return 0
    diff = differences(options.directory)
    sys.stderr.write(diff)
    return 1 if diff else 0


if __name__ == "__main__":
    sys.exit(main())
