"""A namespace of sandboxes in memory: FakeKube, a clock that tests move, and a kubelet that starts pods when told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hummingbird_operator.api import labels
from hummingbird_operator.api.sandboxpool import SandboxPool
from hummingbird_operator.kube.client import PODS, SANDBOX_POOLS, Object
from hummingbird_operator.kube.testing import FakeKube
from hummingbird_operator.sandboxpools import objects
from hummingbird_operator.sandboxpools.claims import Claims
from hummingbird_operator.sandboxpools.members import Pod, read
from hummingbird_operator.sandboxpools.reconcile import Reconciler

NAMESPACE = "sandboxes"
START = datetime(2030, 1, 1, tzinfo=UTC)


def pool_body(name: str = "default", **spec: Any) -> Object:
    container = {"name": "sandbox", "image": "registry.example/sandbox:1"}
    return {
        "apiVersion": labels.API_VERSION,
        "kind": "SandboxPool",
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": f"uid-of-{name}", "generation": 1},
        "spec": {
            "replicas": 2,
            "maxSandboxes": 5,
            "activeDeadlineSeconds": 600,
            "linger": {"seconds": 300, "max": 2},
            "pod": {"template": {"spec": {"containers": [container]}}},
        }
        | spec,
    }


def pool(name: str = "default", **spec: Any) -> SandboxPool:
    return SandboxPool.parse(pool_body(name, **spec))


def status(**changes: Any) -> Object:
    """What a kubelet writes of a pod that runs."""
    ready = {"type": "Ready", "status": "True"}
    return {"phase": "Running", "startTime": "2030-01-01T00:00:00Z", "conditions": [ready]} | changes


class Events:
    """A recorder that remembers."""

    def __init__(self) -> None:
        self.emitted: list[tuple[str, str]] = []

    async def emit(self, reference: dict[str, str], type_: str, reason: str, message: str) -> None:
        self.emitted.append((type_, reason))


class World:
    """One process against one namespace; `another` is a second process against the same."""

    def __init__(self, *, kube: FakeKube | None = None, seed: int = 0, runs: tuple[str, ...] = ()) -> None:
        self.kube = kube or FakeKube(seed=seed, now=lambda: self.now)
        self.now = START
        self.events = Events()
        self.claims = Claims(self.kube, NAMESPACE, now=lambda: self.now, clock=self.clock)
        self.reconciler = Reconciler(
            self.kube,
            self.claims,
            self.events,
            run_namespaces=runs,
            now=lambda: self.now,
            clock=self.clock,
        )

    def clock(self) -> float:
        return (self.now - START).total_seconds()

    def another(self) -> World:
        other = World(kube=self.kube)
        other.now = self.now
        return other

    def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def pool(self, name: str = "default", **spec: Any) -> None:
        self.kube.put(SANDBOX_POOLS, NAMESPACE, pool_body(name, **spec))

    def pool_status(self, name: str = "default") -> Object:
        found = next(body for body in self.kube.all(SANDBOX_POOLS) if body["metadata"]["name"] == name)
        return dict(found.get("status") or {})

    def condition(self, type_: str) -> dict[str, str]:
        return next(dict(entry) for entry in self.pool_status()["conditions"] if entry["type"] == type_)

    def pods(self, role: str = "") -> list[Pod]:
        pods = [read(body) for body in self.kube.all(PODS)]
        return [pod for pod in pods if not role or pod.role == role]

    def start_all(self) -> None:
        """Every pod that was not started yet becomes Ready."""
        for body in self.kube.all(PODS):
            if not body.get("status"):
                self.kube.set_status(PODS, NAMESPACE, body["metadata"]["name"], status())

    def set_status(self, name: str, value: Object) -> None:
        self.kube.set_status(PODS, NAMESPACE, name, value)

    async def fill(self, name: str = "default", passes: int = 3) -> None:
        for _ in range(passes):
            await self.reconciler.reconcile(name)
            self.start_all()
            self.later(1.1)
        await self.reconciler.reconcile(name)


def member(name: str = "m", *, now: datetime = START, of: SandboxPool | None = None, **changes: Any) -> Pod:
    """A standby member that is Ready."""
    owner = of or pool()
    template = objects.template_of(owner) if owner.spec.pod and not changes.get("template_hash") else {}
    values: dict[str, Any] = {
        "name": name,
        "uid": f"uid-{name}",
        "version": "1",
        "pool": owner.metadata.name,
        "role": labels.ROLE_STANDBY,
        "run": "",
        "session": "",
        "template_hash": objects.template_hash(template) if template else "",
        "node": "node",
        "created": now - timedelta(seconds=100),
        "started": now - timedelta(seconds=99),
        "deleting_since": None,
        "reap_by": None,
        "deadline": None,
        "owner": owner.metadata.uid,
        "phase": "Running",
        "ready": True,
        "gated": False,
        "problem": "",
        "failing": False,
        "has_owners": True,
    }
    return Pod(**values | changes)
