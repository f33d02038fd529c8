"""Our finalizer, where kopf did not get to store it.

kopf adds it by a patch that tests the resourceVersion. When that is refused (a 409 under writers that come in between),
it looks at the object again only after its next event, which may never come.
"""

from __future__ import annotations

from hummingbird_operator.api.labels import FINALIZER
from hummingbird_operator.kube.client import KubeApi, Object, Resource


async def hold(kube: KubeApi, resource: Resource, namespace: str, name: str, *, uid: str) -> bool:
    """Put the finalizer on that very object; False where it is being deleted or is another one by now.

    Raises Conflict when somebody writes at the same time, NotFound and Unavailable.
    """
    meta = (await kube.get(resource, namespace, name))["metadata"]
    present = meta.get("finalizers") or []
    if meta["uid"] != uid or meta.get("deletionTimestamp"):
        return False
    if FINALIZER not in present:
        operations: list[Object] = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": meta["resourceVersion"]},
            {"op": "add", "path": "/metadata/finalizers", "value": [*present, FINALIZER]},
        ]
        await kube.patch(resource, namespace, name, operations)
    return True
