"""One life of the operator in a world, with kopf's part played."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import kopf
from prometheus_client import CollectorRegistry

from hummingbird_ai.abort import Abort
from hummingbird_ai.calls import generate_with_retry
from hummingbird_ai.messages import ModelAdapter
from hummingbird_operator.agentruns import handlers
from hummingbird_operator.agentruns.accepting import Accepting
from hummingbird_operator.agentruns.claiming import Claiming, Sandboxes
from hummingbird_operator.agentruns.control import Control
from hummingbird_operator.agentruns.decide import Decision, Step
from hummingbird_operator.agentruns.delivering import Delivering
from hummingbird_operator.agentruns.facts import Facts
from hummingbird_operator.agentruns.gating import Gating
from hummingbird_operator.agentruns.keeping import Keeping
from hummingbird_operator.agentruns.notebook import Forge, Notebook
from hummingbird_operator.agentruns.noting import Noting
from hummingbird_operator.agentruns.pages import NotePages
from hummingbird_operator.agentruns.paying import GuardedModel
from hummingbird_operator.agentruns.resolve import Order, visibility
from hummingbird_operator.agentruns.runner import Runner
from hummingbird_operator.agentruns.runs import Runs
from hummingbird_operator.agentruns.status import StatusWriter
from hummingbird_operator.agentruns.ttl import Reaper
from hummingbird_operator.agentruns.work import Worker
from hummingbird_operator.agentruns.working import Working
from hummingbird_operator.api.agentrun import AgentRun, RunnerRef
from hummingbird_operator.config import Config
from hummingbird_operator.delivery.notes import Notes
from hummingbird_operator.delivery.redact import redact
from hummingbird_operator.errors import Doubt, LeadershipLost
from hummingbird_operator.kube.client import AGENT_RUNS, KubeApi
from hummingbird_operator.kube.guarded import GuardedKube
from hummingbird_operator.sessions.sandbox import Sandbox
from hummingbird_operator.sessions.store import BlobStore
from hummingbird_operator.sessions.tools import ToolRegistry
from hummingbird_operator.settings import Settings
from hummingbird_operator.stores.guarded import GuardedStore
from hummingbird_operator.telemetry import Metrics
from hummingbird_operator.workflows import Workflow, Workflows
from tests.unit.agentruns.effects import Death, Fatal, watched
from tests.unit.agentruns.places import Place

if TYPE_CHECKING:
    from tests.unit.agentruns.world import World

NAMESPACE = "hummingbird"
SECRET = "a-secret-token"


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


class Process:
    """One life of a leading operator, wired as `wiring.lead` does it."""

    def __init__(self, world: World, number: int, fatal: Fatal) -> None:
        self.world = world
        self.dead = False
        self.leads, self.unsure = True, False
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
        self._notes = Notes(world.gitlab.url, "bot-token", check=self.may_write)
        self._wire(world.settings())

    def _wire(self, settings: Settings) -> None:
        world, clock, (threads, forge_threads) = self.world, self.world.clock, self._threads
        limits = settings.config.limits
        guarded_kube = GuardedKube(cast("KubeApi", world.kube), self.may_write)
        kube = watched(cast("KubeApi", guarded_kube), self, "kube", ("patch", "merge", "create", "delete"))
        guarded = GuardedStore(cast("BlobStore", world.store), self.may_write)
        store = watched(cast("BlobStore", guarded), self, "store", ("create", "put", "put_stream"))
        pen = watched(cast("Forge", self._notes), self, "gitlab", ("create", "update", "delete", "react"))
        sandboxes = cast("Sandboxes", Opened(self))
        paying = GuardedModel(cast("ModelAdapter", world.model), self.may_write)
        doors = Doors(watched(cast("ModelAdapter", paying), self, "model", ("generate",)))
        self.series = CollectorRegistry()
        metrics = Metrics.on(self.series)
        self.runs = Runs(slots=limits.max_concurrent_runs, clock=clock, monotonic=world.loop.time)
        self.status = StatusWriter(kube, self.me)
        notebook = Notebook(pen, forge_threads)
        workflows = _workflows(settings.config)
        pages = NotePages(lambda: [SECRET], has_price=lambda _: True, workflows=workflows, by_comment=True)
        clean = partial(redact, secrets=[SECRET])
        worker = Worker(
            store,
            doors,
            partial(generate_with_retry, max_attempts=world.model_attempts, sleep=world.model_pause),
            max_output_tokens=limits.max_output_tokens,
            retry_seconds=world.store_patience,
            clean=clean,
        )
        gating = Gating(notebook, self.runs)
        internal = partial(visibility, config=settings.config)
        longer = limits.delivery_retry_seconds
        noting = Noting(self.status, notebook, pages, gating, clock=clock)
        pen_and_paper = (self.status, notebook, pages, noting, internal)
        delivering = Delivering(*pen_and_paper, retry_seconds=longer, clock=clock)
        keeping = Keeping(
            self.status,
            sandboxes,
            worker,
            delivering,
            threads,
            threads,
            retry_seconds=limits.retry_seconds,
            clock=clock,
        )
        claiming = Claiming(self.status, sandboxes, world.events, metrics, keeping.admit, clean, clock)
        at_the_door = (self.status, notebook, world.events, lambda _: None, claiming.quiet, metrics, clock)
        accepting = Accepting(*at_the_door, retry_seconds=longer)
        at_work = (self.status, sandboxes, worker, threads, claiming.replace, metrics, clean, clock)
        working = Working(*at_work, self.runs, gating.outdated)
        parts = (accepting, gating, noting, claiming, working, keeping)
        self.steps = {step: apply for part in parts for step, apply in part.steps().items()}
        self.runner = Runner(
            settings=settings,
            workflows=workflows,
            runs=self.runs,
            status=self.status,
            steps=self.steps,
            recorder=world.events,
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
        asyncio.get_running_loop().set_exception_handler(_unless_dead)
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

    # --- leadership ---

    def may_write(self) -> None:
        """What Election.check says to a process that leads, led, or cannot tell."""
        if not self.leads:
            raise LeadershipLost("this process no longer leads")
        if self.unsure:
            raise Doubt("the API server", "the Lease could not be renewed", retry_after=0.01)

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


def _unless_dead(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What nobody asked the dead for is no news; told in a collection of garbage, it may break into any other test."""
    if not isinstance(context.get("exception"), Death):
        loop.default_exception_handler(context)


class Opened:
    """A process's view of the pool: implements claiming.Sandboxes."""

    def __init__(self, process: Process) -> None:
        pool = process.world.pool
        doors = watched(pool, process, "pool", ("claim", "let_go"))
        self.find, self.claim, self.let_go, self.changed = doors.find, doors.claim, doors.let_go, pool.changed
        self.lost, self.shortage = pool.lost, pool.shortage
        self._process = process

    def open(self, member: Place, abort: Abort) -> Sandbox:
        member.line.held_by = abort
        names = ("start", "run", "exec", "stream_exec", "write_file", "stream_to_file")
        return watched(cast("Sandbox", member.sandbox), self._process, "sandbox", names)


def _workflows(config: Config) -> Workflows:
    return Workflows(
        {name: Workflow(name, "Look into it.", entry, "0123456789abcdef") for name, entry in config.workflows.items()}
    )


def _stopper() -> Any:
    from kopf._core.intents.stoppers import DaemonStopper

    return DaemonStopper()
