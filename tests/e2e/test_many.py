"""Ten runs at once on a pool of three: all end, none shares a pod, the pool keeps its laws."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster import Cluster
from tests.e2e.scene import PodWatch, scene

RUNS = 10


@pytest.mark.timeout(240)
def test_ten_runs_at_once_on_a_pool_of_three(shared_cluster: Cluster, tmp_path: Path) -> None:
    pool = {"replicas": 3, "maxSandboxes": 6, "linger": {"seconds": 0, "max": 0}}
    with scene(shared_cluster, tmp_path, "many", pool=pool) as world, world.stage.operator() as operator:
        operator.wait_until_leading()
        names = [f"run-{number}" for number in range(RUNS)]
        with PodWatch(world, replicas=3) as watch:
            for name in names:
                world.run(name, workflow="plain", target=None, message="look", delivery="None")
            ends = {name: world.finished(name, 180)["reason"] for name in names}
        assert ends == dict.fromkeys(names, "Completed")
        assert watch.looks > 5
        assert all(len(runs) == 1 for runs in watch.runs_by_pod.values()), "a pod was given to two runs"
        assert all(len(pods) == 1 for pods in watch.pods_by_run.values()), "a run was given two pods"
        assert watch.most_standby <= 3
