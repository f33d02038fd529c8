"""trigger_rules as DESIGN §9 has them."""

from __future__ import annotations

from typing import Any

import pytest

from hummingbird_operator.config import TriggerRule
from hummingbird_operator.ingest.rules import Occasion, allows

PIPELINE: dict[str, Any] = {
    "status": "failed",
    "user": "alice",
    "branch": "renovate/go",
    "title": "Update go",
    "fork": False,
}
ALLOW, DENY = {"action": "allow"}, {"action": "deny"}


def verdict(rules: list[dict[str, Any]] | None, **changes: Any) -> bool:
    parsed = None if rules is None else [TriggerRule.model_validate(rule) for rule in rules]
    return allows(parsed, Occasion(**{**PIPELINE, **changes}))


@pytest.mark.parametrize(
    ("status", "starts"), [("failed", True), ("success", False), ("canceled", False), (None, True)]
)
def test_without_a_list_failed_pipelines_and_merge_requests_start(status: str | None, starts: bool) -> None:
    assert verdict(None, status=status) is starts


def test_a_list_in_which_nothing_matches_denies() -> None:
    assert not verdict([])
    assert not verdict([ALLOW | {"user": "bob"}])
    assert not verdict([DENY | {"user": "bob"}])


def test_the_first_rule_that_matches_decides() -> None:
    assert not verdict([DENY | {"branch": "renovate/*"}, ALLOW])
    assert verdict([ALLOW, DENY | {"branch": "renovate/*"}])


@pytest.mark.parametrize(
    ("rule", "matches"),
    [
        ({"user": "al*"}, True),
        ({"user": "AL*"}, False),
        ({"user": "bob"}, False),
        ({"branch": "renovate/*"}, True),
        ({"branch": "renovate"}, False),
        ({"branch": "renovate/[a-g]o"}, True),
        ({"title": "Update *"}, True),
        ({"title": "*"}, True),
        ({"title": "update *"}, False),
        ({"fork": False}, True),
        ({"fork": True}, False),
        ({"user": "alice", "branch": "main"}, False),
        ({"user": "alice", "branch": "r*", "title": "*go", "fork": False, "status": "fail*"}, True),
    ],
)
def test_a_rule_matches_when_all_that_it_names_does(rule: dict[str, Any], matches: bool) -> None:
    assert verdict([ALLOW | rule]) is matches


@pytest.mark.parametrize(
    ("rule", "status", "matches"),
    [
        ({}, "failed", True),
        ({}, "success", False),
        ({"status": "*"}, "success", True),
        ({"status": "cancel*"}, "canceled", True),
        ({"status": "success"}, "failed", False),
    ],
)
def test_a_rule_without_a_status_means_failed_pipelines(rule: dict[str, Any], status: str, matches: bool) -> None:
    assert verdict([ALLOW | rule], status=status) is matches


def test_for_a_merge_request_a_rule_that_names_a_status_never_matches() -> None:
    assert verdict([ALLOW], status=None)
    assert not verdict([ALLOW | {"status": "*"}], status=None)
    assert verdict([DENY | {"status": "failed"}, ALLOW], status=None)
