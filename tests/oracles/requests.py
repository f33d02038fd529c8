"""Every request that a provider server accepts, put before the oracle of its provider.

A conftest takes part by importing `requests_pass_their_oracle`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from hummingbird_ai.testing import ReceivedCall, observing
from tests.oracles import claude, gemini

_one_at_a_time = threading.Lock()  # the packages build their validators at first use, which is not made for threads


def check(call: ReceivedCall) -> None:
    """Raise AssertionError for a request that the real provider would refuse though our server did not."""
    with _one_at_a_time:
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
