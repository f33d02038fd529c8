"""The Roles hold what the code does with the API server: every verb of it, and not one more."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import yaml

from hummingbird_operator.kube import client

ROOT = Path(__file__).parents[2]
OPERATOR = ROOT / "operator" / "hummingbird_operator"
VERBS = {"get": "get", "list": "list", "create": "create", "patch": "patch", "merge": "patch", "delete": "delete"}
RESOURCES = {name: value for name, value in vars(client).items() if isinstance(value, client.Resource)}

Grant = tuple[str, str]
"""Resource (with subresource) and verb."""


def used() -> set[Grant]:
    grants: set[Grant] = set()
    for module in OPERATOR.rglob("*.py"):
        if module.name == "testing.py":
            continue
        for call in (node for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.Call)):
            grants |= set(_of_client(call)) | set(_of_kopf(call)) | set(_of_watch(call))
    # an exec is a GET (its websocket) and a create (its permission); the engine's look at a pod is a get
    return grants | {("pods/exec", "get"), ("pods/exec", "create"), ("pods", "get")}


def _of_client(call: ast.Call) -> Iterator[Grant]:
    """`kube.patch(PODS, …, subresource="status")`."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in VERBS or not call.args:
        return
    first = call.args[0]
    name = first.id if isinstance(first, ast.Name) else first.attr if isinstance(first, ast.Attribute) else ""
    if name in RESOURCES:
        sub = next(
            (
                str(keyword.value.value)
                for keyword in call.keywords
                if keyword.arg == "subresource" and isinstance(keyword.value, ast.Constant)
            ),
            "",
        )
        plural = RESOURCES[name].plural
        yield f"{plural}/{sub}" if sub else plural, VERBS[call.func.attr]


def _of_kopf(call: ast.Call) -> Iterator[Grant]:
    """`kopf.on.event(group, version, plural)` lists and watches; a daemon patches its finalizer as well."""
    name = ast.unparse(call.func)
    if name not in ("kopf.on.event", "kopf.daemon") or len(call.args) < 3:
        return
    plural = call.args[2]
    assert isinstance(plural, ast.Constant)
    for verb in ("list", "watch", *(["patch"] if name == "kopf.daemon" else [])):
        yield str(plural.value), verb


def _of_watch(call: ast.Call) -> Iterator[Grant]:
    """`keep_watching(endpoint, PODS, …)`."""
    if ast.unparse(call.func).endswith("keep_watching") and len(call.args) >= 2:
        name = ast.unparse(call.args[1]).rsplit(".", 1)[-1]
        yield RESOURCES[name].plural, "watch"


def granted() -> set[Grant]:
    rules = [
        rule
        for document in yaml.safe_load_all((ROOT / "manifests" / "rbac.yaml").read_text())
        for rule in document.get("rules", ())
    ]
    assert not [rule for rule in rules if "*" in rule["resources"] or "*" in rule["verbs"]]
    return {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}


def test_every_verb_that_the_operator_uses_is_granted() -> None:
    assert used() - granted() == set()


def test_nothing_is_granted_that_the_operator_does_not_use() -> None:
    assert granted() - used() == set()


def test_the_operator_may_read_no_secret_and_no_pod_of_its_own_namespace() -> None:
    documents = list(yaml.safe_load_all((ROOT / "manifests" / "rbac.yaml").read_text()))
    assert not [grant for grant in granted() if grant[0] in ("secrets", "configmaps")]
    own = next(d for d in documents if d["kind"] == "Role" and d["metadata"]["namespace"] == "hummingbird")
    assert not [rule for rule in own["rules"] if "pods" in rule["resources"]]
