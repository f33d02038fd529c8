"""Provider `kubeconfig`: a cluster of the user's. We look whether it answers and change nothing in it."""

from __future__ import annotations

import shutil
from pathlib import Path

from cluster import gobuild
from cluster.commands import TOOL_PATH, run
from cluster.errors import StartFailed
from cluster.model import SANDBOX_IMAGE, Choice, Cluster
from cluster.report import say
from cluster.versions import KUBERNETES


def up(kubeconfig: Path, choice: Choice) -> Cluster:
    """The user's cluster, if it answers."""
    cluster = find(kubeconfig, choice, kubectl())
    say(f"images are your business here: its nodes must have {SANDBOX_IMAGE}, or the tests must be told another one")
    return cluster


def find(kubeconfig: Path, choice: Choice, tool: Path) -> Cluster:
    """The same without a word."""
    if not kubeconfig.is_file():
        raise StartFailed(f"there is no file {kubeconfig}: set HUMMINGBIRD_KUBECONFIG to one that exists, or unset it")
    return Cluster(kubeconfig, choice.provider, choice.reason, tool, first_node(tool, kubeconfig))


def kubectl(build: bool = True) -> Path:
    """The machine's kubectl, else the one built here; if need be and `build`, it is built now."""
    if found := shutil.which("kubectl", path=TOOL_PATH):
        return Path(found)
    if gobuild.is_built(KUBERNETES):
        return gobuild.kubectl_path()
    if build and shutil.which("go", path=TOOL_PATH):
        return gobuild.built(KUBERNETES) / "kubectl"
    raise StartFailed("there is no kubectl and it was not built here: install kubectl")


def first_node(tool: Path, kubeconfig: Path) -> str:
    """Ask the API server whether it is ready, then for its nodes."""
    base: list[str | Path] = [tool, "--kubeconfig", kubeconfig, "--request-timeout=10s"]
    hint = f"The cluster of {kubeconfig} must answer, and its user may list nodes."
    run([*base, "get", "--raw", "/readyz"], error=StartFailed, hint=hint, timeout=30)
    names = run([*base, "get", "nodes", "-o", "name"], error=StartFailed, hint=hint, timeout=30).split()
    if not names:
        raise StartFailed(f"the cluster of {kubeconfig} has no node: pods would never start")
    return names[0].removeprefix("node/")
