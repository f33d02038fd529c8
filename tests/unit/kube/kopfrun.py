"""A real kopf operator with our settings and our login, against an API server on loopback."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import kopf

from demo.stage import wait_for
from hummingbird_operator import framework
from hummingbird_operator.api.labels import FINALIZER, GROUP, VERSION
from hummingbird_operator.errors import NotFound
from hummingbird_operator.kube.client import AGENT_RUNS, Kube, Object
from tests.unit.kube.apiserver import ApiServer

NAMESPACE = "runs"
RUNS = "/agentruns"


def kubeconfig(folder: Path, url: str, token: str) -> str:
    """A kubeconfig with a token; written again, it is a rotated one."""
    file = folder / "kubeconfig"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": token}}],
    }
    file.write_text(json.dumps(content))
    return str(file)


class KopfRun:
    """kopf in a thread; a daemon and an event handler on AgentRuns, which only count. Ends with the block."""

    def __init__(self, server: ApiServer, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.settings = framework.settings()
        self.settings.networking.error_backoffs = framework.EndlessBackOff(first=0.01, longest=0.03)
        self.settings.watching.reconnect_backoff = 0.01
        self.settings.process.ultimate_exiting_timeout = None  # it would end the tests with SIGKILL
        self.credentials_seconds = 600.0
        self.started: Counter[str] = Counter()
        """Starts of daemons, by the run's name."""
        self.seen: Counter[str] = Counter()
        self.ended: list[str] = []
        self.pulse = 0
        self.problem = ""
        """What kopf ended with, as text: the error itself would keep its tasks alive until after the test."""
        self.cleaning: Callable[[], Awaitable[None]] | None = None
        self.besides: Callable[[], Coroutine[Any, Any, None]] | None = None
        """A task that exists before kopf does."""
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kopf")

    def __enter__(self) -> KopfRun:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self, seconds: float = 20) -> None:
        if self.alive:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(seconds)
        assert not self.alive, "kopf did not end"

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._main())
        except BaseException as error:  # noqa: BLE001 - the test wants to see it
            self.problem = repr(error)
        finally:
            self._ready.set()
            gc.collect()  # tasks that nobody asked for their error say so now, and not in the middle of another test

    async def _main(self) -> None:
        self._stop, ready = asyncio.Event(), asyncio.Event()
        kube = await Kube.connect(kubeconfig=kubeconfig(self.folder, self.server.url, "t0k"))
        registry = kopf.OperatorRegistry()
        framework.register(registry, kube, "the-lease", self._beat, credentials_seconds=self.credentials_seconds)
        self._handlers(registry)
        besides = asyncio.create_task(self.besides()) if self.besides else None
        waiter = asyncio.create_task(ready.wait())
        waiter.add_done_callback(lambda _: self._ready.set())
        try:
            await kopf.operator(
                registry=registry,
                settings=self.settings,
                namespaces=[NAMESPACE],
                standalone=True,
                ready_flag=ready,
                stop_flag=self._stop,
            )
        finally:
            waiter.cancel()
            if besides is not None:
                besides.cancel()
            await kube.close()

    def _beat(self) -> None:
        self.pulse += 1

    def _handlers(self, registry: kopf.OperatorRegistry) -> None:
        @kopf.on.event(GROUP, VERSION, "agentruns", registry=registry)
        async def seen(name: str, **_: Any) -> None:
            self.seen[name] += 1

        @kopf.daemon(GROUP, VERSION, "agentruns", registry=registry, cancellation_backoff=5, cancellation_timeout=1)
        async def drive(name: str, stopped: kopf.DaemonStopped, **_: Any) -> None:
            self.started[name] += 1
            await stopped.wait()
            if self.cleaning is not None:
                await self.cleaning()
            self.ended.append(name)


# --- what tests do beside it ---


def until(so: Callable[[], bool], what: str, seconds: float = 20) -> None:
    wait_for(so, seconds, lambda: f"it never came to this: {what}", pause=0.005)


def make(server: ApiServer, name: str, **body: Any) -> None:
    server.put(AGENT_RUNS, NAMESPACE, name, spec={"workflow": "w"}, **body)


def read(server: ApiServer, name: str) -> Object:
    return server.do(lambda kube: kube.get(AGENT_RUNS, NAMESPACE, name))


def gone(server: ApiServer, name: str) -> bool:
    try:
        read(server, name)
    except NotFound:
        return True
    return False


def held(server: ApiServer, name: str) -> bool:
    return FINALIZER in read(server, name)["metadata"].get("finalizers", [])


def write(server: ApiServer, name: str, number: int) -> None:
    body: Object = {"status": {"n": number}}
    server.do(lambda kube: kube.merge(AGENT_RUNS, NAMESPACE, name, body, subresource="status"))


def delete(server: ApiServer, name: str) -> None:
    server.do(lambda kube: kube.delete(AGENT_RUNS, NAMESPACE, name))
