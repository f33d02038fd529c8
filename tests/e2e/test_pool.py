"""Pools on a real cluster: a real kopf operator with the pools' handlers only, real pods, real NetworkPolicies."""

from __future__ import annotations

import asyncio
import secrets
import statistics
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import kopf
import pytest

from hummingbird_operator.api import labels
from hummingbird_operator.errors import Invalid, NotFound
from hummingbird_operator.kube.client import NETWORK_POLICIES, PODS, SANDBOX_POOLS, Kube, Object, Resource
from hummingbird_operator.kube.connection import Endpoint
from hummingbird_operator.kube.events import Recorder
from hummingbird_operator.kube.exec import ExecConnection
from hummingbird_operator.kube.watch import keep_watching
from hummingbird_operator.sandboxes.pod import PodSandbox
from hummingbird_operator.sandboxpools import handlers
from hummingbird_operator.sandboxpools.claims import Claims, Member

T = TypeVar("T")
IMAGE = "localhost/hummingbird-sandbox:dev"


def pool_body(name: str, **spec: Any) -> Object:
    container = {
        "name": "sandbox",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
    }
    return {
        "apiVersion": labels.API_VERSION,
        "kind": "SandboxPool",
        "metadata": {"name": name},
        "spec": {
            "replicas": 2,
            "maxSandboxes": 6,
            "activeDeadlineSeconds": 600,
            "linger": {"seconds": 60, "max": 1},
            "pod": {"template": {"spec": {"securityContext": {"runAsUser": 65532}, "containers": [container]}}},
        }
        | spec,
    }


@dataclass
class Operator:
    """The pools' half of the operator, on an event loop of its own thread."""

    kubeconfig: str
    namespace: str
    run_namespaces: list[str] = field(default_factory=list)
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)

    def start(self) -> None:
        self.ready = threading.Event()
        self.thread = threading.Thread(target=self.loop.run_until_complete, args=(self._main(),))
        self.thread.start()
        assert self.ready.wait(20)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.stopping.set)
        self.thread.join(30)
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(90)

    async def _main(self) -> None:
        self.stopping = asyncio.Event()
        self.kube = await Kube.connect(kubeconfig=self.kubeconfig)
        self.claims = Claims(self.kube, self.namespace)
        recorder = Recorder(self.kube, component="hummingbird", instance="test")
        registry = kopf.OperatorRegistry()
        access = self.kube.endpoint.access

        @kopf.on.login(registry=registry)
        async def login(**_: Any) -> kopf.ConnectionInfo:
            return kopf.ConnectionInfo(
                server=self.kube.endpoint.server,
                ca_path=access.configuration.ssl_ca_cert,
                certificate_path=access.configuration.cert_file,
                private_key_path=access.configuration.key_file,
            )

        seen = handlers.register(
            registry,
            handlers.Deps(self.kube, self.claims, recorder, run_namespaces=self.run_namespaces, orphan_seconds=2.0),
        )
        watch = asyncio.create_task(
            keep_watching(self.kube.endpoint, PODS, self.namespace, label_selector=labels.POOL, seen=seen)
        )
        settings = kopf.OperatorSettings()
        settings.peering.standalone = True
        settings.scanning.disabled = True
        settings.posting.enabled = False
        settings.persistence.finalizer = labels.FINALIZER
        settings.background.cancellation_polling = 2
        settings.background.instant_exit_timeout = 0.05
        ready = asyncio.Event()
        waiter = asyncio.create_task(ready.wait())
        waiter.add_done_callback(lambda _: self.ready.set())
        await kopf.operator(
            registry=registry,
            settings=settings,
            namespaces=[self.namespace],
            standalone=True,
            ready_flag=ready,
            stop_flag=self.stopping,
        )
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
        await self.kube.close()
        await asyncio.sleep(0.25)  # aiohttp's advice: closed TLS connections are gone only some turns of the loop later

    # --- what tests ask ---

    def make(self, name: str, **spec: Any) -> Object:
        return self.do(self.kube.create(SANDBOX_POOLS, self.namespace, pool_body(name, **spec)))

    def pool(self, name: str) -> Object:
        return self.do(self.kube.get(SANDBOX_POOLS, self.namespace, name))

    def change(self, name: str, spec: Object) -> None:
        self.do(self.kube.merge(SANDBOX_POOLS, self.namespace, name, {"spec": spec}))

    def pods(self, name: str, role: str = "") -> list[Object]:
        selector = f"{labels.POOL}={name}" + (f",{labels.ROLE}={role}" if role else "")
        return self.do(self.kube.list(PODS, self.namespace, label_selector=selector))

    def claim(self, pool: str, run: str, session: str = "s", **options: Any) -> Member | None:
        work = self.claims.claim(run, session=session, pool=pool, active_seconds=300, **options)
        return self.do(work)

    def until(self, what: Callable[[], object], seconds: float = 40) -> None:
        deadline = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < deadline, "it did not come about"
            time.sleep(0.1)

    def full(self, name: str, wanted: int = 2) -> bool:
        status = self.pool(name).get("status", {})
        return bool(status.get("standby") == wanted and status.get("pending") == 0)

    def condition(self, name: str, type_: str) -> dict[str, str]:
        conditions = self.pool(name).get("status", {}).get("conditions", [])
        return next((entry for entry in conditions if entry["type"] == type_), {})

    def gone(self, name: str) -> bool:
        try:
            self.pool(name)
        except NotFound:
            return True
        return False

    def done(self, name: str) -> None:
        self.do(self.kube.delete(SANDBOX_POOLS, self.namespace, name))
        for pod in self.pods(name):
            try:
                self.do(self.kube.delete(PODS, self.namespace, pod["metadata"]["name"], grace_seconds=0))
            except NotFound:
                continue
        self.until(lambda: self.gone(name) and not self.pods(name))

    def clear(self) -> None:
        """Leave no pool behind: its finalizer would hold the namespace once nobody serves it."""
        for pool in self.do(self.kube.list(SANDBOX_POOLS, self.namespace)):
            self.done(pool["metadata"]["name"])


