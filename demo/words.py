"""What the demo tells people: what is real, what stands in, where to look, what is left behind."""

from __future__ import annotations

from pathlib import Path

from cluster import Cluster
from demo.stage import Names

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

SCRIPTED_COSTS = "a script is the model: the costs that are shown are what a real one would cost, and nobody pays them"


def say(text: str) -> None:
    """One line of progress."""
    print(f"demo: {text}", flush=True)


def quoted(user: str, words: str) -> str:
    """What somebody writes on the merge request."""
    return "\n".join([f"  {user}:", *(f"    | {line}" for line in words.splitlines())])


def beginning(*, scripted: bool, runs: int, dollars: str) -> str:
    """What a reader must know before anything happens."""
    if scripted:
        return "GitLab and the model are stand-ins (the whole list comes at the end); this costs nothing"
    return (
        f"GitLab is a stand-in (the whole list comes at the end), Gemini is real: {runs} runs, each stopped before it "
        f"costs more than ${dollars} by our price table"
    )


def reality(found: Cluster, *, scripted: bool, exit_status: int, folder: Path) -> str:
    """What is real here and what is not, one line for each part."""
    processes = "real, but a process on this computer in place of a Deployment; it has the ServiceAccount's Roles"
    parts = {
        "Kubernetes": f"real: {KUBERNETES.get(found.provider, found.provider)} ({found.reason})",
        "failure": f"real: the tests of demo/project ran just now and ended with status {exit_status}",
        "operator": processes,
        "webhook": f"{processes}; no TLS before it",
        "sandboxes": "real: pods of a SandboxPool, with our image and small limits",
        "GitLab": "stand-in of ours (tests/standins/gitlab): an HTTP server with one project and one merge request. It "
        "signs and delivers webhooks as GitLab does; its people are played, too",
        "model": SCRIPT if scripted else REAL_MODEL,
        "store": f"a folder, {folder / 'store'}, in place of S3",
    }
    return "\n".join(f"  {part:<11} {what}" for part, what in parts.items())


def on_the_costs(dollars: float, *, scripted: bool) -> str:
    """What was paid."""
    if scripted:
        return (
            f"nothing was paid, for a script answered. Model and cost in the notes, ${dollars:.4f} in all, are what "
            "the configured model would cost by our price table, tokens counted from bytes"
        )
    return f"all of this cost ${dollars:.4f}, an estimate by our price table"


def logs(folder: Path) -> str:
    """Where everything is written."""
    places = {
        "operator": folder / "operator-0.log",
        "webhook": folder / "ingest-webhook.log",
        "conversations, transcripts and journals": folder / "store",
        "configuration": folder / "config.yaml",
    }
    return "\n".join(f"  {what}: {where}" for what, where in places.items())


def look_around(found: Cluster, names: Names, run: str) -> str:
    """Commands to copy."""
    return "\n".join(
        f"  {line}"
        for line in (
            f"export KUBECONFIG={found.kubeconfig} PATH={found.kubectl.parent}:$PATH",
            f"kubectl get agentruns -n {names.runs} -o wide",
            f"kubectl describe agentrun {run} -n {names.runs}",
            f"kubectl get pods -n {names.sandboxes} -L hummingbird-project.io/role",
            f"kubectl get agentrun {run} -n {names.runs} -o jsonpath='{{.status.session.transcript}}'",
            "kubectl explain agentrun.spec",
        )
    )


def left_behind(found: Cluster, names: Names, folder: Path) -> str:
    """What stays, and how to remove it."""
    lines = [".venv/bin/python -m demo --remove   # all but the CRDs; the next demo clears it as well"]
    lines += [] if found.provider == "kubeconfig" else ["make cluster-down                   # the whole cluster"]
    things = f"namespaces {names.runs} and {names.sandboxes}, CRDs, a ClusterRole, the folder {folder}"
    return "\n".join([f"left behind: {things}. To remove them:", *(f"  {line}" for line in lines)])
