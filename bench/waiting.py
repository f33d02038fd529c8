"""Many runs that wait for a model in one operator, each with a sandbox pod of its own: memory, loop lag, a cancel."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

from bench.claims import stalled
from bench.figures import line, milliseconds
from bench.place import place
from bench.process import LAG, Histogram, histogram, memory
from bench.runs import Runs, order
from cluster import Cluster
from demo.stage import Operator, wait_for
from tests.e2e.scene import Scene

RUNS = 200
CANCELS = 10
STEADY_SECONDS = 60
SMALL = {"requests": {"cpu": "1m", "memory": "8Mi"}, "limits": {"cpu": "1", "memory": "256Mi"}}


def measure(cluster: Cluster, folder: Path) -> None:
    """From an idle operator to all of them in their model call, then a minute of that, then cancels."""
    with place(cluster, folder, "waiting", standby=0, most=RUNS + 10) as world, Runs(world) as runs:
        world.script = stalled
        world.configure(limits={"max_concurrent_runs": RUNS})
        _shrink(world)
        with world.stage.operator() as operator:
            operator.wait_until_leading()
            names = [f"wait-{number:03}" for number in range(RUNS)]
            _all_waiting(world, runs, operator, names)
            _steady(operator)
            _cancelled(world, runs, operator, names[:: RUNS // CANCELS][:CANCELS])
            now = memory(operator.process.pid)
            line("  resident after the cancels: now / at most", f"{now.now:.0f} / {now.peak:.0f} MB")


def _all_waiting(world: Scene, runs: Runs, operator: Operator, names: Sequence[str]) -> None:
    idle, before, began = memory(operator.process.pid), _lag(operator), time.monotonic()
    sent = runs.create(*(order(world, name) for name in names))
    accepted = runs.wait(names, "Accepted", 300)
    # 200 pods start at once on a machine of two cores: that takes minutes, whoever asks for them
    wait_for(lambda: len(world.gemini.calls) >= len(names), 1200, lambda: _progress(world, runs, names), pause=1)
    took, full = time.monotonic() - began, memory(operator.process.pid)
    pods = {pod["metadata"]["uid"] for pod in world.pods() if pod["status"]["phase"] == "Running"}
    line(f"{len(names)} runs in a model call, each in a pod of its own ({len(pods)} run)", f"after {took:.0f} s")
    line("  create → Accepted, p50/p95", milliseconds([accepted[name] - sent[name] for name in names], 0.5, 0.95))
    line(
        "  resident: idle / now / at most (bar 1024 MB)",
        f"{idle.now:.0f} / {full.now:.0f} / {full.peak:.0f} MB; {full.threads} threads",
    )
    line("  loop lag while they began: p99 / mean", _lags(_lag(operator) - before))


def _steady(operator: Operator) -> None:
    before = _lag(operator)
    time.sleep(STEADY_SECONDS)
    line(f"  loop lag in {STEADY_SECONDS} s of waiting: p99 / mean", _lags(_lag(operator) - before))


def _cancelled(world: Scene, runs: Runs, operator: Operator, names: Sequence[str]) -> None:
    """One after the other, each by a kubectl process as a person does it."""
    before, answered, finished = _lag(operator), [], []
    for name in names:
        began = time.monotonic()
        patch = ("--type=merge", "-p", json.dumps({"spec": {"cancel": True}}))
        world.stage.kubectl("patch", "agentrun", name, "-n", world.stage.names.runs, *patch)
        answered.append(runs.wait([name], "Answered=Cancelled", 60)[name] - began)
        finished.append(runs.wait([name], "Finished", 60)[name] - began)
    line(f"  kubectl patch spec.cancel → settled Cancelled, p50/p95 of {len(names)}", milliseconds(answered, 0.5, 0.95))
    line("  → Finished, p50/p95 (bar 2000 ms)", milliseconds(finished, 0.5, 0.95))
    line("  loop lag meanwhile: p99 / mean", _lags(_lag(operator) - before))


def _shrink(world: Scene) -> None:
    """Sandboxes small enough that a small node takes all of them."""
    path = "/spec/pod/template/spec/containers/0/resources"
    patch = json.dumps([{"op": "replace", "path": path, "value": SMALL}])
    pool = ("sandboxpool/default", "-n", world.stage.names.sandboxes)
    world.stage.kubectl("patch", *pool, "--type=json", "-p", patch)


def _lag(operator: Operator) -> Histogram:
    return histogram(operator.metrics(), LAG)


def _lags(found: Histogram) -> str:
    return f"≤ {found.below(0.99) * 1e3:.0f} / {found.mean * 1e3:.1f} ms of {found.count:.0f}"


def _progress(world: Scene, runs: Runs, names: Sequence[str]) -> str:
    ready = sum(runs.reached(name, "SandboxReady") is not None for name in names)
    return f"{len(world.gemini.calls)} model calls, {ready} of {len(names)} have a sandbox\n{world.log()}"
