"""Events come while the API server, or GitLab's API, is away: each gets its one AgentRun and its one note afterwards.

Three ways in at once: the queue, a webhook that has a queue to hand over to, and one that has none, whose 503s are
replayed from GitLab's list. To the last one GitLab sends one comment never, for it has disabled the hook by then.
`--outage-seconds=60` makes a minute of each kind.
"""

from __future__ import annotations

import json
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
import yaml

from cluster import Cluster
from demo import threads
from demo.processes import Operator, free_port, wait_for
from hummingbird_ai.testing.replies import say
from hummingbird_operator.ingest.event import Event, encode_envelope
from tests.e2e.scene import Scene, scene
from tests.e2e.survival import merge_request_of
from tests.e2e.talk import SECRET, set_up_hooks
from tests.e2e.test_outages import S3, place, pytest_generate_tests
from tests.standins.door import Door
from tests.standins.gitlab import Emitted
from tests.standins.gitlab.records import Hook
from tests.standins.ministack import ministack

__all__ = ["pytest_generate_tests"]

WAYS = {"group/queue": 20, "group/handed": 30, "group/replayed": 40}
"""Projects by the way that their events take, with their numbers."""
HOOKED = ("group/handed", "group/replayed")
ASKERS = [f"asker-{number}" for number in range(4)]
EACH = 3
"""Events by each way in an outage: GitLab disables a hook after the fourth failure, and tells it nothing more."""
TWICE = 6
"""Comments that come by two ways at once."""
RECEIVES = "2"
"""Receipts after which a message is given up: an outage may use up none."""

Record = Callable[[str, object], None]


@dataclass
class World:
    """A scene, its processes, the doors in front of what goes away, and the queue."""

    scene: Scene
    doors: dict[str, Door]
    processes: list[Operator]
    sqs: Any
    queue: str
    dead: str
    used: int = 0
    outages: int = 0
    never_sent: int = 0
    """The note of the latest outage that no hook was told of."""
    twice: str = ""
    """A project with a hook whose events the forwarder sends as well."""

    def forward(self, event: Emitted) -> None:
        """What a forwarder does with the events of the project that has no hook."""
        if event.project in ("group/queue", self.twice):
            body = encode_envelope(Event("gitlab", event.kind, event.payload, ""), now=datetime.now(UTC))
            self.sqs.send_message(QueueUrl=self.queue, MessageBody=body)

    def left(self, queue: str) -> int:
        """Messages of the queue, those in somebody's hands included."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=names)["Attributes"]
        return sum(int(found[name]) for name in names)

    def comment(self) -> dict[int, str]:
        """A command by each way, on merge requests that nobody used yet; the ways by merge request.

        In each outage by somebody else: who was looked up a minute ago would be let in without GitLab.
        """
        made = {100 + self.used + number: project for number, project in enumerate(WAYS)}
        self.used += len(made)
        for iid, project in made.items():
            self.scene.gitlab.people.comments(project, iid, ASKERS[self.outages - 1], "/hummingbird plain why?")
        return made

    def unsent(self, project: str) -> tuple[int, int]:
        """A command that GitLab tells nobody, as after one more failure of the hook; its merge request and its note."""
        hook, gitlab = self.hook(project), self.scene.gitlab
        with gitlab.state.lock:
            while hook.status(gitlab.state.clock()) == "executable":
                gitlab.state.deliveries.breaks(hook)
        iid = 100 + self.used
        self.used += 1
        note = gitlab.people.comments(project, iid, ASKERS[self.outages - 1], "/hummingbird plain why?")
        return iid, note.id

    def hook(self, project: str) -> Hook:
        """The project's."""
        found = self.scene.gitlab.state.project(project)
        assert found is not None
        (hook,) = found.hooks.values()
        return hook

    def answers(self, project: str) -> list[str]:
        """The status of each delivery of the project's hook, oldest first."""
        return [row["response_status"] for row in self.hook(project).log]

    def notes(self, iid: int, project: str) -> list[str]:
        """What the bot wrote there."""
        return [
            said.words for said in threads.read(self.scene.gitlab, project, iid) if said.author == "hummingbird-bot"
        ]

    def calls(self, iid: int) -> int:
        """How often the model was asked about it."""
        return sum(merge_request_of(call.body) == iid for call in self.scene.gemini.calls)

    def alive(self) -> None:
        """No process has died, and none wants to be restarted or to get no more requests."""
        for process in self.processes:
            assert process.process.poll() is None, process.tail()
            assert process.probe("healthz") == 200, process.tail()


