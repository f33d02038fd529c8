"""`ingest webhook` as a real process with its own Role, on a real API server, killed while GitLab sends to it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest

from cluster import Cluster
from demo.processes import Ingestor, free_port, wait_for
from demo.stage import BOT_TOKEN
from hummingbird_operator.ingest.hooks.hooks import WANTED, Hooks
from tests.e2e.scene import Scene, scene
from tests.standins.gitlab.records import Project

APP = "group/app"
SECRET = "whsec_aGVyZSBhcmUgdGhpcnR5LXR3byBieXRlcyBvZiBhIGs="
ROUNDS, COMMENTS = 4, 6


@dataclass
class Door:
    """A scene whose GitLab has a hook that sends to one port, where a process may listen."""

    world: Scene
    port: int

    def listen(self) -> Ingestor:
        """The process, once it is Ready."""
        made = self.world.stage.ingest("webhook", "ingest-webhook", port=self.port)
        made.wait_until_ready()
        return made

    def says(self, words: str) -> int:
        """Alice comments; the id of her note."""
        return int(self.world.gitlab.people.comments(APP, 42, "alice", words).id)

    def noted(self) -> list[int]:
        """The notes that AgentRuns were made of."""
        runs: list[dict[str, Any]] = self.world.stage.get("agentruns")["items"]
        return sorted(run["spec"]["trigger"]["noteId"] for run in runs)

    def sent(self) -> set[int]:
        """The notes that GitLab sent, whatever was answered."""
        (hook,) = self.project.hooks.values()
        notes = (row["request_data"] for row in hook.log if row["request_data"]["object_kind"] == "note")
        return {int(payload["object_attributes"]["id"]) for payload in notes}

    @property
    def project(self) -> Project:
        """GitLab's own record."""
        found = self.world.gitlab.state.project(APP)
        assert found is not None
        return found


@pytest.fixture(scope="module")
def door(shared_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with scene(shared_cluster, tmp_path_factory.mktemp("webhook"), "webhook") as world:
        found = Door(world, free_port())
        url = f"http://127.0.0.1:{found.port}/webhooks/gitlab"
        world.stage.environ["SECRET"] = SECRET
        gitlab = {"hooks_token_env": "GITLAB_TOKEN", "webhook_secret_env": ["SECRET"]}
        world.configure(gitlab=gitlab, ingest={"webhook_url": url})
        found.project.members[1] = 40  # the bot is a Maintainer here, and its token serves for hooks
        with closing(Hooks(world.gitlab.url, BOT_TOKEN)) as hooks:
            hooks.create(APP, url, {**WANTED, "signing_token": SECRET})
        yield found


def test_every_comment_has_its_run_once_although_the_process_is_killed_again_and_again(door: Door) -> None:
    """GitLab sends each event once, and none while it has the hook disabled: those are found in its lists."""
    ingestor, wanted = door.listen(), []
    try:
        for number in range(ROUNDS):
            for each in range(COMMENTS):
                wanted.append(door.says(f"/hummingbird plain {number} {each}"))
                if each == COMMENTS // 2:
                    ingestor.kill()  # some are on their way, the rest meets nobody
            assert door.world.gitlab.hooks_wait(60)
            ingestor = door.listen()
        assert door.sent() < set(wanted), "the hook was never disabled: nothing was lost to it"
        wait_for(
            lambda: set(door.noted()) >= set(wanted),
            60,
            lambda: f"{set(wanted) - set(door.noted())}:\n{ingestor.tail()}",
        )
        assert door.noted() == sorted(wanted), "each has one run, and nothing else has one"
    finally:
        ingestor.stop()
    assert ingestor.process.returncode == 0


def test_its_role_lets_it_make_runs_and_nothing_else(door: Door) -> None:
    stage, agentruns = door.world.stage, "agentruns.hummingbird-project.io"
    user = f"--as=system:serviceaccount:{stage.names.runs}:hummingbird-ingest"

    def may(verb: str, what: str, namespace: str = stage.names.runs) -> str:
        return stage.kubectl("auth", "can-i", verb, what, "-n", namespace, user, check=False).strip().splitlines()[-1]

    assert [may(verb, agentruns) for verb in ("create", "get", "list")] == ["yes"] * 3
    assert [may(verb, agentruns) for verb in ("delete", "patch", "update", "watch")] == ["no"] * 4
    assert [may("get", kind) for kind in ("secrets", "configmaps", "pods")] == ["no"] * 3
    assert may("create", "pods", stage.names.sandboxes) == "no"


def test_a_comment_has_its_run_before_gitlab_stops_to_wait(door: Door) -> None:
    ingestor = door.listen()
    try:
        began, note = time.monotonic(), door.says("/hummingbird plain how long?")
        wait_for(lambda: note in door.noted(), 10, ingestor.tail)
        print(f"from a comment to its AgentRun, kubectl's own time included: {time.monotonic() - began:.2f} s")
    finally:
        ingestor.stop()
