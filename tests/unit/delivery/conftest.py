"""A GitLab and the bot's pen on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hummingbird_operator.delivery.notes import Notes
from tests.standins.gitlab import GitLabStandIn
from tests.unit.delivery.pens import pen


@pytest.fixture
def gitlab() -> Iterator[GitLabStandIn]:
    with GitLabStandIn() as standin:
        yield standin


@pytest.fixture
def notes(gitlab: GitLabStandIn) -> Iterator[Notes]:
    with pen(gitlab) as made:
        yield made
