"""Where a subject is measured: the stage of the end-to-end tests, in namespaces of its own."""

from __future__ import annotations

import secrets
from contextlib import AbstractContextManager
from pathlib import Path

from cluster import Cluster
from tests.e2e.scene import Scene, scene


def place(cluster: Cluster, folder: Path, name: str, *, standby: int, most: int) -> AbstractContextManager[Scene]:
    """A scene whose pool keeps `standby` members, makes at most `most` and lets none linger.

    Its name is new each time: the namespaces of the last measurement may still be on their way out.
    """
    pool = {"replicas": standby, "maxSandboxes": most, "linger": {"seconds": 0, "max": 0}}
    return scene(cluster, folder, f"bench-{name}-{secrets.token_hex(2)}", pool=pool)
