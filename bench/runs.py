"""AgentRuns without a kubectl process in between: made by one client, seen by one watch, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from hummingbird_operator.kube.client import AGENT_RUNS, Kube
from hummingbird_operator.kube.watch import keep_watching
from tests.e2e.scene import Scene

T = TypeVar("T")


def order(world: Scene, name: str, *, merge_request: int | None = None, **spec: Any) -> dict[str, Any]:
    """An AgentRun of the workflow `plain`, on a merge request or on nothing."""
    target = {"gitlab": {"project": "group/app", "mergeRequest": merge_request}}
    return {
        "apiVersion": "hummingbird-project.io/v1alpha1",
        "kind": "AgentRun",
        "metadata": {"name": name, "namespace": world.stage.names.runs},
        "spec": {"workflow": "plain", **({"target": target} if merge_request else {}), **spec},
    }


class Runs:
    """The runs of a scene. Times are `time.monotonic()` when this process saw it."""

    def __init__(self, world: Scene) -> None:
        self._world = world
        self._namespace = world.stage.names.runs
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="runs", daemon=True)
        self._news = threading.Condition()
        self._reached: dict[tuple[str, str], float] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        self._kube = self._do(Kube.connect(kubeconfig=str(self._world.stage.cluster.kubeconfig)))
        watch = keep_watching(self._kube.endpoint, AGENT_RUNS, self._namespace, label_selector="", seen=self._saw)
        self._watch = asyncio.run_coroutine_threadsafe(watch, self._loop)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watch.cancel()
        self._do(self._kube.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def create(self, *bodies: Mapping[str, Any]) -> dict[str, float]:
        """All at once; when each request was sent, by name."""

        async def one(body: Mapping[str, Any]) -> tuple[str, float]:
            sent = time.monotonic()
            await self._kube.create(AGENT_RUNS, self._namespace, dict(body))
            return body["metadata"]["name"], sent

        async def everyone() -> dict[str, float]:
            return dict(await asyncio.gather(*(one(body) for body in bodies)))

        return self._do(everyone())

    def read(self, name: str) -> dict[str, Any]:
        """The run as it is now."""
        return self._do(self._kube.get(AGENT_RUNS, self._namespace, name))

    def write_status(self, name: str, status: Mapping[str, Any]) -> None:
        """What a process before this one would have written."""
        body = {"status": dict(status)}
        self._do(self._kube.merge(AGENT_RUNS, self._namespace, name, body, subresource="status"))

    def reached(self, name: str, point: str) -> float | None:
        """When it was first so: `Finished` (the condition is True), `Succeeded=Queued` (its reason), `runner=…`."""
        with self._news:
            return self._reached.get((name, point))

    def wait(self, names: Iterable[str], point: str, seconds: float) -> dict[str, float]:
        """Wait until all of them reached it; when each did. Raises TimeoutError with those that did not."""
        wanted = list(names)
        with self._news:
            if not self._news.wait_for(lambda: all((name, point) in self._reached for name in wanted), seconds):
                missing = [name for name in wanted if (name, point) not in self._reached]
                raise TimeoutError(f"not {point} after {seconds:.0f} s: {missing[:5]} …\n{self._world.log()}")
            return {name: self._reached[name, point] for name in wanted}

    def _saw(self, run: Mapping[str, Any]) -> None:
        now, name, status = time.monotonic(), run["metadata"]["name"], run.get("status") or {}
        identity = (status.get("runner") or {}).get("identity", "")
        points = [f"runner={identity.rpartition('-')[0]}"]  # without the part that is new with every start
        for condition in status.get("conditions") or ():
            points.append(f"{condition['type']}={condition['reason']}")
            if condition["status"] == "True":
                points.append(condition["type"])
        with self._news:
            for point in points:
                self._reached.setdefault((name, point), now)
            self._news.notify_all()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(120)
