"""A GitLab and the bot's pen on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hummingbird_operator.delivery.notes import Notes
from tests.standins.gitlab import GitLabStandIn, sample_fixture
from tests.unit.delivery.pens import pen


@pytest.fixture
def gitlab() -> Iterator[GitLabStandIn]:
    with GitLabStandIn() as standin:
        yield standin


@pytest.fixture
def notes(gitlab: GitLabStandIn) -> Iterator[Notes]:
    with pen(gitlab) as made:
        yield made


@pytest.fixture(scope="module")
def lasting_gitlab() -> Iterator[GitLabStandIn]:
    """One for all examples of a law, without a limit on notes."""
    with GitLabStandIn({**sample_fixture(), "notes_per_minute": 1_000_000}) as standin:
        yield standin


@pytest.fixture(scope="module")
def lasting_notes(lasting_gitlab: GitLabStandIn) -> Iterator[Notes]:
    with pen(lasting_gitlab) as made:
        yield made
