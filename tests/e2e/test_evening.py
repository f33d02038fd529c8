"""An evening: people, bots and strangers act in GitLab while ingestors and operator are killed and come back.

At its end each expected AgentRun exists once, each note once, and nothing else does. Who acts and what each text means
stands in `evening/cast.py`; `evening/oracle.py` computes what must be there from the record of acts, without the
product's code. Real: the API server, the node, pods, operator, ingestors, an SQS server, every byte between them.
`--evening-events=500 --evening-kills=12` is the long form.
"""

from __future__ import annotations

import random
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from cluster import Cluster
from demo.processes import free_port
from demo.stage import MODEL_KEY, Names, Stage, wait_for
from hummingbird_ai.testing import GeminiServer
from tests.e2e.evening import cast, model, oracle
from tests.e2e.evening.people import Evening
from tests.e2e.evening.table import table
from tests.e2e.evening.troupe import Troupe
from tests.e2e.evening.verdict import Found, Verdict, of_gitlab, standing
from tests.e2e.evening.wires import REGION, Queue, Wires
from tests.e2e.scene import Scene
from tests.standins.gitlab import GitLabStandIn
from tests.standins.ministack import ministack

LONG_FROM = 300
"""Events from which there are two ingestors of each kind."""
PAUSE_SECONDS, SHORT_PAUSE_SECONDS = 0.3, 0.15
"""Between two acts, on average; the second where there are few events."""
KILLED_UNTIL = 0.7
"""Part of the evening in which somebody may die."""
SETTLED_SECONDS = 240.0
"""For what a dead ingestor held (30 s), a placeholder of a dead operator (60 s), and what is still to be answered."""
SANDBOXES_SECONDS = 30.0
ROLE = "hummingbird-project.io/role"
AGAIN = 0.3
"""Part of all events that comes once more when everything is done."""
VISIBILITY_SECONDS = 30
POOL = {"replicas": 3, "maxSandboxes": 8, "linger": {"seconds": 10, "max": 2}}


@dataclass
class House:
    """Where the evening takes place."""

    world: Scene
    queue: Queue
    ports: tuple[int, ...]
    seed: int

    def runs(self) -> dict[str, Found]:
        """All AgentRuns now."""
        return {run.name: run for run in map(Found, self.world.stage.get("agentruns")["items"])}


def numbers(request: pytest.FixtureRequest) -> tuple[int, int, int]:
    """Events, kills and the seed."""
    events, kills, seed = (request.config.getoption(f"--evening-{name}") for name in ("events", "kills", "seed"))
    return int(events), int(kills), int(seed)


