"""From what people do in GitLab to the bot's notes: the real handler, the real operator, one GitLab between them.

`tests/unit/agentruns/world.py` is the operator's half; here its runs are made by an ingestor and not by the test.
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

from hummingbird_operator.api.conditions import rfc3339
from hummingbird_operator.api.labels import FINALIZER
from hummingbird_operator.delivery import markers
from hummingbird_operator.delivery.notes import Notes
from hummingbird_operator.ingest.event import Event
from hummingbird_operator.ingest.handle import Handler
from hummingbird_operator.ingest.metrics import IngestMetrics
from hummingbird_operator.ingest.reasons import Reason
from hummingbird_operator.kube.client import AGENT_RUNS, KubeApi
from hummingbird_operator.kube.testing import FakeKube
from tests.standins.gitlab import GitLabStandIn
from tests.standins.gitlab.state import Note
from tests.unit.agentruns.virtual import JumpingLoop
from tests.unit.agentruns.world import MERGE_REQUEST, World
from tests.unit.ingest.samples import configured

WORKFLOWS = {
    "analyze-failures": {"prompt": "a.md", "action": "pipeline"},
    "other": {"prompt": "b.md", "action": "merge_request"},
}


class Adopting:
    """The API server as an ingestor sees it; what it creates gets a uid and kopf's finalizer, so that it can begin."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.get, self.list = world.kube.get, world.kube.list

    async def create(self, resource: Any, namespace: str, body: dict[str, Any]) -> dict[str, Any]:
        """Stored once; a second time it is refused, as the server does it."""
        kube: FakeKube = self._world.kube
        if any(one["metadata"]["name"] == body["metadata"]["name"] for one in kube.all(AGENT_RUNS)):
            return await kube.create(resource, namespace, body)
        key = f"{self._world.project}/{body['metadata']['name']}"
        given = {"uid": str(uuid.uuid5(uuid.NAMESPACE_URL, key)), "generation": 1, "finalizers": [FINALIZER]}
        made = {"creationTimestamp": rfc3339(self._world.clock()), "namespace": namespace}
        return kube.put(resource, namespace, {**body, "metadata": {**body["metadata"], **given, **made}})


class Chain:
    """People, ingestors, and an operator whenever the test lets one live."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.gitlab = world.gitlab
        self.where = (world.project, MERGE_REQUEST)
        self._heard = len(self.gitlab.events)
        minutes = itertools.count()
        self.gitlab.state.clock = lambda: datetime(2026, 11, 30, tzinfo=UTC) + timedelta(minutes=next(minutes))
        self.notes = Notes(self.gitlab.url, "bot-token")
        config, workflows = configured(
            gitlab={"url": self.gitlab.url, "token_env": "BOT"}, projects={"group/*": {}}, workflows=WORKFLOWS
        )
        kube = cast("KubeApi", Adopting(world))
        self._ingestors = [
            Handler(config, workflows, self.notes, kube, "hummingbird", IngestMetrics.on()) for _ in range(2)
        ]

    async def hear(self, *, backwards: bool = False) -> list[Reason]:
        """Every event since the last time, at two ingestors at once; the reason of whichever was first at each."""
        new, self._heard = self.gitlab.events[self._heard :], len(self.gitlab.events)
        reasons = []
        for number, one in enumerate(reversed(new) if backwards else new):
            both = [
                ingestor.handle(Event("gitlab", one.kind, one.payload, f"delivery-{number}-{way}"))
                for way, ingestor in enumerate(self._ingestors)
            ]
            found = [outcome.reason for outcome in await asyncio.gather(*both)]
            reasons.append(next((one for one in found if one is not Reason.DUPLICATE), Reason.DUPLICATE))
        return reasons

    @property
    def said(self) -> list[Note]:
        """The bot's notes with a marker."""
        return [note for note in self.world.notes if markers.parse(note.body)]

    def posted(self) -> int:
        """How often the bot posted a note, the placeholder's marker in it."""
        mine = [call for call in self.gitlab.calls if self.world.project in unquote(call.path)]
        return sum(call.method == "POST" and call.path.endswith("/notes") for call in mine)

    def outcomes(self) -> list[str]:
        """How each run ended, in the order of their making."""
        ended = [self.world.condition("Succeeded", run.metadata.name) for run in self.world.runs()]
        return [found[1] if found else "" for found in ended]


def played(root: Path, gitlab: GitLabStandIn, story: Callable[[Chain], Awaitable[None]]) -> None:
    """The story in a new world, on a loop whose clock jumps."""

    async def live() -> None:
        world = World(root, gitlab)
        chain = Chain(world)
        try:
            await story(chain)
        finally:
            await world.close()
            chain.notes.close()

    work: Coroutine[Any, Any, None] = live()
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(work)
