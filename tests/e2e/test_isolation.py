"""A sandbox reaches nothing and nobody reaches it: every way is tried for real, from inside a pod of a real pool.

Each target is shown to answer a pod that no policy holds (or the node, where a policy holds the target as well), with
the same program and at the same time. docs/sandboxes.md lists what was tried.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from cluster import Cluster
from demo.stage import wait_for
from hummingbird_ai.testing.replies import Answer, Reply, say
from tests.e2e import listeners
from tests.e2e.listeners import GATE, OUTSIDE, Heard, Outside
from tests.e2e.probes import PORT, PROBE, Pod, Target, free_pod, pod_of
from tests.e2e.scene import Scene, scene
from tests.standins.door import Door

API, DNS, METADATA = "10.96.0.1", "10.96.0.10", "169.254.169.254"
"""What a pod believes its API server, its name server and its cloud to be."""
NODE_PORT = 31_999

NAMES = (
    "pod of the same pool, tcp",
    "pod of the same pool, udp",
    "pod in another namespace, tcp",
    "pod in another namespace, udp",
    "API server at its service address",
    "API server on the node",
    "kubelet on the node",
    "node",
    "node, by another of its addresses",
    "node, a node port",
    "outside, tcp",
    "outside, udp",
    "outside, udp 53",
    "cloud metadata",
    "cluster DNS, tcp",
    "cluster DNS, udp",
    "a name",
)


@dataclass
class World:
    """Two sandboxes of one pool, two pods that no policy holds, and what there is to reach."""

    scene: Scene
    sandbox: Pod
    sibling: Pod
    free: Pod
    other: Pod
    outside: Outside
    heard: Heard = field(default_factory=Heard)
    targets: dict[str, Target] = field(default_factory=dict)
    said: dict[str, dict[str, dict[str, str]]] = field(default_factory=dict)
    """What came of trying every target, by pod."""

    @property
    def node(self) -> str:
        """The node's address in the network of pods."""
        return self.sandbox.ip.rsplit(".", 2)[0] + ".0.1"


