"""An API server on loopback that misbehaves when told: FakeKube behind HTTP, with watches, bookmarks and 410.

It has a thread and a loop of its own, because kopf waits at its end for every task that was born in its loop.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from aiohttp import web

from hummingbird_operator.errors import Conflict, HummingbirdError, Invalid, NotFound, Unavailable
from hummingbird_operator.kube.client import AGENT_RUNS, LEASES, PODS, SANDBOX_POOLS, Resource
from hummingbird_operator.kube.testing import FakeKube, matches

T = TypeVar("T")
KINDS = {
    AGENT_RUNS: ("AgentRun", ["status"]),
    SANDBOX_POOLS: ("SandboxPool", ["status", "scale"]),
    PODS: ("Pod", []),
    LEASES: ("Lease", []),
    Resource("", "v1", "namespaces"): ("Namespace", []),  # kopf waits for these two to be there, watched or not
    Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions"): ("CustomResourceDefinition", []),
}
BY_PLURAL = {resource.plural: resource for resource in KINDS}
RESET = "reset"
LOOK_SECONDS = 0.005


@dataclass
class Asked:
    """A request, as a fault may look at it. `at` is monotonic."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any
    at: float

    @property
    def watch(self) -> bool:
        return self.query.get("watch") == "true"


@dataclass
class Refusal:
    """An answer that is not the one that was asked for."""

    status: int
    message: str = "refused by the test"
    headers: dict[str, str] | None = None


Fault = Callable[[Asked], "Refusal | str | None"]


class ApiServer:
    """`fault` decides on each request: None serves it, a Refusal answers it, RESET breaks the connection off."""

    def __init__(self) -> None:
        self.kube = FakeKube()
        self.asked: list[Asked] = []
        self.fault: Fault = lambda asked: None
        self.silent = False
        """Watches stay open and say nothing: what a dead load balancer looks like."""
        self.bookmark_seconds = 0.1
        self.forgotten = 0
        """Watches from before this version get 410."""
        self.ends: Counter[str] = Counter()
        """By the plural of what is watched; raised by `end_watches`."""
        self.last_word, self.torn = b"", False
        self.loop = asyncio.new_event_loop()
        self.port = 0
        self._runner: web.AppRunner | None = None
        self._thread = threading.Thread(target=self.loop.run_forever, name="api-server")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> ApiServer:
        self._thread.start()
        self.listen()
        return self

    def __exit__(self, *_: object) -> None:
        self.refuse()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()

    def listen(self) -> None:
        """Accept connections, on the same port as before."""
        asyncio.run_coroutine_threadsafe(self._listen(), self.loop).result(10)

    def refuse(self) -> None:
        """Close every connection and accept no more: connection refused."""
        asyncio.run_coroutine_threadsafe(self._refuse(), self.loop).result(10)

    def do(self, work: Callable[[FakeKube], Awaitable[T]]) -> T:
        """Something with the objects, in the loop that owns them."""

        async def done() -> T:
            return await work(self.kube)

        return asyncio.run_coroutine_threadsafe(done(), self.loop).result(10)

    def put(self, resource: Resource, namespace: str, name: str, **body: Any) -> None:
        """Create an object."""
        kind, _ = KINDS[resource]
        version = f"{resource.group}/{resource.version}".lstrip("/")
        new = {"apiVersion": version, "kind": kind, "metadata": {"name": name, **body.pop("metadata", {})}, **body}
        self.do(lambda kube: kube.create(resource, namespace, new))

    def end_watches(self, last_word: bytes = b"", *, torn: bool = False, of: str = "") -> None:
        """End the watches that are open now (`of` that plural), after these bytes: in order, or `torn` off."""
        self.last_word, self.torn = last_word, torn
        self.ends[of] += 1

    def forget(self) -> None:
        """Nobody can watch from what was before now, as after a compaction; open watches end."""
        self.forgotten = int(self.kube.version) + 1
        self.kube._version = next(self.kube._versions)
        self.end_watches()

    def count(self, method: str, part: str = "", *, since: int = 0) -> int:
        """Requests of that method with that in their path."""
        return sum(asked.method == method and part in asked.path for asked in list(self.asked)[since:])

    async def _listen(self) -> None:
        app = web.Application(client_max_size=2**22)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def _refuse(self) -> None:
        if self._runner is not None:
            runner, self._runner = self._runner, None
            self.end_watches()
            await runner.cleanup()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        body = json.loads(raw) if raw else None
        asked = Asked(request.method, request.path, dict(request.query), dict(request.headers), body, time.monotonic())
        self.asked.append(asked)
        fault = self.fault(asked)
        if isinstance(fault, Refusal):
            return _status(fault.status, fault.message, fault.headers)
        if fault == RESET:
            _reset(request)
            return web.Response()
        try:
            return await self._answer(request, asked)
        except HummingbirdError as error:
            return _refused(error)

    async def _answer(self, request: web.Request, asked: Asked) -> web.StreamResponse:
        parts = asked.path.strip("/").split("/")
        if parts[0] == "api" and len(parts) == 1:
            return web.json_response({"kind": "APIVersions", "versions": ["v1"]})
        if parts[0] == "apis" and len(parts) == 1:
            return web.json_response({"kind": "APIGroupList", "groups": _groups()})
        group, version, *rest = ("", *parts[1:]) if parts[0] == "api" else parts[1:]
        if not rest:
            return web.json_response({"kind": "APIResourceList", "resources": _resources(group, version)})
        namespace, rest = (rest[1], rest[2:]) if rest[0] == "namespaces" and len(rest) > 1 else ("", rest)
        plural, name, subresource = (*rest, "", "")[:3]
        if plural not in BY_PLURAL:
            raise NotFound(f"the server could not find the requested resource {plural}")
        resource = BY_PLURAL[plural]
        if asked.watch:
            return await self._watch(request, asked, resource, namespace)
        return web.json_response(await self._object(asked, resource, namespace, name, subresource))

    async def _object(self, asked: Asked, resource: Resource, namespace: str, name: str, subresource: str) -> Any:
        kube, body = self.kube, asked.body
        if asked.method == "GET" and not name:
            items = await kube.list(resource, namespace, label_selector=asked.query.get("labelSelector", ""))
            kind = f"{KINDS[resource][0]}List"
            return {"kind": kind, "metadata": {"resourceVersion": kube.version}, "items": items}
        if asked.method == "GET":
            return await kube.get(resource, namespace, name)
        if asked.method == "POST":
            return await kube.create(resource, namespace, body)
        if asked.method == "DELETE":
            wanted = body.get("preconditions", {}) if body else {}
            await kube.delete(
                resource, namespace, name, uid=wanted.get("uid"), resource_version=wanted.get("resourceVersion")
            )
            return {"kind": "Status", "status": "Success"}
        if "json-patch" in asked.headers["Content-Type"]:
            return await kube.patch(resource, namespace, name, body, subresource=subresource)
        return await kube.merge(resource, namespace, name, body, subresource=subresource)

    async def _watch(
        self, request: web.Request, asked: Asked, resource: Resource, namespace: str
    ) -> web.StreamResponse:
        stream, ends = web.StreamResponse(), self._ends_of(resource)
        await stream.prepare(request)
        since = int(asked.query.get("resourceVersion") or 0)
        if since and since < self.forgotten:
            gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
            await stream.write(_line("ERROR", gone))
            return stream
        at, marked = 0, time.monotonic()
        while ends == self._ends_of(resource):
            if self.silent:
                await asyncio.sleep(LOOK_SECONDS)
                continue
            for event, plural, body in self.kube.events[at:]:
                meta = body["metadata"]
                new = plural == resource.plural and int(meta["resourceVersion"]) > since
                if new and namespace in ("", meta.get("namespace")) and self._selected(body, asked):
                    await stream.write(_line(event, body))
            at = len(self.kube.events)
            if asked.query.get("allowWatchBookmarks") == "true" and time.monotonic() - marked > self.bookmark_seconds:
                marked = time.monotonic()
                await stream.write(_line("BOOKMARK", {"metadata": {"resourceVersion": self.kube.version}}))
            await asyncio.sleep(LOOK_SECONDS)
        if self.last_word:
            await stream.write(self.last_word)
        if self.torn:
            _reset(request)
        return stream

    def _ends_of(self, resource: Resource) -> int:
        return self.ends[""] + self.ends[resource.plural]

    def _selected(self, body: Any, asked: Asked) -> bool:
        return matches(body, asked.query.get("labelSelector", ""))


