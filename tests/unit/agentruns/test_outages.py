"""The store away, steps that fail unexpectedly, a lead that is lost: every run ends in one visible outcome."""

from __future__ import annotations

import asyncio
import json
import threading
from datetime import timedelta

import pytest

from hummingbird_ai.errors import AuthFailed, Overloaded
from hummingbird_operator.agentruns.decide import Step
from hummingbird_operator.errors import Conflict, Invalid, Unavailable
from tests.unit.agentruns.builders import NOW
from tests.unit.agentruns.places import Place
from tests.unit.agentruns.process import SECRET
from tests.unit.agentruns.world import TURNS, World, shell


def nothing_is_left(world: World) -> None:
    assert world.pool.active == []


# --- the store ---


async def test_without_its_store_a_run_calls_no_model_and_ends_visibly(world: World) -> None:
    world.store.down = True
    world.order()
    world.start()
    run = await world.finished()
    assert world.outcome == ("False", "StoreUnavailable")
    assert world.model.calls == []
    assert world.condition("Delivered") == ("True", "NoteWritten")
    assert "StoreUnavailable: the session store is not available" in world.notes[0].body
    assert run.status.completion_time is not None
    assert timedelta(seconds=600) <= run.status.completion_time - NOW < timedelta(seconds=1000)
    nothing_is_left(world)


async def test_a_store_that_comes_back_in_time_costs_the_run_nothing(world: World) -> None:
    world.store_patience = 2.0
    world.store.fail_next = 1
    world.order()
    world.start()
    await world.finished()
    assert world.outcome == ("True", "Completed")
    assert len(world.model.calls) == 3


async def test_a_store_that_goes_away_in_the_middle_ends_the_run_with_what_it_has(world: World) -> None:
    world.model_waits_at(2)
    world.order()
    world.start()
    await world.until_now(lambda: len(world.model.calls) == 3)
    world.store.down = True
    world.model_goes_on()
    await world.finished()
    assert world.outcome == ("False", "StoreUnavailable")
    assert world.condition("Delivered") == ("True", "NoteWritten")
    nothing_is_left(world)


async def test_a_run_that_waited_for_its_store_in_vain_does_not_wait_once_more_to_write_that_down(world: World) -> None:
    world.store_patience = 1.0
    world.model_waits_at(2)
    world.order()
    world.start()
    await world.until_now(lambda: len(world.model.calls) == 3)
    world.store.down = True
    tried: list[str] = []
    world.store.on_call = tried.append
    world.model_goes_on()
    await world.finished()
    assert world.outcome == ("False", "StoreUnavailable")
    assert tried.count("before store.create") == 2  # the third would have come after the patience
    assert "before store.put" not in tried
    nothing_is_left(world)


async def test_a_run_that_failed_while_its_store_was_away_says_why_it_failed(world: World) -> None:
    world.says(*TURNS[:2], AuthFailed("the key was revoked"))
    world.model_waits_at(2)
    world.order()
    world.start()
    await world.until_now(lambda: len(world.model.calls) == 3)
    world.store.down = True
    world.model_goes_on()
    await world.finished()
    assert world.outcome == ("False", "ModelError")
    assert "the key was revoked" in world.notes[0].body
    nothing_is_left(world)


async def test_an_answer_is_delivered_although_it_could_not_be_written_down_once_more(world: World) -> None:
    def go_away(call: str) -> None:
        world.store.down = world.store.down or call == "before store.put"  # the first put is the answer's text

    world.store_patience = 0.0
    world.store.on_call = go_away
    world.order()
    world.start()
    run = await world.finished()
    assert world.outcome == ("True", "Completed")
    assert run.status.answer is not None
    assert run.status.answer.text == "It fails because of **three**."
    assert run.status.answer.uri is None
    assert world.notes[0].body.startswith("It fails because of **three**.")
    assert len(world.model.calls) == 3
    nothing_is_left(world)


async def test_a_run_whose_sandbox_cannot_be_made_for_now_ends_with_its_time(world: World) -> None:
    world.pool.problem = Unavailable("NetworkPolicy default-isolated", "something in the cluster changes it")
    world.order(target=None, message="what is 3?", limits={"timeoutSeconds": 60})
    world.start()
    await world.until(lambda: world.outcome == ("Unknown", "WaitingForSandbox"))
    await world.finished()
    assert world.outcome == ("False", "TimedOut")
    assert world.model.calls == []


