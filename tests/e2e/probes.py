"""Pods to try things in, and the two programs that run there: one reaches for addresses, one listens."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cluster import SANDBOX_IMAGE
from demo.stage import wait_for
from tests.e2e.listeners import question
from tests.e2e.scene import Scene

Target = tuple[str, tuple[Any, ...]]
"""A way of `PROBE`, and the address for it."""

PORT = 8080
"""Where a pod listens."""
HTTP = b"GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

PROBE = r"""
import json, socket, ssl, sys, threading
def tcp(address, say, tls=False):
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as s:
        s.settimeout(3)
        s.connect(tuple(address))
        if tls:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            s = context.wrap_socket(s)
        s.sendall(say)
        return s.recv(4096)
def udp(address, say):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(3)
        s.connect(tuple(address))
        s.send(say)
        return s.recv(4096)
WAYS = {
    "tcp": tcp, "udp": udp,
    "tls": lambda address, say: tcp(address, say, tls=True),
    "name": lambda address, say: socket.getaddrinfo(address[0], 80, socket.AF_INET)[0][4][0].encode(),
    "ping": lambda address, say: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP) and b"",
    "raw": lambda address, say: socket.socket(socket.AF_PACKET, socket.SOCK_RAW) and b"",
}
said = {}
def attempt(name, way, address, say):
    try:
        said[name] = {"answer": WAYS[way](address, bytes.fromhex(say)).hex()}
    except OSError as error:
        said[name] = {"error": type(error).__name__ + ": " + str(error)}
threads = [threading.Thread(target=attempt, args=target) for target in json.load(sys.stdin)]
for t in threads: t.start()
for t in threads: t.join()
print(json.dumps(said))
"""

LISTEN = r"""
import socket, threading
def udp():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("0.0.0.0", PORT))
    while True:
        said, sender = s.recvfrom(4096)
        open("/tmp/heard", "ab").write(said + b"\n")
        s.sendto(b"heard " + said, sender)
threading.Thread(target=udp, daemon=True).start()
server = socket.create_server(("::", PORT), family=socket.AF_INET6, dualstack_ipv6=True)
open("/tmp/ready", "w").close()
while True:
    client, _ = server.accept()
    with client:
        said = client.recv(4096)
        open("/tmp/heard", "ab").write(said + b"\n")
        client.sendall(b"heard " + said)
""".replace("PORT", str(PORT))


@dataclass(frozen=True)
class Pod:
    """A pod to try things in."""

    world: Scene
    name: str
    namespace: str
    ip: str

    def run(self, *command: str, stdin: str = "", check: bool = True) -> str:
        return self.world.stage.kubectl(
            *("exec", "-i", self.name, "-n", self.namespace, "--", *command), stdin=stdin, check=check
        )

    def listen(self) -> None:
        """Answer on port 8080, TCP and UDP, from now on."""
        self.run(
            "sh", "-c", "cat >/tmp/listen.py; setsid python3 /tmp/listen.py </dev/null >/tmp/log 2>&1 &", stdin=LISTEN
        )
        wait_for(
            lambda: "yes" in self.run("sh", "-c", "test -e /tmp/ready && echo yes", check=False),
            20,
            lambda: self.run("cat", "/tmp/log"),
        )

    def say(self, target: str) -> str:
        """What this pod says there: its name and the target's."""
        return f"{self.name}.to-{target.replace(' ', '-').replace(',', '')}-end"

    def tries(self, targets: Mapping[str, Target]) -> dict[str, dict[str, str]]:
        """By target: `answer`, or the `error` that the kernel gave."""
        wanted = []
        for name, (way, address) in targets.items():
            text = question(self.say(name)) if address[1] == 53 else self.say(name).encode()
            wanted.append([name, way, list(address), (HTTP if way == "tls" else text).hex()])
        said: dict[str, dict[str, str]] = json.loads(self.run("python3", "-c", PROBE, stdin=json.dumps(wanted)))
        return said


def free_pod(name: str, namespace: str) -> dict[str, Any]:
    container = {"name": "c", "image": SANDBOX_IMAGE, "imagePullPolicy": "IfNotPresent", "command": ["sleep", "900"]}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0, "restartPolicy": "Never"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def pod_of(made: Scene, body: dict[str, Any]) -> Pod:
    meta = body["metadata"]
    return Pod(made, meta["name"], meta["namespace"], body["status"]["podIP"])
