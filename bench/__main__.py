"""`make bench`: exec against a kubectl process, what a warm claim costs, a large file into a sandbox, many at once."""

from __future__ import annotations

import asyncio
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import cluster
from demo.stage import Operator, wait_for
from hummingbird_ai.testing.replies import say
from hummingbird_operator.kube.client import Kube
from hummingbird_operator.kube.exec import ExecConnection
from hummingbird_operator.sandboxes.pod import PodSandbox
from tests.e2e.scene import Scene, scene

ROUNDS = 20
CLAIMS = 10
MEGABYTES = 200
WRITES = ("create", "patch", "merge", "delete")


def main() -> int:
    """Print one line per figure."""
    found = cluster.up()
    pool = {"replicas": 3, "maxSandboxes": 20, "linger": {"seconds": 0, "max": 0}}
    with scene(found, Path(tempfile.mkdtemp(prefix="hummingbird-bench-")), "bench", pool=pool) as world:
        world.script = lambda body, n: say("done")
        with world.stage.operator() as operator:
            operator.wait_until_leading()
            world.pool_ready()
            with _sandbox(world) as (box, name):
                _exec_against_kubectl(world, box, name)
                _large_file(box)
            _warm_claims(world, operator)
            _many_at_once(world)
    return 0


def line(what: str, figure: str) -> None:
    """One figure."""
    print(f"{what:<58} {figure}", flush=True)


def _exec_against_kubectl(world: Scene, box: PodSandbox, pod: str) -> None:
    """In turn, so that both meet the same noise."""
    ours: list[float] = []
    theirs: list[float] = []
    argv = [str(world.stage.cluster.kubectl), "--kubeconfig", str(world.stage.cluster.kubeconfig)]
    argv += ["exec", "-i", pod, "-n", world.stage.names.sandboxes, "--", "true"]
    for _ in range(ROUNDS):
        ours.append(_timed(lambda: box.exec("true")))
        theirs.append(_timed(lambda: subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)))
    us, them = statistics.median(ours), statistics.median(theirs)
    line(f"exec of `true`, median of {ROUNDS}: websocket / kubectl process", f"{us * 1e3:.0f} / {them * 1e3:.0f} ms")
    line("  ratio (bar 0.6)", f"{us / them:.2f}")


def _large_file(box: PodSandbox) -> None:
    block = (b"x" * 1023 + b"\n") * 256
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = _timed(lambda: box.stream_to_file("/tmp/data/big", (block for _ in range(MEGABYTES * 4))))  # noqa: S108
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    line(
        f"{MEGABYTES} MB into a sandbox (bar 50 MB/s, < 20 MB)",
        f"{MEGABYTES / seconds:.0f} MB/s, +{grown:.1f} MB resident",
    )


def _warm_claims(world: Scene, operator: Operator) -> None:
    """Serially, each on a full pool; writes are counted up to SandboxReady and until the pool is full again."""
    ready: list[float] = []
    whole: list[int] = []
    for number in range(CLAIMS):
        world.pool_ready()
        time.sleep(1.5)
        name, before, began = f"claim-{number}", _writes(operator), time.monotonic()
        world.run(name, workflow="plain", target=None)
        world.until(name, "SandboxReady", seconds=30)
        ready.append(time.monotonic() - began)
        world.finished(name, 30)
        world.pool_ready()
        time.sleep(1.5)
        whole.append(sum(_writes(operator).values()) - sum(before.values()))
    line(
        f"apply → SandboxReady seen by kubectl, p50 of {CLAIMS}",
        f"{statistics.median(ready) * 1e3:.0f} ms (kubectl's own time included)",
    )
    line(
        "claim alone, mean (operator's histogram)",
        f"{_mean(operator.metrics(), 'sandbox_claim_seconds', 'Claimed') * 1e3:.0f} ms",
    )
    line("own API writes of a whole run until the pool is full again", f"{statistics.median(whole):.0f}")


def _many_at_once(world: Scene) -> None:
    names = [f"many-{number}" for number in range(20)]
    began = time.monotonic()
    for name in names:
        world.run(name, workflow="plain", target=None)
    for name in names:
        world.finished(name, 180)
    line("20 runs at once on a pool of 3, maximum 20: all finished", f"{time.monotonic() - began:.1f} s")


def _writes(operator: Operator) -> dict[str, int]:
    """Writes by verb and resource, without Leases and Events."""
    counts: dict[str, int] = {}
    pattern = re.compile(
        r'hummingbird_kube_requests_total\{code="2\d\d",resource="(\w+)",subresource="(\w*)",verb="(\w+)"\} (\S+)'
    )
    for resource_, sub, verb, value in pattern.findall(operator.metrics()):
        if verb in WRITES and resource_ not in ("leases", "events"):
            counts[f"{verb} {resource_}/{sub}"] = int(float(value))
    return counts


def _mean(page: str, histogram: str, launch: str) -> float:
    total = re.search(rf'hummingbird_{histogram}_sum{{launch="{launch}"}} (\S+)', page)
    count = re.search(rf'hummingbird_{histogram}_count{{launch="{launch}"}} (\S+)', page)
    return float(total[1]) / float(count[1]) if total and count else float("nan")


@contextmanager
def _sandbox(world: Scene) -> Iterator[tuple[PodSandbox, str]]:
    """A pod of the pool, used as the engine uses it."""
    wait_for(lambda: bool(world.pods()), 30, lambda: "no pod")
    meta = world.pods()[0]["metadata"]
    kube = asyncio.run(Kube.connect(kubeconfig=str(world.stage.cluster.kubeconfig)))
    box = PodSandbox(
        ExecConnection(kube.endpoint),
        meta["namespace"],
        meta["name"],
        meta["uid"],
        on_cleanup=lambda: None,
        on_linger=lambda _: None,
    )
    box.start()
    yield box, meta["name"]


def _timed(call: Callable[[], object]) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began


if __name__ == "__main__":
    sys.exit(main())