def uid() -> str:
    return f"{secrets.token_hex(4)}-{secrets.token_hex(2)}-{secrets.token_hex(8)}"


@pytest.fixture(scope="module")
def operator(kubeconfig: str, namespace: str, crds: None) -> Iterator[Operator]:
    running = Operator(kubeconfig, namespace)
    running.start()
    yield running
    try:
        running.clear()
    finally:
        running.stop()


@pytest.fixture(scope="module")
def standing(operator: Operator) -> Iterator[str]:
    """A pool of two that tests may claim from; each lets go of what it took."""
    operator.make("standing")
    operator.until(lambda: operator.full("standing"))
    yield "standing"
    operator.done("standing")


def test_a_warm_claim_is_one_write_and_the_pool_fills_again(operator: Operator, standing: str) -> None:
    """sandbox-pools.md §6 no. 25a: an end-to-end test must assert a *warm* hit."""
    run = uid()
    before = writes(operator.kube, "patch", "pods")
    member = operator.claim(standing, run)
    assert member is not None
    assert (member.cold, member.lingered, member.backend) == (False, False, "k8spool")
    pod = operator.do(operator.kube.get(PODS, operator.namespace, member.name))
    meta = pod["metadata"]
    assert (meta["labels"][labels.ROLE], meta["labels"][labels.RUN]) == (labels.ROLE_ACTIVE, run)
    assert "ownerReferences" not in meta
    assert labels.REAP_BY in meta["annotations"]
    assert pod["spec"]["activeDeadlineSeconds"] > 600
    assert operator.claim(standing, run) == member
    assert operator.do(operator.claims.find(run)) == member
    assert writes(operator.kube, "patch", "pods") - before == 1
    operator.until(lambda: operator.full(standing) and operator.pool(standing)["status"]["active"] == 1)
    operator.do(operator.claims.release(run))
    operator.do(operator.claims.release(run))
    assert operator.do(operator.claims.find(run)) is None
    lost = operator.do(operator.claims.lost(member))
    assert lost is not None
    assert lost.cause == "Deleted"