@pytest.fixture(scope="module")
def world(shared_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    if shared_cluster.provider != "local":
        pytest.skip("the listeners stand beside the node of the local cluster")
    pool = {"replicas": 2, "linger": {"seconds": 0, "max": 0}}
    folder = tmp_path_factory.mktemp("isolation")
    with ExitStack() as stack:
        made = stack.enter_context(scene(shared_cluster, folder, "isolation", pool=pool))
        runs = made.stage.names.runs
        made.stage.apply(*(free_pod(name, runs) for name in ("free", "other")))
        stack.enter_context(made.stage.operator())
        made.pool_ready()
        made.stage.kubectl("wait", "--for=condition=Ready", "pod/free", "pod/other", "-n", runs, "--timeout=60s")
        standby = [each for each in made.pods() if "deletionTimestamp" not in each["metadata"]]
        sandbox, sibling = (pod_of(made, each) for each in standby)
        free, other = (pod_of(made, made.stage.get("pod", name)) for name in ("free", "other"))
        outside = stack.enter_context(Outside("hbtest-isolation", (API, DNS, METADATA)))
        found = World(made, sandbox, sibling, free, other, outside)
        for pod in (sandbox, sibling, free, other):
            pod.listen()
        furnish(stack, found, shared_cluster)
        wait_for(lambda: enforced(found), 30, lambda: "the network policy does not hold")
        found.heard.forget()
        for pod in (found.sandbox, found.free):
            found.said[pod.name] = pod.tries(found.targets)
        yield found


def enforced(world: World) -> bool:
    """kube-router needs a moment to learn of a new pod."""
    wanted = {"outside": world.targets["outside, tcp"]}
    return all("error" in pod.tries(wanted)["outside"] for pod in (world.sandbox, world.sibling))


def furnish(stack: ExitStack, world: World, cluster: Cluster) -> None:
    """Put real listeners behind every address that is tried."""
    outside, heard, node = world.outside, world.heard, world.node
    for name, way, bound in (
        ("outside, tcp", "tcp", outside.inside(lambda: listeners.tcp_socket(OUTSIDE, PORT))),
        ("outside, udp", "udp", outside.inside(lambda: listeners.udp_socket(OUTSIDE, PORT))),
        ("outside, udp 53", "dns", outside.inside(lambda: listeners.udp_socket(OUTSIDE, 53))),
        ("cloud metadata", "tcp", outside.inside(lambda: listeners.tcp_socket(METADATA, 80))),
        ("cluster DNS, tcp", "tcp", outside.inside(lambda: listeners.tcp_socket(DNS, 53))),
        ("cluster DNS, udp", "dns", outside.inside(lambda: listeners.udp_socket(DNS, 53))),
        ("node", "tcp", listeners.tcp_socket(node)),
        ("node, by another of its addresses", "tcp", listeners.tcp_socket(GATE)),
        ("node, a node port", "tcp", listeners.tcp_socket(node, NODE_PORT)),
    ):
        serve = listeners.tcp if way == "tcp" else listeners.udp
        answer = {"dns": listeners.resolved}.get(way, bytes.upper)
        address = stack.enter_context(serve(bound, heard, answer))
        world.targets[name] = ("tcp" if way == "tcp" else "udp", address)
    api = api_server(cluster)
    door = Door(api, listener=outside.inside(lambda: listeners.tcp_socket(API, 443)))
    world.targets["API server at its service address"] = ("tls", stack.enter_context(door).address)
    for name, target in (("API server on the node", api), ("kubelet on the node", kubelet(world.scene, cluster))):
        world.targets[name] = ("tls", stack.enter_context(Door(target, host=node)).address)
    for name, pod in (("pod of the same pool", world.sibling), ("pod in another namespace", world.other)):
        world.targets |= {f"{name}, {way}": (way, (pod.ip, PORT)) for way in ("tcp", "udp")}
    world.targets["a name"] = ("name", ("kubernetes.default.svc.cluster.local", 0))


def api_server(cluster: Cluster) -> tuple[str, int]:
    """Where it really listens: on the node's loopback address, so that a door must bring it to pods."""
    server = urlsplit(yaml.safe_load(cluster.kubeconfig.read_text())["clusters"][0]["cluster"]["server"])
    return str(server.hostname), int(server.port or 443)


def kubelet(made: Scene, cluster: Cluster) -> tuple[str, int]:
    """The same for the kubelet."""
    port = "jsonpath={.status.daemonEndpoints.kubeletEndpoint.Port}"
    return "127.0.0.1", int(made.stage.kubectl("get", "node", cluster.node, "-o", port))


@pytest.mark.parametrize("name", NAMES)
def test_a_sandbox_does_not_reach(world: World, name: str, record_property: Any) -> None:
    here, there = world.said[world.sandbox.name][name], world.said[world.free.name][name]
    record_property("refused with", here.get("error"))
    print(f"{name}: {here}")
    if name.startswith("pod of the same pool"):
        there = {"answer": from_the_node(world, name)}
    assert "answer" in there, "nothing answers there: that it refuses a sandbox would prove nothing"
    assert "error" in here, here


def test_a_sandbox_has_no_address_that_its_policy_does_not_hold(world: World) -> None:
    """kube-router filters IPv4 only: over link-local IPv6 sandboxes reached each other, the node and its other pods."""
    shown = world.sandbox.run("cat", "/proc/net/if_inet6", check=False)
    assert [line for line in shown.splitlines() if not line.endswith(" lo")] == []


def from_the_node(world: World, name: str) -> str:
    """Nobody else may reach a sandbox: that somebody listens there is shown from its own node."""
    way, address = world.targets[name]
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM if way == "tcp" else socket.SOCK_DGRAM) as asked:
        asked.settimeout(5)
        asked.connect(address)
        asked.sendall(b"from the node")
        return asked.recv(100).hex()


def test_nothing_that_a_sandbox_said_arrived_anywhere(world: World) -> None:
    """Not even one way: a datagram that nobody answers would be enough to carry something out."""
    assert world.free.name in world.heard
    told = [name for name in world.targets if world.sandbox.say(name) in world.heard]
    assert told == []
    for pod in (world.sibling, world.other):
        heard = pod.run("cat", "/tmp/heard", check=False).splitlines()
        assert [line for line in heard if world.sandbox.name in line] == []
    assert any(world.free.name in line for line in world.other.run("cat", "/tmp/heard").splitlines())


