"""A stage with its stand-ins, and the verbs of the end-to-end tests: apply a run, wait for it, look at what it left."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from cluster import Cluster
from demo import evidence
from demo.analyst import analyst
from demo.processes import Ingestor
from demo.stage import BOT_TOKEN, MODEL_KEY, READ_TOKEN, Names, Stage, wait_for
from hummingbird_ai.testing import GeminiServer
from hummingbird_ai.testing.replies import Reply, Script
from tests.standins.gitlab import GitLabStandIn

MERGE_REQUESTS = range(100, 140)
"""More of them: runs on one merge request wait for each other."""


@dataclass
class Scene:
    """One operator's world. `script` answers model calls and may be exchanged at any time."""

    stage: Stage
    gitlab: GitLabStandIn
    script: Script = analyst
    gemini: GeminiServer = field(init=False)

    def answer(self, body: dict[str, Any], n: int) -> Reply:
        """The GeminiServer's script: whatever the test wants now."""
        return self.script(body, n)

    def configure(self, **changes: Any) -> None:
        """Write config.yaml: what every test needs, sections changed or added; a value of None takes its key out."""
        config: dict[str, Any] = {
            "gitlab": {"url": self.gitlab.url, "token_env": "GITLAB_TOKEN"},
            "models": {
                "default": "gemini-3.8-flash",
                "google_api_key_env": "GOOGLE_API_KEY",
                "endpoint": self.gemini.url,
            },
            "sessions": {"store": f"file://{self.stage.folder}/store"},
            "sandbox": {"pool": "default", "namespace": self.stage.names.sandboxes},
            "limits": {"retry_seconds": 3},
            "projects": {"group/app": {"tokens": {"gitlab": "READ_TOKEN"}}},
            "workflows": {
                "analyze-failures": {"prompt": "workflows/analyze-failures.md", "data_sources": {"gitlab": {}}},
                "plain": {"prompt": "workflows/analyze-failures.md"},
            },
        }
        for section, values in changes.items():
            merged = {**config.get(section, {}), **values}
            config[section] = {key: value for key, value in merged.items() if value is not None}
        self.stage.configure(yaml.safe_dump(config))

    @contextmanager
    def ingesting(self, transport: str, name: str = "", *, port: int = 0) -> Iterator[Ingestor]:
        """An ingest process ("sqs" or "webhook") for as long as the block lasts, Ready; `port` is the webhook's."""
        process = self.stage.ingest(transport, name or f"ingest-{transport}", port=port)
        try:
            process.wait_until_ready()
            yield process
        finally:
            process.stop()

    def run(self, name: str, **spec: Any) -> None:
        """Apply an AgentRun on merge request 42; `target=None` for one without."""
        body: dict[str, Any] = {
            "workflow": "analyze-failures",
            "target": {"gitlab": {"project": "group/app", "mergeRequest": 42}},
            **spec,
        }
        self.stage.apply(
            {
                "apiVersion": "hummingbird-project.io/v1alpha1",
                "kind": "AgentRun",
                "metadata": {"name": name, "namespace": self.stage.names.runs},
                "spec": {key: value for key, value in body.items() if value is not None},
            }
        )

    def status(self, name: str) -> dict[str, Any]:
        """The run's status as it is now."""
        found: dict[str, Any] = self.stage.get("agentrun", name).get("status", {})
        return found

    def conditions(self, name: str) -> dict[str, dict[str, Any]]:
        """The run's conditions by type."""
        return {condition["type"]: condition for condition in self.status(name).get("conditions", [])}

    def finished(self, name: str, seconds: float = 90) -> dict[str, Any]:
        """Wait for Finished as a user does; the condition Succeeded."""
        wait = ("wait", "--for=condition=Finished", f"agentrun/{name}", "-n", self.stage.names.runs)
        said = self.stage.kubectl(*wait, f"--timeout={seconds:.0f}s", check=False, timeout=seconds + 30)
        if "condition met" not in said:
            raise AssertionError(f"{said}\n{self.status(name)}\n{self.log()}")
        return self.conditions(name)["Succeeded"]

    def until(self, name: str, type_: str, value: str = "True", reason: str = "", seconds: float = 60) -> None:
        """Wait until a condition stands so."""

        def stands() -> bool:
            found = self.conditions(name).get(type_, {})
            return found.get("status") == value and (not reason or found.get("reason") == reason)

        wait_for(stands, seconds, lambda: f"{name} is not {type_}={value}: {self.status(name)}\n{self.log()}")

    def notes(self, iid: int = 42) -> list[dict[str, Any]]:
        """The notes of a merge request."""
        found: list[dict[str, Any]] = self.gitlab.state.dump()["notes"][f"group/app!{iid}"]
        return found

    def pool_ready(self, seconds: float = 60) -> None:
        """Wait until the pool has its standby members."""
        pool = ("sandboxpool/default", "-n", self.stage.names.sandboxes)
        self.stage.kubectl("wait", "--for=condition=Ready", *pool, f"--timeout={seconds:.0f}s", timeout=seconds + 30)

    def pods(self) -> list[dict[str, Any]]:
        """The sandboxes."""
        items: list[dict[str, Any]] = self.stage.get("pods", namespace=self.stage.names.sandboxes)["items"]
        return items

    def free_lease(self) -> None:
        """As if a dead leader's Lease had run out: a test that is not about those 15 seconds need not wait for them."""
        patch = ("--type=merge", "-p", '{"spec":{"holderIdentity":""}}')
        self.stage.kubectl("patch", "lease", "hummingbird-operator", "-n", self.stage.names.runs, *patch)

    def log(self) -> str:
        """The end of the log of every operator and ingestor."""
        return "\n".join(
            f"--- {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-25:])
            for path in sorted([*self.stage.folder.glob("operator-*.log"), *self.stage.folder.glob("ingest-*.log")])
        )


