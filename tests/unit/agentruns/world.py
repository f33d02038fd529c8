"""A world for whole runs: cluster, GitLab, store, sandboxes and model outlive the processes that drive the runs.

Everything of `agentruns` is the real thing, put together as `wiring.lead` does; so are `Notes` and kopf's handlers.
The world plays kopf (watch, daemons, finalizers), the pool, and death: a process may die right before and right after
every effect it has on the world, and the next one finds only what the world kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import inspect
import itertools
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import kopf
from prometheus_client import CollectorRegistry

from hummingbird_ai.abort import Abort
from hummingbird_ai.calls import generate_with_retry
from hummingbird_ai.errors import CallAborted
from hummingbird_ai.messages import Content, ModelAdapter, ToolCall
from hummingbird_ai.testing import ScriptedModel, scripted
from hummingbird_operator.agentruns import handlers
from hummingbird_operator.agentruns.accepting import Accepting
from hummingbird_operator.agentruns.claiming import Claiming, Sandboxes
from hummingbird_operator.agentruns.control import Control, Runs
from hummingbird_operator.agentruns.decide import Decision, Step
from hummingbird_operator.agentruns.facts import Facts
from hummingbird_operator.agentruns.keeping import Keeping
from hummingbird_operator.agentruns.noting import Forge, Notebook, Noting
from hummingbird_operator.agentruns.pages import NotePages
from hummingbird_operator.agentruns.resolve import Order
from hummingbird_operator.agentruns.runner import Runner
from hummingbird_operator.agentruns.status import StatusWriter
from hummingbird_operator.agentruns.ttl import Reaper
from hummingbird_operator.agentruns.work import Worker
from hummingbird_operator.agentruns.working import Working
from hummingbird_operator.api import conditions as c
from hummingbird_operator.api.agentrun import AgentRun, RunnerRef
from hummingbird_operator.api.labels import API_VERSION, FINALIZER
from hummingbird_operator.delivery import markers
from hummingbird_operator.delivery.notes import Notes
from hummingbird_operator.errors import Aborted
from hummingbird_operator.kube.client import AGENT_RUNS, KubeApi
from hummingbird_operator.kube.testing import FakeKube
from hummingbird_operator.sessions.sandbox import Sandbox
from hummingbird_operator.sessions.store import BlobStore
from hummingbird_operator.sessions.testing import FakeSandbox, MemoryStore
from hummingbird_operator.sessions.tools import ToolRegistry
from hummingbird_operator.settings import Config, Settings
from hummingbird_operator.telemetry import Metrics
from hummingbird_operator.workflows import Workflow, Workflows
from tests.standins.gitlab import GitLabStandIn
from tests.standins.gitlab.state import Note, new_discussion_id, timestamp
from tests.unit.agentruns.builders import NOW, SHA
from tests.unit.agentruns.virtual import JumpingLoop

T = TypeVar("T")

NAMESPACE = "hummingbird"
MERGE_REQUEST = 42
LONGEST_WAIT_SECONDS = 3 * 86_400
_numbers = itertools.count(100)


class Death(BaseException):
    """The process ends here, at once: nothing in it may catch this."""


Fatal = Callable[[int, str], bool]
"""Whether the process dies at this point of its life, given its number from 0 and its name."""


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
        place = next((place for place in self.places if place.session == session), None)
        if place is not None:
            place.run, place.session, place.lingered = uid, None, True
        elif sum(place.run is not None for place in self.places) < self.capacity:
            place = self._make()
            place.run = uid
            self.places.append(place)
        return place

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


class Doors:
    """Implements work.Doors: one scripted model under every name."""

    def __init__(self, model: ModelAdapter) -> None:
        self._model = model

    def model(self, name: str) -> ModelAdapter:
        return self._model

    def worst_case(self, name: str, *, input_tokens: int, max_output_tokens: int) -> Decimal:
        return Decimal(input_tokens + max_output_tokens) / 1_000_000

    def window(self, name: str) -> int:
        return 1_000_000

    def sources(self, registry: ToolRegistry, order: Order, sleep: Callable[[float], object]) -> None:
        return None


@dataclass
class Events:
    """Implements accepting.Recorder."""

    emitted: list[tuple[str, str, str]] = field(default_factory=list)

    async def emit(self, run: AgentRun, type_: str, reason: str, message: str) -> None:
        self.emitted.append((type_, reason, message))


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

    def order(self, name: str = "why", *, namespace: str = NAMESPACE, **spec: Any) -> AgentRun:
        """Apply an AgentRun."""
        target = {"gitlab": {"project": self.project, "mergeRequest": MERGE_REQUEST}}
        body = {
            "apiVersion": API_VERSION,
            "kind": "AgentRun",
            "metadata": {
                "name": name,
                "uid": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self.project}/{name}")),
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

    def person_writes(self, body: str) -> Note:
        """A person's note on the merge request."""
        with self.gitlab.state.lock:
            state, alice = self.gitlab.state, self.gitlab.state.users[7]
            number = state.next_id()
            note = Note(number, new_discussion_id(number), alice, body, timestamp(), timestamp(), "DiscussionNote")
            self._merge_request().notes[number] = note
        return note

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
        return next(run for run in self.runs() if run.metadata.name == name)

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
        await self.until(lambda: process.dead or all(map(_is_finished, self.runs())))
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


