"""What is in force for a run: every refusal names its field, every lowered wish is said."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from hummingbird_operator.agentruns.resolve import Order, resolve
from hummingbird_operator.api.agentrun import Backend
from hummingbird_operator.config import Config
from hummingbird_operator.errors import Invalid
from hummingbird_operator.workflows import Workflow, Workflows
from tests.unit.agentruns.builders import CONFIG, SHA, run


def order(spec: dict[str, Any] | None = None, **config: Any) -> Order:
    given = Config.model_validate({**CONFIG.model_dump(mode="json", exclude_none=True), **config})
    workflows = Workflows(
        {name: Workflow(name, "Look into it.", entry, "0123456789abcdef") for name, entry in given.workflows.items()}
    )
    return resolve(run(spec).spec, given, workflows)


def target(project: str, **fields: Any) -> dict[str, Any]:
    return {"target": {"gitlab": {"project": project, "mergeRequest": 1, **fields}}}


GITHUB = {"target": {"github": {"repository": "octo-org/app", "number": 1, "kind": "Issue"}}}
PODMAN = {"workflows": {"short": {"prompt": "a.md", "sandbox": "podman"}}}
PROJECT = "spec.target.gitlab.project"


@pytest.mark.parametrize(
    ("spec", "config", "where", "says"),
    [
        ({"notice": "Help", **target("other/app")}, {}, PROJECT, "projects in the operator's configuration"),
        ({"workflow": "unknown"}, {}, "spec.workflow", "the configuration has: analyze-failures, short"),
        (GITHUB, {}, "spec.target.github", "use spec.target.gitlab"),
        ({}, {"gitlab": None}, "spec.target.gitlab", "no section gitlab"),
        (target("other/app"), {}, PROJECT, "projects in the operator's configuration: group/app, secret/*"),
        (target("other/app"), {"projects": {}}, PROJECT, "projects in the operator's configuration: none"),
        (target("wide/app"), {"projects": {"wide/*": {}}}, PROJECT, "is for the projects group/*, secret/*, not for"),
        ({"sandbox": {"backend": "kubevirt"}}, {}, "spec.sandbox.backend", "use k8spool or k8s"),
        ({"workflow": "short"}, PODMAN, "workflows.short.sandbox", "podman is not served"),
        ({"sandbox": {"backend": "k8s"}}, {}, "sandbox.image", "needs an image"),
    ],
)
def test_a_spec_that_cannot_be_carried_out_is_refused_with_what_to_mend(
    spec: dict[str, Any], config: dict[str, Any], where: str, says: str
) -> None:
    with pytest.raises(Invalid) as caught:
        order(spec, **config)
    assert caught.value.where == where
    assert says in caught.value.problem


def test_what_the_spec_leaves_out_comes_from_the_workflow_then_from_the_configuration() -> None:
    plain, short = order(), order({"workflow": "short"})
    assert (plain.resolved.model, short.resolved.model) == ("gemini-3.8-flash", "gemini-3.5-flash-lite")
    assert plain.resolved.limits is not None
    assert short.resolved.limits is not None
    assert (plain.resolved.limits.max_iterations, short.resolved.limits.max_iterations) == (30, 7)
    assert plain.resolved.limits.context_tokens == 60_000
    assert plain.resolved.limits.max_cost_usd == Decimal("2.00")
    assert plain.resolved.limits.timeout_seconds == 1_800
    assert plain.resolved.sandbox is not None
    assert (plain.resolved.sandbox.backend, plain.resolved.sandbox.pool) == (Backend.K8SPOOL, "default")
    assert plain.resolved.workflow_hash == "0123456789abcdef"
    assert plain.remarks == ()


def test_the_spec_overrides_both_within_the_ceilings() -> None:
    limits = {"maxIterations": 9, "contextTokens": 5_000, "maxCostUSD": "0.50", "timeoutSeconds": 60}
    spec = {"workflow": "short", "model": "another", "limits": limits, "sandbox": {"pool": "big"}}
    found = order(spec)
    assert found.resolved.model == "another"
    assert found.resolved.sandbox is not None
    assert found.resolved.sandbox.pool == "big"
    assert found.resolved.limits is not None
    assert found.resolved.limits.as_dict() == limits
    assert found.remarks == ()


@pytest.mark.parametrize(
    ("name", "wish", "ceiling"),
    [
        ("maxIterations", 31, 30),
        ("contextTokens", 70_000, 60_000),
        ("maxCostUSD", "3.00", "2.00"),
        ("timeoutSeconds", 3_600, 1_800),
    ],
)
def test_a_wish_above_its_ceiling_is_lowered_and_said(name: str, wish: object, ceiling: object) -> None:
    found = order({"limits": {name: wish}})
    assert found.resolved.limits is not None
    assert found.resolved.limits.as_dict()[name] == ceiling
    assert found.remarks == (f"spec.limits.{name}: {wish} is above the ceiling, {ceiling} is in force",)


def test_a_workflow_s_turns_are_never_above_the_ceiling() -> None:
    found = order({"workflow": "short"}, limits={"max_iterations": 3})
    assert found.resolved.limits is not None
    assert found.resolved.limits.max_iterations == 3


def test_a_sandbox_without_a_pool_names_none() -> None:
    found = order({"sandbox": {"backend": "k8s"}}, sandbox={"image": "example.com/sandbox:1"})
    assert found.resolved.sandbox is not None
    assert (found.resolved.sandbox.backend, found.resolved.sandbox.pool) == (Backend.K8S, None)


@pytest.mark.parametrize(
    ("spec", "notes"),
    [({}, True), ({"delivery": "Note"}, True), ({"delivery": "None"}, False), ({"target": None}, False)],
)
def test_there_is_a_note_wherever_there_is_a_target_unless_nobody_wants_one(spec: dict[str, Any], notes: bool) -> None:
    assert order(spec).notes is notes


@pytest.mark.parametrize(
    ("spec", "internal"),
    [
        ({}, False),
        (target("secret/app"), True),
        ({"trigger": {"source": "gitlab", "event": "note", "internal": True}}, True),
    ],
)
def test_the_note_is_internal_where_the_project_or_the_question_is(spec: dict[str, Any], internal: bool) -> None:
    assert order(spec).internal is internal


def test_the_commit_of_the_event_is_the_one_that_is_looked_at() -> None:
    assert order(target("group/app", sha=SHA)).resolved.head_sha == SHA
    assert order(target("group/app")).resolved.head_sha is None


def test_a_long_message_is_cut_by_bytes_and_never_in_a_character() -> None:
    found = order({"message": "a" + "ä" * 20_000})
    assert found.message_cut
    assert len(found.message.encode()) == 32 * 1024 - 1
    assert not order({"message": "short"}).message_cut
