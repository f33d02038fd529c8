"""The order as Python reads it: what it takes, how it refuses, how it prints."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hummingbird_operator.api.agentrun import (
    MESSAGE_BYTES,
    MESSAGE_CHARACTERS,
    AgentRun,
    AgentRunSpec,
    Delivery,
    GitHubTarget,
    GitLabTarget,
    Limits,
    Target,
    cut_message,
    render_target,
)
from hummingbird_operator.errors import Invalid
from tests.unit.api import samples
from tests.unit.api.strategies import SPECS

GITLAB = {"project": "group/app", "mergeRequest": 42}


def order(**changes: Any) -> dict[str, Any]:
    return {"workflow": "review", **changes}


def contains(larger: Any, smaller: Any) -> bool:
    if isinstance(smaller, dict):
        return all(key in larger and contains(larger[key], one) for key, one in smaller.items())
    return bool(larger == smaller)


@given(SPECS)
def test_what_the_schema_allows_is_read_and_printed_without_loss(spec: dict[str, Any]) -> None:
    read = AgentRunSpec.parse(spec)
    assert contains(read.as_dict(), spec)
    assert AgentRunSpec.parse(read.as_dict()) == read


def test_what_is_left_out_stays_open_for_the_workflow_and_the_configuration() -> None:
    spec = AgentRunSpec.parse(order())
    open_ones = (spec.model, spec.sandbox, spec.limits, spec.session, spec.delivery)
    assert open_ones == (None,) * 5
    assert spec.as_dict() == {"workflow": "review", "cancel": False}


def test_a_cost_is_exact_and_printed_as_it_was_read() -> None:
    limits = Limits.parse({"maxCostUSD": "2.00"})
    assert limits.max_cost_usd == Decimal("2.00")
    assert limits.as_dict() == {"maxCostUSD": "2.00"}
    assert Limits(max_cost_usd=Decimal("1E+1")).as_dict() == {"maxCostUSD": "10"}


REFUSALS = [
    (None, "spec: must be an object, not null"),
    ({}, "spec.workflow: is required"),
    (
        order(workflow="A_B"),
        'and hyphens, beginning and ending with a letter or digit; it is "A_B"',
    ),
    (order(workflow="review\n"), 'beginning and ending with a letter or digit; it is "review\\n"'),
    (order(workflow=7), "spec.workflow: must be a string, not 7"),
    (order(limits={"maxIteration": 3}), "spec.limits.maxIteration: is not a field; did you mean maxIterations?"),
    (
        order(sandbox={"image": "x"}),
        "spec.sandbox.image: is not a field; the fields here are backend, pool",
    ),
    (order(limits={"maxIterations": "3"}), 'spec.limits.maxIterations: must be a whole number without quotes, not "3"'),
    (order(limits={"maxIterations": 0}), "spec.limits.maxIterations: must be at least 1, not 0"),
    (order(limits={"timeoutSeconds": 86401}), "spec.limits.timeoutSeconds: must be at most 86400, not 86401"),
    (
        order(limits={"maxCostUSD": 2.5}),
        'spec.limits.maxCostUSD: must be a decimal number in quotes with at most six places, such as "2.00"; it is 2.5',
    ),
    (order(limits={"maxCostUSD": "0.0"}), "spec.limits.maxCostUSD: must be more than 0: no call to a model is free"),
    (order(session="latest"), "spec.session: must be a UUID in lower case, such as 3f0c4b8e-"),
    (order(target={}), "spec.target: name exactly one of gitlab and github"),
    (order(target={"gitlab": {**GITLAB, "sha": "9f2c"}}), "spec.target.gitlab.sha: must be a full commit id"),
    (order(target={"gitlab": {**GITLAB, "project": "app"}}), "spec.target.gitlab.project: must be the project's full"),
    (order(delivery="Mail"), 'spec.delivery: must be one of Note, None, not "Mail"'),
    (order(delivery="Note"), "spec: delivery Note needs a target to write to"),
    (order(notice="Help"), "spec: a notice needs a target to write to"),
    (order(cancel="yes"), 'spec.cancel: must be true or false, not "yes"'),
    (order(message="x" * 65_537), "spec.message: has 65537 characters, at most 65536 are allowed"),
    (
        order(sandbox={"backend": "podman"}),
        "spec.sandbox.backend: must be one of k8s, k8spool, kubevirt, kubevirtpool (podman is only",
    ),
    (
        order(trigger={"source": "gitlab", "event": "Note Hook"}),
        "spec.trigger.event: must be the event's name in lower",
    ),
    (order(trigger={"source": "gitlab", "event": "note", "key": ""}), "spec.trigger.key: has 0 characters, at least 1"),
]


@pytest.mark.parametrize(("spec", "words"), REFUSALS)
def test_a_refusal_names_the_path_and_what_would_be_right(spec: object, words: str) -> None:
    with pytest.raises(Invalid) as caught:
        AgentRunSpec.parse(spec, "spec")
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"{caught.value.where}: ")


@pytest.mark.parametrize(
    "path", ["group/..", "../app", "group/./app", "group/.../app", "g//a", "g/-a", "g/a/", "g/a\n"]
)
def test_a_path_that_a_server_may_resolve_to_another_names_no_project(path: str) -> None:
    with pytest.raises(Invalid, match="full path"):
        GitLabTarget.parse({**GITLAB, "project": path})


@pytest.mark.parametrize("path", ["octo-org/..", "octo-org/.", "octo-org/...", "octo-org/", "o/a/..", "../app"])
def test_nor_does_it_name_a_repository(path: str) -> None:
    with pytest.raises(Invalid, match="owner/name"):
        GitHubTarget.parse({"repository": path, "number": 7, "kind": "Issue"})


@pytest.mark.parametrize("path", ["octo-org/.github", "o/a", "octo-org/octo-org.github.io", "octo-org/..a"])
def test_dots_within_a_name_are_githubs_to_allow(path: str) -> None:
    assert GitHubTarget.parse({"repository": path, "number": 7, "kind": "Issue"}).repository == path


@pytest.mark.parametrize("path", ["g/a", "g/.github", "g/..a", "g/.-a", "g/a..b", "_g/a.", "g.x/s-1/s_2/a"])
def test_dots_within_a_name_are_gitlabs_to_allow(path: str) -> None:
    assert GitLabTarget.parse({**GITLAB, "project": path}).project == path


def test_several_mistakes_are_told_at_once_but_not_all_of_many() -> None:
    bad = {"a": 1, "b": 2, "c": 3, "d": 4}
    with pytest.raises(Invalid) as caught:
        Limits.parse(bad, "spec.limits")
    assert caught.value.where == "spec.limits.a"
    assert "; spec.limits.b: is not a field" in str(caught.value)
    assert str(caught.value).endswith("; and 1 more")


def test_a_long_value_is_shown_by_its_beginning() -> None:
    with pytest.raises(Invalid) as caught:
        AgentRunSpec.parse(order(session="s" * 500), "spec")
    assert len(str(caught.value)) < 250


def test_an_object_is_read_from_any_mapping_with_typed_metadata() -> None:
    body = MappingProxyType(
        {
            "apiVersion": "hummingbird-project.io/v1alpha1",
            "kind": "AgentRun",
            "metadata": {
                "name": "a",
                "namespace": "hummingbird",
                "uid": "u",
                "resourceVersion": "9",
                "generation": 2,
                "labels": {"x": "y"},
                "creationTimestamp": samples.TIME,
                "deletionTimestamp": samples.TIME,
                "finalizers": ["hummingbird-project.io/operator"],
                "managedFields": [{}],
            },
            "spec": order(),
        }
    )
    run = AgentRun.parse(body)
    assert run.metadata.creation_timestamp == datetime(2026, 11, 30, 19, 29, tzinfo=UTC)
    assert run.metadata.deleting
    assert (run.metadata.resource_version, run.metadata.generation) == ("9", 2)
    assert run.metadata.finalizers == ("hummingbird-project.io/operator",)
    assert run.status.conditions == ()


def test_a_new_object_prints_only_what_was_set() -> None:
    run = AgentRun.parse({"metadata": {"name": "a", "namespace": "hummingbird"}, "spec": order()})
    assert run.as_dict()["metadata"] == {"name": "a", "namespace": "hummingbird"}
    assert run.as_dict()["kind"] == "AgentRun"


def test_another_kind_is_refused() -> None:
    with pytest.raises(Invalid, match="kind"):
        AgentRun.parse({"kind": "SandboxPool", "metadata": {"name": "a"}, "spec": order()})


def test_attributes_are_snake_case_in_python() -> None:
    target = Target(gitlab=GitLabTarget(project="group/app", merge_request=42))
    spec = AgentRunSpec(workflow="review", target=target, delivery=Delivery.NOTE)
    assert spec.as_dict()["target"] == {"gitlab": GITLAB}


def test_a_target_is_rendered_as_its_forge_writes_it() -> None:
    hub = {"repository": "octo-org/app", "number": 7, "kind": "Issue"}
    assert render_target(Target.parse({"gitlab": GITLAB})) == "group/app!42"
    assert render_target(Target.parse({"github": hub})) == "octo-org/app#7"
    assert render_target(None) == ""


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_message_is_cut_in_bytes_and_no_character_is_torn(words: str) -> None:
    message = words * 2000
    kept, was_cut = cut_message(message)
    assert message.startswith(kept)
    assert was_cut == (len(message.encode()) > MESSAGE_BYTES)
    assert len(kept.encode()) <= MESSAGE_BYTES
    assert not was_cut or len(kept.encode()) > MESSAGE_BYTES - 4


def test_a_message_cut_at_the_bound_of_the_schema_is_still_seen_as_cut() -> None:
    _, was_cut = cut_message(("x" * 1_000_000)[:MESSAGE_CHARACTERS])
    assert was_cut
