"""What is shipped in manifests/, for the tests that hold it together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "manifests"

Object = dict[str, Any]


def read(path: Path) -> list[Object]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


DEPLOYMENTS = {each["metadata"]["name"]: each for path in MANIFESTS.rglob("deployment.yaml") for each in read(path)}


def pod(name: str) -> Object:
    spec: Object = DEPLOYMENTS[name]["spec"]["template"]["spec"]
    return spec


def ports(name: str) -> set[str]:
    return {port["name"] for port in pod(name)["containers"][0]["ports"]}


def selected(selector: Mapping[str, Any]) -> list[str]:
    """The Deployments whose pods a label selector means."""
    return sorted(name for name, each in DEPLOYMENTS.items() if _matches(selector, each["spec"]["template"]))


def _matches(selector: Mapping[str, Any], template: Object) -> bool:
    labels = template["metadata"]["labels"]
    wanted = selector.get("matchLabels", {}).items() <= labels.items()
    listed = selector.get("matchExpressions", [])
    assert all(each["operator"] == "In" for each in listed)
    return wanted and all(labels.get(each["key"]) in each["values"] for each in listed)


def of_kind(kind: str) -> dict[str, Object]:
    """By path below manifests/, samples included."""
    found = ((path, each) for path in MANIFESTS.rglob("*.yaml") for each in read(path) if each.get("kind") == kind)
    return {str(path.relative_to(MANIFESTS)): each for path, each in found}
