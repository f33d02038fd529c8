"""What a command in a sandbox costs: our websocket against a kubectl process, in turn so that both meet one noise."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
from pathlib import Path

from bench.figures import line, timed
from bench.place import place
from cluster import Cluster
from demo.stage import wait_for
from hummingbird_operator.kube.client import Kube
from hummingbird_operator.kube.exec import ExecConnection
from hummingbird_operator.sandboxes.pod import PodSandbox
from tests.e2e.scene import Scene

ROUNDS = 40


def measure(cluster: Cluster, folder: Path) -> None:
    """The median of each, and their ratio."""
    with place(cluster, folder, "exec", standby=1, most=2) as world, world.stage.operator() as operator:
        operator.wait_until_leading()
        world.pool_ready()
        wait_for(lambda: bool(world.pods()), 30, lambda: "no pod")
        meta = world.pods()[0]["metadata"]
        box = _sandbox(world, meta)
        argv = [str(cluster.kubectl), "--kubeconfig", str(cluster.kubeconfig)]
        argv += ["exec", "-i", meta["name"], "-n", meta["namespace"], "--", "true"]
        box.start()
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(ROUNDS):
            ours.append(timed(lambda: box.exec("true")))
            theirs.append(timed(lambda: subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)))
    us, them = statistics.median(ours), statistics.median(theirs)
    line(f"exec of `true`, median of {ROUNDS}: websocket / kubectl process", f"{us * 1e3:.0f} / {them * 1e3:.0f} ms")
    line("  ratio (bar 0.6)", f"{us / them:.2f}")


def _sandbox(world: Scene, meta: dict[str, str]) -> PodSandbox:
    """A pod of the pool, used as the engine uses it."""
    kube = asyncio.run(Kube.connect(kubeconfig=str(world.stage.cluster.kubeconfig)))
    return PodSandbox(
        ExecConnection(kube.endpoint),
        meta["namespace"],
        meta["name"],
        meta["uid"],
        on_cleanup=lambda: None,
        on_linger=lambda _: None,
    )
