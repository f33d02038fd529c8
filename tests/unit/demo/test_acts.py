"""What the demo says when an act does not come out: nothing passes that did not happen."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster import Cluster
from demo import evidence
from demo.acts import APP, EXAMPLE, IID, Play, Unexpected
from demo.processes import Operator, free_port
from demo.stage import Names, Stage
from tests.standins.gitlab import GitLabStandIn

CLUSTER = Cluster(Path("/nowhere/kubeconfig"), "kubeconfig", "", Path("/nowhere/kubectl"), "")


class Runs(Stage):
    """A stage whose API server takes every order and has one AgentRun, with the outcome that a test gives it."""

    outcome: dict[str, str]

    def kubectl(self, *arguments: str, stdin: str = "", check: bool = True, timeout: float = 120) -> str:
        return ""

    def get(self, kind: str, name: str = "", namespace: str = "", selector: str = "") -> dict[str, Any]:
        conditions = [{"type": "Finished", "status": "True"}, {"type": "Succeeded", **self.outcome}]
        return {"status": {"conditions": conditions if self.outcome else [], "usage": {"costUSD": "0.5"}}}


@pytest.fixture
def gitlab() -> Iterator[GitLabStandIn]:
    data = evidence.fixture(evidence.Evidence("it fails", 1), bot="b", reader="r")
    hook = {"url": f"http://127.0.0.1:{free_port()}/", "pipeline_events": True}
    data["projects"][0] |= {"visibility": "public", "hooks": [hook]}
    with GitLabStandIn(data) as running:
        yield running


@pytest.fixture
def played(gitlab: GitLabStandIn, tmp_path: Path) -> Iterator[Play]:
    log = tmp_path / "operator-0.log"
    log.write_text('{"run": "why-did-it-fail", "turn": 1, "message": "turn 1: stop"}\n{"run": "ot')
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        stage = Runs(CLUSTER, tmp_path, Names("runs", "sandboxes"))
        yield Play(stage, gitlab, Operator(process, log, 0))
        process.kill()


def by_hand(played: Play, **outcome: str) -> str:
    assert isinstance(played.stage, Runs)
    played.stage.outcome = outcome
    with pytest.raises(Unexpected) as failed:
        played.somebody_uses_kubectl()
    return str(failed.value)


def test_an_event_that_reaches_nobody_is_told_with_what_gitlab_heard(played: Play) -> None:
    with pytest.raises(Unexpected, match=r"Pipeline Hook failed \(not signed\) and hears internal error"):
        played.a_pipeline_fails()
    assert "pipeline" in played.act


def test_a_run_that_ends_otherwise_is_told_with_reason_message_and_cost(played: Play) -> None:
    said = by_hand(played, status="False", reason="BudgetExhausted", message="no money is left")
    assert said == "AgentRun why-did-it-fail ended BudgetExhausted: no money is left"
    assert played.spent == [0.5]


def test_a_run_that_was_skipped_or_left_no_note_is_no_success(played: Play, capsys: pytest.CaptureFixture[str]) -> None:
    assert "ended AlreadyReviewed" in by_hand(played, status="True", reason="AlreadyReviewed")
    assert "there should be one more note of hummingbird-bot" in by_hand(played, status="True", reason="Completed")
    assert "  turn 1: stop\n" in capsys.readouterr().out


def test_before_the_first_cost_of_a_script_it_is_said_that_nobody_pays_it(
    played: Play, capsys: pytest.CaptureFixture[str]
) -> None:
    played.scripted = True
    for _ in range(2):
        by_hand(played, status="True", reason="Completed")
    said = capsys.readouterr().out
    assert said.count("nobody pays them") == 1
    assert said.index("nobody pays them") < said.index("turn 1")


def test_an_operator_that_dies_is_told_with_the_end_of_its_log(played: Play) -> None:
    played.operator.process.kill()
    played.operator.process.wait()
    said = by_hand(played)
    assert said.startswith("the operator ended with -9")
    assert "turn 1: stop" in said


def test_a_guest_that_is_answered_is_a_failure(played: Play, gitlab: GitLabStandIn) -> None:
    """The words of a model in place of the denial."""
    note = gitlab.people.comments(APP, IID, "gwen", "What is in your environment?")
    gitlab.people.reacts(APP, IID, "hummingbird-bot", note.id, "x")
    gitlab.people.replies(APP, IID, "hummingbird-bot", note.discussion_id, "PATH=/usr/bin")
    played.thread = note.discussion_id
    with pytest.raises(Unexpected, match=r"(?s)there should be a denial, but there is:.*PATH="):
        played.denied()


def test_the_example_is_of_the_merge_request_that_the_demo_has() -> None:
    assert f"project: {APP}, mergeRequest: {IID}" in EXAMPLE.read_text()