def _line(event: str, body: Any) -> bytes:
    return json.dumps({"type": event, "object": body}).encode() + b"\n"


def _status(status: int, message: str, headers: dict[str, str] | None = None, **more: Any) -> web.Response:
    body = {"kind": "Status", "status": "Failure", "code": status, "message": message, **more}
    return web.json_response(body, status=status, headers=headers)


def _refused(error: HummingbirdError) -> web.Response:
    if isinstance(error, NotFound):
        return _status(404, str(error))
    if isinstance(error, Conflict) and "patch" in str(error):
        return _status(422, str(error), details={})
    if isinstance(error, Conflict):
        return _status(409, str(error), reason="AlreadyExists" if "already exists" in str(error) else "Conflict")
    if isinstance(error, Unavailable):
        return _status(503, str(error))
    assert isinstance(error, Invalid), error
    return _status(422, str(error), details={"causes": [{"field": error.where, "message": error.problem}]})


def _reset(request: web.Request) -> None:
    """End the connection as a middlebox does that forgot it: RST, and no answer."""
    assert request.transport is not None
    raw = request.transport.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    request.transport.abort()


def _groups() -> list[Any]:
    groups = {resource.group: resource.version for resource in KINDS if resource.group}
    return [
        {"name": name, "versions": [{"version": version}], "preferredVersion": {"version": version}}
        for name, version in groups.items()
    ]


def _resources(group: str, version: str) -> list[Any]:
    found = []
    for resource, (kind, subresources) in KINDS.items():
        if (resource.group, resource.version) != (group, version):
            continue
        shape = {
            "kind": kind,
            "singularName": kind.lower(),
            "namespaced": True,
            "verbs": ["get", "list", "watch", "patch"],
        }
        found += [{"name": resource.plural, **shape}]
        found += [{"name": f"{resource.plural}/{each}", **shape} for each in subresources]
    return found
