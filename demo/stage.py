"""What stands around an operator, in the demo and in the end-to-end tests alike.

Real: the API server, the node, pods, exec, the operator process with exactly the Roles of `manifests/`.
Stand-ins: GitLab, and the model's service (unless a key is given).
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from cluster import SANDBOX_IMAGE, Cluster
from demo.processes import Ingestor, Operator, free_port, wait_for

__all__ = [
    "BOT_TOKEN",
    "HOOKS_TOKEN",
    "MODEL_KEY",
    "READ_TOKEN",
    "ROOT",
    "Ingestor",
    "Names",
    "Operator",
    "Stage",
    "wait_for",
]

ROOT = Path(__file__).parents[1]
OURS = "agentruns,sandboxpools"
BOT_TOKEN, READ_TOKEN, HOOKS_TOKEN, MODEL_KEY = "bot-token", "read-token", "maintainer-token", "test-key"


@dataclass(frozen=True)
class Names:
    """Namespaces of runs and of sandboxes; the demo and each test have their own, so that all may use one cluster."""

    runs: str
    sandboxes: str


@dataclass
class Stage:
    """One place to run an operator in: two namespaces of a cluster, a folder for what it writes."""

    cluster: Cluster
    folder: Path
    names: Names
    environ: dict[str, str] = field(default_factory=dict)
    """What the operator's environment holds besides the basics: tokens, keys."""

    def kubectl(self, *arguments: str, stdin: str = "", check: bool = True, timeout: float = 120) -> str:
        """Run kubectl as the cluster's admin and return its output; a failure raises with its words."""
        done = subprocess.run(
            [str(self.cluster.kubectl), "--kubeconfig", str(self.cluster.kubeconfig), *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )
        if check and done.returncode != 0:
            raise RuntimeError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout + ("" if check else done.stderr)

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Apply objects on the server's side, in kubectl's own name, so that `manifests/` can be applied later."""
        text = yaml.safe_dump_all([dict(each) for each in objects])
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)

    def get(self, kind: str, name: str = "", namespace: str = "", selector: str = "") -> dict[str, Any]:
        """An object, or a list of them, as JSON."""
        arguments = ["get", kind, *([name] if name else []), "-n", namespace or self.names.runs, "-o", "json"]
        found: dict[str, Any] = json.loads(self.kubectl(*arguments, *(["-l", selector] if selector else [])))
        return found

    def install(self, *, pool: Mapping[str, Any] | None = None) -> None:
        """CRDs, namespaces, Roles and a pool, from the files that users apply."""
        self.apply(*(each for name in ("agentruns", "sandboxpools") for each in _documents(ROOT / f"crds/{name}.yaml")))
        for name in ("agentruns", "sandboxpools"):
            crd = f"crd/{name}.hummingbird-project.io"
            self.kubectl("wait", "--for=condition=Established", crd, "--timeout=30s")
        self.apply(*self._renamed("namespaces"))
        self.apply(*self._renamed("rbac"), *self._renamed("rbac-ingest"))
        self.apply(*(self._small(each, pool or {}) for each in self._renamed("pool")))

    def uninstall(self) -> None:
        """Take both namespaces away again; the CRDs stay, others may use them."""
        self._delete_ours()
        self.kubectl("delete", "namespace", self.names.runs, self.names.sandboxes, "--wait=false", check=False)
        self.kubectl("delete", "clusterrole,clusterrolebinding", f"hummingbird-operator-{self.names.runs}", check=False)

    def sweep(self) -> None:
        """Take away what an operator that is dead by now left in both namespaces, and wait until its pods are gone."""
        self._delete_ours()
        self.kubectl("delete", "lease", "--all", "-n", self.names.runs, check=False)
        namespace = ("-n", self.names.sandboxes)
        self.kubectl("delete", "networkpolicy,pod", "--all", *namespace, "--grace-period=1", check=False)
        left = self.kubectl("get", "pods", *namespace, "-o", "name", check=False).strip()
        if left.startswith("pod/"):
            raise RuntimeError(f"pods of {self.names.sandboxes} cannot be deleted: {left}")

    def _delete_ours(self) -> None:
        for namespace in (self.names.runs, self.names.sandboxes):
            self.kubectl("delete", OURS, "--all", "-n", namespace, "--wait=false", check=False)
            self._drop_finalizers(namespace)

    def configure(self, text: str) -> Path:
        """Write the operator's configuration, with the repository's prompts beside it."""
        path = self.folder / "config.yaml"
        path.write_text(text)
        prompts = self.folder / "workflows"
        prompts.mkdir(exist_ok=True)
        for prompt in (ROOT / "workflows").glob("*.md"):
            (prompts / prompt.name).write_text(prompt.read_text())
        return path

    @contextmanager
    def operator(self, name: str = "operator-0", *, ready: bool = True) -> Iterator[Operator]:
        """An operator process as long as the block lasts; ends by SIGTERM."""
        process = self.start(name)
        try:
            if ready:
                process.wait_until_ready()
            yield process
        finally:
            process.stop()

    def start(
        self,
        name: str = "operator-0",
        *,
        port: int = 0,
        program: str = "hummingbird_operator",
        environ: Mapping[str, str] | None = None,
    ) -> Operator:
        """Start an operator process with the ServiceAccount's own token. `program`: a module that runs it otherwise."""
        return self._spawn(name, ["operator"], "hummingbird-operator", port, program, environ or {})

    def ingest(
        self,
        transport: str,
        name: str,
        *,
        port: int = 0,
        health_port: int = 0,
        environ: Mapping[str, str] | None = None,
    ) -> Ingestor:
        """Start an ingest process ("sqs" or "webhook") with the ingestors' own token; `port` is the webhook's."""
        port = port or free_port()
        command = ["ingest", transport, *(["--port", str(port)] if transport == "webhook" else [])]
        program = "hummingbird_operator"
        started = self._spawn(name, command, "hummingbird-ingest", health_port, program, environ or {})
        return Ingestor(started.process, started.log, started.port, port)

    def hummingbird(self, *arguments: str) -> str:
        """Run the command to its end beside config.yaml and return its output; a failure raises with its words."""
        done = subprocess.run(
            [sys.executable, "-m", "hummingbird_operator", *arguments],
            cwd=self.folder,
            env=self._environ(),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        if done.returncode != 0:
            raise RuntimeError(f"hummingbird {' '.join(arguments)}: {(done.stdout + done.stderr).strip()}")
        return done.stdout

    def _environ(self) -> dict[str, str]:
        return {key: os.environ[key] for key in ("PATH", "HOME", "LANG") if key in os.environ} | self.environ

    def _spawn(
        self, name: str, command: list[str], account: str, port: int, program: str, environ: Mapping[str, str]
    ) -> Operator:
        kubeconfig = self._service_account(account)
        port = port or free_port()
        arguments = [*command, "--config", str(self.folder / "config.yaml"), "--namespace", self.names.runs]
        arguments += ["--kubeconfig", str(kubeconfig), "--health-port", str(port)]
        log = self.folder / f"{name}.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", program, *arguments],
                env={"HUMMINGBIRD_IDENTITY": name, **self._environ(), **environ},
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
            )
        return Operator(process, log, port)

    def _service_account(self, account: str = "hummingbird-operator") -> Path:
        path = self.folder / f"{account.removeprefix('hummingbird-')}.kubeconfig"
        if path.exists():
            return path
        token = self.kubectl("create", "token", account, "-n", self.names.runs, "--duration=8h").strip()
        admin = yaml.safe_load(self.cluster.kubeconfig.read_text())
        server = next(entry["cluster"] for entry in admin["clusters"])
        if "certificate-authority" in server:
            data = Path(server.pop("certificate-authority")).read_bytes()
            server["certificate-authority-data"] = base64.b64encode(data).decode()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": server}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(config))
        return path

    def _renamed(self, manifest: str) -> Iterator[dict[str, Any]]:
        """The manifest's objects in this stage's namespaces; cluster-wide names get a suffix of their own."""
        names = {"hummingbird": self.names.runs, "hummingbird-sandboxes": self.names.sandboxes}
        for each in _documents(ROOT / "manifests" / f"{manifest}.yaml"):
            meta = each["metadata"]
            if each["kind"] == "Namespace":
                meta["name"] = names[meta["name"]]
            elif "namespace" in meta:
                meta["namespace"] = names[meta["namespace"]]
            else:
                meta["name"] += f"-{self.names.runs}"
                if "roleRef" in each:
                    each["roleRef"]["name"] += f"-{self.names.runs}"
            for subject in each.get("subjects", ()):
                subject["namespace"] = names[subject["namespace"]]
            yield each

    def _small(self, pool: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
        """The pool with the image that the cluster has, and little enough for a node of two cores."""
        pool["spec"] |= changes
        container = pool["spec"]["pod"]["template"]["spec"]["containers"][0]
        container["image"], container["imagePullPolicy"] = SANDBOX_IMAGE, "IfNotPresent"
        container["resources"] = {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "512Mi"}}
        return pool

    def _drop_finalizers(self, namespace: str) -> None:
        """Without an operator nobody else would; docs/operations.md tells people the same."""
        listed = self.kubectl("get", OURS, "-n", namespace, "-o", "name", check=False)
        for name in (line for line in listed.splitlines() if line.startswith(("agentrun.", "sandboxpool."))):
            patch = '{"metadata":{"finalizers":null}}'
            self.kubectl("patch", name, "-n", namespace, "--type=merge", "-p", patch, check=False)


def _documents(path: Path) -> Iterator[dict[str, Any]]:
    yield from yaml.safe_load_all(path.read_text())
