"""Provider `local`: a Kubernetes of our own binaries on this machine. Linux, root and Go."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cluster import cleanup, gobuild, imagebuild, processes, record, rest
from cluster.certs import NODE
from cluster.config import BRIDGE
from cluster.errors import ClusterError
from cluster.locks import locked
from cluster.model import Choice, Cluster
from cluster.packages import ensure_packages
from cluster.paths import State
from cluster.record import Record
from cluster.report import say, step
from cluster.start import import_images, start
from cluster.versions import BUILDS, build_key, image_key

_GRACE_SECONDS = 5.0


def build() -> None:
    """All that `up` needs, so that `up` only has to start it."""
    ensure_packages()
    gobuild.build_all()
    imagebuild.image_archives()


def up(state: State, choice: Choice) -> Cluster:
    """Start the cluster, or find it running."""
    with locked(state.lock, "start or stop the cluster"):
        running = record.read(state)
        if running is not None and is_up(state, running):
            say("already up")
            running = _refresh(state, running)
        else:
            _clear(state)
            build()
            running = _start(state)
    return describe(state, running, choice)


def down(state: State) -> bool:
    """Whether there was anything to end."""
    with locked(state.lock, "start or stop the cluster"):
        if not state.root.exists():
            return False
        cleanup.check_owner(state)
        with step("stopping the cluster"):
            _stop(state)
        return True


def find(state: State) -> Record | None:
    """The running cluster, if it is up."""
    running = record.read(state)
    return running if running is not None and is_up(state, running) else None


def is_up(state: State, running: Record) -> bool:
    """All processes are ours and alive, the API server is ready and the node takes pods."""
    port = running.ports.apiserver
    return (
        running.complete and not running.dead() and rest.is_ready(state, port) and rest.node_is_ready(state, port)
    )  # fmt: skip


def describe(state: State, running: Record, choice: Choice) -> Cluster:
    """What a caller gets."""
    return Cluster(state.kubeconfig, "local", choice.reason, Path(running.kubectl), NODE)


def _clear(state: State) -> None:
    """Make room: the folder may be absent, empty, ours or somebody else's."""
    cleanup.check_owner(state)
    if state.marker.exists():
        with step("cleaning up after a cluster that did not come up or was ended from outside"):
            _stop(state)
    elif state.root.is_dir() and any(state.root.iterdir()):
        raise ClusterError(f"{state.root} is not empty and not ours: name another folder in HUMMINGBIRD_CLUSTER_DIR")
    if cleanup.bridge_exists():
        raise ClusterError(
            f"the network bridge {BRIDGE} exists: another cluster of this tool runs from another folder. Take it down "
            f"with its HUMMINGBIRD_CLUSTER_DIR, or, if none runs, remove the bridge with `ip link delete {BRIDGE}`"
        )
    state.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    state.marker.touch()


def _start(state: State) -> Record:
    try:
        return start(state)
    except BaseException:  # Ctrl-C too: half a cluster is of no use to anybody.
        with step("cleaning up"):
            _stop(state, keep_logs=True)
        raise


def _stop(state: State, keep_logs: bool = False) -> None:
    running = record.read(state)
    alive = running.alive() if running is not None else []
    # The node first: nobody may start containers while they are being removed. etcd and the API server get no
    # grace, since the data goes too, and an API server waits a long time for its watchers.
    data = [process for process in alive if process.name in ("etcd", "kube-apiserver")]
    processes.stop([process for process in alive if process not in data], _GRACE_SECONDS)
    processes.stop(data, 0)
    cleanup.remove_containers(state)
    cleanup.clean_kernel(state)
    cleanup.remove_folder(state, keep_logs)


def _refresh(state: State, running: Record) -> Record:
    """Follow a changed image recipe; only tell of changed versions, since others may be using the cluster."""
    if running.builds != tuple(build_key(build) for build in BUILDS):
        say("it runs other versions than cluster/go names now: `python -m cluster down`, then `up`, to change that")
    if running.images != image_key():
        imagebuild.image_archives()
        with step("importing the changed images"):
            import_images(state)
        running = replace(running, images=image_key())
        record.write(state, running)
    return running
