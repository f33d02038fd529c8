"""The writer of the CRDs: what a structural schema asks for, and our own rules for every field."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hummingbird_operator.api.fields import Model
from hummingbird_operator.api.kinds import KINDS, Kind
from hummingbird_operator.api.schema import crd, differences, immutability, main, render, structural

Schema = dict[str, Any]


def nodes(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    yield path, schema
    for name, one in schema.get("properties", {}).items():
        yield from nodes(one, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from nodes(schema[key], f"{path}[]")


def root(kind: Kind) -> Schema:
    found: Schema = crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def parts(*names: str) -> list[tuple[str, Schema]]:
    return [
        one
        for kind in KINDS
        for part in names
        for one in nodes(root(kind)["properties"][part], f"{kind.model.__name__}.{part}")
    ]


def test_every_field_has_a_description_that_is_a_sentence() -> None:
    for path, schema in parts("spec", "status"):
        if not path.endswith("[]"):
            assert schema.get("description", "").endswith("."), path


def test_every_string_list_map_and_number_is_bounded() -> None:
    bounds = {
        "string": {"maxLength", "enum", "format"},
        "array": {"maxItems"},
        "integer": {"maximum"},
        "object": {"maxProperties", "properties", "x-kubernetes-preserve-unknown-fields"},
        "boolean": {"type"},
    }
    for path, schema in parts("spec", "status"):
        assert schema.keys() & bounds[schema["type"]] or path.endswith("observedGeneration"), path


def test_nothing_is_left_that_a_structural_schema_forbids() -> None:
    for path, schema in parts("spec", "status"):
        assert not schema.keys() & {"$ref", "$defs", "anyOf", "oneOf", "title", "const", "uniqueItems"}, path
        assert schema.get("additionalProperties") is not False, path


def test_a_run_has_no_defaults_and_a_pool_only_in_its_spec() -> None:
    with_default = {path for path, schema in parts("spec", "status") if "default" in schema}
    assert with_default == {
        f"SandboxPool.spec{path}"
        for path in (
            ".replicas",
            ".maxSandboxes",
            ".activeDeadlineSeconds",
            ".linger",
            ".linger.seconds",
            ".linger.max",
            ".network",
        )
    }


def test_a_rule_guards_every_field_but_the_mutable_ones() -> None:
    class Order(Model):
        name: str
        extra_words: str | None = None
        cancel: bool = False

    assert immutability(Order, frozenset({"cancel"})) == [
        {
            "rule": "self.name == oldSelf.name",
            "message": "name cannot change after creation: make a new AgentRun",
            "fieldPath": ".name",
        },
        {
            "rule": "has(self.extraWords) == has(oldSelf.extraWords) && "
            "(!has(self.extraWords) || self.extraWords == oldSelf.extraWords)",
            "message": "extraWords cannot change after creation: make a new AgentRun",
            "fieldPath": ".extraWords",
        },
    ]


def test_a_union_has_no_place_in_a_structural_schema() -> None:
    class Two(Model):
        value: int | str

    with pytest.raises(ValueError, match="no unions"):
        structural(Two, defaults=False)


def test_writing_is_deterministic_and_a_check_shows_what_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert render() == render()
    there = ["--directory", str(tmp_path / "crds")]
    assert main(["--check", *there]) == 1
    assert main(["--write", *there]) == 0
    capsys.readouterr()
    assert main(["--check", *there]) == 0
    assert capsys.readouterr().err == ""
    file = tmp_path / "crds" / "agentruns.yaml"
    file.write_text(file.read_text().replace("maximum: 1000\n", "maximum: 9\n", 1))
    assert main(["--check", *there]) == 1
    assert "+                    maximum: 1000\n" in capsys.readouterr().err
    assert "maximum" in differences(tmp_path / "crds")
