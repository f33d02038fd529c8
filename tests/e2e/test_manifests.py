"""What kustomize makes of the manifests, and what a real API server says to it; nothing is kept but ServiceAccounts."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.conftest import ROOT, Kubectl

pytestmark = pytest.mark.usefixtures("crds")

Object = dict[str, Any]

COMPONENTS = ("ingest-webhook", "ingest-sqs", "monitoring")
OF_OTHERS = {"HTTPRoute", "PodMonitor", "PrometheusRule"}
"""Kinds whose CRDs this cluster has not: tests/unit/test_manifests.py and test_monitoring.py read them."""


def build(kubectl: Kubectl, folder: Path, overlay: Object) -> list[Object]:
    """The objects of an overlay that lies beside a checkout, as docs/operations.md has it."""
    mine = folder / "mine"
    (mine / "workflows").mkdir(parents=True)
    (folder / "hummingbird").symlink_to(ROOT)
    shutil.copy(ROOT / "manifests" / "config.yaml", mine)
    (mine / "workflows" / "mine.md").write_text("Explain.\n")
    for sample in (ROOT / "manifests").rglob("*.example.yaml"):
        shutil.copy(sample, mine)
    (mine / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    return list(yaml.safe_load_all(kubectl("kustomize", str(mine)).stdout))


def of_the_page(heading: str) -> Object:
    """The first block of YAML below a heading of docs/operations.md."""
    page = (ROOT / "docs" / "operations.md").read_text()
    found = re.search(rf"^##+ {heading}\n.*?^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert found
    overlay: Object = yaml.safe_load(found.group(1))
    return overlay


def pods(objects: list[Object]) -> dict[str, Object]:
    """The pods that the Deployments ask for, by name."""
    found = [each for each in objects if each["kind"] == "Deployment"]
    return {each["metadata"]["name"]: each["spec"]["template"]["spec"] for each in found}


def test_the_overlay_of_the_documentation_builds_and_names_its_images_by_digest(
    kubectl: Kubectl, tmp_path: Path
) -> None:
    objects = build(kubectl, tmp_path, of_the_page("An overlay"))
    templates = [each["spec"]["pod"]["template"]["spec"] for each in objects if each["kind"] == "SandboxPool"]
    assert len(templates) == 1
    found = pods(objects)
    assert found.keys() == {"hummingbird-operator", "hummingbird-ingest-webhook"}
    for spec in [*found.values(), *templates]:
        assert re.fullmatch(r"registry\.example\.com/hummingbird-\w+@sha256:0{64}", spec["containers"][0]["image"])
    assert templates[0]["imagePullSecrets"] == [{"name": "registry"}]
    assert "gitlab-token" in {volume["name"] for volume in found["hummingbird-operator"]["volumes"]}


def test_the_alerts_of_the_documentation_build_with_the_budget_of_an_overlay(kubectl: Kubectl, tmp_path: Path) -> None:
    page = of_the_page("Alerts to begin with")
    objects = build(kubectl, tmp_path, {**of_the_page("An overlay"), **page})
    (found,) = (each for each in objects if each["kind"] == "PrometheusRule")
    assert found["metadata"]["labels"] == {"release": "prometheus"}
    assert "cost_usd_total[1d])) > 200" in json.dumps(found)


@pytest.fixture(scope="module")
def everything(kubectl: Kubectl, namespace: str, tmp_path_factory: pytest.TempPathFactory) -> list[Object]:
    """All of it, every sample too, in a namespace of the test."""
    samples = sorted(path.name for path in (ROOT / "manifests").rglob("*.example.yaml"))
    overlay = {
        "resources": ["../hummingbird/manifests", *samples],
        "components": [f"../hummingbird/manifests/{name}" for name in COMPONENTS],
    }
    objects = build(kubectl, tmp_path_factory.mktemp("manifests"), overlay)
    for each in objects:
        if "namespace" in each["metadata"]:
            each["metadata"]["namespace"] = namespace
    return objects


def test_a_real_api_server_takes_every_object_and_every_sample(kubectl: Kubectl, everything: list[Object]) -> None:
    assert {each["kind"] for each in everything} >= OF_OTHERS
    known = [each for each in everything if each["kind"] not in OF_OTHERS]
    dry = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f", "-")
    said = kubectl(*dry, stdin=yaml.safe_dump_all(known))
    assert len(said.stdout.splitlines()) == len(known)
    assert "unknown field" not in said.stderr


def test_restricted_pod_security_admits_a_pod_of_every_deployment(
    kubectl: Kubectl, namespace: str, everything: list[Object]
) -> None:
    accounts = [each for each in everything if each["kind"] == "ServiceAccount"]
    kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(accounts))
    kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    found = pods(everything)
    assert len(found) == 3
    for name, spec in found.items():
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}
        answer = kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=json.dumps(body)).stdout
        mounted = json.loads(answer)["spec"]["containers"][0]["volumeMounts"]
        assert "/var/run/secrets/kubernetes.io/serviceaccount" in {mount["mountPath"] for mount in mounted}
    loose = {**spec, "securityContext": {}}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "loose", "namespace": namespace}, "spec": loose}
    assert "restricted" in kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(body), check=False).stderr
