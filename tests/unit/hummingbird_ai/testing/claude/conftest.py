from __future__ import annotations

from collections.abc import Iterator

import pytest

from hummingbird_ai.testing import ClaudeServer, say


@pytest.fixture(scope="module")
def greeter() -> Iterator[ClaudeServer]:
    """One that says hi to everything it accepts, for many single requests."""
    with ClaudeServer(lambda body, n: say("hi")) as server:
        yield server
