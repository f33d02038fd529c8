"""The few questions we ask the API server, without kubectl: half a process start saved on each."""

from __future__ import annotations

import http.client
import json
import ssl
from typing import Any

from cluster.certs import NODE
from cluster.paths import State
from cluster.ports import LOOPBACK

TIMEOUT_SECONDS = 5.0


def get(state: State, port: int, path: str) -> tuple[int, bytes]:
    """Status and body of a GET as admin; status 0 where nobody answers."""
    try:
        context = ssl.create_default_context(cafile=str(state.pki / "ca.crt"))
        context.load_cert_chain(state.pki / "admin.crt", state.pki / "admin.key")
        connection = http.client.HTTPSConnection(LOOPBACK, port, timeout=TIMEOUT_SECONDS, context=context)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()
    except (OSError, http.client.HTTPException):
        return 0, b""


def is_ready(state: State, port: int) -> bool:
    """Whether the API server says so itself."""
    return get(state, port, "/readyz")[0] == 200


def node_is_ready(state: State, port: int) -> bool:
    """Whether pods would be scheduled."""
    status, body = get(state, port, f"/api/v1/nodes/{NODE}")
    if status != 200:
        return False
    node: dict[str, Any] = json.loads(body)
    conditions = node.get("status", {}).get("conditions", [])
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    # The taint is taken off a moment after Ready; until then nothing is scheduled.
    return ready and not node.get("spec", {}).get("taints")


def exists(state: State, port: int, path: str) -> bool:
    """Whether an object is there."""
    return get(state, port, path)[0] == 200