@pytest.mark.parametrize("way", ["tcp", "udp"])
def test_nobody_reaches_a_sandbox_but_its_own_node(world: World, way: str) -> None:
    wanted = {"sandbox": (way, (world.sandbox.ip, PORT))}
    for pod in (world.free, world.sibling):
        assert "error" in pod.tries(wanted)["sandbox"], pod.name
    assert not from_outside(world, world.sandbox, way)
    assert from_outside(world, world.other, way), "the way in from outside is not there at all"
    world.targets["sandbox"] = wanted["sandbox"]
    assert bytes.fromhex(from_the_node(world, "sandbox")) == b"heard from the node"


def from_outside(world: World, pod: Pod, way: str) -> bytes:
    kind = socket.SOCK_STREAM if way == "tcp" else socket.SOCK_DGRAM
    with world.outside.inside(lambda: socket.socket(socket.AF_INET, kind)) as asked:
        asked.settimeout(3)
        with contextlib.suppress(OSError):
            asked.connect((pod.ip, PORT))
            asked.sendall(b"from outside")
            return asked.recv(100)
    return b""


def test_a_sandbox_is_nobody_and_holds_nothing(world: World) -> None:
    status = dict(line.split(":\t", 1) for line in world.sandbox.run("cat", "/proc/self/status").splitlines())
    assert {int(number) for number in status["Uid"].split()} == {65532}
    assert "0" not in (status["Gid"] + " " + status["Groups"]).split()
    for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[kind], 16) == 0, kind
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    for way in ("ping", "raw"):
        assert "PermissionError" in world.sandbox.tries({way: (way, ("", 0))})[way]["error"]


def test_no_token_and_no_secret_is_in_a_sandbox(world: World) -> None:
    assert "token" in world.free.run("ls", "/run/secrets/kubernetes.io/serviceaccount")
    assert world.sandbox.run("sh", "-c", "ls -d /run/secrets /var/run/secrets 2>/dev/null; true") == ""
    mounts = [line.split()[1] for line in world.sandbox.run("cat", "/proc/mounts").splitlines()]
    assert not [path for path in mounts if "secret" in path or "token" in path or "serviceaccount" in path]
    for process in ("1", "self"):
        environment = world.sandbox.run("cat", f"/proc/{process}/environ").split("\0")
        names = {entry.split("=")[0] for entry in environment if entry}
        own = {name for name in names if not name.startswith("KUBERNETES_")}  # addresses, which every pod is given
        assert own <= {"PATH", "HOME", "LANG", "HOSTNAME", "PWD", "SHLVL", "OLDPWD", "_"}
        assert not [value for value in world.scene.stage.environ.values() if value in " ".join(environment)]


def test_a_sandbox_writes_nowhere_but_in_its_own_folders(world: World) -> None:
    paths = ("/", "/etc", "/usr/bin", "/root", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/sys/kernel")
    tried = "for p in $0 $@; do if [ -d $p ]; then p=$p/x; fi; if echo x >$p; then echo wrote $p; fi; done 2>/dev/null"
    assert world.sandbox.run("sh", "-c", tried, *paths) == ""
    assert world.sandbox.run("sh", "-c", tried, "/tmp") == "wrote /tmp/x\n"


def test_a_command_of_a_run_reaches_nothing_either(world: World) -> None:
    """A claimed member is held by the same policy as one that waits. Last, for the run's sandbox goes with it."""
    names = ("outside, tcp", "API server at its service address", "cluster DNS, udp", "pod in another namespace, tcp")
    wanted = json.dumps([[name, *world.targets[name], b"from a run".hex()] for name in names])
    program = f"cat >/tmp/p.py <<'EOF'\n{PROBE}\nEOF\necho '{wanted}' | python3 /tmp/p.py"

    def agent(body: dict[str, Any], _: int) -> Reply:
        if len(body["contents"]) == 1:
            return Answer(calls=(("sandbox_exec", {"command": program}),))
        return say(body["contents"][-1]["parts"][0]["functionResponse"]["response"]["stdout"])

    world.scene.script = agent
    world.scene.run("reaches", workflow="plain", target=None)
    assert world.scene.finished("reaches")["reason"] == "Completed"
    said = json.loads(world.scene.status("reaches")["answer"]["text"])
    assert set(said) == set(names)
    assert all("error" in each for each in said.values()), said
    assert "from a run" not in world.heard
