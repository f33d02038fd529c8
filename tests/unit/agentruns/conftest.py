"""Every async test here runs on a loop whose clock jumps; one stand-in for GitLab serves them all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.standins.gitlab import GitLabStandIn, sample_fixture
from tests.unit.agentruns.virtual import JumpingLoop
from tests.unit.agentruns.world import World


def pytest_asyncio_loop_factories(config: Any, item: Any) -> dict[str, Callable[[], JumpingLoop]]:
    return {"jumping": JumpingLoop}


@pytest.fixture(scope="session")
def standin() -> Iterator[GitLabStandIn]:
    with GitLabStandIn({**sample_fixture(), "notes_per_minute": 1_000_000}) as gitlab:
        yield gitlab


@pytest.fixture
async def world(tmp_path: Path, standin: GitLabStandIn) -> AsyncIterator[World]:
    made = World(tmp_path, standin)
    yield made
    await made.close()
