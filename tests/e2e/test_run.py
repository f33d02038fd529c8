"""One AgentRun, end to end: applied, claimed, worked on, answered in one note, saved, seen by kubectl."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import Cluster
from demo.stage import wait_for
from tests.e2e.scene import Scene, scene
from tests.standins.ministack import ministack


@pytest.fixture(scope="module")
def world(shared_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("run")
    with ministack(folder) as endpoint, scene(shared_cluster, folder, "run") as found:
        found.stage.environ |= {
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        _make_bucket(endpoint)
        found.configure(sessions={"store": "s3://hummingbird/agent", "s3_endpoint": endpoint})
        with found.stage.operator():
            found.pool_ready()
            found.run("first")
            found.finished("first")
            yield found


def _make_bucket(endpoint: str) -> None:
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id="test",
        aws_secret_access_key="test",
        region_name="us-east-1",
    )
    client.create_bucket(Bucket="hummingbird")


def test_the_run_succeeds_and_every_checkpoint_stands(world: Scene) -> None:
    conditions = world.conditions("first")
    assert conditions["Succeeded"]["reason"] == "Completed"
    for type_ in ("Accepted", "SandboxReady", "Answered", "Delivered", "SessionSaved", "Finished"):
        assert conditions[type_]["status"] == "True", type_


def test_exactly_one_note_quotes_the_true_failure(world: Scene) -> None:
    notes = world.notes()
    assert len(notes) == 1
    body = notes[0]["body"]
    assert "test_discount_is_rounded_once_on_the_whole_amount" in body
    assert "test_basket.py:20" in body
    assert "AssertionError: 189 != 179" in body
    assert f"session: {world.status('first')['session']['id']}" in body
    assert world.gitlab.state.dump()["executed"] == []


def test_the_operator_wrote_as_the_bot_and_read_as_the_reader(world: Scene) -> None:
    writers = {call.user for call in world.gitlab.calls if call.method in ("POST", "PUT", "DELETE")}
    assert writers == {"hummingbird-bot"}
    assert "hummingbird-reader" in {call.user for call in world.gitlab.calls if call.method == "GET"}


def test_status_says_what_was_in_force_and_what_it_cost(world: Scene) -> None:
    status = world.status("first")
    assert status["phase"] == "Succeeded"
    assert status["target"] == "group/app!42"
    assert status["resolved"]["model"] == "gemini-3.8-flash"
    assert status["resolved"]["limits"]["maxIterations"] == 30
    assert status["usage"]["iterations"] == 4
    assert float(status["usage"]["costUSD"]) > 0
    assert status["note"]["url"].endswith(f"#note_{status['note']['id']}")
    assert status["session"]["uri"].startswith("s3://hummingbird/agent/sessions/")
    assert "189 != 179" in status["answer"]["text"]
    assert status["answer"]["bytes"] == len(status["answer"]["text"].encode())


def test_kubectl_get_shows_the_columns(world: Scene) -> None:
    out = world.stage.kubectl("get", "agentruns", "-n", world.stage.names.runs, "-o", "wide")
    header, row = out.splitlines()[:2]
    assert header.split()[:5] == ["NAME", "WORKFLOW", "TARGET", "PHASE", "REASON"]
    assert row.split()[:5] == ["first", "analyze-failures", "group/app!42", "Succeeded", "Completed"]


def test_kubectl_describe_shows_the_events_of_the_transitions(world: Scene) -> None:
    out = world.stage.kubectl("describe", "agentrun", "first", "-n", world.stage.names.runs)
    assert "Claimed" in out
    assert "Completed" in out
    assert "answered in 4 turns" in out


def test_kubectl_wait_returns_at_once_even_after_the_ttl_was_edited(world: Scene) -> None:
    edit = '{"spec":{"ttlSecondsAfterFinished":86400}}'
    world.stage.kubectl("patch", "agentrun", "first", "-n", world.stage.names.runs, "--type=merge", "-p", edit)
    assert world.finished("first", 5)["status"] == "True"


def test_no_command_or_secret_of_the_operator_is_left_in_the_sandbox(world: Scene) -> None:
    run = world.stage.get("agentrun", "first")
    lingering = [p for p in world.pods() if p["metadata"]["labels"].get("hummingbird-project.io/role") == "lingering"]
    assert [p["metadata"]["uid"] for p in lingering] == [run["status"]["sandbox"]["uid"]]
    name = lingering[0]["metadata"]["name"]
    seen = world.stage.kubectl("exec", name, "-n", world.stage.names.sandboxes, "--", "sh", "-c", "env; ls -a /tmp")
    for secret in world.stage.environ.values():
        assert len(secret) < 8 or secret not in seen


def test_a_run_without_a_target_answers_in_its_status_only(world: Scene) -> None:
    world.run("no-target", target=None, workflow="plain", message="hello")
    assert world.finished("no-target")["reason"] == "Completed"
    assert world.conditions("no-target")["Delivered"]["reason"] == "NothingToDeliver"
    assert len(world.notes()) == 1


def test_deleting_a_finished_run_needs_no_operator_and_leaves_the_note(world: Scene) -> None:
    world.run("gone", workflow="plain", target=None)
    world.finished("gone")
    world.stage.kubectl("delete", "agentrun", "gone", "-n", world.stage.names.runs, "--timeout=10s")


def test_the_ttl_deletes_a_finished_run(world: Scene) -> None:
    # long enough for `finished` to see it: with 0 it may be gone before kubectl looks
    world.run("short-lived", workflow="plain", target=None, ttlSecondsAfterFinished=5)
    world.finished("short-lived")

    def gone() -> bool:
        left = world.stage.kubectl("get", "agentrun", "short-lived", "-n", world.stage.names.runs, "--ignore-not-found")
        return not left

    wait_for(gone, 90, lambda: "the run outlived its ttlSecondsAfterFinished", pause=1)


def test_metrics_count_the_run_and_the_loop_is_not_blocked(world: Scene, tmp_path: Path) -> None:
    with world.stage.operator("operator-1") as waiting:
        assert "hummingbird_leader 0.0" in waiting.metrics()
        assert waiting.probe("healthz") == 200


def test_the_log_is_json_and_names_the_run(world: Scene) -> None:
    lines = (world.stage.folder / "operator-0.log").read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    turns = [entry for entry in entries if entry.get("run") == "first" and "turn" in entry]
    assert [entry["turn"] for entry in turns] == [1, 2, 3, 4]
    assert not [entry for entry in entries if entry["level"] in ("ERROR", "CRITICAL")]