@pytest.fixture(scope="module")
def world(shared_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("ingest-outage")
    pool = {"replicas": 3, "maxSandboxes": 8, "linger": {"seconds": 0, "max": 0}}
    with ExitStack() as stack, pytest.MonkeyPatch.context() as environ:
        for name, value in S3.items():
            environ.setenv(name, value)
        endpoint = stack.enter_context(ministack(folder))
        made = stack.enter_context(scene(shared_cluster, folder, f"inaway-{secrets.token_hex(2)}", pool=pool))
        sqs = boto3.client("sqs", endpoint_url=endpoint)
        dead = sqs.create_queue(QueueName="dead")["QueueUrl"]
        arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        redrive = f'{{"deadLetterTargetArn":"{arn}","maxReceiveCount":"{RECEIVES}"}}'
        queue = sqs.create_queue(QueueName="events", Attributes={"RedrivePolicy": redrive})["QueueUrl"]
        doors = {
            "the API server": behind_door(made, stack),
            "GitLab": stack.enter_context(Door(place(made.gitlab.url))),
        }
        made.script = lambda body, _: say(f"the answer of {merge_request_of(body)}")
        found = World(made, doors, [], sqs, queue, dead)
        populate(made)
        made.stage.environ |= {**S3, "HOOK_SECRET": SECRET, "MAINTAINER": "maintainer-token"}
        made.gitlab.on_event(found.forward)
        for way, queued in (("group/replayed", None), ("group/handed", queue)):
            port = configured(found, endpoint, queued)
            set_up_hooks(made, way)
            found.processes.append(stack.enter_context(made.ingesting("webhook", f"ingest-{way[6:]}", port=port)))
        found.processes.append(stack.enter_context(made.ingesting("sqs")))
        found.processes.append(stack.enter_context(made.stage.operator()))
        made.pool_ready()
        yield found
        for door in doors.values():
            door.open()


def populate(made: Scene) -> None:
    """A project for each way, all with the same people and merge requests."""
    rows = [{"iid": iid, "sha": "4be1c0de" * 5, "author": {"id": 7, "username": "alice"}} for iid in range(90, 180)]
    askers = [{"id": 50 + number, "username": name} for number, name in enumerate(ASKERS)]
    members = {"1": 30, "2": 20, "7": 30, "9": 40} | {str(each["id"]): 30 for each in askers}
    projects = [{"id": n, "path": path, "members": members, "merge_requests": rows} for path, n in WAYS.items()]
    maya = {"id": 9, "username": "maya", "tokens": {"maintainer-token": ["api"]}}
    made.gitlab.state.load({"users": [maya, *askers], "projects": projects})


def behind_door(made: Scene, stack: ExitStack) -> Door:
    """Have operator and ingestors talk to the API server through a door."""
    door: Door | None = None
    for account in ("hummingbird-operator", "hummingbird-ingest"):
        path = made.stage._service_account(account)
        config = yaml.safe_load(path.read_text())
        cluster = config["clusters"][0]["cluster"]
        door = door or stack.enter_context(Door(place(cluster["server"])))
        cluster["server"] = f"https://127.0.0.1:{door.port}"
        path.write_text(yaml.safe_dump(config))
    assert door is not None
    return door


def configured(world: World, endpoint: str, queue: str | None) -> int:
    """Write the configuration of the next processes; the port of their webhook."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/webhooks/gitlab"
    world.scene.configure(
        gitlab={
            "url": world.doors["GitLab"].url,
            "webhook_secret_env": ["HOOK_SECRET"],
            "hooks_token_env": "MAINTAINER",
        },
        ingest={"queue_url": queue, "sqs_endpoint": endpoint, "webhook_url": url, "visibility_seconds": 30},
        projects={"group/app": None, **{path: {} for path in WAYS}},
        limits={"retry_seconds": 600, "max_concurrent_runs": 10},
    )
    return port


@pytest.mark.timeout(600)
@pytest.mark.parametrize("service", ["the API server", "GitLab"])
def test_what_comes_while_it_is_away_is_answered_once_when_it_is_back(
    world: World, service: str, kind: str, request: pytest.FixtureRequest, record_property: Record
) -> None:
    seconds = float(request.config.getoption("--outage-seconds", 15.0))
    before = {project: len(world.answers(project)) for project in HOOKED}
    made = away(world, service, kind, seconds)
    for project, took in recovered(world, made).items():
        told = Counter(world.answers(project)[before[project] :]) if project in HOOKED else ""
        print(
            f"\n{service} {kind} for {seconds:.0f} s: {project}'s {EACH} answered {took:.1f} s after it {told}", end=""
        )
    wait_for(lambda: world.left(world.queue) == 0, 60, lambda: f"messages are left\n{world.scene.log()}")
    again = before["group/replayed"]
    wait_for(lambda: "200" in world.answers("group/replayed")[again:], 60, lambda: f"disabled\n{world.scene.log()}")
    assert world.scene.gitlab.hooks_wait(60)
    once(world, made)
    assert world.left(world.dead) == 0
    world.alive()
    handed, replayed = (Counter(world.answers(project)[before[project] :]) for project in HOOKED)
    assert set(handed) == {"200", "202"}
    assert set(replayed) == {"200", "503"}
    sent = [row["request_data"].get("object_attributes", {}).get("id") for row in world.hook("group/replayed").log]
    assert world.never_sent not in sent


def recovered(world: World, made: dict[int, str]) -> dict[str, float]:
    """Seconds until all events that came by a way were answered."""
    back, took = time.monotonic(), dict.fromkeys(WAYS, 0.0)

    def look() -> bool:
        left = unanswered(world, made)
        took.update({made[iid]: time.monotonic() - back for iid in left})
        return not left

    wait_for(look, 180, lambda: f"{unanswered(world, made)}\n{world.scene.log()}")
    return took


def away(world: World, service: str, kind: str, seconds: float) -> dict[int, str]:
    """The outage, and the events that came in it, spread over its length."""
    door, began = world.doors[service], time.monotonic()
    made: dict[int, str] = {}
    world.outages += 1
    try:
        door.stall() if kind.startswith("stalled") else door.shut()
        for number in range(EACH):
            made |= world.comment()
            while time.monotonic() - began < seconds * (number + 1) / EACH:
                world.alive()
                if kind.endswith("then shut") and time.monotonic() - began > seconds / 2:
                    door.shut()
                time.sleep(0.2)  # the outage lasts as long as it lasts
        iid, world.never_sent = world.unsent("group/replayed")
        made[iid] = "group/replayed"
        assert [world.notes(iid, project) for iid, project in made.items()] == [[]] * len(made)
        assert world.left(world.queue) >= EACH
    finally:
        door.open()
    return made


def unanswered(world: World, made: dict[int, str]) -> list[int]:
    """Merge requests that have no answer yet."""
    return [
        iid
        for iid, project in made.items()
        if not any(words.startswith(f"the answer of {iid}") for words in world.notes(iid, project))
    ]


def once(world: World, made: dict[int, str]) -> None:
    """One AgentRun, one note, one call of the model for each event."""
    runs = world.scene.stage.get("agentruns")["items"]
    targets = [run["spec"]["target"]["gitlab"] for run in runs]
    for iid, project in made.items():
        assert sum(target["mergeRequest"] == iid and target["project"] == project for target in targets) == 1
        assert len(world.notes(iid, project)) == 1
        assert world.calls(iid) == 1


def test_what_comes_by_queue_and_by_webhook_at_once_is_answered_once(world: World) -> None:
    world.twice = "group/handed"
    made = {90 + number: world.twice for number in range(TWICE)}
    for iid in made:
        world.scene.gitlab.people.comments(world.twice, iid, "alice", "/hummingbird plain why?")
    wait_for(lambda: not unanswered(world, made), 120, world.scene.log)
    wait_for(lambda: world.left(world.queue) == 0, 60, world.scene.log)
    once(world, made)
    found = world.scene.gitlab.state.project(world.twice)
    assert found is not None
    (hook,) = found.hooks.values()
    answers = [json.loads(row["response_body"]) for row in hook.log]
    names = {run["metadata"]["name"] for run in world.scene.stage.get("agentruns")["items"]}
    reasons = Counter(answer["reason"] for answer in answers if names.intersection(answer["runs"]))
    print(f"\n{TWICE} comments by both ways at once, what the webhook made of its copy: {dict(reasons)}", end="")
    assert set(reasons) <= {"fired", "duplicate"}
    world.twice = ""
