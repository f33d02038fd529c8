"""A second run goes on where the first one stopped: from the sandbox that still lingers, and from the archive."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cluster import Cluster
from hummingbird_ai.testing.replies import Answer, Reply, say
from tests.e2e.scene import Scene, scene

FILE = "/tmp/data/remember.txt"


def agent(body: dict[str, Any], _: int) -> Reply:
    """Writes a file in the first run; in a later one it reads the file and tells what it saw of the conversation."""
    contents = body["contents"]
    texts = [part["text"] for content in contents for part in content["parts"] if "text" in part]
    results = [
        part["functionResponse"] for content in contents for part in content["parts"] if "functionResponse" in part
    ]
    asked = len([text for text in texts if "why only arm64" in text])
    wanted = 2 if asked else 1
    if len(results) < wanted:
        command = f"cat {FILE}; hostname" if asked else f"mkdir -p /tmp/data && echo the-answer-is-42 > {FILE}"
        return Answer(calls=(("sandbox_exec", {"command": command}),))
    if not asked:
        return say("first answer: I wrote the file")
    seen = any("first answer" in text for text in texts)
    return say(f"earlier answer seen: {seen}; file: {results[-1]['response']}")


@pytest.fixture(scope="module")
def world(shared_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    pool = {"replicas": 1, "maxSandboxes": 5, "linger": {"seconds": 60, "max": 2}}
    with scene(shared_cluster, tmp_path_factory.mktemp("sessions"), "sessions", pool=pool) as found:
        found.script = agent
        with found.stage.operator():
            yield found


def first(world: Scene, name: str) -> str:
    world.run(name)
    assert world.finished(name)["reason"] == "Completed"
    return str(world.status(name)["session"]["id"])


def test_a_reply_finds_the_lingering_sandbox_with_its_files_and_the_earlier_conversation(world: Scene) -> None:
    session = first(world, "one")
    world.run("one-reply", session=session, message="why only arm64?")
    assert world.finished("one-reply")["reason"] == "Completed"
    assert world.conditions("one-reply")["SandboxReady"]["reason"] == "Reclaimed"
    assert world.status("one-reply")["sandbox"]["uid"] == world.status("one")["sandbox"]["uid"]
    text = world.status("one-reply")["answer"]["text"]
    assert "earlier answer seen: True" in text
    assert "the-answer-is-42" in text
    reply_note = world.notes()[-1]["body"]
    assert "the-answer-is-42" in reply_note
    assert "files are kept" not in reply_note


def test_after_the_sandbox_is_gone_the_files_come_back_from_the_archive(world: Scene) -> None:
    session = first(world, "two")
    pod = world.status("two")["sandbox"]["name"]
    world.stage.kubectl(
        "delete", "pod", pod, "-n", world.stage.names.sandboxes, "--wait=true", "--grace-period=0", "--force"
    )
    world.run("two-reply", session=session, message="why only arm64?")
    assert world.finished("two-reply")["reason"] == "Completed"
    assert world.conditions("two-reply")["SandboxReady"]["reason"] in ("Claimed", "ColdStarted")
    assert world.status("two-reply")["sandbox"]["uid"] != world.status("two")["sandbox"]["uid"]
    text = world.status("two-reply")["answer"]["text"]
    assert "earlier answer seen: True" in text
    assert "the-answer-is-42" in text


def test_a_session_that_does_not_exist_is_said_and_nothing_starts_cold(world: Scene) -> None:
    world.run("lost", session="00000000-0000-4000-8000-000000000000", message="why only arm64?")
    assert world.finished("lost")["reason"] == "SessionNotFound"
    assert (
        "there is no session 00000000-0000-4000-8000-000000000000" in world.conditions("lost")["Succeeded"]["message"]
    )


def test_a_session_belongs_to_its_workflow_and_its_target(world: Scene) -> None:
    session = first(world, "three")
    world.run("three-other", session=session, message="why only arm64?", workflow="plain")
    assert world.finished("three-other")["reason"] == "Invalid"
    assert "belongs to the workflow analyze-failures" in world.conditions("three-other")["Succeeded"]["message"]
    world.run("three-nowhere", session=session, message="why only arm64?", target=None)
    assert world.finished("three-nowhere")["reason"] == "Invalid"
    assert "another namespace or target" in world.conditions("three-nowhere")["Succeeded"]["message"]