async def test_a_store_that_goes_away_after_the_answer_costs_only_the_session(world: World) -> None:
    world.fault("stall", "PUT", seconds=0.05)
    world.order()
    world.start()
    await world.until(lambda: world.condition("Answered") is not None)
    world.store.down = True
    await world.finished()
    assert world.outcome == ("True", "Completed")
    assert world.condition("SessionSaved") == ("False", "StoreUnavailable")
    (note,) = world.notes
    assert note.body.startswith("It fails because of **three**.")
    assert "conversation and its files are kept" not in note.body
    nothing_is_left(world)


async def test_an_answer_reaches_its_note_although_operator_and_store_are_lost_behind_it(world: World) -> None:
    world.order()
    await world.live(lambda _, name: name == "before gitlab.update")
    world.store.down = True
    await world.live()
    assert world.outcome == ("True", "Completed")
    assert world.notes[0].body.startswith("It fails because of **three**.")
    assert "Model scripted-model · 3 turns" in world.notes[0].body
    nothing_is_left(world)


# --- what nobody expected ---


@pytest.mark.parametrize("step", [Step.ACCEPT, Step.PLACEHOLDER, Step.CLAIM, Step.WORK])
async def test_a_step_that_fails_unexpectedly_five_times_ends_the_run_visibly(world: World, step: Step) -> None:
    world.order()
    process = world.start()
    tries = process.fails_at(step)
    run = await world.finished()
    assert len(tries) == 5
    assert world.outcome == ("False", "AttemptsExhausted")
    assert "failed 5 times in a way that nobody expected" in (run.status.message or "")
    nothing_is_left(world)


async def test_an_unexpected_failure_to_deliver_ends_the_run_visibly(world: World) -> None:
    world.order()
    process = world.start()
    tries = process.fails_at(Step.DELIVER)
    await world.finished()
    assert len(tries) == 5
    assert world.outcome == ("False", "DeliveryFailed")
    assert world.condition("SessionSaved") == ("True", "Saved")
    nothing_is_left(world)


@pytest.mark.parametrize("step", [Step.SAVE, Step.LET_GO])
async def test_an_unexpected_failure_behind_the_delivery_keeps_no_run_from_its_end(world: World, step: Step) -> None:
    world.order()
    process = world.start()
    tries = process.fails_at(step)
    await world.finished()
    assert len(tries) == 5
    assert world.outcome == ("True", "Completed")


async def test_a_run_that_ends_every_process_that_has_it_is_given_up(world: World) -> None:
    world.limits = {"max_attempts": 3}
    world.order()
    for _ in range(3):
        assert (await world.live(lambda _, name: name == "before model.generate")).dead
    await world.live()
    assert world.outcome == ("False", "AttemptsExhausted")
    assert "3" in world.notes[0].body
    nothing_is_left(world)


# --- the process ---


async def test_a_process_that_no_longer_leads_stops_its_model_call_and_writes_nothing_more(world: World) -> None:
    world.model_waits_at(1)
    world.order()
    process = world.start()
    await world.until_now(lambda: len(world.model.calls) == 2)
    process.leads = False
    await asyncio.gather(*process.daemons.values())
    await world.until_now(lambda: "model.generate" in process.aborted)
    version = world.run().metadata.resource_version
    await process.end()
    assert world.run().metadata.resource_version == version
    world.model_goes_on()
    await world.live()
    assert world.outcome == ("True", "Completed")
    assert len(world.model.calls) == 4


async def test_a_process_that_cannot_renew_its_lease_keeps_its_call_writes_nothing_and_goes_on_afterwards(
    world: World,
) -> None:
    world.store_patience = 0.1  # the store was never away: no patience with it is used up
    world.model_waits_at(1)
    world.order()
    process = world.start()
    await world.until_now(lambda: len(world.model.calls) == 2)
    process.unsure = True
    version, blobs, edits = world.run().metadata.resource_version, len(world.store.blobs), len(world.gitlab.calls)
    world.model_goes_on()
    await asyncio.sleep(0.3)  # long enough for what must not happen
    assert (world.run().metadata.resource_version, len(world.store.blobs)) == (version, blobs)
    assert len(world.gitlab.calls) == edits
    assert process.aborted == []
    process.unsure = False
    await world.finished()
    assert world.outcome == ("True", "Completed")
    assert len(world.model.calls) == 3
    assert len(world.notes) == 1


