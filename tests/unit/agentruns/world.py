"""A world for whole runs: cluster, GitLab, store, sandboxes and model outlive the processes that drive the runs.

Everything of `agentruns` is the real thing, put together as `wiring.lead` does; so are `Notes` and kopf's handlers.
The world plays kopf (watch, daemons, finalizers), the pool, and death: a process may die right before and right after
every effect it has on the world, and the next one finds only what the world kept.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import uuid
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

from hummingbird_ai.messages import Content, ToolCall
from hummingbird_ai.testing import ScriptedModel, scripted
from hummingbird_operator.api import conditions as c
from hummingbird_operator.api.agentrun import AgentRun
from hummingbird_operator.api.labels import API_VERSION, FINALIZER
from hummingbird_operator.config import Config
from hummingbird_operator.delivery import markers
from hummingbird_operator.kube.client import AGENT_RUNS
from hummingbird_operator.kube.testing import FakeKube
from hummingbird_operator.sessions.testing import MemoryStore
from hummingbird_operator.settings import Settings
from tests.standins.gitlab import GitLabStandIn
from tests.standins.gitlab.state import Note, new_discussion_id, timestamp
from tests.unit.agentruns.builders import NOW, SHA
from tests.unit.agentruns.effects import Fatal
from tests.unit.agentruns.places import Pool
from tests.unit.agentruns.process import NAMESPACE, Events, Process
from tests.unit.agentruns.virtual import JumpingLoop

MERGE_REQUEST = 42
LONGEST_WAIT_SECONDS = 3 * 86_400
_numbers = itertools.count(100)


def shell(command: str, number: int = 1) -> ToolCall:
    return ToolCall(f"call-{number}", "sandbox_exec", {"command": command})


TURNS: tuple[scripted.Step, ...] = (
    [shell("echo one >> /tmp/data/log; seq 2000", 1), shell("echo two >> /tmp/data/log", 2)],
    shell("echo three >> /tmp/data/log; cat /tmp/data/log", 3),
    "It fails because of **three**.",
)


class Cluster(FakeKube):
    """FakeKube with a watch: `listeners` get every event as it is stored."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        super().__init__(now=now)
        self.listeners: list[Callable[[str, dict[str, Any]], None]] = []
        cluster = self

        class Watch(list[tuple[str, str, dict[str, Any]]]):
            def append(self, event: tuple[str, str, dict[str, Any]]) -> None:
                super().append(event)
                for listener in list(cluster.listeners):
                    listener(event[0], event[2])

        self.events = Watch()


