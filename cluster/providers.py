"""Which Kubernetes is taken, and why."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Mapping
from dataclasses import dataclass

from cluster.commands import TOOL_PATH, attempt
from cluster.errors import NoProvider
from cluster.model import Choice

KUBECONFIG_VARIABLE = "HUMMINGBIRD_KUBECONFIG"
# Each prints its server's version, and fails where only the client is there.
_ENGINES = {
    "docker": ["docker", "info", "--format", "{{.ServerVersion}}"],
    "podman": ["podman", "info", "--format", "{{.Version.Version}}"],
}


@dataclass(frozen=True)
class Facts:
    """What this machine offers. Gathered once, then decided on by a pure function."""

    kubeconfig: str | None = None
    kind: str | None = None
    engine: str | None = None
    system: str = "Linux"
    root: bool = False
    go: str | None = None
    apt: bool = False


def gather(env: Mapping[str, str] = os.environ) -> Facts:
    """Look at this machine."""
    kind = _which("kind")
    return Facts(
        kubeconfig=env.get(KUBECONFIG_VARIABLE) or None,
        kind=kind,
        engine=engine() if kind else None,  # An engine alone is no help, and asking it takes time.
        system=platform.system(),
        root=hasattr(os, "geteuid") and os.geteuid() == 0,
        go=_which("go"),
        apt=_which("apt-get") is not None,
    )


def engine() -> str | None:
    """The first container engine whose server answers."""
    for name, argv in _ENGINES.items():
        if _which(name) and (attempt(argv, timeout=20) or "").strip():
            return name
    return None


def choose(facts: Facts) -> Choice:
    """Kubeconfig of the user, kind, or our own; else an error that says what is missing for each."""
    if facts.kubeconfig:
        return Choice("kubeconfig", f"{KUBECONFIG_VARIABLE} names one")
    unset = f"{KUBECONFIG_VARIABLE} is not set"
    if facts.kind and facts.engine:
        return Choice("kind", f"{unset}; `kind` is installed and {facts.engine} answers")
    no_kind = "`kind` is installed but no docker or podman answers" if facts.kind else "there is no `kind`"
    lacking = _lacking_for_local(facts)
    if not lacking:
        return Choice("local", f"{unset}; {no_kind}; this is Linux with root, Go and apt-get")
    raise NoProvider(
        "no way to a Kubernetes on this machine. One of these is needed:\n"
        f"  1. a cluster of yours: set {KUBECONFIG_VARIABLE} to its kubeconfig ({unset})\n"
        f"  2. kind and a running docker or podman ({no_kind})\n"
        f"  3. Linux, root, Go and apt-get, to build one here (missing: {', '.join(lacking)})"
    )


def _lacking_for_local(facts: Facts) -> list[str]:
    checks = {"Linux": facts.system == "Linux", "root": facts.root, "Go": bool(facts.go), "apt-get": facts.apt}
    return [name for name, there in checks.items() if not there]


def _which(name: str) -> str | None:
    return shutil.which(name, path=TOOL_PATH)