async def test_a_daemon_that_is_cancelled_by_force_stops_its_command(world: World) -> None:
    world.says(shell("touch /tmp/data/begun; sleep 300"), "never")
    world.order()
    process = world.start()
    await world.until_now(lambda: bool(world.pool.made) and (world.pool.made[0].root / "data/begun").exists())
    for daemon in process.daemons.values():
        daemon.cancel()
    await world.until_now(lambda: "sandbox.run" in process.aborted)


async def test_a_progress_write_that_fails_disturbs_nobody(world: World) -> None:
    world.model_waits_at(1)
    world.order()
    world.start()
    await world.until_now(lambda: len(world.model.calls) == 2)
    problems: list[Exception] = [Conflict("somebody wrote"), Invalid("agentruns", "the Role is not applied")]
    world.kube.fail = lambda verb, *_: problems.pop() if verb == "patch" and problems else None
    await world.until_now(lambda: len(problems) < 2)
    world.model_goes_on()
    await world.until(lambda: world.condition("Finished") is not None)
    assert world.outcome == ("True", "Completed")
    assert len(world.model.calls) == 3
    assert len(world.pool.executed) == 3


async def test_a_run_whose_model_is_away_says_so_while_it_waits(world: World) -> None:
    """Who is on call sees it with `kubectl get agentruns`, not only in the log."""
    back = threading.Event()
    world.model_attempts, world.model_pause = 3, lambda _: back.wait(30)
    world.says(Overloaded(f"HTTP 503: busy, {SECRET}"))
    world.order()
    world.start()
    await world.until_now(lambda: world.outcome == ("Unknown", "WaitingForModel"))
    message = world.run().status.message or ""
    assert message.startswith("HTTP 503: busy, ")
    assert SECRET not in message
    assert "; asked again in " in message
    assert world.run().status.phase == "Running"
    world.model_waits_at(1)
    world.says(*TURNS)
    back.set()
    await world.until_now(lambda: world.outcome == ("Unknown", "Running"))
    assert world.run().status.message == "the agent is at work"
    world.model_goes_on()
    await world.until(lambda: world.condition("Finished") is not None)
    assert world.outcome == ("True", "Completed")


@pytest.mark.parametrize("heals", [True, False])
async def test_a_sandbox_that_does_not_answer_is_asked_for_its_files_again_before_the_session_goes_without(
    world: World, heals: bool
) -> None:
    world.model_waits_at(2)
    world.order()
    world.start()
    await world.until_now(lambda: len(world.model.calls) == 3)
    asked: list[str] = []

    def away(call: str) -> None:
        if call == "before sandbox.exec":
            asked.append(call)
            if not heals or len(asked) < 3:
                raise Unavailable("the API server", "it was restarted")

    world.pool.made[0].on_call = away
    world.model_goes_on()
    run = await world.finished()
    assert world.outcome == ("True", "Completed")
    assert world.condition("SessionSaved") == ("True", "Saved" if heals else "SavedWithoutFiles")
    saved = json.loads(world.store.blobs[f"sessions/{run.metadata.uid}/context.json"])
    assert len(saved["contents"]) == 6
    assert (saved["archive"] is not None) is heals
    assert len(asked) > 2


async def test_one_hiccup_of_the_store_after_a_long_outage_of_something_else_ends_nothing(world: World) -> None:
    world.order()
    await world.live(lambda _, name: name == "before model.generate")
    find, began = world.pool.find, world.loop.time()
    hiccups: list[int] = []

    async def away(run_uid: str) -> Place | None:
        if world.loop.time() - began < 700:
            raise Unavailable("the sandbox", "not Ready for now")
        if not hiccups:
            hiccups.append(1)
            world.store.fail_next = 1
        return await find(run_uid)

    world.pool.find = away  # type: ignore[method-assign]
    await world.live()
    assert world.outcome == ("True", "Completed")
    assert hiccups
