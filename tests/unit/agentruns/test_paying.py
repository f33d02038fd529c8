"""Nobody but the leader pays for answers."""

from __future__ import annotations

import pytest

from hummingbird_ai.calls import generate_with_retry
from hummingbird_ai.errors import Overloaded
from hummingbird_ai.testing import ScriptedModel
from hummingbird_operator.agentruns.paying import GuardedModel
from hummingbird_operator.errors import Doubt, LeadershipLost


def ask(model: GuardedModel) -> str:
    contents = [model.make_user_content("hello")]
    return model.generate(contents, system="s", tools=()).text


def test_a_process_that_no_longer_leads_makes_no_call() -> None:
    inner = ScriptedModel(["yes"])

    def lost() -> None:
        raise LeadershipLost("another leads")

    with pytest.raises(LeadershipLost):
        ask(GuardedModel(inner, lost))
    assert inner.calls == []


def test_a_process_that_cannot_be_sure_makes_no_call_and_each_try_looks_anew() -> None:
    inner, sure = ScriptedModel([Overloaded("503"), "yes"]), [True]

    def check() -> None:
        if not sure[0]:
            raise Doubt("the API server", "away")

    model = GuardedModel(inner, check)
    contents = [model.make_user_content("hello")]

    def pause(_: float) -> None:
        sure[0] = False

    with pytest.raises(Doubt):
        generate_with_retry(model, contents, system="s", tools=(), max_attempts=3, sleep=pause)
    assert len(inner.calls) == 1
    sure[0] = True
    assert ask(model) == "yes"
