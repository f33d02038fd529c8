"""An operator that dies or freezes at named points of its runs: `python -m tests.e2e.mortal operator …`, with $FATE.

It is the real program with the real parts; `wiring.Around` puts a proxy around each of those through which a run has
an effect. Points are named `before` or `after`, then the effect: `status Accepted` (the checkpoint that a write
settles), `forge.create`, `store.create response` (the key's file, a turn's without its number), `model.generate`,
`sandboxes.claim`, `sandbox.run`.

$FATE is JSON: `{"kill": [POINT]}` ends the process by SIGKILL at the first of them, `{"kill_at": N}` at the Nth of all;
`{"freeze": [POINT, …]}` holds the first run that comes to each point, and once all are held stops the whole process by
SIGSTOP.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from hummingbird_operator.__main__ import main

T = TypeVar("T")

WATCHED = {
    "kube": ("patch",),
    "forge": ("create", "update", "delete"),
    "store": ("create", "put", "put_stream"),
    "sandboxes": ("claim", "let_go"),
    "model": ("generate",),
    "sandbox": ("start", "run", "exec", "stream_exec", "write_file", "stream_to_file"),
}
OPENS = {"doors": ("model", "model"), "sandboxes": ("open", "sandbox")}
"""Parts whose method hands out another part."""


class Fate:
    """What happens at which point."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self._left = int(raw.get("kill_at", 0))
        self._kill = frozenset(raw.get("kill", ()))
        self._freeze = frozenset(raw.get("freeze", ()))
        self._held: set[str] = set()
        self._lock = threading.Lock()
        self._thawed = threading.Event()

    def meet(self, point: str) -> bool:
        """Die here, or freeze, or say whether to be held."""
        with self._lock:
            self._left -= 1
            if self._left == 0 or point in self._kill:
                print(json.dumps({"killed": point}), flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
            if point not in self._freeze - self._held:
                return False
            self._held.add(point)
            print(json.dumps({"held": point}), flush=True)
            if self._held != self._freeze:
                return True
        os.kill(os.getpid(), signal.SIGSTOP)
        self._thawed.set()
        return False

    def hold(self) -> None:
        """Until the process was frozen and thawed again."""
        self._thawed.wait()

    async def hold_on(self) -> None:
        """The same, while the loop goes on."""
        while not self._thawed.is_set():  # noqa: ASYNC110 - set by whichever thread comes last
            await asyncio.sleep(0.02)


class Seam:
    """Implements wiring.Around."""

    def __init__(self, fate: Fate) -> None:
        self._fate = fate

    def __call__(self, name: str, part: T) -> T:
        return cast("T", _Proxy(part, name, self._fate))


class _Proxy:
    def __init__(self, inner: object, name: str, fate: Fate) -> None:
        self._inner = inner
        self._name = name
        self._fate = fate
        self._settled: dict[str, set[str]] = {}

    def __getattr__(self, method: str) -> Any:
        value = getattr(self._inner, method)
        opens, what = OPENS.get(self._name, ("", ""))
        if method == opens:
            return lambda *args, **kwargs: _Proxy(value(*args, **kwargs), what, self._fate)
        if method not in WATCHED.get(self._name, ()):
            return value
        return self._awaited(method, value) if inspect.iscoroutinefunction(value) else self._called(method, value)

    def _called(self, method: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def through(*args: Any, **kwargs: Any) -> Any:
            effect = self._effect(method, args)
            if self._fate.meet(f"before {effect}"):
                self._fate.hold()
            result = call(*args, **kwargs)
            if self._fate.meet(f"after {effect}"):
                self._fate.hold()
            return result

        return through

    def _awaited(self, method: str, call: Callable[..., Any]) -> Callable[..., Any]:
        async def through(*args: Any, **kwargs: Any) -> Any:
            effect = self._effect(method, args)
            if self._fate.meet(f"before {effect}"):
                await self._fate.hold_on()
            result = await call(*args, **kwargs)
            if self._fate.meet(f"after {effect}"):
                await self._fate.hold_on()
            return result

        return through

    def _effect(self, method: str, args: tuple[Any, ...]) -> str:
        if self._name == "kube":
            return f"status {self._checkpoint(*args)}"
        if self._name == "store":
            name = args[0].rpartition("/")[2]  # 0001.response is one of many, context.json is not
            return f"store.{method} {name.partition('.')[2] if name[0].isdigit() else name}"
        return f"{self._name}.{method}"

    def _checkpoint(self, _: object, __: str, run: str, operations: list[dict[str, Any]]) -> str:
        """The last condition that this write settles; `progress` where it settles none."""
        conditions = operations[-1]["value"].get("conditions", []) if operations else []
        settled = {each["type"] for each in conditions if each["status"] != "Unknown"}
        news = [each["type"] for each in conditions if each["type"] in settled - self._settled.get(run, set())]
        self._settled[run] = settled
        return news[-1] if news else "progress"


if __name__ == "__main__":
    sys.exit(main(around=Seam(Fate(json.loads(os.environ["FATE"])))))
