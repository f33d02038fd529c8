"""An operator that starts where another one died: 500 finished runs, 50 live ones, and a GitLab that takes its time."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from bench.figures import line, percentile
from bench.place import place
from bench.process import LAG, histogram, memory
from bench.runs import Runs, order
from cluster import Cluster
from demo.stage import Operator, wait_for
from hummingbird_ai.testing.replies import Reply, Stall, say
from tests.e2e.scene import Scene

FINISHED = 500
EACH = 15
NEW = 5
DELAYS = (2, 10)
ASKED = "please answer"
ANSWER = "It fails because the price is rounded too early. " * 150
PROBE_SECONDS = 0.1


def measure(cluster: Cluster, folder: Path) -> None:
    """The same twice, so that what GitLab costs shows."""
    for delay in DELAYS:
        here = folder / str(delay)
        here.mkdir()
        with place(cluster, here, f"restart-{delay}", standby=0, most=EACH) as world, Runs(world) as runs:
            world.script = _model
            world.configure(limits={"max_concurrent_runs": 4 * EACH})
            live = _before(world, runs)
            _after(world, runs, live, delay)


def _model(body: dict[str, Any], _: int) -> Reply:
    return say(ANSWER) if ASKED in str(body["contents"][0]) else Stall(say("never"))


class Live:
    """Names of the live runs by what they were doing when their operator died."""

    def __init__(self) -> None:
        self.undelivered = [f"undelivered-{number}" for number in range(EACH)]
        self.thinking = [f"thinking-{number}" for number in range(EACH)]
        self.queueing = [f"queueing-{number}" for number in range(EACH)]
        self.new = [f"new-{number}" for number in range(NEW)]
        self.accepted = [*self.undelivered, *self.thinking, *self.queueing]
        self.all = [*self.accepted, *self.new]


def _before(world: Scene, runs: Runs) -> Live:
    """What a real operator leaves that is killed: every live run was brought to its place by it."""
    live = Live()
    numbers = {name: 1000 + number for number, name in enumerate([*live.all, "example"])}
    merge_requests = [{"iid": iid, "author": {"id": 7, "username": "alice"}} for iid in numbers.values()]
    world.gitlab.state.load({"projects": [{"id": 10, "path": "group/app", "merge_requests": merge_requests}]})

    def create(names: Sequence[str], message: str) -> None:
        runs.create(*(order(world, name, merge_request=numbers[name], message=message) for name in names))

    operator = world.stage.start("operator-before")
    try:
        operator.wait_until_leading()
        create(["example"], ASKED)
        runs.wait(["example"], "Finished", 120)
        world.gitlab.fault("status", method="PUT", path="/notes", status=503, times=10**9)
        create(live.undelivered, ASKED)
        runs.wait(live.undelivered, "Delivered=Retrying", 180)
        runs.wait(live.undelivered, "SessionSaved", 60)
        wait_for(lambda: not world.pods(), 120, lambda: f"sandboxes are left over\n{world.log()}")
        calls = len(world.gemini.calls)
        create(live.thinking, "think")
        wait_for(lambda: len(world.gemini.calls) >= calls + EACH, 180, lambda: f"no model call\n{world.log()}")
        create(live.queueing, "think")
        runs.wait(live.queueing, "Succeeded=WaitingForSandbox", 120)
    finally:
        operator.kill()
    create(live.new, "think")
    example = runs.read("example")
    names = [f"finished-{number:03}" for number in range(FINISHED)]
    runs.create(*(order(world, name, merge_request=numbers["example"], message=ASKED) for name in names))
    for name in names:
        runs.write_status(name, example["status"])
    runs.wait(names, "Finished", 60)
    return live


def _after(world: Scene, runs: Runs, live: Live, delay: int) -> None:
    world.gitlab.faults.clear()
    world.gitlab.fault("stall", seconds=delay, times=10**9)
    calls, began = len(world.gemini.calls), time.monotonic()
    operator = world.stage.start("operator-after")
    try:
        with Probe(operator, "healthz") as health, Probe(operator, "readyz") as ready:
            operator.wait_until_leading()
            leading = time.monotonic()
            taken = max(runs.wait(live.accepted, "runner=operator-after", 300).values())
            wait_for(lambda: len(world.gemini.calls) >= calls + EACH, 300, world.log, pause=1)
            asked = world.gemini.calls[calls + EACH - 1].at
            accepted = max(runs.wait(live.new, "Accepted", 300).values())
            delivered = max(runs.wait(live.undelivered, "Delivered", 300).values())
            now, lag = memory(operator.process.pid), histogram(operator.metrics(), LAG)
            assert operator.process.poll() is None, world.log()
    finally:
        operator.stop()
    first = ready.first - began
    line(
        f"start among {FINISHED} finished and {len(live.all)} live runs, GitLab answers in {delay} s: ready",
        f"{first:.1f} s",
    )
    line(
        f"  leading / {len(live.accepted)} live runs taken over, after the start",
        f"{leading - began:.1f} / {taken - began:.1f} s",
    )
    line(
        f"  {EACH} in their model call again / {NEW} new ones accepted / {EACH} notes delivered",
        " / ".join(f"{when - began:.1f}" for when in (asked, accepted, delivered)) + " s",
    )
    for probe in (health, ready):
        line(f"  /{probe.path} every {PROBE_SECONDS * 1e3:.0f} ms (bar 1 s): slowest, p99", probe.said())
    line("  resident: now / at most; not restarted", f"{now.now:.0f} / {now.peak:.0f} MB")
    line("  loop lag: p99 / mean", f"≤ {lag.below(0.99) * 1e3:.0f} / {lag.mean * 1e3:.1f} ms of {lag.count:.0f}")


class Probe:
    """Asks a health path again and again, as a kubelet does, only more often."""

    def __init__(self, operator: Operator, path: str) -> None:
        self.path = path
        self._operator = operator
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask, name=f"probe-{path}", daemon=True)
        self._answers: list[tuple[float, int, float]] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def first(self) -> float:
        """When it said 200 first."""
        return next(at for at, status, _ in self._answers if status == 200)

    def said(self) -> str:
        """The slowest answer and p99 since the first 200, and what was no 200."""
        since = [(status, took) for at, status, took in self._answers if at >= self.first]
        took = [seconds for _, seconds in since]
        bad = [status for status, _ in since if status != 200]
        return f"{max(took):.3f}, {percentile(took, 0.99):.3f} s of {len(since)}; {len(bad)} not 200 {bad[:5] or ''}"

    def _ask(self) -> None:
        while not self._over.wait(PROBE_SECONDS):
            asked = time.monotonic()
            status = self._operator.probe(self.path)
            answered = time.monotonic()
            if not self._over.is_set():
                self._answers.append((answered, status, answered - asked))
