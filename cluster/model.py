"""What callers get: a frozen description of the cluster they may use."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ProviderName = Literal["kubeconfig", "kind", "local"]

SANDBOX_IMAGE = "localhost/hummingbird-sandbox:dev"
PAUSE_IMAGE = "localhost/pause:dev"


@dataclass(frozen=True)
class Choice:
    """A provider and why it was taken."""

    provider: ProviderName
    reason: str

    def __str__(self) -> str:
        return f"provider {self.provider}: {self.reason}"


@dataclass(frozen=True)
class Cluster:
    """A Kubernetes that answers."""

    kubeconfig: Path
    provider: ProviderName
    reason: str
    kubectl: Path
    node: str
