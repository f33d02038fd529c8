"""What the demo tells people: what is real, what stands in, what came out, what is left behind."""

from __future__ import annotations

from pathlib import Path

from cluster import Cluster
from hummingbird_operator.delivery.bodies import TRANSCRIPT_SUMMARY

KUBERNETES = {
    "local": "API server, node, pods, exec and NetworkPolicy, all started on this computer",
    "kind": "API server, node, pods and exec, in a kind cluster; NetworkPolicy as far as its network enforces it",
    "kubeconfig": "API server, nodes, pods and exec of your cluster; NetworkPolicy as far as its network enforces it",
}
REAL_MODEL = "real: Gemini, asked with your GOOGLE_API_KEY; it costs money"
SCRIPT = (
    "stand-in: no GOOGLE_API_KEY is set, so a script (demo/analyst.py) answers over Gemini's wire format. Its way of "
    "looking is fixed; what it finds comes from real commands in the sandbox"
)


def introduction(found: Cluster, *, scripted: bool, exit_status: int, folder: Path) -> str:
    """What is real here and what is not, one line for each part."""
    parts = {
        "Kubernetes": f"real: {KUBERNETES.get(found.provider, found.provider)} ({found.reason})",
        "failure": f"real: the tests of demo/project ran just now and ended with status {exit_status}",
        "operator": "real, but a process on this computer in place of a Deployment; it has the ServiceAccount's Roles",
        "sandbox": "real: a pod of a SandboxPool, with our image and small limits",
        "GitLab": "stand-in of ours (tests/standins/gitlab): an HTTP server with one project and one merge request",
        "model": SCRIPT if scripted else REAL_MODEL,
        "store": f"a folder, {folder / 'store'}, in place of S3",
    }
    return "\n".join(f"  {part:<11} {what}" for part, what in parts.items())


def without_transcript(body: str, transcript: str) -> str:
    """A note's text with one line in place of the transcript that it carries."""
    lines = body.splitlines()
    opening = f"<details><summary>{TRANSCRIPT_SUMMARY}</summary>"
    if opening not in lines:
        return body
    first = lines.index(opening)
    last = len(lines) - 1 - lines[::-1].index("</details>")
    told = f"[{last + 1 - first} lines with the agent's transcript are left out here; all of it: {transcript}]"
    return "\n".join([*lines[:first], told, *lines[last + 1 :]])


def on_the_note(*, scripted: bool) -> str:
    """What a reader of the note must know."""
    cost = "The cost is an estimate by our price table"
    if scripted:
        cost = (
            "Its model's name and cost are those of the configuration: a script answered, nothing was paid; that is "
            "what the real model would have cost by our price table, tokens counted from bytes"
        )
    return f"{cost}. Comments in reply are not read in this version (docs/flaws.md)."


def look_around(found: Cluster, run: str) -> str:
    """Commands to copy."""
    return "\n".join(
        f"  {line}"
        for line in (
            f"export KUBECONFIG={found.kubeconfig} PATH={found.kubectl.parent}:$PATH",
            f"kubectl get agentrun {run} -n hummingbird -o wide",
            f"kubectl describe agentrun {run} -n hummingbird",
            "kubectl get hummingbird -A",
            "kubectl get pods -n hummingbird-sandboxes -L hummingbird-project.io/role",
            f"kubectl get agentrun {run} -n hummingbird -o jsonpath='{{.status.session.transcript}}'",
            "kubectl explain agentrun.spec -n hummingbird",
        )
    )


def left_behind(found: Cluster, folder: Path) -> str:
    """What stays, and how to remove it."""
    things, remove = "the cluster, in it the run, its pool and their namespaces", ["make cluster-down"]
    if found.provider == "kubeconfig":  # not ours to end; and no operator is left that would take its finalizer off
        things = "in your cluster: CRDs, Roles, two namespaces with the run and its pool"
        files = ("manifests/namespaces.yaml", "manifests/rbac.yaml", "crds/agentruns.yaml", "crds/sandboxpools.yaml")
        free = '{"metadata":{"finalizers":null}}'
        remove = [
            f"kubectl patch sandboxpool default -n hummingbird-sandboxes --type=merge -p '{free}'",
            "kubectl delete --ignore-not-found " + " ".join(f"-f {file}" for file in files),
        ]
    lines = "\n".join(f"  {line}" for line in (*remove, f"rm -r {folder} {folder.with_suffix('.lock')}"))
    return f"left behind: {things}; the folder {folder}. To remove them:\n{lines}"
