"""Sandboxes of a world: folders with a claim on them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hummingbird_ai.abort import Abort
from hummingbird_operator.api.agentrun import AgentRun
from hummingbird_operator.errors import SandboxLost
from hummingbird_operator.sessions.testing import FakeSandbox


class Line(Abort):
    """The abort switch of whichever process has the sandbox open now."""

    def __init__(self) -> None:
        super().__init__()
        self.held_by = Abort()

    @property
    def reason(self) -> str | None:
        return self.held_by.reason

    def is_set(self) -> bool:
        return self.held_by.is_set()

    def on_abort(self, callback: Callable[[], None]) -> Any:
        return self.held_by.on_abort(callback)


@dataclass
class Place:
    """A sandbox in the world; implements claiming.Member."""

    name: str
    uid: str
    sandbox: FakeSandbox
    line: Line
    run: str | None = None
    session: str | None = None
    lingered: bool = False
    cold: bool = False
    namespace: str = "hummingbird-sandboxes"
    backend: str = "k8spool"


class Pool:
    """Implements claiming.Sandboxes but for `open`, which is a process's own."""

    def __init__(self, root: Path) -> None:
        self.places: list[Place] = []
        self.made: list[FakeSandbox] = []
        self.capacity = 10
        self.problem: Exception | None = None
        self.refusal = ""
        """What a quota says to whoever finds no room."""
        self._root = root
        self._waiting: list[asyncio.Event] = []

    async def find(self, run_uid: str) -> Place | None:
        await asyncio.sleep(0)
        return next((place for place in self.places if place.run == run_uid), None)

    async def claim(self, run: AgentRun, *, session: str, seconds: int) -> Place | None:
        await asyncio.sleep(0)
        if self.problem is not None:
            raise self.problem
        uid = run.metadata.uid
        if (held := await self.find(uid)) is not None:
            return held
        place = next((place for place in self.places if place.session == session), None)
        if place is not None:
            place.run, place.session, place.lingered = uid, None, True
        elif sum(place.run is not None for place in self.places) < self.capacity:
            place = self._make()
            place.run = uid
            self.places.append(place)
        return place

    def shortage(self, run_uid: str) -> str:
        return self.refusal

    async def let_go(self, run_uid: str, *, session: str | None) -> None:
        await asyncio.sleep(0)
        for place in [place for place in self.places if place.run == run_uid]:
            place.run, place.session = None, session
            if session is None:
                place.sandbox.cleanup()
                self.places.remove(place)
        for event in self._waiting:
            event.set()
        self._waiting.clear()

    async def lost(self, run_uid: str, name: str, uid: str) -> SandboxLost | None:
        await asyncio.sleep(0)
        alive = any(place.uid == uid for place in self.places)
        return None if alive else SandboxLost("Deleted", f"{name} was deleted")

    def changed(self) -> asyncio.Event:
        event = asyncio.Event()
        self._waiting.append(event)
        return event

    def delete(self, place: Place) -> None:
        """Somebody deletes the pod."""
        place.sandbox.lose("Deleted")
        self.places.remove(place)

    @property
    def active(self) -> list[Place]:
        return [place for place in self.places if place.run is not None]

    @property
    def executed(self) -> list[str]:
        """Ids of the commands that really ran, in every sandbox that ever was."""
        return [command for sandbox in self.made for command in sandbox.executed]

    def _make(self) -> Place:
        number, line = len(self.made), Line()
        root = self._root / f"sandbox-{number}"
        root.mkdir()
        self.made.append(FakeSandbox(root, abort=line))
        return Place(f"sandbox-{number}", f"pod-{number}", self.made[-1], line)
