"""What was made of a merge request's own events and pipelines, by the keys of its AgentRuns.

The key of a push holds when the merge request changed last, which GitLab's lists say no more once somebody has written
a comment. So the runs themselves tell whether a commit was looked at. Of a comment the bot's own reaction tells it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from hummingbird_operator.api import labels
from hummingbird_operator.errors import Conflict, Invalid, NotFound, Unavailable
from hummingbird_operator.ingest.hooks.moments import moment
from hummingbird_operator.ingest.runs import Key
from hummingbird_operator.kube.client import AGENT_RUNS, KubeApi
from hummingbird_operator.kube.refusals import SERVICE
from hummingbird_operator.workflows import Workflows

AUTOMATIC = frozenset({"merge_request", "pipeline"})
_SECOND = timedelta(seconds=1)


class Known(Protocol):
    """What is asked of the cluster and the configuration: `Seen`."""

    def actions(self, project: str) -> frozenset[str]:
        """Of merge_request and pipeline what starts anything in the project."""

    async def keys(self, project: str, iid: int) -> tuple[str, ...]:
        """The content keys of what started by itself on a merge request. Raises Unavailable."""

    def bot_id(self) -> int:
        """The bot's own account; blocking."""


@dataclass(frozen=True)
class Seen:
    """Asks the API server; runs are kept for 15 days."""

    kube: KubeApi
    namespace: str
    workflows: Workflows
    bot: Callable[[], int]

    def bot_id(self) -> int:
        """See Known."""
        return self.bot()

    def actions(self, project: str) -> frozenset[str]:
        """See Known."""
        return frozenset(one.entry.action for one in self.workflows.by_name.values() if one.admits(project)) & AUTOMATIC

    async def keys(self, project: str, iid: int) -> tuple[str, ...]:
        """See Known."""
        found: list[str] = []
        for name, workflow in self.workflows.by_name.items():
            if workflow.entry.action in AUTOMATIC and workflow.admits(project):
                lane = labels.lane_of(f"{project}!{iid}", name)
                found += [_key(run) for run in await self._list(f"{labels.LANE}={lane}")]
        return tuple(found)

    async def _list(self, selector: str) -> list[dict[str, object]]:
        try:
            return await self.kube.list(AGENT_RUNS, self.namespace, label_selector=selector)
        except (NotFound, Conflict, Invalid) as error:
            raise Unavailable(SERVICE, f"it lists no AgentRuns in {self.namespace}: {error}") from error


def _key(run: dict[str, object]) -> str:
    metadata = run.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    return str(annotations.get(labels.CONTENT_KEY, "")) if isinstance(annotations, dict) else ""


def looked_at(keys: Iterable[str], iid: int, sha: str) -> bool:
    """Whether anything started on the commit."""
    return any(key is not None and key.commit() == (iid, sha) for key in map(Key.parse, keys))


def ended(keys: Iterable[str], pipeline: int, status: str, finished_at: str) -> bool:
    """Whether that end of the pipeline started something, in whatever form its event told the time."""
    at = moment(finished_at)
    for key in filter(None, map(Key.parse, keys)):
        number, how, told = key.end() or (0, "", "")
        before = moment(told)
        near = at is not None and before is not None and abs(at - before) < _SECOND
        if (number, how) == (pipeline, status) and (near or at is before is None):
            return True
    return False
