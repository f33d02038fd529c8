"""Nobody but the leader pays for answers; a leader that cannot be sure waits, for what came before is paid for."""

from __future__ import annotations

import threading

import pytest

from hummingbird_ai.abort import Abort
from hummingbird_ai.testing import ScriptedModel
from hummingbird_operator.agentruns.paying import GuardedModel
from hummingbird_operator.errors import Aborted, LeadershipLost, Unavailable


def ask(model: GuardedModel, abort: Abort | None = None) -> str:
    contents = [model.make_user_content("hello")]
    return model.generate(contents, system="s", tools=(), abort=abort).text


def test_a_process_that_no_longer_leads_makes_no_call() -> None:
    inner = ScriptedModel(["yes"])

    def lost() -> None:
        raise LeadershipLost("another leads")

    with pytest.raises(LeadershipLost):
        ask(GuardedModel(inner, lost))
    assert inner.calls == []


def test_a_process_that_cannot_be_sure_waits_until_it_is() -> None:
    inner, left = ScriptedModel(["yes"]), [3]

    def unsure() -> None:
        left[0] -= 1
        if left[0] > 0:
            assert inner.calls == []
            raise Unavailable("the API server", "away", retry_after=0.001)

    assert ask(GuardedModel(inner, unsure)) == "yes"
    assert left == [0]


def test_a_cancel_ends_that_wait() -> None:
    inner, abort, asked = ScriptedModel(["yes"]), Abort(), threading.Event()

    def unsure() -> None:
        asked.set()
        raise Unavailable("the API server", "away", retry_after=60)

    def cancel() -> None:
        asked.wait(10)
        abort.set("Cancelled")

    threading.Thread(target=cancel).start()
    with pytest.raises(Aborted, match="Cancelled"):
        ask(GuardedModel(inner, unsure), abort)
    assert inner.calls == []