def writes(kube: Kube, verb: str, resource: str) -> float:
    return sum(
        sample.value
        for metric in kube._requests.collect()
        for sample in metric.samples
        if sample.name.endswith("_total") and (sample.labels["verb"], sample.labels["resource"]) == (verb, resource)
    )


def test_the_manifest_of_a_member_is_the_seeds(operator: Operator, standing: str) -> None:
    """Seed 003 §8.5."""
    pod = operator.pods(standing, labels.ROLE_STANDBY)[0]
    spec, context = pod["spec"], pod["spec"]["containers"][0]["securityContext"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["restartPolicy"] == "Never"
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert context["allowPrivilegeEscalation"] is False
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert "activeDeadlineSeconds" not in spec
    assert pod["metadata"]["labels"][labels.APP_NAME] == labels.SANDBOX_APP
    assert pod["metadata"]["ownerReferences"][0]["controller"] is True


def test_the_session_that_lingers_gets_its_member_back_with_its_files(operator: Operator, standing: str) -> None:
    operator.until(lambda: operator.full(standing))
    first, second, session = uid(), uid(), uid()
    member = operator.claim(standing, first, session)
    assert member is not None
    box = sandbox(operator, member)
    box.start()
    box.write_file("/tmp/data/kept", b"here")
    operator.do(operator.claims.linger(first, session=session))
    operator.do(operator.claims.linger(first, session=session))
    assert operator.do(operator.claims.find(first)) is None
    other = operator.claim(standing, uid(), "another session")
    assert other is not None
    assert other.uid != member.uid
    again = operator.claim(standing, second, session)
    assert again is not None
    assert (again.uid, again.lingered) == (member.uid, True)
    assert b"".join(sandbox(operator, again).read_file_iter("/tmp/data/kept")) == b"here"
    pod = operator.do(operator.kube.get(PODS, operator.namespace, member.name))
    assert labels.SESSION_ID not in pod["metadata"]["annotations"]
    for held in operator.pods(standing, labels.ROLE_ACTIVE):
        operator.do(operator.claims.release(held["metadata"]["labels"][labels.RUN]))


def sandbox(operator: Operator, member: Member) -> PodSandbox:
    connection = ExecConnection(asyncio.run(Endpoint.load(kubeconfig=operator.kubeconfig)))
    return PodSandbox(
        connection, member.namespace, member.name, member.uid, on_cleanup=lambda: None, on_linger=lambda _: None
    )


def test_more_than_linger_max_makes_room_and_expiry_reaps(operator: Operator) -> None:
    operator.make("lingers", linger={"seconds": 4, "max": 1})
    operator.until(lambda: operator.full("lingers"))
    runs = [uid(), uid()]
    members = [operator.claim("lingers", run, run) for run in runs]
    for run in runs:
        operator.do(operator.claims.linger(run, session=run))
        time.sleep(1.1)
    operator.until(lambda: len(operator.pods("lingers", labels.ROLE_LINGERING)) <= 1, 10)
    left = operator.pods("lingers", labels.ROLE_LINGERING)
    assert [pod["metadata"]["name"] for pod in left] in ([members[1].name], [])  # type: ignore[union-attr]
    operator.until(lambda: not operator.pods("lingers", labels.ROLE_LINGERING), 15)
    operator.done("lingers")


def test_an_empty_pool_starts_cold_until_its_maximum_and_then_says_none(operator: Operator) -> None:
    """sandbox-pools.md §6 no. 25b: never a silent slow path; no. 8: deterministic names."""
    operator.make("small", replicas=0, maxSandboxes=1)
    operator.until(lambda: operator.condition("small", "Ready").get("status") == "True")
    run = uid()
    member = operator.claim("small", run)
    assert member is not None
    assert (member.cold, member.name) == (True, f"small-{run.replace('-', '')[:16]}")
    assert operator.claim("small", run) == member
    assert operator.claim("small", uid()) is None
    operator.done("small")


def test_a_sandbox_without_a_pool_is_made_from_a_template_and_isolated(operator: Operator) -> None:
    template = pool_body("x")["spec"]["pod"]["template"]
    run = uid()
    member = operator.claim("", run, template=template)
    assert member is not None
    assert (member.backend, member.pool, member.cold) == ("k8s", "", True)
    policy = operator.do(operator.kube.get(NETWORK_POLICIES, operator.namespace, "hummingbird-sandboxes-isolated"))
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    operator.do(operator.claims.linger(run, session="s"))
    operator.until(lambda: operator.do(operator.claims.lost(member)) is not None)


def test_an_unknown_pool_is_an_error(operator: Operator) -> None:
    """sandbox-pools.md §6 no. 25: a name that does not exist fell back to any pool."""
    with pytest.raises(NotFound):
        operator.claim("nowhere", uid())


def test_a_template_that_asks_for_the_host_is_refused_by_the_fields_name(operator: Operator) -> None:
    template = pool_body("x")["spec"]["pod"]["template"]
    template["spec"]["hostNetwork"] = True
    operator.make("greedy", pod={"template": template})
    operator.until(lambda: operator.condition("greedy", "Degraded").get("status") == "True")
    degraded = operator.condition("greedy", "Degraded")
    assert degraded["reason"] == "TemplateRefused"
    assert "spec.pod.template.spec.hostNetwork" in degraded["message"]
    assert operator.pods("greedy") == []
    with pytest.raises(Invalid, match="hostNetwork"):
        operator.claim("greedy", uid())
    operator.done("greedy")


def test_a_template_that_fails_stops_the_pool_with_a_condition(operator: Operator) -> None:
    """sandbox-pools.md §6 no. 23, 28, 30: failing members must not be burned."""
    template = pool_body("x")["spec"]["pod"]["template"]
    template["spec"]["containers"][0]["command"] = ["sh", "-c", "echo broken >&2; exit 3"]
    operator.make("failing", replicas=2, pod={"template": template})
    operator.until(lambda: operator.condition("failing", "Degraded").get("status") == "True")
    assert operator.condition("failing", "Degraded")["reason"] == "MembersFailing"
    assert "exit code 3" in operator.condition("failing", "Degraded")["message"]
    made = operator.claims.metrics.created.labels("failing")._value.get()
    time.sleep(6)
    assert operator.claims.metrics.created.labels("failing")._value.get() - made <= 2
    operator.done("failing")


def test_an_image_that_is_not_there_is_named_and_not_multiplied(operator: Operator) -> None:
    """sandbox-pools.md §6 no. 28: ImagePullBackOff for 40 h, 114 sandboxes."""
    template = pool_body("x")["spec"]["pod"]["template"]
    template["spec"]["containers"][0] |= {"image": "localhost/not-there:dev", "imagePullPolicy": "Never"}
    operator.make("imageless", pod={"template": template})
    operator.until(lambda: operator.condition("imageless", "Degraded").get("status") == "True")
    assert "ErrImageNeverPull" in operator.condition("imageless", "Degraded")["message"]
    time.sleep(2)
    assert len(operator.pods("imageless")) == 2
    operator.done("imageless")


def test_what_cannot_be_scheduled_waits_and_is_not_replaced(operator: Operator) -> None:
    """sandbox-pools.md §6 no. 27, 32: a gated or unschedulable pod is waiting, not broken."""
    template = pool_body("x")["spec"]["pod"]["template"]
    template["spec"]["nodeSelector"] = {"nowhere": "true"}
    operator.make("homeless", pod={"template": template})
    operator.until(lambda: "waits for room" in operator.condition("homeless", "Progressing").get("message", ""))
    names = {pod["metadata"]["name"] for pod in operator.pods("homeless")}
    time.sleep(3)
    assert {pod["metadata"]["name"] for pod in operator.pods("homeless")} == names
    assert len(names) == 2
    assert operator.condition("homeless", "Degraded")["status"] == "False"
    operator.done("homeless")


def test_a_quota_is_no_failure_and_is_backed_off_from(operator: Operator) -> None:
    """sandbox-pools.md §6 no. 33, 34."""
    quotas = Resource("", "v1", "resourcequotas")
    now = len(operator.do(operator.kube.list(PODS, operator.namespace)))
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q"},
        "spec": {"hard": {"pods": now + 1}},
    }
    operator.do(operator.kube.create(quotas, operator.namespace, quota))
    operator.until(lambda: "hard" in operator.do(operator.kube.get(quotas, operator.namespace, "q")).get("status", {}))
    try:
        operator.make("poor", replicas=3)
        operator.until(lambda: operator.condition("poor", "Degraded").get("reason") == "QuotaExceeded")
        assert "exceeded quota" in operator.condition("poor", "Degraded")["message"]
    finally:
        operator.do(operator.kube.delete(quotas, operator.namespace, "q"))
    operator.until(lambda: operator.full("poor", 3), 40)
    operator.done("poor")


