"""Every request that a provider server accepts, put before the oracle of its provider.

A conftest takes part by importing `requests_pass_their_oracle`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hummingbird_ai.testing import ReceivedCall, observing
from tests.oracles import claude, gemini


def check(call: ReceivedCall) -> None:
    """Raise AssertionError for a request that the real provider would refuse though our server did not."""
    if call.provider == "anthropic":
        problems = claude.problems(call.body, call.headers)
    else:
        problems = gemini.problems(call.body, vertex="/projects/" in call.path)
    assert not problems, f"{call.path}: " + "; ".join(problems)


@pytest.fixture(autouse=True, scope="module")
def requests_pass_their_oracle() -> Iterator[None]:
    """A request that does not fails its test when the server closes."""
    with observing(check):
        yield
