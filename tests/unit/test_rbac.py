"""The Roles hold what the code does with the API server: every verb of it, and not one more. Deployments use them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import yaml

from hummingbird_operator.__main__ import _parser
from hummingbird_operator.kube import client

ROOT = Path(__file__).parents[2]
OPERATOR = ROOT / "operator" / "hummingbird_operator"
INGEST = OPERATOR / "ingest"
VERBS = {"get": "get", "list": "list", "create": "create", "patch": "patch", "merge": "patch", "delete": "delete"}
RESOURCES = {name: value for name, value in vars(client).items() if isinstance(value, client.Resource)}

Grant = tuple[str, str]
"""Resource (with subresource) and verb."""


def used() -> set[Grant]:
    """By the operator: all code but that of the ingestors, which run as somebody else."""
    grants = _in(module for module in OPERATOR.rglob("*.py") if INGEST not in module.parents)
    # an exec is a GET (its websocket) and a create (its permission); the engine's look at a pod is a get
    return grants | {("pods/exec", "get"), ("pods/exec", "create"), ("pods", "get")}


def _in(modules: Iterable[Path]) -> set[Grant]:
    grants: set[Grant] = set()
    for module in modules:
        if module.name == "testing.py":
            continue
        for call in (node for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.Call)):
            grants |= set(_of_client(call)) | set(_of_kopf(call)) | set(_of_watch(call))
    return grants


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


def granted(manifest: str = "rbac.yaml") -> set[Grant]:
    rules = [
        rule
        for document in yaml.safe_load_all((ROOT / "manifests" / manifest).read_text())
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


def test_an_ingestor_is_granted_what_it_uses_and_nothing_else() -> None:
    assert granted("rbac-ingest.yaml") == _in(INGEST.rglob("*.py"))
    assert granted("rbac-ingest.yaml") == {("agentruns", verb) for verb in ("create", "get", "list")}


DEPLOYMENTS = sorted((ROOT / "manifests").rglob("deployment.yaml"))


@pytest.mark.parametrize("path", DEPLOYMENTS, ids=lambda path: path.parent.name)
def test_every_deployment_runs_a_command_that_exists_with_the_account_and_the_secrets_of_its_own(path: Path) -> None:
    deployment = yaml.safe_load(path.read_text())
    spec = deployment["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    _parser().parse_args(container["args"])
    owner = "ingest" if container["args"][0] == "ingest" else "operator"
    assert spec["serviceAccountName"] == f"hummingbird-{owner}"
    names = [f"hummingbird-{owner}", *(["hummingbird-ingest-webhook"] if "webhook" in container["args"] else [])]
    assert container["envFrom"] == [{"secretRef": {"name": name}} for name in names]


def test_the_service_reaches_the_port_of_the_webhook() -> None:
    folder = ROOT / "manifests" / "ingest-webhook"
    service, deployment = (yaml.safe_load((folder / f"{name}.yaml").read_text()) for name in ("service", "deployment"))
    template = deployment["spec"]["template"]
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    (container,) = template["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    (port,) = service["spec"]["ports"]
    assert str(ports[port["targetPort"]]) == container["args"][container["args"].index("--port") + 1]


def test_a_consumer_of_the_queue_gets_no_secret_of_the_webhook_and_no_token_of_a_maintainer() -> None:
    text = (ROOT / "manifests" / "secret.example.yaml").read_text()
    keys = {secret["metadata"]["name"]: set(secret["stringData"]) for secret in yaml.safe_load_all(text)}
    assert keys["hummingbird-ingest"] == {"GITLAB_TOKEN"}
    assert keys["hummingbird-ingest-webhook"] == {"GITLAB_WEBHOOK_SECRET", "GITLAB_HOOKS_TOKEN"}


def test_every_prompt_is_shipped_and_may_be_checked_beside_the_configuration() -> None:
    prompts = {path.name for path in (ROOT / "workflows").glob("*.md")}
    (generated,) = yaml.safe_load((ROOT / "workflows" / "kustomization.yaml").read_text())["configMapGenerator"]
    assert set(generated["files"]) == prompts
    assert {path.name for path in (ROOT / "manifests" / "workflows").iterdir()} == prompts
