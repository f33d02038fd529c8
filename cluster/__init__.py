"""A real Kubernetes for tests and the demo: `up()` gives one, `down()` takes it away."""

from __future__ import annotations

from cluster.errors import BuildFailed, ClusterError, NoProvider, NotRunning, StartFailed
from cluster.lifecycle import build, down, find, up
from cluster.model import PAUSE_IMAGE, SANDBOX_IMAGE, Choice, Cluster

__all__ = [
    "PAUSE_IMAGE",
    "SANDBOX_IMAGE",
    "BuildFailed",
    "Choice",
    "Cluster",
    "ClusterError",
    "NoProvider",
    "NotRunning",
    "StartFailed",
    "build",
    "down",
    "find",
    "up",
]
