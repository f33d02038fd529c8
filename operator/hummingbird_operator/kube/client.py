"""The only way to the API server for objects: six verbs, JSON in and out, and our own errors.

Objects are plain dicts: their owners parse what they need (`api/` for our kinds). Every call is bounded in time,
counted, and never retried here: a caller that retries reads again first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote, urlencode

import aiohttp
from kubernetes.aio.client import ApiClient
from prometheus_client import CollectorRegistry, Counter

from hummingbird_operator.api import labels
from hummingbird_operator.kube.connection import Endpoint
from hummingbird_operator.kube.refusals import (
    AlreadyExists,
    Expired,
    Object,
    QuotaExceeded,
    decode,
    raise_for,
)

__all__ = [
    "AlreadyExists",
    "Kube",
    "KubeApi",
    "Object",
    "Objects",
    "QuotaExceeded",
    "Resource",
    "path",
]

Objects = list[Object]

CALL_SECONDS = 30.0
PAGE = 500


@dataclass(frozen=True)
class Resource:
    """What a URL path is made of; `group` is empty for the core group."""

    group: str
    version: str
    plural: str


AGENT_RUNS = Resource(labels.GROUP, labels.VERSION, "agentruns")
SANDBOX_POOLS = Resource(labels.GROUP, labels.VERSION, "sandboxpools")
PODS = Resource("", "v1", "pods")
NODES = Resource("", "v1", "nodes")
EVENTS = Resource("", "v1", "events")
NETWORK_POLICIES = Resource("networking.k8s.io", "v1", "networkpolicies")
LEASES = Resource("coordination.k8s.io", "v1", "leases")


class KubeApi(Protocol):
    """What slices may ask of the API server; `testing.FakeKube` keeps the same promises in memory."""

    async def get(self, resource: Resource, namespace: str, name: str) -> Object:
        """One object, read live. Raises NotFound."""

    async def list(self, resource: Resource, namespace: str, *, label_selector: str = "") -> Objects:
        """All objects that match, read live in pages. An empty namespace means all, or a cluster-wide kind."""

    async def create(self, resource: Resource, namespace: str, body: Object) -> Object:
        """Create. Raises AlreadyExists, QuotaExceeded, Invalid."""

    async def patch(
        self, resource: Resource, namespace: str, name: str, operations: Sequence[Object], *, subresource: str = ""
    ) -> Object:
        """JSON patch (RFC 6902). A failed `test` raises Conflict and nothing is written."""

    async def merge(
        self, resource: Resource, namespace: str, name: str, body: Object, *, subresource: str = ""
    ) -> Object:
        """Merge patch (RFC 7386). A `metadata.resourceVersion` in the body is a precondition: Conflict."""

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_seconds: int | None = None,
    ) -> None:
        """Delete under preconditions. Raises Conflict when they do not hold, NotFound when it is gone."""


class Kube:
    """KubeApi over HTTP. One instance per event loop; `close` it in the same loop."""

    def __init__(self, endpoint: Endpoint, *, metrics: CollectorRegistry | None = None) -> None:
        self.endpoint = endpoint
        self._api: Any = None  # kubernetes.aio is not typed
        self._built_from: object = None
        self._retired: list[ApiClient] = []
        self._requests = Counter(
            "hummingbird_kube_requests",
            "Requests to the API server",
            ["verb", "resource", "subresource", "code"],
            registry=metrics or CollectorRegistry(),
        )

    @classmethod
    async def connect(
        cls, *, kubeconfig: str | None, context: str | None = None, metrics: CollectorRegistry | None = None
    ) -> Kube:
        """With a kubeconfig, or from inside a pod when there is none. Raises Invalid."""
        return cls(await Endpoint.load(kubeconfig=kubeconfig, context=context), metrics=metrics)

    async def close(self) -> None:
        """Close the connections."""
        open_ones = [*self._retired, self._api]
        self._api, self._retired = None, []
        for api in open_ones:
            if api is not None:
                await api.close()

    async def get(self, resource: Resource, namespace: str, name: str) -> Object:
        """See KubeApi."""
        return await self._call("get", resource, namespace, name)

    async def list(self, resource: Resource, namespace: str, *, label_selector: str = "") -> Objects:
        """See KubeApi. A list whose continue token expired is read once more from the start."""
        try:
            return await self._pages(resource, namespace, label_selector)
        except Expired:
            return await self._pages(resource, namespace, label_selector)

    async def _pages(self, resource: Resource, namespace: str, label_selector: str) -> Objects:
        items: Objects = []
        token = ""
        while True:
            query = {"labelSelector": label_selector, "limit": str(PAGE), "continue": token}
            page = await self._call("list", resource, namespace, query={k: v for k, v in query.items() if v})
            items += page.get("items") or []
            token = page.get("metadata", {}).get("continue") or ""
            if not token:
                return items

    async def create(self, resource: Resource, namespace: str, body: Object) -> Object:
        """See KubeApi."""
        return await self._call("create", resource, namespace, body=body)

    async def patch(
        self, resource: Resource, namespace: str, name: str, operations: Sequence[Object], *, subresource: str = ""
    ) -> Object:
        """See KubeApi."""
        return await self._call("patch", resource, namespace, name, subresource=subresource, body=[*operations])

    async def merge(
        self, resource: Resource, namespace: str, name: str, body: Object, *, subresource: str = ""
    ) -> Object:
        """See KubeApi."""
        return await self._call("merge", resource, namespace, name, subresource=subresource, body=body)

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_seconds: int | None = None,
    ) -> None:
        """See KubeApi. Dependents are collected in the background."""
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        body: Object = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "propagationPolicy": "Background",
            "preconditions": {k: v for k, v in preconditions.items() if v is not None},
        }
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        await self._call("delete", resource, namespace, name, body=body)

    async def _call(
        self,
        verb: str,
        resource: Resource,
        namespace: str,
        name: str = "",
        *,
        subresource: str = "",
        query: Mapping[str, str] | None = None,
        body: object = None,
    ) -> Object:
        url = self.endpoint.server + path(resource, namespace, name, subresource)
        if query:
            url += "?" + urlencode(query)
        status, payload, retry_after = await self._send(verb, url, body)
        if status == 401 and await self.endpoint.reload():
            self._count(verb, resource, subresource, "401")
            status, payload, retry_after = await self._send(verb, url, body)
        self._count(verb, resource, subresource, str(status) if status else "error")
        if not 200 <= status < 300:
            raise_for(status, payload, f"{verb} {resource.plural} {namespace}/{name}".rstrip("/"), retry_after)
        return payload

    async def _send(self, verb: str, url: str, body: object) -> tuple[int, Object, float | None]:
        method, content_type = _METHODS[verb]
        headers = {"Accept": "application/json", "Content-Type": content_type, "User-Agent": "hummingbird-operator"}
        authorization = self.endpoint.access.authorization()
        if authorization:
            headers["Authorization"] = authorization
        try:
            async with asyncio.timeout(CALL_SECONDS):
                api = await self._client()
                response = await api.call_api(
                    method, url, headers, body, _request_timeout=aiohttp.ClientTimeout(total=CALL_SECONDS)
                )
                raw = await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            return 0, {"message": f"{type(error).__name__}: {error}"}, None
        return int(response.status), decode(raw), _seconds(response.getheader("Retry-After"))

    async def _client(self) -> Any:
        access = self.endpoint.access
        if self._api is None or self._built_from is not access:
            # No await before the swap, or two callers would make two. The old one is closed when the next one comes, or
            # with everything else: requests in flight still use it.
            retired, self._retired = self._retired, [] if self._api is None else [self._api]
            # a proxy comes from the kubeconfig alone: the environment is not ours to read
            access.configuration.client_session_kwargs = {"trust_env": False}
            api = self._api = ApiClient(access.configuration)
            self._built_from = access
            for old in retired:
                await old.close()  # type: ignore[no-untyped-call] # the library's client has no types
            return api
        return self._api

    def _count(self, verb: str, resource: Resource, subresource: str, code: str) -> None:
        self._requests.labels(verb, resource.plural, subresource, code).inc()


_METHODS = {
    "get": ("GET", "application/json"),
    "list": ("GET", "application/json"),
    "create": ("POST", "application/json"),
    "patch": ("PATCH", "application/json-patch+json"),
    "merge": ("PATCH", "application/merge-patch+json"),
    "delete": ("DELETE", "application/json"),
}


def path(resource: Resource, namespace: str, name: str = "", subresource: str = "") -> str:
    """The URL path of an object or a collection."""
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    parts = ["namespaces", namespace] if namespace else []
    parts += [part for part in (resource.plural, name, subresource) if part]
    return root + "".join("/" + quote(part, safe="") for part in parts)


def _seconds(value: str | None) -> float | None:
    try:
        return max(0.0, float(value)) if value else None
    except ValueError:  # a date: no API server of Kubernetes sends one
        return None
