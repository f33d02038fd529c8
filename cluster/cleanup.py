"""What a cluster leaves in the kernel and outside of its folder when its processes are gone."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from cluster import firewall
from cluster.commands import attempt
from cluster.config import BRIDGE, NETWORK
from cluster.errors import ClusterError
from cluster.paths import State
from cluster.processes import PROC, Process, all_pids, command_line, identify, send, stop

CNI_RESULTS = Path("/var/lib/cni/results")
CONTAINER_LOGS = Path("/var/log/containers")
DEVICE_PLUGINS = Path("/var/lib/kubelet/device-plugins")
CGROUPS = Path("/sys/fs/cgroup")
SHIM = "containerd-shim-runc-v2"


def shims(state: State, proc: Path = PROC) -> list[Process]:
    """The shims of our containerd: they name its socket in their command line."""
    found = []
    for pid in all_pids(proc):
        words = command_line(pid, proc)
        if words and Path(words[0]).name == SHIM and str(state.containerd_socket) in words:
            found.append(identify(SHIM, pid, proc))
    return [shim for shim in found if shim is not None]


def orphans(state: State, proc: Path = PROC) -> list[Process]:
    """Processes whose root file system is an overlay below our folder: containers that lost their shim."""
    mark = f"{state.containerd}/root/"
    found = []
    for pid in all_pids(proc):
        with suppress(OSError):
            lines = (proc / str(pid) / "mountinfo").read_text().splitlines()
            if any(line.split()[4] == "/" and mark in line for line in lines):
                found.append(identify("container", pid, proc))
    return [process for process in found if process is not None]


def remove_containers(state: State) -> None:
    """End all containers. containerd must be gone by now, and the kubelet, which would start them again."""
    ids = _container_ids(state)
    sockets = list(_shim_sockets(state))
    root = state.runc / "k8s.io"
    with ThreadPoolExecutor(4) as pool:  # runc knows its own containers by id and start time, as we do.
        list(pool.map(lambda one: attempt(["runc", "--root", root, "delete", "--force", one]), ids))
    stop(shims(state), 0)
    for process in orphans(state):
        send(process, signal.SIGKILL)
    for socket in sockets:
        socket.unlink(missing_ok=True)
    for name in ids:
        (CNI_RESULTS / f"{NETWORK}-{name}-eth0").unlink(missing_ok=True)
        (CNI_RESULTS / f"cni-loopback-{name}-lo").unlink(missing_ok=True)


def _container_ids(state: State) -> list[str]:
    root = state.runc / "k8s.io"
    bundles = state.containerd_state / "io.containerd.runtime.v2.task" / "k8s.io"
    return sorted({path.name for folder in (root, bundles) if folder.is_dir() for path in folder.iterdir()})


def _shim_sockets(state: State) -> Iterator[Path]:
    """Shims listen in a folder that all containerds share; each bundle names its own socket."""
    for file in state.containerd_state.glob("io.containerd.runtime.v2.task/*/*/address"):
        with suppress(OSError):
            address = file.read_text().strip().removeprefix("unix://")
            if address.startswith("/run/containerd/s/"):
                yield Path(address)


def mounts_below(folder: Path, mounts: Path = PROC / "self/mounts") -> list[str]:
    """Mount points below `folder`, the innermost first."""
    points: list[str] = []
    if not mounts.exists():  # Not Linux: kind only.
        return points
    for line in mounts.read_text().splitlines():
        point = line.split()[1].encode().decode("unicode_escape")  # A space is written as \040.
        if point.startswith(f"{folder}/"):
            points.append(point)
    return points[::-1]


def bridge_exists() -> bool:
    """Whether some cluster's bridge is there."""
    return attempt(["ip", "link", "show", BRIDGE]) is not None


def unmount(state: State) -> None:
    """Detach all mounts below the folder."""
    for _ in range(3):  # One point may be mounted over more than once.
        points = mounts_below(state.root)
        if not points:
            return
        attempt(["umount", "-l", *points])
    if points := mounts_below(state.root):
        raise ClusterError(f"cannot unmount {points[0]}: see `fuser -vm {points[0]}`, then run `down` again")


def clean_kernel(state: State) -> None:
    """Mounts, network namespaces (which are mounts in our folder), bridge, rules."""
    unmount(state)
    attempt(["ip", "link", "delete", BRIDGE])
    firewall.clean()
    _clean_fixed_places(state)


def _clean_fixed_places(state: State) -> None:
    """Folders that no setting moves. Those that are not empty are somebody else's too and stay."""
    DEVICE_PLUGINS.joinpath("kubelet.sock").unlink(missing_ok=True)
    empty = [DEVICE_PLUGINS, DEVICE_PLUGINS.parent, *CGROUPS.glob("k8s.io"), *CGROUPS.glob("*/k8s.io")]
    if CONTAINER_LOGS.is_dir():
        for link in CONTAINER_LOGS.iterdir():
            if link.is_symlink() and str(link.readlink()).startswith(f"{state.root}/"):
                link.unlink()
        empty.append(CONTAINER_LOGS)
    for folder in empty:
        with suppress(OSError):
            folder.rmdir()


def check_owner(state: State) -> None:
    """Refuse a folder that someone else put there: we would end the processes that it names, as root."""
    if state.root.is_symlink() or (state.root.exists() and state.root.lstat().st_uid != os.geteuid()):
        raise ClusterError(f"{state.root} is not a folder of this user: name another one in HUMMINGBIRD_CLUSTER_DIR")


def remove_folder(state: State, keep_logs: bool = False) -> None:
    """Delete the folder, never through a mount and never one that we did not make."""
    if not state.root.is_dir():
        return
    if not state.marker.exists():
        raise ClusterError(f"{state.root} was not made by this tool: name another folder in HUMMINGBIRD_CLUSTER_DIR")
    if points := mounts_below(state.root):
        raise ClusterError(f"{points[0]} is still mounted: nothing deleted")
    for path in state.root.iterdir():
        if path == state.marker or (keep_logs and path == state.logs):
            continue
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    if not keep_logs:
        state.marker.unlink()  # Last: a deletion that was cut short can be taken up again.
        state.root.rmdir()