class Process:
    """One life of a leading operator, wired as `wiring.lead` does it."""

    def __init__(self, world: World, number: int, fatal: Fatal) -> None:
        self.world = world
        self.dead = False
        self.leads = True
        self.me = RunnerRef(identity=f"operator-{number}", epoch=number)
        self.points: list[str] = []
        self.aborted: list[str] = []
        """Calls that were ended from outside."""
        self.daemons: dict[str, asyncio.Task[None]] = {}
        self._fatal = fatal
        self._before: dict[str, Callable[[], None]] = {}
        self._ended = False
        self._stoppers: dict[str, Any] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._workers: dict[str, asyncio.Lock] = {}
        self._threads = ThreadPoolExecutor(4), ThreadPoolExecutor(4)
        self._notes = Notes(world.gitlab.url, "bot-token")
        self._wire(world.settings())

    def _wire(self, settings: Settings) -> None:
        world, clock, (threads, forge_threads) = self.world, self.world.clock, self._threads
        limits = settings.config.limits
        kube = watched(cast("KubeApi", world.kube), self, "kube", ("patch", "merge", "create", "delete"))
        store = watched(cast("BlobStore", world.store), self, "store", ("create", "put", "put_stream"))
        pen = watched(cast("Forge", self._notes), self, "gitlab", ("create", "update", "delete"))
        sandboxes = cast("Sandboxes", Opened(self))
        doors = Doors(watched(cast("ModelAdapter", world.model), self, "model", ("generate",)))
        metrics = Metrics.on(CollectorRegistry())
        self.runs = Runs(slots=limits.max_concurrent_runs, clock=clock)
        self.status = StatusWriter(kube, self.me, leads=lambda: self.leads)
        notebook = Notebook(pen, forge_threads, check=self.status.check_leadership)
        pages = NotePages(lambda: ["a-secret-token"], has_price=lambda _: True)
        worker = Worker(
            store,
            doors,
            partial(generate_with_retry, max_attempts=1),
            max_output_tokens=limits.max_output_tokens,
            retry_seconds=world.store_patience,
        )
        noting = Noting(self.status, notebook, pages, retry_seconds=limits.delivery_retry_seconds, clock=clock)
        keeping = Keeping(
            self.status, sandboxes, worker, noting, threads, retry_seconds=limits.retry_seconds, clock=clock
        )
        parts = (
            Accepting(self.status, notebook, world.events, lambda _: None, metrics, clock),
            noting,
            Claiming(self.status, sandboxes, world.events, metrics, clock),
            Working(self.status, sandboxes, worker, threads, metrics, clock),
            keeping,
        )
        self.steps = {step: apply for part in parts for step, apply in part.steps().items()}
        self.runner = Runner(
            settings=settings,
            workflows=_workflows(settings.config),
            runs=self.runs,
            status=self.status,
            steps=self.steps,
            metrics=metrics,
            clock=clock,
        )
        registry = kopf.OperatorRegistry()
        self.reaper = Reaper(kube, clock)
        handlers.register(registry, self.runs, self.runner, self.reaper)
        (seen,) = registry._watching.get_all_handlers()
        (drive,) = registry._spawning.get_all_handlers()
        # kopf's types ask for every argument that it would pass; ours take what they need
        self._seen: Any = seen.fn
        self._drive: Any = drive.fn
        self._filter: Any = drive.when

    # --- kopf's part ---

    def start(self) -> None:
        self.world.kube.listeners.append(self._event)
        for body in self.world.kube.all(AGENT_RUNS):
            self._event("ADDED", body)

    def _event(self, type_: str, body: dict[str, Any]) -> None:
        if body.get("kind") == "AgentRun" and not self.dead:
            task = asyncio.create_task(self._in_order(type_, body))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _in_order(self, type_: str, body: dict[str, Any]) -> None:
        """One event of an object after the other, as kopf does it."""
        async with self._workers.setdefault(body["metadata"]["uid"], asyncio.Lock()):
            await self._handle(type_, body)

    async def _handle(self, type_: str, body: dict[str, Any]) -> None:
        await self._seen(event={"type": type_, "object": body})
        uid, deleting = body["metadata"]["uid"], "deletionTimestamp" in body["metadata"]
        wanted = type_ != "DELETED" and self._filter(status=body.get("status") or {})
        if not deleting and wanted and uid not in self.daemons:
            self._stoppers[uid] = _stopper()
            self.daemons[uid] = asyncio.create_task(self._daemon(uid, body))
        elif deleting and uid in self.daemons and not self.daemons[uid].done():
            self._stoppers[uid].set(kopf.DaemonStoppingReason.RESOURCE_DELETED)
        elif deleting and type_ != "DELETED":
            await self._release(uid)  # kopf spawns no daemon for what is being deleted already

    async def _daemon(self, uid: str, body: dict[str, Any]) -> None:
        try:
            await self._drive(body=body, stopped=self._stoppers[uid].async_waiter)
        except Death:
            self.world.moved()
            return
        await self._release(uid)

    async def _release(self, uid: str) -> None:
        """Take the finalizer from what is being deleted."""
        for live in self.world.kube.all(AGENT_RUNS):
            meta = live["metadata"]
            if meta["uid"] == uid and "deletionTimestamp" in meta and meta.get("finalizers") and not self.dead:
                gone = [{"op": "remove", "path": "/metadata/finalizers"}]
                await self.world.kube.patch(AGENT_RUNS, NAMESPACE, meta["name"], gone)

    # --- death ---

    def fails_at(self, step: Step) -> list[int]:
        """From now on that step meets an error which nobody expected; the list grows with each try."""
        tries: list[int] = []
        applied = self.steps[step]

        async def fail(facts: Facts, decision: Decision, control: Control) -> None:
            if decision.reason:  # to settle it without doing it
                return await applied(facts, decision, control)
            tries.append(len(tries))
            raise ZeroDivisionError("made by a test")

        self.steps[step] = fail
        return tries

    def before(self, call: str, act: Callable[[], None]) -> None:
        """Something happens in the world right before the process makes that call."""
        self._before[f"before {call}"] = act

    def point(self, name: str) -> None:
        """Here the process has, or is about to have, an effect on the world."""
        self.check()
        self._before.pop(name, lambda: None)()
        self.points.append(name)
        if self._fatal(len(self.points) - 1, name):
            self.dead = True
            raise Death(name)

    def check(self) -> None:
        """A dead process does nothing any more."""
        if self.dead:
            raise Death

    async def sigterm(self) -> None:
        """The end in order: kopf stops every daemon."""
        for stopper in self._stoppers.values():
            stopper.set(kopf.DaemonStoppingReason.OPERATOR_EXITING)
        await asyncio.gather(*self.daemons.values())
        await self.end()

    async def end(self) -> None:
        """Gone, with everything that it had in memory."""
        if self._ended:
            return
        self._ended = self.dead = True
        with contextlib.suppress(ValueError):
            self.world.kube.listeners.remove(self._event)
        for place in self.world.pool.places:
            place.line.held_by.set("ShuttingDown")  # the kernel would end the threads
        for control in self.runs._controls.values():
            control.abort.set("ShuttingDown")
        tasks = [*self.daemons.values(), *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for executor in self._threads:
            executor.shutdown(wait=True)
        self._notes.close()


class Opened:
    """A process's view of the pool: implements claiming.Sandboxes."""

    def __init__(self, process: Process) -> None:
        pool = process.world.pool
        doors = watched(pool, process, "pool", ("claim", "let_go"))
        self.find, self.claim, self.let_go, self.changed = doors.find, doors.claim, doors.let_go, pool.changed
        self._process = process

    def open(self, member: Place, abort: Abort) -> Sandbox:
        member.line.held_by = abort
        names = ("start", "run", "exec", "stream_exec", "write_file", "stream_to_file")
        return watched(cast("Sandbox", member.sandbox), self._process, "sandbox", names)


def watched(inner: T, process: Process, prefix: str, names: Sequence[str]) -> T:
    """The same, but the process may die before and after those calls, and cannot call anything once it is dead."""
    return cast("T", _Watched(inner, process, prefix, frozenset(names)))


class _Watched:
    def __init__(self, inner: object, process: Process, prefix: str, names: frozenset[str]) -> None:
        self._inner = inner
        self._process = process
        self._prefix = prefix
        self._names = names

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not callable(value):
            return value
        return self._awaited(name, value) if inspect.iscoroutinefunction(value) else self._called(name, value)

    def _called(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def through(*args: Any, **kwargs: Any) -> Any:
            with self._points(name):
                try:
                    return call(*args, **kwargs)
                except (Aborted, CallAborted):
                    self._process.aborted.append(f"{self._prefix}.{name}")
                    raise

        return through

    def _awaited(self, name: str, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def through(*args: Any, **kwargs: Any) -> Any:
            with self._points(name):
                return await call(*args, **kwargs)

        return through

    @contextlib.contextmanager
    def _points(self, name: str) -> Iterator[None]:
        self._process.check()
        if name in self._names:
            self._process.point(f"before {self._prefix}.{name}")
        yield
        self._process.check()
        if name in self._names:
            self._process.point(f"after {self._prefix}.{name}")


def _workflows(config: Config) -> Workflows:
    return Workflows(
        {name: Workflow(name, "Look into it.", entry, "0123456789abcdef") for name, entry in config.workflows.items()}
    )


def _is_finished(run: AgentRun) -> bool:
    return c.is_true(run.status.conditions, c.RunCondition.FINISHED)


def _stopper() -> Any:
    from kopf._core.intents.stoppers import DaemonStopper

    return DaemonStopper()