@pytest.fixture
def house(
    shared_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[House]:
    events, _, seed = numbers(request)
    ports = tuple(free_port() for _ in range(2 if events >= LONG_FROM else 1))
    folder = tmp_path_factory.mktemp("evening")
    with ExitStack() as stack:
        gitlab = stack.enter_context(GitLabStandIn(cast.fixture(hooks(ports))))
        endpoint = stack.enter_context(ministack(folder))
        queue = Queue(endpoint)
        name = f"hbtest-evening-{secrets.token_hex(3)}"
        names = Names(name, f"{name}-sandboxes")
        world = Scene(Stage(shared_cluster, folder, names, cast.environment()), gitlab, model.answer)
        world.gemini = stack.enter_context(GeminiServer(world.answer, api_key=MODEL_KEY))
        ingest = {
            "queue_url": queue.url,
            "sqs_endpoint": endpoint,
            "sqs_region": REGION,
            "visibility_seconds": VISIBILITY_SECONDS,
            "webhook_url": address(ports[0]),
        }
        config = cast.configuration(gitlab.url, world.gemini.url, str(folder), names.sandboxes, ingest)
        world.stage.configure(yaml.safe_dump(config))
        world.stage.install(pool=POOL)
        stack.callback(world.stage.uninstall)
        yield House(world, queue, ports, seed)


def address(port: int) -> str:
    return f"http://127.0.0.1:{port}/webhooks/gitlab"


def hooks(ports: tuple[int, ...]) -> dict[str, list[dict[str, Any]]]:
    """The first ingestor has a hook with a token in every project, the second a signed one where it may miss some."""
    flags = dict.fromkeys(cast.HOOK_FLAGS, True)
    opens = ({"token": cast.TOKEN_SECRET}, {"signing_token": cast.SIGNING_SECRET})
    made = [{"url": address(port), **flags, **secret} for port, secret in zip(ports, opens, strict=False)]
    return {path: made[:1] if path in cast.BY_HOOK_ONLY else made for path in cast.IDS}


@pytest.mark.timeout(1500)
def test_an_evening_with_deaths_leaves_each_run_and_each_note_once(
    house: House, request: pytest.FixtureRequest
) -> None:
    events, kills, seed = numbers(request)
    gitlab, began = house.world.gitlab, time.monotonic()
    evening = Evening(gitlab, seed)
    with (
        Wires(house.queue, house.ports, seed + 1) as wires,
        Troupe(house.world, house.ports, queues=len(house.ports), seed=seed + 2) as troupe,
    ):
        gitlab.on_event(wires.take)
        evening.prepare()
        spend(evening, troupe, events, kills, random.Random(seed + 3))  # noqa: S311 - reproducible, not secret
        troupe.settle()
        acted = time.monotonic()
        settle(house, evening, wires, troupe)
        log = gitlab.events
        wires.again(random.Random(seed + 4).sample(log, int(AGAIN * len(log))))  # noqa: S311
        settle(house, evening, wires, troupe)
        wait_for(lambda: not held(house.world), SANDBOXES_SECONDS, lambda: f"sandboxes held: {held(house.world)}")
        assert troupe.fault is None
    heads = {act.mr.place: act.mr for happening in evening.story() if (act := happening.act) and act.mr}
    judged = Verdict(oracle.expected(evening.story()), house.runs(), standing(gitlab), heads)
    problems = [*judged.judge(), *of_gitlab(gitlab)]
    print(f"\nseed {seed}: {evening.events} events of people ({words(evening.done)})")
    kinds = Counter(happening.kind for happening in evening.story() if happening.act)
    print(f"{words(kinds)}; with the bot's {len(log)} events; sent besides by hooks: {words(wires.sent)}")
    print(
        f"{sum(troupe.deaths.values())} kills: {words(Counter(troupe.deaths))}; of them {words(Counter(troupe.points))}"
    )
    print(f"{acted - began:.0f} s of evening, {time.monotonic() - acted:.0f} s until all was done")
    print(table(judged))
    assert not problems, "\n".join(problems)
    assert not troupe.falls, "\n".join(troupe.falls)


def spend(evening: Evening, troupe: Troupe, events: int, kills: int, draw: random.Random) -> None:
    """Acts until there were so many events, and kills among them, everybody in turn."""
    names = [list(troupe.parts)[number % len(troupe.parts)] for number in range(kills)]
    moments = sorted(draw.randint(0, int(events * KILLED_UNTIL)) for _ in names)
    draw.shuffle(names)
    due = list(zip(moments, names, strict=True))
    pause = PAUSE_SECONDS if events >= LONG_FROM else SHORT_PAUSE_SECONDS
    while evening.events < events:
        evening.act()
        while due and due[0][0] <= evening.events:
            troupe.kill(due.pop(0)[1])
        time.sleep(draw.expovariate(1 / pause))


def settle(house: House, evening: Evening, wires: Wires, troupe: Troupe) -> None:
    """Wait until nothing is under way: no event, no run that must come, none at work."""

    def missing() -> list[str]:
        if not (wires.idle and house.world.gitlab.hooks_wait(0.1)) or house.queue.left():
            return ["events are under way"]
        runs = house.runs()
        wanted = [one.name for one in oracle.expected(evening.story()).values() if not one.optional]
        return [name for name in wanted if name not in runs] + [run.name for run in runs.values() if not run.reason]

    wait_for(
        lambda: not missing(),
        SETTLED_SECONDS,
        lambda: f"left: {missing()}\n{troupe.log()}",
        pause=1.0,
    )


def held(world: Scene) -> list[str]:
    """Sandboxes that some run has still, though all have ended."""
    return [pod["metadata"]["name"] for pod in world.pods() if pod["metadata"]["labels"].get(ROLE) == "active"]


def words(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.most_common())
