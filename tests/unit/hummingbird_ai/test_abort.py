from __future__ import annotations

import threading
import time

import pytest

from hummingbird_ai.abort import Abort


def test_the_first_reason_stays() -> None:
    abort = Abort()
    abort.set("Cancelled")
    abort.set("TimedOut")

    assert abort.reason == "Cancelled"
    assert abort.is_set()
    assert Abort().reason is None


def test_a_wait_ends_at_once() -> None:
    abort = Abort()
    threading.Timer(0.05, abort.set, ["Cancelled"]).start()
    started = time.monotonic()

    assert abort.wait(30)
    assert time.monotonic() - started < 5
    assert abort.wait(None)


def test_a_callback_runs_once_and_only_within_its_block() -> None:
    abort, runs = Abort(), []
    with abort.on_abort(lambda: runs.append("over")):
        pass
    with abort.on_abort(lambda: runs.append("inside")):
        abort.set("Cancelled")
        abort.set("Cancelled")

    assert runs == ["inside"]


def test_a_callback_registered_too_late_runs_at_once() -> None:
    abort, runs = Abort(), []
    abort.set("Cancelled")

    with abort.on_abort(lambda: runs.append("late")):
        assert runs == ["late"]


def test_a_failing_callback_does_not_keep_the_others_from_running() -> None:
    abort, runs = Abort(), []

    def fail() -> None:
        raise RuntimeError("broken")

    with (
        abort.on_abort(lambda: runs.append(1)),
        abort.on_abort(fail),
        abort.on_abort(lambda: runs.append(2)),
        pytest.raises(RuntimeError, match="broken"),
    ):
        abort.set("Cancelled")

    assert sorted(runs) == [1, 2]
    assert abort.is_set()
