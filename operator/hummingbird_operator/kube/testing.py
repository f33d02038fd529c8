"""FakeKube: the API server's promises about writes, in memory, for tests of whoever uses `KubeApi`.

Honest about what concurrency bugs live on: resourceVersion and uid preconditions, JSON patch `test`, name conflicts,
generations, the status subresource, graceful deletion with finalizers. Reads can be made stale (`lag`), calls can be
made to fail (`fail`), and every call yields to the event loop, so that tasks interleave.
It knows no schemas, defaults, admission or controllers: those are tested against a real server.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hummingbird_operator.api.conditions import rfc3339
from hummingbird_operator.errors import Conflict, Invalid, NotFound
from hummingbird_operator.kube.client import AlreadyExists, Object, Objects, Resource

Key = tuple[str, str, str]
T = TypeVar("T")
WRITES = ("create", "patch", "merge", "delete")


class FakeKube:
    """Implements KubeApi. `calls` counts (verb, plural); `events` holds (type, plural, object) as a watch would."""

    def __init__(self, *, seed: int = 0, now: Callable[[], Any] | None = None) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()
        self.events: list[tuple[str, str, Object]] = []
        self.fail: Callable[[str, Resource, str], Exception | None] = lambda verb, resource, name: None
        self.lag = 0
        """Lists may miss up to this many of the latest writes; like a cache, they never go back in time."""
        self.graceful = False
        """Deleted pods stay with a deletionTimestamp until `finish_deletions`."""
        self._random = random.Random(seed)  # noqa: S311 - reproducible, not secret
        self._now = now
        self._objects: dict[Key, Object] = {}
        self._history: list[tuple[int, dict[Key, Object]]] = []
        self._shown = 0
        self._changes = 0
        self._versions = itertools.count(1)
        self._version = 0
        self._uids = itertools.count(1)
        self._namespaced: defaultdict[str, set[str]] = defaultdict(set)

    @property
    def version(self) -> str:
        """The latest resourceVersion: that of a list read now."""
        return str(self._version)

    @property
    def writes(self) -> int:
        """Writes so far, refused ones included."""
        return sum(count for (verb, _), count in self.calls.items() if verb in WRITES)

    async def get(self, resource: Resource, namespace: str, name: str) -> Object:
        """See KubeApi."""
        await self._enter("get", resource, name)
        return _copy(self._find(resource, namespace, name))

    async def list(self, resource: Resource, namespace: str, *, label_selector: str = "") -> Objects:
        """See KubeApi; may be stale by `lag` writes."""
        await self._enter("list", resource, "")
        state = self._view()
        return [
            _copy(body)
            for (plural, where, _), body in state.items()
            if plural == resource.plural and namespace in ("", where) and matches(body, label_selector)
        ]

    async def create(self, resource: Resource, namespace: str, body: Object) -> Object:
        """See KubeApi."""
        name = body["metadata"].get("name") or body["metadata"]["generateName"] + f"{next(self._uids):05d}"
        await self._enter("create", resource, name)
        if (resource.plural, namespace, name) in self._objects:
            raise AlreadyExists(f"{resource.plural} {namespace}/{name} already exists")
        new = _copy(body)
        new["metadata"] |= {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{next(self._uids)}",
            "generation": 1,
            "creationTimestamp": rfc3339(self._now()) if self._now else "2030-01-01T00:00:00Z",
        }
        return self._store("ADDED", resource, new)

    async def patch(
        self, resource: Resource, namespace: str, name: str, operations: Sequence[Object], *, subresource: str = ""
    ) -> Object:
        """See KubeApi."""
        await self._enter("patch", resource, name)
        new = _copy(self._find(resource, namespace, name))
        for operation in operations:
            apply_operation(new, operation)
        return self._update(resource, namespace, name, new, subresource)

    async def merge(
        self, resource: Resource, namespace: str, name: str, body: Object, *, subresource: str = ""
    ) -> Object:
        """See KubeApi."""
        await self._enter("merge", resource, name)
        old = self._find(resource, namespace, name)
        version = body.get("metadata", {}).get("resourceVersion")
        if version is not None and version != old["metadata"]["resourceVersion"]:
            raise Conflict(f"{resource.plural} {namespace}/{name}: the object has been modified")
        return self._update(resource, namespace, name, merged(_copy(old), body), subresource)

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
        await self._enter("delete", resource, name)
        old = self._find(resource, namespace, name)
        for wanted, field in ((uid, "uid"), (resource_version, "resourceVersion")):
            if wanted is not None and wanted != old["metadata"][field]:
                raise Conflict(f"{resource.plural} {namespace}/{name}: precondition failed: {field}")
        keep = bool(old["metadata"].get("finalizers")) or (self.graceful and resource.plural == "pods")
        if not keep:
            self._remove(resource, namespace, name)
        elif not old["metadata"].get("deletionTimestamp"):
            new = _copy(old)
            new["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
            self._store("MODIFIED", resource, new)

    # --- what a cluster would do; for tests ---

    def set_status(self, resource: Resource, namespace: str, name: str, status: Object) -> Object:
        """Write status as a kubelet does: no call is counted."""
        new = _copy(self._find(resource, namespace, name))
        new["status"] = status
        return _copy(self._store("MODIFIED", resource, new))

    def put(self, resource: Resource, namespace: str, body: Object) -> Object:
        """Place or replace an object: no call is counted."""
        new = _copy(body)
        new["metadata"].setdefault("namespace", namespace)
        new["metadata"].setdefault("uid", f"uid-{next(self._uids)}")
        return _copy(self._store("MODIFIED", resource, new))

    def finish_deletions(self) -> None:
        """Let pods that are being deleted go."""
        for (plural, namespace, name), body in list(self._objects.items()):
            if plural == "pods" and body["metadata"].get("deletionTimestamp"):
                self._remove(Resource("", "v1", "pods"), namespace, name)

    def all(self, resource: Resource) -> Objects:
        """Every object of that kind as it stands now."""
        return [_copy(body) for (plural, _, _), body in self._objects.items() if plural == resource.plural]

    # --- storage ---

    async def _enter(self, verb: str, resource: Resource, name: str) -> None:
        self.calls[verb, resource.plural] += 1
        await asyncio.sleep(0)
        error = self.fail(verb, resource, name)
        if error is not None:
            raise error

    def _find(self, resource: Resource, namespace: str, name: str) -> Object:
        try:
            return self._objects[resource.plural, namespace, name]
        except KeyError:
            raise NotFound(f"{resource.plural} {namespace}/{name} not found") from None

    def _update(self, resource: Resource, namespace: str, name: str, new: Object, subresource: str) -> Object:
        old = self._find(resource, namespace, name)
        if subresource == "status":
            new = {**_copy(old), "status": new.get("status")}
        if new["metadata"]["uid"] != old["metadata"]["uid"] or new["metadata"]["name"] != name:
            raise Invalid(f"{resource.plural} {namespace}/{name}", "metadata.uid and metadata.name are immutable")
        if new.get("spec") != old.get("spec"):
            new["metadata"]["generation"] = int(old["metadata"].get("generation", 1)) + 1
        if new == old:
            return _copy(old)
        if new["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers") and not self.graceful:
            self._remove(resource, namespace, name)
            return new
        return _copy(self._store("MODIFIED", resource, new))

    def _store(self, event: str, resource: Resource, body: Object) -> Object:
        self._stamp(body)
        key = (resource.plural, body["metadata"].get("namespace", ""), body["metadata"]["name"])
        self._objects[key] = body
        self._remember(event, resource, body)
        return _copy(body)

    def _remove(self, resource: Resource, namespace: str, name: str) -> None:
        body = _copy(self._objects.pop((resource.plural, namespace, name)))
        self._stamp(body)  # a deletion is a write too: who watches goes on from its version
        self._remember("DELETED", resource, body)

    def _stamp(self, body: Object) -> None:
        self._version = next(self._versions)
        body["metadata"]["resourceVersion"] = self.version

    def _remember(self, event: str, resource: Resource, body: Object) -> None:
        self.events.append((event, resource.plural, body))
        self._changes += 1
        if self.lag:
            self._history = [*self._history[-self.lag :], (self._changes, dict(self._objects))]

    def _view(self) -> dict[Key, Object]:
        """The state of a random recent moment, no earlier than the last one that was shown."""
        choices = [(at, state) for at, state in self._history if at >= self._shown] if self.lag else []
        at, state = self._random.choice(choices) if choices else (self._changes, self._objects)
        self._shown = at
        return state


def _copy(value: T) -> T:
    """Three times as quick as copy.deepcopy, and what is not JSON shows."""
    copied: T = json.loads(json.dumps(value))
    return copied


def matches(body: Object, selector: str) -> bool:
    """Equality and existence terms of a label selector, which is all that we use."""
    found = body["metadata"].get("labels") or {}
    for term in filter(None, selector.split(",")):
        key, equals, value = term.partition("=")
        if (equals and found.get(key) != value) or (not equals and key not in found):
            return False
    return True


def merged(target: Any, change: Any) -> Any:
    """RFC 7386."""
    if not isinstance(change, dict):
        return _copy(change)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def apply_operation(body: Object, operation: Object) -> None:
    """One operation of RFC 6902 (add, replace, remove, test) in place. Raises Conflict for a failed test,

    and for a path that does not exist, as the API server's 422 reads to a client.
    """
    *parents, last = (part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:])
    target: Any = body
    try:
        for part in parents:
            target = target[int(part)] if isinstance(target, list) else target[part]
        _OPERATIONS[operation["op"]](target, last, _copy(operation.get("value")))
    except (KeyError, IndexError, TypeError) as error:
        raise Conflict(f"patch {operation['op']} {operation['path']}: does not apply") from error


def _add(target: Any, key: str, value: Any) -> None:
    if isinstance(target, list):
        target.insert(len(target) if key == "-" else int(key), value)
    else:
        target[key] = value


def _replace(target: Any, key: str, value: Any) -> None:
    _test_exists(target, key)
    target[int(key) if isinstance(target, list) else key] = value


def _remove(target: Any, key: str, value: Any) -> None:
    del target[int(key) if isinstance(target, list) else key]


def _test(target: Any, key: str, value: Any) -> None:
    if (target[int(key)] if isinstance(target, list) else target.get(key)) != value:
        raise Conflict(f"patch: test of {key} failed")


def _test_exists(target: Any, key: str) -> None:
    _ = target[int(key) if isinstance(target, list) else key]


_OPERATIONS: dict[str, Callable[[Any, str, Any], None]] = {
    "add": _add,
    "replace": _replace,
    "remove": _remove,
    "test": _test,
}
