"""Where things live: nothing that is built or running lies in the checkout."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
GO_MODULES = HERE / "go"
IMAGE_RECIPES = HERE / "images"

# Not in /tmp, which may be a small tmpfs, nor in the cache: it holds mounts and the keys of one cluster.
DEFAULT_STATE = "/var/tmp/hummingbird-cluster"  # noqa: S108 - made with mode 0700, and refused if it is not ours


def cache_root(env: Mapping[str, str] = os.environ) -> Path:
    """The folder of built binaries and images."""
    if own := env.get("HUMMINGBIRD_CACHE"):
        return Path(own).expanduser().absolute()
    base = env.get("XDG_CACHE_HOME")
    # Path.home() instead of "~" in a string: HOME may be unset under a service manager.
    return (Path(base).expanduser() if base else Path.home() / ".cache").absolute() / "hummingbird"


def state_root(env: Mapping[str, str] = os.environ) -> Path:
    """The folder of the running cluster. It is removed as a whole by `down`."""
    return Path(env.get("HUMMINGBIRD_CLUSTER_DIR") or DEFAULT_STATE).expanduser().absolute()


@dataclass(frozen=True)
class State:
    """The files of one running cluster."""

    root: Path

    @property
    def lock(self) -> Path:
        """Beside the folder, not in it: `down` removes the folder while it holds the lock."""
        return self.root.with_name(self.root.name + ".lock")

    @property
    def record(self) -> Path:
        """Processes, ports and versions."""
        return self.root / "state.json"

    @property
    def marker(self) -> Path:
        """Says that the folder is ours to delete."""
        return self.root / ".hummingbird-cluster"

    @property
    def logs(self) -> Path:
        """One file for each process."""
        return self.root / "log"

    @property
    def pki(self) -> Path:
        """Keys and certificates."""
        return self.root / "pki"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.root / "admin.kubeconfig"

    @property
    def kind_kubeconfig(self) -> Path:
        """The one that kind wrote."""
        return self.root / "kind.kubeconfig"

    @property
    def containerd(self) -> Path:
        """All that containerd and its containers use."""
        return self.root / "containerd"

    @property
    def containerd_socket(self) -> Path:
        """Also what its shims name in their command lines."""
        return self.containerd / "containerd.sock"

    @property
    def containerd_state(self) -> Path:
        """Bundles and network namespaces."""
        return self.containerd / "state"

    @property
    def runc(self) -> Path:
        """What runc knows about containers."""
        return self.containerd / "runc"

    @property
    def cni(self) -> Path:
        """The network's configuration."""
        return self.root / "cni"

    @property
    def kubelet(self) -> Path:
        """Pod volumes: many mounts."""
        return self.root / "kubelet"
