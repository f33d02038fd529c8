"""A GitLab whose hook leads to a real ingestor over loopback, with a cluster in memory: for what is missed.

`away` makes the ingestor answer 503, as it does while the API server is away. Time stands still until a test moves it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from prometheus_client import CollectorRegistry

from hummingbird_operator.config import HOOK_PATH
from hummingbird_operator.delivery.notes import Notes
from hummingbird_operator.errors import Unavailable
from hummingbird_operator.ingest.event import Event
from hummingbird_operator.ingest.handle import Handler
from hummingbird_operator.ingest.hooks.hooks import WANTED, GroupHooks, Hooks
from hummingbird_operator.ingest.hooks.places import Globs, exact
from hummingbird_operator.ingest.metrics import IngestMetrics
from hummingbird_operator.ingest.missed.catchup import Bounds, Catchup
from hummingbird_operator.ingest.missed.lists import Lists
from hummingbird_operator.ingest.missed.patience import Patience
from hummingbird_operator.ingest.missed.replay import Replay
from hummingbird_operator.ingest.missed.seen import Known, Seen
from hummingbird_operator.ingest.reasons import Outcome
from hummingbird_operator.ingest.webhook.listener import listening
from hummingbird_operator.ingest.webhook.receiver import Webhook
from hummingbird_operator.kube.client import AGENT_RUNS
from hummingbird_operator.kube.testing import FakeKube
from tests.standins.gitlab import GitLabStandIn, sample_fixture
from tests.unit.ingest.desk import NAMESPACE
from tests.unit.ingest.samples import BASE, configured

APP, IID, WEBHOOK_TOKEN = "group/app", 42, "webhook-token"
TOKEN = "maintainer-token"
MR = (APP, IID)
BEGIN = datetime(2030, 1, 10, 12, tzinfo=UTC)
OUTAGE = Unavailable("the API server", "away")


@dataclass
class Gate:
    """The ingestor's handler, which is away when it is told so; `before` is called with each event."""

    handler: Handler
    is_away: bool = False
    before: Callable[[Event], None] = lambda event: None
    reasons: list[str] = field(default_factory=list)

    async def handle(self, event: Event) -> Outcome:
        if self.is_away:
            raise OUTAGE
        self.before(event)
        outcome = await self.handler.handle(event)
        self.reasons.append(str(outcome.reason))
        return outcome

    async def away(self) -> Unavailable | None:
        return OUTAGE if self.is_away else await self.handler.away()


