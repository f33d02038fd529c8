"""What a warm claim costs: writes to the API server by kind, and how long a run waits for its sandbox."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench.figures import line, milliseconds
from bench.place import place
from bench.process import histogram
from bench.runs import Runs, order
from bench.wire import Relay, Request, relayed
from cluster import Cluster
from demo.stage import Operator, wait_for
from hummingbird_ai.testing.replies import Reply, Stall, say
from tests.e2e.scene import Scene

COUNTED = 10
SERIAL = 20
AT_ONCE = 20
BURSTS = 3
SETTLE_SECONDS = 2.0
"""What node and network do after a pod is gone must not count as the next claim's time."""


def measure(cluster: Cluster, folder: Path) -> None:
    """Writes through a relay, latencies without one."""
    with place(cluster, folder, "claims", standby=3, most=12) as world, Runs(world) as runs:
        world.script = stalled
        world.configure(limits={"max_concurrent_runs": 2 * AT_ONCE})
        with relayed(world.stage) as relay, world.stage.operator() as operator:
            operator.wait_until_leading()
            _writes(world, runs, relay)
        with world.stage.operator() as operator:
            operator.wait_until_leading()
            _serial(world, runs)
            _claim_alone(operator)
        world.stage.kubectl(
            *("patch", "sandboxpool/default", "-n", world.stage.names.sandboxes, "--type=merge"),
            *("-p", f'{{"spec":{{"replicas":{AT_ONCE},"maxSandboxes":{2 * AT_ONCE + 5}}}}}'),
        )
        with world.stage.operator() as operator:
            operator.wait_until_leading()
            _at_once(world, runs)
            _claim_alone(operator)


def stalled(body: object, number: int) -> Reply:
    """A model that thinks until the stand-in is released."""
    return Stall(say("done"))


def _writes(world: Scene, runs: Runs, relay: Relay) -> None:
    """Each claim on a full pool. The run waits in its model call until the pool is full again, then it ends."""
    found: dict[str, list[Sequence[Request]]] = {"ready": [], "full": [], "over": []}
    for number in range(COUNTED):
        name = f"counted-{number}"
        full(world)
        relay.quiet()
        begin = len(relay.requests())
        runs.create(order(world, name))
        runs.wait([name], "SandboxReady", 30)
        full(world)
        relay.quiet()
        refilled = len(relay.requests())
        finish(world, runs, [name])
        full(world)
        relay.quiet()
        everything = [request for request in relay.requests()[begin:] if request.writes]
        again = [request for request in relay.requests()[begin:refilled] if request.writes]
        ready = next(number for number, request in enumerate(again) if request.settles("SandboxReady"))
        accepted = next(request for request in again if request.settles("Accepted"))
        found["ready"].append([request for request in again[: ready + 1] if request is not accepted])
        found["full"].append(again)
        found["over"].append(everything)
    _tell("writes from AgentRun created to SandboxReady, beside Accepted (bar 3)", found["ready"], _of_the_run)
    _tell("  what the pool wrote meanwhile to become full again", found["ready"], _of_the_pool)
    _tell("writes until the pool is full again (bar 10)", found["full"])
    _tell("writes of the whole run", found["over"])


def _of_the_run(request: Request) -> bool:
    return not _of_the_pool(request)


def _of_the_pool(request: Request) -> bool:
    return request.kind in ("create pods", "patch sandboxpools/status")


def _tell(what: str, each: Sequence[Sequence[Request]], which: Callable[[Request], bool] = lambda _: True) -> None:
    kinds = Counter(request.kind for requests in each for request in requests if which(request))
    most = max(sum(which(request) for request in requests) for requests in each)
    total = sum(kinds.values()) / len(each)
    split = ", ".join(f"{kind} {count / len(each):g}" for kind, count in sorted(kinds.items()))
    line(what, f"mean {total:.1f}, most {most}: {split or 'none'}")


def _serial(world: Scene, runs: Runs) -> None:
    took = []
    for number in range(SERIAL):
        full(world)
        time.sleep(SETTLE_SECONDS)
        took += _claimed(runs, world, [f"serial-{number}"])
    line(
        f"warm claim, create → SandboxReady in a watch, p50/p95 of {SERIAL} (bar 57/89 ms)",
        milliseconds(took, 0.5, 0.95),
    )


def _at_once(world: Scene, runs: Runs) -> None:
    took = []
    for burst in range(BURSTS):
        full(world, 120)
        time.sleep(SETTLE_SECONDS)
        took += _claimed(runs, world, [f"burst-{burst}-{number}" for number in range(AT_ONCE)])
    line(f"{AT_ONCE} at once, p50/p95 of {BURSTS} times (bar 207/298 ms)", milliseconds(took, 0.5, 0.95))


def _claimed(runs: Runs, world: Scene, names: Sequence[str]) -> list[float]:
    sent: Mapping[str, float] = runs.create(*(order(world, name) for name in names))
    ready = runs.wait(names, "SandboxReady", 60)
    finish(world, runs, names)
    return [ready[name] - sent[name] for name in names]


def finish(world: Scene, runs: Runs, names: Sequence[str]) -> None:
    """Let the model answer, and wait for the runs' end."""
    waiting = set(names)

    def over() -> bool:
        world.gemini.release()
        return all(runs.reached(name, "Finished") for name in waiting)

    wait_for(over, 120, lambda: f"not finished\n{world.log()}")


def full(world: Scene, seconds: float = 60) -> None:
    """Wait until the pool has its standby members, and only pods that are not being deleted."""
    world.pool_ready(seconds)
    gone = "deletionTimestamp"
    wait_for(lambda: not any(gone in pod["metadata"] for pod in world.pods()), seconds, lambda: "pods that do not go")


def _claim_alone(operator: Operator) -> None:
    found = histogram(operator.metrics(), "hummingbird_sandbox_claim_seconds", launch="Claimed")
    line("  the claim alone, mean by the operator's own histogram", f"{found.mean * 1e3:.0f} ms of {found.count:.0f}")