class World:
    """What lives on. `processes` come and go; `clock` is the loop's, so that waiting takes no time."""

    def __init__(self, root: Path, gitlab: GitLabStandIn) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, JumpingLoop)
        self.loop = loop
        self._began = loop.time()
        self.gitlab = gitlab
        gitlab.faults.clear()
        self.number = next(_numbers)
        self.project = f"group/app-{self.number}"
        self._load_project(self.number)
        self.limits: dict[str, Any] = {}
        self.internal = False
        self.store_patience = 0.0
        """Real seconds that the engine's thread waits for a store that is away."""
        self.model_attempts = 1
        self.model_pause: Callable[[float], object] | None = None
        """What stands for the wait between two attempts."""
        self.kube = Cluster(self.clock)
        self.kube.listeners.append(lambda *_: self._moved.set())
        self._moved = asyncio.Event()
        self.store = MemoryStore()
        self.pool = Pool(root)
        self.model = ScriptedModel(self._next)
        self._turns: tuple[scripted.Step, ...] = TURNS
        self._waits_at: int | None = None
        self.events = Events()
        self.processes: list[Process] = []

    def clock(self) -> datetime:
        return NOW + timedelta(seconds=self.loop.time() - self._began)

    def skip(self, seconds: float) -> None:
        """Let time pass for everybody, also for those that wait."""
        self.loop.skipped += seconds

    # --- people ---

    def order(self, name: str = "why", *, namespace: str = NAMESPACE, life: int = 1, **spec: Any) -> AgentRun:
        """Apply an AgentRun; `life`: how many of that name there were, for each has a uid of its own."""
        target = {"gitlab": {"project": self.project, "mergeRequest": MERGE_REQUEST}}
        body = {
            "apiVersion": API_VERSION,
            "kind": "AgentRun",
            "metadata": {
                "name": name,
                "uid": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self.project}/{name}/{life}")),
                "generation": 1,
                "creationTimestamp": c.rfc3339(self.clock()),
                "finalizers": [FINALIZER],
            },
            "spec": {"workflow": "analyze-failures", "target": target, **spec},
        }
        return AgentRun.parse(self.kube.put(AGENT_RUNS, namespace, body))

    async def cancel(self, name: str = "why") -> None:
        await self.kube.merge(AGENT_RUNS, NAMESPACE, name, {"spec": {"cancel": True}})

    async def delete(self, name: str = "why") -> None:
        await self.kube.delete(AGENT_RUNS, NAMESPACE, name)

    def person_writes(self, body: str, *, internal: bool = False) -> Note:
        """A person's note on the merge request."""
        with self.gitlab.state.lock:
            state, alice = self.gitlab.state, self.gitlab.state.users[7]
            number = state.next_id()
            note = Note(number, new_discussion_id(number), alice, body, timestamp(), timestamp(), "DiscussionNote")
            note.internal = internal
            self._merge_request().notes[number] = note
        return note

    def event(self, name: str = "why", *, sha: str = SHA, event: str = "pipeline", **spec: Any) -> AgentRun:
        """A run as an ingestor makes it of an event that nobody asked for."""
        trigger = {"source": "gitlab", "event": event, "key": f"key of {name}", "automatic": True}
        target = {"gitlab": {"project": self.project, "mergeRequest": MERGE_REQUEST, "sha": sha}}
        return self.order(name, target=target, trigger=trigger | spec.pop("trigger", {}), **spec)

    def command(self, name: str = "asked", *, note: Note | None = None, **spec: Any) -> AgentRun:
        """A run as an ingestor makes it of a person's comment."""
        trigger = {"source": "gitlab", "event": "note", "key": f"key of {name}", "author": "alice", "authorId": 7}
        if note is not None:
            trigger |= {"noteId": note.id, "discussion": note.discussion_id, "internal": note.internal}
        return self.order(name, trigger=trigger, **spec)

    def push(self, sha: str) -> None:
        """The merge request has a new head."""
        with self.gitlab.state.lock:
            self._merge_request().fields["sha"] = sha

    def bot_is(self, level: int) -> None:
        """The bot's role in the project."""
        with self.gitlab.state.lock:
            project = self.gitlab.state.project(self.project)
            assert project is not None
            project.members[1] = level

    def person_copies(self, note: Note) -> None:
        """The bot's note stands there twice, as after a POST that was slower than anybody waited."""
        with self.gitlab.state.lock:
            number = self.gitlab.state.next_id()
            twin = dataclasses.replace(note, id=number, discussion_id=new_discussion_id(number))
            self._merge_request().notes[number] = twin

    # --- the model ---

    def says(self, *turns: scripted.Step) -> None:
        """From now on it answers so: its next step is the one behind the answers in the conversation."""
        self._turns = turns

    def model_waits_at(self, turn: int) -> None:
        """It does not answer that turn (from 0) until the call is aborted, or `model_goes_on`."""
        self._waits_at = turn

    def model_goes_on(self) -> None:
        self._waits_at = None
        self.model.release()

    def asked(self, call: int = 0) -> str:
        """The last user turn of that call, if it is text."""
        return str(self.model.calls[call].contents[-1]["parts"][0]["text"])

    def _next(self, contents: Sequence[Content]) -> scripted.Step:
        turn = sum(content["role"] == "assistant" for content in contents)
        step = self._turns[turn]
        return scripted.Wait(cast("Any", step)) if turn == self._waits_at else step

    # --- what stands there ---

    def run(self, name: str = "why") -> AgentRun:
        return AgentRun.parse(next(body for body in self.kube.all(AGENT_RUNS) if body["metadata"]["name"] == name))

    def runs(self) -> list[AgentRun]:
        return [AgentRun.parse(body) for body in self.kube.all(AGENT_RUNS)]

    def condition(self, type_: str, name: str = "why") -> tuple[str, str] | None:
        found = c.find(self.run(name).status.conditions, type_)
        return (found.status, found.reason) if found else None

    @property
    def outcome(self) -> tuple[str, str] | None:
        return self.condition("Succeeded")

    @property
    def notes(self) -> list[Note]:
        """All notes on the merge request."""
        with self.gitlab.state.lock:
            return list(self._merge_request().notes.values())

    def notes_of(self, run: AgentRun) -> list[Note]:
        found = ((note, markers.parse(note.body)) for note in self.notes)
        return [note for note, marker in found if marker is not None and marker.run == run.metadata.uid]

    def remove_note(self, note: Note) -> None:
        with self.gitlab.state.lock:
            del self._merge_request().notes[note.id]

    def posts(self) -> int:
        """POSTs of notes that reached GitLab."""
        return sum(call.method == "POST" and self.project in call.path for call in self.gitlab.calls)

    def fault(self, kind: str, method: str = "", **details: Any) -> None:
        self.gitlab.fault(kind, method=method, path=details.pop("path", self.project), **details)

    # --- time ---

    def start(self, fatal: Fatal = lambda *_: False) -> Process:
        """A new leader."""
        process = Process(self, len(self.processes) + 1, fatal)
        self.processes.append(process)
        process.start()
        return process

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something about objects or processes holds, but not for ever."""
        async with asyncio.timeout(LONGEST_WAIT_SECONDS):
            while not holds():
                self._moved.clear()
                await self._moved.wait()

    async def until_now(self, holds: Callable[[], bool]) -> None:
        """Wait, in real time, until something that a thread does holds."""
        while not holds():  # noqa: ASYNC110 - threads set no event of ours
            await asyncio.sleep(0.005)

    async def finished(self, name: str = "why") -> AgentRun:
        """Wait for the condition Finished, and for the daemon to notice."""
        await self.until(lambda: self.condition("Finished", name) is not None)
        await asyncio.gather(*self.processes[-1].daemons.values())
        return self.run(name)

    async def live(self, fatal: Fatal = lambda *_: False) -> Process:
        """One process, until every run is finished or it died; then it is gone with all that it had in memory."""
        process = self.start(fatal)
        await self.until(
            lambda: process.dead or all(_is_finished(AgentRun.parse(body)) for body in self.kube.all(AGENT_RUNS))
        )
        if not process.dead:
            await asyncio.gather(*process.daemons.values(), return_exceptions=True)
        await process.end()
        return process

    def moved(self) -> None:
        self._moved.set()

    async def close(self) -> None:
        self.model.release()
        for process in self.processes:
            await process.end()

    def _merge_request(self) -> Any:
        project = self.gitlab.state.project(self.project)
        assert project is not None
        return project.merge_requests[MERGE_REQUEST]

    def _load_project(self, number: int) -> None:
        merge_request = {"iid": MERGE_REQUEST, "sha": SHA, "author": {"id": 7, "username": "alice"}}
        project = {"id": number, "path": self.project, "members": {"1": 30, "7": 30}}
        with self.gitlab.state.lock:
            self.gitlab.state.load({"projects": [{**project, "merge_requests": [merge_request]}]})

    def settings(self) -> Settings:
        workflows = {"analyze-failures": {"prompt": "workflows/a.md"}, "other": {"prompt": "workflows/b.md"}}
        config = {
            "gitlab": {"url": self.gitlab.url, "token_env": "BOT"},
            "models": {"default": "scripted-model"},
            "sessions": {"store": "file:///var/lib/hummingbird"},
            "projects": {"group/*": {"internal_notes": self.internal}},
            "limits": self.limits,
            "workflows": workflows,
        }
        return Settings(Config.model_validate(config), Path("config.yaml"), {"BOT": "bot-token"})


def _is_finished(run: AgentRun) -> bool:
    return c.is_true(run.status.conditions, c.RunCondition.FINISHED)