@dataclass
class World:
    """The GitLab, the ingestor and its runs."""

    gitlab: GitLabStandIn
    kube: FakeKube
    gate: Gate
    url: str
    settings: Mapping[str, Any]
    notes: Notes
    stack: contextlib.ExitStack
    now: datetime = BEGIN
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    secret: str = WEBHOOK_TOKEN
    failing: int = 0

    def skip(self, **delta: float) -> None:
        """Time goes by, for GitLab and for the ingestor."""
        self.now += timedelta(**delta)

    def replay(self, *, young: float = 0, bounds: Bounds | None = None, known: Known | None = None) -> Replay:
        """What a process that has just started does about what it missed."""
        hooks, groups = Hooks(self.gitlab.url, TOKEN), GroupHooks(self.gitlab.url, TOKEN)
        lists = Lists(self.gitlab.url, TOKEN)
        for one in (hooks, groups, lists):
            self.stack.callback(one.close)
        self.registry = CollectorRegistry()
        config, workflows = configured(**self.settings)
        patience = Patience(self.gate, (0, 0))
        seen = known or Seen(self.kube, NAMESPACE, workflows, self.notes.bot_id)
        catchup = Catchup(
            lists, seen, patience, self.registry, lambda: self.now, timedelta(seconds=young), bounds or Bounds()
        )
        named, globs = exact(config.projects)
        behind = Globs(lists, lambda path: config.project(path) is not None)
        return Replay(
            *(hooks, patience, self.url, named, self.registry, lambda: self.now),
            catchup=catchup,
            groups=groups,
            globs=globs,
            behind=behind,
        )

    async def does(self, verb: str, *arguments: Any, **more: Any) -> Any:
        """Somebody does something in GitLab, which tells the hook if it does."""
        done = await asyncio.to_thread(getattr(self.gitlab.people, verb), *arguments, **more)
        assert await asyncio.to_thread(self.gitlab.hooks_wait, 20)
        return done

    async def says(self, words: str, *, user: str = "alice", iid: int = IID, project: str = APP) -> int:
        """A comment; its number."""
        return int((await self.does("comments", project, iid, user, words)).id)

    async def hooked(self, project: str = APP, **changes: Any) -> None:
        """The project gets its hook."""
        with contextlib.closing(Hooks(self.gitlab.url, TOKEN)) as hooks:
            fields = {**WANTED, "token": self.secret, **changes}
            await asyncio.to_thread(hooks.create, project, self.url, fields)

    def configure(self, **settings: Any) -> None:
        """The ingestor's configuration becomes another one."""
        self.settings = {**self.settings, **settings}
        self.gate.handler = handling(self.settings, self.notes, self.kube)

    async def disabled(self, project: str = APP, *, iid: int = IID) -> None:
        """The ingestor is away, and four comments later GitLab has disabled the hook for a minute."""
        self.gate.is_away = True
        for _ in range(4):
            self.failing += 1
            await self.says(f"words {self.failing}", iid=iid, project=project)

    async def loses_its_hook(self) -> None:
        """The project has a hook, and GitLab disables it."""
        await self.hooked()
        await self.disabled()

    async def recovers(self, **how: Any) -> Replay:
        """The ingestor is back, and done with what a process that has just started does."""
        self.gate.is_away = False
        replay = self.replay(**how)
        await replay.until_done()
        return replay

    def status(self, project: str = APP) -> str:
        """How GitLab has the hook."""
        found = self.gitlab.state.project(project)
        assert found is not None
        (hook,) = found.hooks.values()
        return hook.status(self.now)

    @property
    def runs(self) -> list[dict[str, Any]]:
        return list(self.kube.all(AGENT_RUNS))

    def kinds(self) -> Counter[str]:
        """The runs by what they were made from."""
        return Counter(run["spec"]["trigger"]["event"] for run in self.runs)

    def counted(self, event: str, result: str) -> float:
        labels = {"event": event, "result": result}
        return self.registry.get_sample_value("hummingbird_ingest_caught_up_total", labels) or 0


def handling(settings: Mapping[str, Any], notes: Notes, kube: FakeKube) -> Handler:
    """What decides, by a configuration."""
    config, workflows = configured(**settings)
    return Handler(config, workflows, notes, kube, NAMESPACE, IngestMetrics.on(), lag_seconds=0)


@contextlib.asynccontextmanager
async def living(*, settings: Mapping[str, Any] | None = None, **fixture: Any) -> AsyncIterator[World]:
    """The world, without any hook; `settings` change the configuration, `fixture` changes GitLab."""
    with contextlib.ExitStack() as stack:
        gitlab = stack.enter_context(GitLabStandIn({**sample_fixture(), **fixture}))
        notes = stack.enter_context(contextlib.closing(Notes(gitlab.url, "bot-token")))
        given = {**BASE, "gitlab": {"url": gitlab.url, "token_env": "BOT"}, "projects": {APP: {}}, **(settings or {})}
        kube = FakeKube(now=lambda: world.now)
        gate = Gate(handling(given, notes, kube))
        webhook = Webhook(gate, lambda: (WEBHOOK_TOKEN,))
        async with listening(webhook.app(), 0, host="127.0.0.1") as port:
            url = f"http://127.0.0.1:{port}{HOOK_PATH}"
            world = World(gitlab, kube, gate, url, given, notes, stack)
            gitlab.state.clock = lambda: world.now
            for project in gitlab.state.projects.values():
                for change in project.merge_requests.values():
                    old = "2030-01-01T00:00:00.000Z"
                    change.fields |= {"created_at": old, "updated_at": old}
            yield world
            await webhook.put_off.close()
