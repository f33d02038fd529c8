"""Where things live: nothing that is built or running lies in the checkout."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
GO_MODULES = HERE / "go"
IMAGE_RECIPES = HERE / "images"

DEFAULT_STATE = "/var/tmp/hummingbird-cluster"


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
        return self.root / "state.json"

    @property
    def marker(self) -> Path:
        """Says that the folder is ours to delete."""
        return self.root / ".hummingbird-cluster"

    @property
    def logs(self) -> Path:
        return self.root / "log"

    @property
    def pki(self) -> Path:
        return self.root / "pki"

    @property
    def kubeconfig(self) -> Path:
        return self.root / "admin.kubeconfig"

    @property
    def kind_kubeconfig(self) -> Path:
        return self.root / "kind.kubeconfig"

    @property
    def containerd(self) -> Path:
        return self.root / "containerd"

    @property
    def containerd_socket(self) -> Path:
        return self.containerd / "containerd.sock"

    @property
    def containerd_state(self) -> Path:
        return self.containerd / "state"

    @property
    def runc(self) -> Path:
        return self.containerd / "runc"

    @property
    def cni(self) -> Path:
        return self.root / "cni"

    @property
    def kubelet(self) -> Path:
        return self.root / "kubelet"
