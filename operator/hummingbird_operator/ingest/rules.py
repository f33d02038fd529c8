"""`trigger_rules`: whether an event starts a workflow. An ordered list; the first rule that matches decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from hummingbird_operator.config import TriggerRule

FAILED = "failed"


@dataclass(frozen=True)
class Occasion:
    """What rules look at. `status` is a pipeline's, and None for a merge request, which has none."""

    status: str | None
    user: str
    branch: str
    title: str
    fork: bool


def allows(rules: Sequence[TriggerRule] | None, occasion: Occasion) -> bool:
    """The verdict. Without a list: yes, of pipelines only for failed ones. A list in which nothing matches: no."""
    if rules is None:
        return occasion.status in (None, FAILED)
    return next((rule.action == "allow" for rule in rules if _matches(rule, occasion)), False)


def _matches(rule: TriggerRule, occasion: Occasion) -> bool:
    globs = ((rule.user, occasion.user), (rule.branch, occasion.branch), (rule.title, occasion.title))
    return (
        _status(rule, occasion)
        and all(glob is None or fnmatchcase(value, glob) for glob, value in globs)
        and rule.fork in (None, occasion.fork)
    )


def _status(rule: TriggerRule, occasion: Occasion) -> bool:
    """A rule that names no status is about failed pipelines. For a merge request one that names a status never matches:

    it has none, and a rule for pipelines must not decide there by its other fields.
    """
    if occasion.status is None:
        return rule.status is None
    return fnmatchcase(occasion.status, rule.status if rule.status is not None else FAILED)
