"""What a person wants to see when something is wrong."""

from __future__ import annotations

from cluster import lifecycle, record
from cluster.errors import ClusterError
from cluster.paths import State, state_root


def lines() -> tuple[list[str], bool]:
    """Lines for a person, and whether the cluster is usable."""
    state = State(state_root())
    text: list[str] = []
    running = record.read(state)
    if running is not None:
        alive = running.alive()
        text += [f"{one.name:24} pid {one.pid:<8} {'runs' if one in alive else 'ended'}" for one in running.processes]
        text.append(f"logs                     {state.logs}")
    try:
        found = lifecycle.find()
    except ClusterError as error:
        return [*text, f"not usable: {error}"], False
    text += [
        f"provider                 {found.provider} ({found.reason})",
        f"kubeconfig               {found.kubeconfig}",
        f"kubectl                  {found.kubectl}",
        f"node                     {found.node}",
    ]
    return text, True