@contextmanager
def scene(cluster: Cluster, folder: Path, name: str, *, pool: Mapping[str, Any] | None = None) -> Iterator[Scene]:
    """Everything but the operator; namespaces `hbtest-<name>` and `hbtest-<name>-sandboxes`."""
    proof = evidence.run_tests()
    with ExitStack() as stack:
        data = evidence.fixture(proof, bot=BOT_TOKEN, reader=READ_TOKEN)
        data["projects"][0]["merge_requests"] += [{"iid": iid, "sha": evidence.SHA} for iid in MERGE_REQUESTS]
        gitlab = stack.enter_context(GitLabStandIn(data))
        names = Names(f"hbtest-{name}", f"hbtest-{name}-sandboxes")
        environ = {"GITLAB_TOKEN": BOT_TOKEN, "READ_TOKEN": READ_TOKEN, "GOOGLE_API_KEY": MODEL_KEY}
        found = Scene(Stage(cluster, folder, names, environ), gitlab)
        found.gemini = stack.enter_context(GeminiServer(found.answer, api_key=MODEL_KEY))
        found.configure()
        found.stage.install(pool=pool)
        try:
            yield found
        finally:
            found.stage.uninstall()


class PodWatch:
    """Looks at the sandboxes again and again, and keeps every violation of the pool's laws that it saw."""

    def __init__(self, scene: Scene, *, replicas: int) -> None:
        self._scene = scene
        self._replicas = replicas
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.runs_by_pod: dict[str, set[str]] = {}
        self.pods_by_run: dict[str, set[str]] = {}
        self.most_standby = 0
        self.looks = 0

    def __enter__(self) -> PodWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)

    def _look(self) -> None:
        group = "hummingbird-project.io"
        while not self._stop.is_set():
            standby = 0
            for pod in self._scene.pods():
                labels, uid = pod["metadata"].get("labels", {}), pod["metadata"]["uid"]
                standby += labels.get(f"{group}/role") == "standby" and "deletionTimestamp" not in pod["metadata"]
                if (run := labels.get(f"{group}/run")) and labels.get(f"{group}/role") == "active":
                    self.runs_by_pod.setdefault(uid, set()).add(run)
                    self.pods_by_run.setdefault(run, set()).add(uid)
            self.most_standby = max(self.most_standby, standby)
            self.looks += 1
            time.sleep(0.1)
