"""The client against a server on loopback that answers what API servers answer."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from prometheus_client import CollectorRegistry

from hummingbird_operator.errors import Conflict, HummingbirdError, Invalid, NotFound, Unavailable
from hummingbird_operator.kube.client import AGENT_RUNS, NODES, PODS, AlreadyExists, Kube, QuotaExceeded, path
from hummingbird_operator.kube.connection import Endpoint, TokenFile
from hummingbird_operator.kube.refusals import Forbidden
from tests.unit.kube.apiserver import RESET, ApiServer, Refusal

Answer = tuple[int, Any, dict[str, str]]


@dataclass
class Asked:
    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: Any


@dataclass
class Server:
    """Answers by `reply`, remembers what was asked."""

    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    reply: Callable[[Asked], Answer] = lambda asked: (200, {}, {})


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            split = urlsplit(self.path)
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked = Asked(
                self.command, split.path, parse_qs(split.query), dict(self.headers), json.loads(raw) if raw else None
            )
            state.asked.append(asked)
            status, body, headers = state.reply(asked)
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for key, value in {"Content-Length": str(len(data)), **headers}.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815 - names of the standard library

        def log_message(self, *_: object) -> None:
            return

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, args=(0.05,))
    thread.start()
    state.url = f"http://127.0.0.1:{http.server_address[1]}"
    yield state
    http.shutdown()
    thread.join()
    http.server_close()


def kubeconfig(folder: Path, url: str, user: dict[str, Any]) -> str:
    file = folder / "kubeconfig"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": user}],
    }
    file.write_text(json.dumps(content))
    return str(file)


@pytest.fixture
async def kube(server: Server, tmp_path: Path) -> Any:
    kube = await Kube.connect(kubeconfig=kubeconfig(tmp_path, server.url, {"token": "t0k"}))
    yield kube
    await kube.close()


def failing(status: int, message: str = "no", **body: Any) -> Callable[[Asked], Answer]:
    return lambda asked: (status, {"kind": "Status", "message": message, **body}, {})


async def test_the_verbs_speak_the_api(server: Server, kube: Kube) -> None:
    await kube.get(PODS, "n", "p")
    await kube.create(AGENT_RUNS, "n", {"a": 1})
    await kube.patch(PODS, "n", "p", [{"op": "test", "path": "/x", "value": 1}])
    await kube.merge(AGENT_RUNS, "n", "r", {"status": {}}, subresource="status")
    await kube.delete(PODS, "n", "p", uid="u", resource_version="7", grace_seconds=0)
    get, create, patch, merge, delete = server.asked
    assert (get.method, get.path) == ("GET", "/api/v1/namespaces/n/pods/p")
    assert get.headers["Authorization"] == "Bearer t0k"
    assert create.path == "/apis/hummingbird-project.io/v1alpha1/namespaces/n/agentruns"
    assert (patch.headers["Content-Type"], patch.body[0]["op"]) == ("application/json-patch+json", "test")
    assert merge.path.endswith("/agentruns/r/status")
    assert merge.headers["Content-Type"] == "application/merge-patch+json"
    assert delete.body["preconditions"] == {"uid": "u", "resourceVersion": "7"}
    assert delete.body["gracePeriodSeconds"] == 0


def test_names_are_quoted_in_paths() -> None:
    assert path(PODS, "n", "a/../b") == "/api/v1/namespaces/n/pods/a%2F..%2Fb"
    assert path(NODES, "", "n1") == "/api/v1/nodes/n1"


async def test_a_list_is_read_in_pages(server: Server, kube: Kube) -> None:
    def pages(asked: Asked) -> Answer:
        token = asked.query.get("continue", [""])[0]
        following = {"": "1", "1": "2", "2": ""}[token]
        return 200, {"metadata": {"continue": following}, "items": [{"page": token}]}, {}

    server.reply = pages
    assert await kube.list(PODS, "n", label_selector="a=b") == [{"page": ""}, {"page": "1"}, {"page": "2"}]
    assert all(asked.query["labelSelector"] == ["a=b"] for asked in server.asked)


async def test_a_list_whose_token_expired_is_read_again_from_the_start(server: Server, kube: Kube) -> None:
    expired = iter([True])

    def pages(asked: Asked) -> Answer:
        if "continue" not in asked.query:
            return 200, {"metadata": {"continue": "t"}, "items": [{"page": 1}]}, {}
        if next(expired, False):
            return 410, {"message": "too old"}, {}
        return 200, {"items": [{"page": 2}]}, {}

    server.reply = pages
    assert await kube.list(PODS, "n") == [{"page": 1}, {"page": 2}]


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (failing(404), NotFound, "pods n/p"),
        (failing(409, reason="Conflict"), Conflict, "no"),
        (failing(409, reason="AlreadyExists"), AlreadyExists, "no"),
        (failing(422, "the server rejected our request", details={}), Conflict, "rejected"),
        (failing(422, details={"causes": [{"field": "spec.x", "message": "m"}]}), Invalid, "no"),
        (failing(403, "pods is forbidden: exceeded quota: q"), QuotaExceeded, "quota"),
        (failing(403, "forbidden"), Forbidden, "is the Role applied?"),
        (failing(403, 'admission webhook "w" denied the request: no'), Invalid, "denied the request"),
        (failing(403, "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"), Invalid, "denied request"),
        (failing(401, "Unauthorized"), Unavailable, "does the server still know this token?"),
        (failing(413, "too large"), Invalid, "too large"),
        (failing(500, "etcd"), Unavailable, "etcd"),
        (lambda asked: (503, b"<html>bad gateway", {}), Unavailable, "bad gateway"),
    ],
)
async def test_every_refusal_is_one_of_our_errors(
    server: Server, kube: Kube, answer: Callable[[Asked], Answer], error: type[HummingbirdError], words: str
) -> None:
    server.reply = answer
    with pytest.raises(error, match=words.replace("?", r"\?")) as caught:
        await kube.patch(PODS, "n", "p", [])
    assert type(caught.value) is error


async def test_a_policy_that_refuses_a_new_object_without_naming_a_field_is_no_conflict(
    server: Server, kube: Kube
) -> None:
    server.reply = failing(422, "denied request", details={"causes": [{"message": "no"}]})
    with pytest.raises(Invalid, match="denied request"):
        await kube.create(PODS, "n", {"metadata": {"name": "p"}})


async def test_too_many_requests_keeps_the_servers_own_hint(server: Server, kube: Kube) -> None:
    """kopf.md §2 no. 5."""
    server.reply = lambda asked: (429, {"message": "slow down"}, {"Retry-After": "3"})
    for call in (kube.get(PODS, "n", "p"), kube.list(PODS, "n"), kube.patch(PODS, "n", "p", [])):
        with pytest.raises(Unavailable) as caught:
            await call
        assert caught.value.retry_after == 3


@pytest.mark.parametrize("fault", [RESET, Refusal(401), Refusal(502)], ids=["reset", "401", "502"])
async def test_a_call_that_breaks_is_unavailable_once_and_the_next_one_is_served(tmp_path: Path, fault: Any) -> None:
    """Nothing is repeated in here, a write least of all; a 401 is asked once more with the token as it is now."""
    with ApiServer() as broken:
        kube = await Kube.connect(kubeconfig=kubeconfig(tmp_path, broken.url, {"token": "t"}))
        broken.fault = lambda asked: fault
        with pytest.raises(Unavailable):
            await kube.create(PODS, "n", {"metadata": {"name": "p"}})
        assert len(broken.asked) == (2 if fault == Refusal(401) else 1)
        broken.fault = lambda asked: None
        assert (await kube.create(PODS, "n", {"metadata": {"name": "p"}}))["metadata"]["uid"]
        await kube.close()


async def test_an_object_of_300_kb_goes_both_ways(tmp_path: Path) -> None:
    with ApiServer() as server:
        kube = await Kube.connect(kubeconfig=kubeconfig(tmp_path, server.url, {"token": "t"}))
        await kube.create(AGENT_RUNS, "n", {"metadata": {"name": "r"}, "spec": {"message": "ä" * 150_000}})
        assert len((await kube.get(AGENT_RUNS, "n", "r"))["spec"]["message"]) == 150_000
        await kube.close()


async def test_a_server_that_is_away_is_unavailable(tmp_path: Path) -> None:
    kube = await Kube.connect(kubeconfig=kubeconfig(tmp_path, "http://127.0.0.1:9", {"token": "t"}))
    with pytest.raises(Unavailable):
        await kube.get(PODS, "n", "p")
    await kube.close()


async def test_an_expired_token_is_read_again_from_the_kubeconfig(server: Server, tmp_path: Path) -> None:
    """kopf.md §1.8: credentials that expire must not end the process."""
    kube = await Kube.connect(kubeconfig=kubeconfig(tmp_path, server.url, {"token": "old"}))
    kubeconfig(tmp_path, server.url, {"token": "new"})
    server.reply = lambda asked: (200 if asked.headers["Authorization"] == "Bearer new" else 401, {"ok": 1}, {})
    assert await kube.get(PODS, "n", "p") == {"ok": 1}
    await kube.close()


async def test_requests_are_counted_by_verb_resource_and_code(server: Server, tmp_path: Path) -> None:
    registry = CollectorRegistry()
    kube = await Kube.connect(kubeconfig=kubeconfig(tmp_path, server.url, {"token": "t"}), metrics=registry)
    await kube.get(PODS, "n", "p")
    server.reply = failing(409, reason="Conflict")
    with pytest.raises(Conflict):
        await kube.merge(AGENT_RUNS, "n", "r", {}, subresource="status")
    name = "hummingbird_kube_requests_total"
    get = {"verb": "get", "resource": "pods", "subresource": "", "code": "200"}
    merge = {"verb": "merge", "resource": "agentruns", "subresource": "status", "code": "409"}
    assert registry.get_sample_value(name, get) == 1
    assert registry.get_sample_value(name, merge) == 1
    await kube.close()


async def test_many_calls_share_connections_and_do_not_wait_for_each_other(server: Server, kube: Kube) -> None:
    barrier = threading.Barrier(8, timeout=10)

    def together(asked: Asked) -> Answer:
        barrier.wait()
        return 200, {}, {}

    server.reply = together
    await asyncio.gather(*(kube.get(PODS, "n", f"p{number}") for number in range(8)))


async def test_a_kubeconfig_that_is_not_there_is_named() -> None:
    with pytest.raises(Invalid, match="nowhere"):
        await Endpoint.load(kubeconfig="/nowhere/kubeconfig")


async def test_outside_of_a_pod_a_missing_kubeconfig_is_said(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="service account"):
        await Endpoint.load(kubeconfig=None, mount=tmp_path)


def test_a_mounted_token_is_read_again_each_minute_and_survives_the_swap(tmp_path: Path) -> None:
    now = 0.0
    file = tmp_path / "token"
    file.write_text("one\n")
    token = TokenFile(file, clock=lambda: now)
    assert token() == "Bearer one"
    file.write_text("two\n")
    assert token() == "Bearer one"
    now = 61.0
    assert token() == "Bearer two"
    file.unlink()
    now = 200.0
    assert token() == "Bearer two"