def test_scale_down_and_rollout_leave_the_claimed_member_alone(operator: Operator) -> None:
    """sandbox-pools.md §6 no. 10, 11, 22."""
    operator.make("rolling", replicas=3)
    operator.until(lambda: operator.full("rolling", 3))
    run = uid()
    member = operator.claim("rolling", run)
    assert member is not None
    old = {pod["metadata"]["uid"] for pod in operator.pods("rolling")}
    template = pool_body("x")["spec"]["pod"]["template"]
    template["metadata"] = {"annotations": {"version": "2"}}
    operator.change("rolling", {"replicas": 1, "pod": {"template": template}})
    operator.until(lambda: operator.full("rolling", 1))
    operator.until(lambda: len(operator.pods("rolling")) == 2)
    standby = operator.pods("rolling", labels.ROLE_STANDBY)
    assert standby[0]["metadata"]["uid"] not in old
    assert operator.do(operator.claims.find(run)) == member
    operator.done("rolling")


def test_never_more_than_replicas_stand_by_while_claims_come(operator: Operator) -> None:
    """sandbox-pools.md §6 no. 26: five times too many pods."""
    operator.make("busy", replicas=3, maxSandboxes=30)
    operator.until(lambda: operator.full("busy", 3))
    most, stop = 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not stop.is_set():
            most = max(most, len(operator.pods("busy", labels.ROLE_STANDBY)))

    watcher = threading.Thread(target=watch)
    watcher.start()
    runs = [uid() for _ in range(8)]
    members = [operator.claim("busy", run) for run in runs]
    stop.set()
    watcher.join()
    assert most <= 3
    assert len({member.uid for member in members if member}) == 8
    operator.done("busy")


