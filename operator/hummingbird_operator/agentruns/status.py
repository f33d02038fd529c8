"""Writes of a run's status that only the run's present owner can make.

Take-over is tested against the resourceVersion that was read; every later write against identity and epoch, so that a
process which lost its leadership, and does not know it yet, fails instead of overwriting its successor.
"""

from __future__ import annotations

from typing import Any

from hummingbird_operator.api.agentrun import AgentRun, AgentRunStatus, RunnerRef
from hummingbird_operator.errors import Conflict, LeadershipLost, NotFound
from hummingbird_operator.kube import finalizers
from hummingbird_operator.kube.client import AGENT_RUNS, KubeApi

Operations = list[dict[str, Any]]


class StatusWriter:
    """All reads and status writes of AgentRuns by this process."""

    def __init__(self, kube: KubeApi, me: RunnerRef) -> None:
        """`kube` is guarded: what it writes, only the leader writes (kube.guarded)."""
        self.me = me
        self._kube = kube

    async def read(self, namespace: str, name: str, uid: str) -> AgentRun:
        """The run as it is now. Raises NotFound when it is gone, also when another one has its name."""
        run = AgentRun.parse(await self._kube.get(AGENT_RUNS, namespace, name))
        if run.metadata.uid != uid:
            raise NotFound(f"run {name} was deleted; another one has its name now")
        return run

    async def take_over(self, run: AgentRun, status: AgentRunStatus) -> AgentRun:
        """The first write to a run: it fails when anybody wrote since it was read. Raises Conflict."""
        version = {"op": "test", "path": "/metadata/resourceVersion", "value": run.metadata.resource_version}
        return await self._write(run, [version], status)

    async def write(self, run: AgentRun, status: AgentRunStatus) -> AgentRun:
        """A later write. Raises LeadershipLost when another process has the run now, Conflict when it was replaced."""
        fence: Operations = [
            {"op": "test", "path": "/metadata/uid", "value": run.metadata.uid},
            {"op": "test", "path": "/status/runner/identity", "value": self.me.identity},
            {"op": "test", "path": "/status/runner/epoch", "value": self.me.epoch},
        ]
        try:
            return await self._write(run, fence, status)
        except Conflict as conflict:
            live = await self.read(run.metadata.namespace, run.metadata.name, run.metadata.uid)
            if live.status.runner != self.me:
                raise LeadershipLost(f"run {run.metadata.name} is with {live.status.runner} now") from conflict
            raise

    async def hold(self, run: AgentRun) -> None:
        """Put our finalizer on the run. Raises Conflict when somebody writes at the same time."""
        where = run.metadata
        await finalizers.hold(self._kube, AGENT_RUNS, where.namespace, where.name, uid=where.uid)

    async def label(self, run: AgentRun, labels: dict[str, str]) -> None:
        """Put labels on the run; the spec is not touched."""
        where = run.metadata
        body = {"metadata": {"labels": labels}}
        await self._kube.merge(AGENT_RUNS, where.namespace, where.name, body)

    async def _write(self, run: AgentRun, tests: Operations, status: AgentRunStatus) -> AgentRun:
        # `add` replaces a member that is there, and makes one that is not
        operations: Operations = [*tests, {"op": "add", "path": "/status", "value": status.as_dict()}]
        where = run.metadata
        return AgentRun.parse(
            await self._kube.patch(AGENT_RUNS, where.namespace, where.name, operations, subresource="status")
        )
