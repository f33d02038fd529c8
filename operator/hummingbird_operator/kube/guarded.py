"""An API server that only the leader writes to: it looks before each write.

Beside this the writes have fences of their own (identity and epoch on runs, resourceVersion and uid on sandboxes), for
no look can be as late as the write. What this adds: a process that was frozen does not begin anything new on facts that
it read a moment ago, when it wakes up behind its successor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hummingbird_operator.kube.client import KubeApi, Object, Resource


class GuardedKube:
    """Implements KubeApi. `check` raises LeadershipLost, or Unavailable while nobody can tell."""

    def __init__(self, kube: KubeApi, check: Callable[[], None]) -> None:
        self._kube = kube
        self._check = check
        self.get = kube.get
        self.list = kube.list

    async def create(self, resource: Resource, namespace: str, body: Object) -> Object:
        """See KubeApi."""
        self._check()
        return await self._kube.create(resource, namespace, body)

    async def patch(
        self, resource: Resource, namespace: str, name: str, operations: Sequence[Object], *, subresource: str = ""
    ) -> Object:
        """See KubeApi."""
        self._check()
        return await self._kube.patch(resource, namespace, name, operations, subresource=subresource)

    async def merge(
        self, resource: Resource, namespace: str, name: str, body: Object, *, subresource: str = ""
    ) -> Object:
        """See KubeApi."""
        self._check()
        return await self._kube.merge(resource, namespace, name, body, subresource=subresource)

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
        """See KubeApi."""
        self._check()
        await self._kube.delete(
            resource, namespace, name, uid=uid, resource_version=resource_version, grace_seconds=grace_seconds
        )