def test_many_claims_at_once_take_distinct_members(operator: Operator) -> None:
    """sandbox-pools.md §6 no. 6: concurrent claims pick the same pod; 88 % of first tries failed."""
    operator.make("burst", replicas=5, maxSandboxes=12)
    operator.until(lambda: operator.full("burst", 5))
    runs = [uid() for _ in range(10)]

    async def claim(run: str) -> Member:
        """As a run does: new standby members may have the room for now, and one of them will be its own."""
        while True:
            freed = operator.claims.changed()
            member = await operator.claims.claim(run, session=run, pool="burst", active_seconds=60)
            if member is not None:
                return member
            await freed.wait()

    async def all_at_once() -> list[Member]:
        async with asyncio.timeout(60):
            return list(await asyncio.gather(*map(claim, runs)))

    members = operator.do(all_at_once())
    assert len({member.uid for member in members}) == 10
    assert sum(not member.cold for member in members) >= 5
    assert operator.claims.metrics.conflicts.labels("burst")._value.get() == 0
    operator.done("burst")


def test_a_member_of_a_run_that_is_gone_is_reaped(operator: Operator) -> None:
    """sandbox-pools.md §6 no. 40, 45: owner-stamped pods without a live owner; age and a live read first."""
    operator.make("orphans", replicas=1)
    operator.until(lambda: operator.full("orphans", 1))
    member = operator.claim("orphans", uid())
    assert member is not None
    operator.run_namespaces.append(operator.namespace)
    try:
        operator.until(lambda: operator.do(operator.claims.lost(member)) is not None, 30)
    finally:
        operator.run_namespaces.clear()
    operator.done("orphans")


