"""Bad input and bad services: what a person sees, and that nothing is half done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cluster import Cluster
from hummingbird_ai.testing.replies import HALF_BODY, HTML_PAGE, Body, HttpError, Reply, say
from tests.e2e.scene import Scene, scene


@pytest.fixture(scope="module")
def world(shared_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    pool = {"replicas": 2, "linger": {"seconds": 0, "max": 0}}
    with scene(shared_cluster, tmp_path_factory.mktemp("refusals"), "refusals", pool=pool) as found:
        found.stage.environ["HALF_TOKEN"] = ""
        projects = {
            "group/app": {"tokens": {"gitlab": "READ_TOKEN"}},
            "group/tokenless": {},
            "group/half": {"tokens": {"gitlab": "HALF_TOKEN"}},
        }
        found.configure(projects=projects)
        with found.stage.operator():
            yield found


def project(path: str, number: int = 42) -> dict[str, Any]:
    return {"gitlab": {"project": path, "mergeRequest": number}}


@pytest.mark.parametrize(
    ("name", "spec", "said"),
    [
        (
            "unknown-workflow",
            {"workflow": "analyse"},
            "spec.workflow: there is no workflow 'analyse'; the configuration has: analyze-failures, plain",
        ),
        (
            "foreign-project",
            {"target": project("other/app")},
            "spec.target.gitlab.project: other/app is not allowed; projects in the operator's configuration: group/app",
        ),
        ("no-such-mr", {"target": project("group/app", 4711)}, "merge request group/app!4711 is not there, or the bot"),
        ("no-token", {"target": project("group/tokenless")}, "projects.group/tokenless.tokens.gitlab: workflow"),
        ("empty-token", {"target": project("group/half")}, "the environment variable HALF_TOKEN is not set or empty"),
        ("wrong-backend", {"sandbox": {"backend": "kubevirt"}}, "spec.sandbox.backend: kubevirt is not served"),
        ("wrong-model", {"model": "gpt-9"}, "'gpt-9' is not a model this version can call: a name begins with"),
        ("no-release", {"model": "claude-haiku-4-5"}, "Vertex AI knows it by its release only"),
        ("no-pool", {"workflow": "plain", "sandbox": {"pool": "absent"}}, "absent"),
    ],
)  # fmt: skip
def test_a_run_that_cannot_be_carried_out_ends_invalid_with_the_field(
    world: Scene, name: str, spec: dict[str, Any], said: str
) -> None:
    world.run(name, **spec)
    succeeded = world.finished(name, 30)
    assert (succeeded["status"], succeeded["reason"]) == ("False", "Invalid")
    assert said in succeeded["message"]
    assert "Invalid" in world.stage.kubectl("describe", "agentrun", name, "-n", world.stage.names.runs)


@pytest.mark.parametrize(
    ("name", "reply", "said"),
    [
        ("model-429", HttpError(429, "Resource exhausted, please try again later.", "RESOURCE_EXHAUSTED"), "429"),
        ("model-500", HttpError(500, "An internal error has occurred.", "INTERNAL"), "500"),
        ("model-empty-body", Body(b""), ""),
        ("model-half-a-body", HALF_BODY, ""),
        ("model-html", HTML_PAGE, ""),
    ],
)
def test_a_model_that_keeps_failing_is_named_in_status_and_note(
    world: Scene, name: str, reply: Reply, said: str
) -> None:
    before = len(world.notes())
    world.script = lambda body, n: reply
    world.run(name, workflow="plain")
    succeeded = world.finished(name, 60)
    assert (succeeded["status"], succeeded["reason"]) == ("False", "ModelError")
    assert said in succeeded["message"]
    assert "failed" in world.notes()[before]["body"]
    assert len(world.notes()) == before + 1


@pytest.mark.parametrize("reply", [HttpError(503), HALF_BODY, Body(b"")], ids=["503", "half-a-body", "empty-body"])
def test_a_model_that_fails_once_is_asked_again(world: Scene, reply: Reply, request: pytest.FixtureRequest) -> None:
    name = f"recovers-{request.node.callspec.id}"
    failed: list[int] = []

    def once(body: dict[str, Any], n: int) -> Reply:
        if not failed:
            failed.append(n)
            return reply
        return say("here is the answer")

    world.script = once
    world.run(name, workflow="plain", target=None)
    assert world.finished(name, 60)["reason"] == "Completed"


def test_a_broken_configuration_stops_the_operator_with_file_and_key(world: Scene) -> None:
    path = world.stage.folder / "config.yaml"
    good = path.read_text()
    try:
        path.write_text(good + "\nlimts: {}\n")
        operator = world.stage.start("operator-broken")
        assert operator.process.wait(30) == 2
        assert f"{path}: limts: is not a field; did you mean limits?" in operator.tail()
    finally:
        path.write_text(good)


def test_a_missing_secret_stops_the_operator_with_the_variable(world: Scene) -> None:
    token = world.stage.environ.pop("GITLAB_TOKEN")
    try:
        operator = world.stage.start("operator-no-secret")
        assert operator.process.wait(30) == 2
        assert "gitlab.token_env: the environment variable GITLAB_TOKEN is not set or empty" in operator.tail()
    finally:
        world.stage.environ["GITLAB_TOKEN"] = token
