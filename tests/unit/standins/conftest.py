"""A GitLab of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.standins.gitlab import GitLabStandIn


@pytest.fixture
def standin() -> Iterator[GitLabStandIn]:
    with GitLabStandIn() as running:
        yield running