def test_a_member_that_vanished_is_replaced(operator: Operator) -> None:
    """sandbox-pools.md §6 no. 41b: refill was triggered by claims only, not by losses."""
    operator.make("losing", replicas=1)
    operator.until(lambda: operator.full("losing", 1))
    name = operator.pods("losing")[0]["metadata"]["name"]
    operator.do(operator.kube.delete(PODS, operator.namespace, name, grace_seconds=0))
    operator.until(lambda: [p["metadata"]["name"] for p in operator.pods("losing")] not in ([], [name]))
    operator.until(lambda: operator.full("losing", 1))
    operator.done("losing")


def test_deleting_a_pool_leaves_the_claimed_member_to_its_run(operator: Operator) -> None:
    """sandbox-pools.md §6 no. 12, 53: the collector of garbage must not take it; no finalizer may stay."""
    operator.make("ending", replicas=2)
    operator.until(lambda: operator.full("ending"))
    runs = [uid(), uid()]
    members = [operator.claim("ending", run) for run in runs]
    uids = {member.uid for member in members if member is not None}
    assert len(uids) == 2
    began = time.monotonic()
    operator.do(operator.kube.delete(SANDBOX_POOLS, operator.namespace, "ending"))

    operator.until(lambda: operator.gone("ending"), 15)
    took = time.monotonic() - began
    live = [pod for pod in operator.pods("ending") if "deletionTimestamp" not in pod["metadata"]]
    assert {pod["metadata"]["uid"] for pod in live} == uids
    time.sleep(1)
    assert [operator.do(operator.claims.find(run)) for run in runs] == members
    assert took < 10

    def closed() -> bool:
        policies = operator.do(operator.kube.list(NETWORK_POLICIES, operator.namespace))
        return "ending-isolated" in [policy["metadata"]["name"] for policy in policies]

    operator.do(operator.claims.release(runs[0]))
    operator.until(lambda: len(operator.pods("ending")) == 1)
    time.sleep(1)
    assert closed(), "the other run's sandbox was left open"
    operator.do(operator.claims.release(runs[1]))
    operator.until(lambda: not operator.pods("ending") and not closed())


def test_the_network_policy_denies_everything_and_is_put_back(operator: Operator, standing: str) -> None:
    """sandbox-pools.md §6 no. 49: the policy selected a label that only claimed pods have."""
    name = f"{standing}-isolated"
    policy = operator.do(operator.kube.get(NETWORK_POLICIES, operator.namespace, name))
    wanted = policy["spec"]
    assert set(wanted["policyTypes"]) == {"Ingress", "Egress"}
    for pod in operator.pods(standing):
        assert wanted["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    operator.do(operator.kube.merge(NETWORK_POLICIES, operator.namespace, name, {"spec": {"egress": [{}]}}))
    operator.until(
        lambda: "egress" not in operator.do(operator.kube.get(NETWORK_POLICIES, operator.namespace, name))["spec"], 30
    )


@pytest.mark.alone
def test_warm_claims_are_quick(operator: Operator) -> None:
    operator.make("quick", replicas=6, maxSandboxes=20)
    operator.until(lambda: operator.full("quick", 6))
    took = []
    for _ in range(5):
        began = time.monotonic()
        member = operator.claim("quick", uid())
        took.append(time.monotonic() - began)
        assert member is not None
    print(f"warm claim p50 {statistics.median(took) * 1000:.1f} ms, worst {max(took) * 1000:.1f} ms")
    assert statistics.median(took) < 1
    operator.done("quick")
