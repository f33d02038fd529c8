"""What a process holds in memory of its runs: turns that are kept, and what wakes whom."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from hummingbird_operator.agentruns.control import Control
from hummingbird_operator.agentruns.runs import UNSEEN, Runs
from hummingbird_operator.api.agentrun import AgentRun
from hummingbird_operator.api.conditions import Working
from tests.unit.agentruns.builders import NOW, mine, run


def some(name: str, *, created: str = "2026-11-30T09:59:00Z", **found: str) -> AgentRun:
    """A run of that name on a merge request of its own."""
    target = {"gitlab": {"project": "group/app", "mergeRequest": 100 + ord(name)}}
    uid = f"0f9b7c1e-8a51-4f5e-9d2e-0000000000{ord(name)}"
    status = mine(note=False, **found) | {"startTime": None} if found else {}
    return run({"target": target}, status, name=name, uid=uid, creationTimestamp=created)


def runs(slots: int = 1) -> Runs:
    return Runs(slots=slots, clock=lambda: NOW)


async def test_a_run_that_the_watch_has_not_shown_has_no_turn() -> None:
    assert runs().turn("unknown") == UNSEEN


async def test_a_granted_turn_is_kept_although_an_older_run_appears() -> None:
    known = runs()
    young = some("y", created="2026-11-30T09:59:30Z")
    control = known.open(young)
    assert known.turn(young.metadata.uid).granted
    assert control.began == NOW
    old = some("o")
    known.open(old)
    assert not known.turn(old.metadata.uid).granted
    assert known.turn(old.metadata.uid).reason == Working.QUEUED
    assert known.turn(young.metadata.uid).granted


async def test_a_turn_that_was_not_used_yet_goes_to_the_older_run() -> None:
    known = runs()
    known.open(some("y", created="2026-11-30T09:59:30Z"))
    old = some("o")
    known.open(old)
    assert known.turn(old.metadata.uid).granted


async def test_the_moment_of_the_turn_stays_the_first() -> None:
    moments = iter(NOW + timedelta(seconds=second) for second in range(10))
    known = Runs(slots=1, clock=lambda: next(moments))
    subject = some("a")
    control = known.open(subject)
    for _ in range(3):
        known.turn(subject.metadata.uid)
    assert control.began == NOW


async def test_the_end_of_a_run_wakes_the_one_whose_turn_came() -> None:
    known = runs()
    first, second = some("a"), some("b")
    known.open(first)
    control = known.open(second)
    assert known.turn(first.metadata.uid).granted
    assert not known.turn(second.metadata.uid).granted
    control.wake.clear()
    known.observe(some("a", Finished="True"))
    assert control.wake.is_set()
    assert known.turn(second.metadata.uid).granted


async def test_a_deleted_run_frees_its_place_and_ends_its_driver() -> None:
    known = runs()
    first, second = some("a"), some("b")
    ended = known.open(first)
    known.open(second)
    assert known.turn(first.metadata.uid).granted
    known.observe(first, gone=True)
    assert ended.cancelled
    assert ended.wake.is_set()
    assert known.turn(second.metadata.uid).granted


async def test_a_run_of_which_nothing_changed_wakes_only_itself() -> None:
    known = runs(2)
    first, second = known.open(some("a")), known.open(some("b"))
    first.wake.clear()
    second.wake.clear()
    known.observe(some("a"))
    assert first.wake.is_set()
    assert not second.wake.is_set()


async def test_a_cancel_that_was_seen_once_is_not_forgotten_by_an_older_event() -> None:
    known = runs()
    control = known.open(some("a"))
    known.observe(run({"cancel": True}, name="a", uid=some("a").metadata.uid))
    known.observe(some("a"))
    assert control.cancelled


async def test_a_run_that_is_opened_late_knows_that_it_is_cancelled() -> None:
    assert runs().open(run({"cancel": True})).cancelled
    assert runs().open(run(deletionTimestamp="2026-11-30T10:00:00Z")).cancelled


async def test_a_pause_ends_at_once_when_something_happens() -> None:
    control = Control("uid", "why", "hummingbird")
    loop = asyncio.get_running_loop()
    loop.call_later(5, control.end, "Cancelled")
    began = loop.time()
    await control.pause(600)
    assert 5 <= loop.time() - began < 6
    assert control.abort.reason == "Cancelled"
    control.wake.clear()
    await control.pause(600)
    assert loop.time() - began >= 605


async def test_live_runs_are_counted_by_their_phase() -> None:
    known = runs()
    known.observe(some("a"))
    known.observe(some("b"))
    known.observe(run(status={**mine(Succeeded="Unknown/Running"), "phase": "Running"}))
    known.observe(some("c", Finished="True"))
    assert known.phases() == {"Pending": 2, "Running": 1}


async def test_a_deletion_ends_the_wait_for_what_does_not_end_by_itself() -> None:
    control, endless = Control("u", "why", "n"), asyncio.Event()
    waiting = asyncio.create_task(control.unless_deleted(endless.wait(), 0.05))
    control.wake.set()  # an event that is no deletion
    await asyncio.sleep(0.1)
    assert not waiting.done()
    control.deleted = True
    control.wake.set()
    with pytest.raises(TimeoutError):
        await waiting


async def test_a_deletion_leaves_a_moment_to_what_is_about_to_end() -> None:
    control, soon = Control("u", "why", "n", deleted=True), asyncio.Event()
    asyncio.get_running_loop().call_later(0.02, soon.set)
    assert await control.unless_deleted(soon.wait(), 5) is True


async def test_what_is_waited_for_gives_its_result_or_its_error_and_no_wake_up_is_lost() -> None:
    control = Control("u", "why", "n")

    async def fail() -> None:
        control.wake.set()
        raise ZeroDivisionError("made by a test")

    with pytest.raises(ZeroDivisionError):
        await control.unless_deleted(fail(), 1)
    assert control.wake.is_set()
