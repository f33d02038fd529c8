"""GitLab on bad days: away before and after, people who delete notes, answers that never come. One note in the end."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.unit.agentruns.builders import NOW
from tests.unit.agentruns.test_death import at
from tests.unit.agentruns.world import MERGE_REQUEST, World

NOTES = f"merge_requests/{MERGE_REQUEST}/notes"


async def test_a_placeholder_whose_answer_was_lost_is_found_by_its_marker_and_not_posted_twice(world: World) -> None:
    world.fault("status", "POST", status=502, after_write=True)
    world.order()
    world.start()
    await world.finished()
    assert world.outcome == ("True", "Completed")
    assert (len(world.notes), world.posts()) == (1, 1)


async def test_a_placeholder_that_never_arrived_is_posted_anew_after_a_minute(world: World) -> None:
    world.fault("drop", "POST")
    world.order()
    world.start()
    await world.finished()
    assert world.outcome == ("True", "Completed")
    assert (len(world.notes), world.posts()) == (1, 2)
    assert world.clock() - NOW >= timedelta(seconds=60)


async def test_with_gitlab_away_at_the_beginning_the_run_waits_and_spends_nothing(world: World) -> None:
    world.fault("status", status=503, times=10)
    world.order()
    world.start()
    await world.finished()
    assert world.outcome == ("True", "Completed")
    assert len(world.model.calls) == 3
    assert len(world.notes) == 1


async def test_with_gitlab_away_at_the_end_session_and_sandbox_do_not_wait_for_it(world: World) -> None:
    world.fault("status", "PUT", status=502, times=6)
    world.order()
    world.start()
    await world.until(lambda: world.pool.active == [] and bool(world.pool.made))
    assert world.condition("SessionSaved") == ("True", "Saved")
    assert world.condition("Delivered") == ("Unknown", "Retrying")
    assert world.condition("Finished") is None
    run = await world.finished()
    assert world.outcome == ("True", "Completed")
    assert run.status.completion_time is not None
    assert run.status.completion_time - NOW >= timedelta(seconds=5 + 10 + 20 + 40 + 80)
    (note,) = world.notes
    assert note.body.startswith("It fails because of **three**.")
    assert "conversation and its files are kept" in note.body


async def test_a_run_that_waits_for_gitlab_keeps_no_other_run_from_the_merge_request(world: World) -> None:
    world.limits = {"max_concurrent_runs": 1}
    world.fault("status", "PUT", status=502, times=5)
    world.order("first")
    world.start()
    await world.until(lambda: world.condition("Delivered", "first") == ("Unknown", "Retrying"))
    world.order("second")
    await world.until(lambda: world.condition("Answered", "second") == ("True", "Completed"))
    assert world.condition("Finished", "first") is None
    await world.finished("first")
    await world.finished("second")
    assert len(world.notes) == 2


async def test_after_its_window_without_gitlab_the_delivery_has_failed_and_the_run_ends(world: World) -> None:
    world.limits = {"delivery_retry_seconds": 4 * 3600}
    world.fault("status", "PUT", status=502, times=100_000)
    world.order()
    world.start()
    run = await world.finished()
    assert world.outcome == ("False", "DeliveryFailed")
    assert "tried since 2026-11-30 10:00:" in (run.status.message or "")
    assert run.status.completion_time is not None
    assert timedelta(hours=4) <= run.status.completion_time - NOW < timedelta(hours=4, minutes=11)
    assert run.status.answer is not None
    assert world.condition("SessionSaved") == ("True", "Saved")
    tries = [call for call in world.gitlab.calls if call.method == "PUT" and world.project in call.path]
    assert len(tries) < 40


async def test_a_run_that_cannot_even_begin_its_note_for_that_long_ends_and_frees_its_place(world: World) -> None:
    world.limits = {"delivery_retry_seconds": 1800, "max_concurrent_runs": 1}
    world.fault("status", "POST", status=429, times=100_000)
    world.order()
    world.start()
    run = await world.finished()
    assert world.outcome == ("False", "DeliveryFailed")
    assert "GitLab is not available: too many requests (429)" in (run.status.message or "")
    assert world.model.calls == []


async def test_a_delivery_waits_as_long_as_gitlab_asks(world: World) -> None:
    world.fault("status", "PUT", status=429, headers={"Retry-After": "300"})
    world.order()
    world.start()
    run = await world.finished()
    assert run.status.completion_time is not None
    assert run.status.completion_time - NOW >= timedelta(seconds=300)


async def test_a_new_leader_goes_on_with_a_delivery_that_an_old_one_could_not_make(world: World) -> None:
    world.fault("status", "PUT", status=502, times=2)
    world.order()
    process = world.start()
    await world.until(lambda: world.condition("SessionSaved") == ("True", "Saved"))
    await process.sigterm()
    await world.live()
    assert world.outcome == ("True", "Completed")
    assert "conversation and its files are kept" in world.notes[0].body
    assert len(world.model.calls) == 3


async def test_a_note_that_a_person_deleted_while_the_agent_worked_is_posted_anew_once(world: World) -> None:
    world.model_waits_at(1)
    world.order()
    world.start()
    await world.until_now(lambda: len(world.model.calls) == 2)
    world.remove_note(world.notes[0])
    world.model_goes_on()
    run = await world.finished()
    assert world.outcome == ("True", "Completed")
    (note,) = world.notes
    assert note.body.startswith("It fails because of **three**.")
    assert (run.status.note and run.status.note.id) == note.id
    assert world.posts() == 2


@pytest.mark.parametrize("kind", ["status", "drop"])
@pytest.mark.parametrize("after_write", [True, False])
async def test_a_note_that_is_posted_anew_is_posted_once_although_the_answer_to_that_is_lost(
    world: World, kind: str, after_write: bool
) -> None:
    world.model_waits_at(1)
    world.order()
    world.start()
    await world.until_now(lambda: len(world.model.calls) == 2)
    world.remove_note(world.notes[0])
    world.fault(kind, "POST", after_write=after_write)
    world.model_goes_on()
    await world.finished()
    assert world.outcome == ("True", "Completed")
    (note,) = world.notes
    assert note.body.startswith("It fails because of **three**.")
    assert world.posts() == (2 if after_write else 3)


async def test_a_note_that_is_deleted_behind_its_answer_is_not_forced_upon_people(world: World) -> None:
    world.order()
    process = world.start()
    process.before("store.put_stream", lambda: world.remove_note(world.notes[0]))
    await world.finished()
    assert world.outcome == ("True", "Completed")
    assert (world.notes, world.posts()) == ([], 1)


@pytest.mark.parametrize("later", ["before model.generate", "before gitlab.update"])
async def test_of_two_notes_of_one_run_the_younger_is_deleted(world: World, later: str) -> None:
    world.order()
    await world.live(at("before kube.patch", 3) if later.endswith("generate") else at(later))
    first = world.notes[0]
    world.person_copies(first)
    assert len(world.notes) == 2
    await world.live()
    assert world.outcome == ("True", "Completed")
    (note,) = world.notes
    assert note.id == first.id


async def test_a_placeholder_of_a_dead_process_says_so_when_the_run_is_cancelled_before_it_was_found(
    world: World,
) -> None:
    world.order()
    assert (await world.live(at("after gitlab.create"))).dead
    await world.cancel()
    await world.live()
    assert world.outcome == ("False", "Cancelled")
    (note,) = world.notes
    assert note.body.startswith("Hummingbird analysis cancelled.")


async def test_a_placeholder_that_never_left_is_not_waited_for_longer_than_a_minute_by_a_cancelled_run(
    world: World,
) -> None:
    world.order()
    assert (await world.live(at("before gitlab.create"))).dead
    await world.cancel()
    began = world.clock()
    await world.live()
    assert world.outcome == ("False", "Cancelled")
    assert world.condition("Delivered") == ("True", "NothingToDeliver")
    assert world.clock() - began < timedelta(seconds=120)
    assert world.notes == []


async def test_a_public_note_of_a_dead_process_is_taken_back_where_it_must_be_internal(world: World) -> None:
    world.internal = True
    world.gitlab.state.projects[world.number].internal_min_level = 40
    world.fault("drop", "POST", after_write=True)
    world.order()
    world.start()
    await world.finished()
    assert world.outcome == ("False", "InternalNoteRefused")
    assert world.notes == []
    assert world.model.calls == []


async def test_where_the_thread_of_the_question_is_gone_the_answer_stands_in_a_note_of_its_own(world: World) -> None:
    world.order(trigger={"source": "gitlab", "event": "note", "discussion": "f" * 40})
    world.start()
    await world.finished()
    assert world.outcome == ("True", "Completed")
    (note,) = world.notes
    assert note.type is None


async def test_a_merge_request_that_is_gone_at_the_end_fails_the_delivery_and_keeps_the_answer(world: World) -> None:
    world.model_waits_at(2)
    world.order()
    world.start()
    await world.until_now(lambda: len(world.model.calls) == 3)
    world.fault("status", status=404, times=1000, body='{"message": "404 Not found"}')
    world.model_goes_on()
    run = await world.finished()
    assert world.outcome == ("False", "DeliveryFailed")
    assert run.status.answer is not None
    assert world.condition("SessionSaved") == ("True", "Saved")


async def test_a_refused_token_is_waited_out_and_said_in_an_event(world: World) -> None:
    world.fault("status", "POST", status=401, body='{"message": "401 Unauthorized"}', times=3)
    world.order()
    world.start()
    await world.finished()
    assert world.outcome == ("True", "Completed")
    assert len(world.notes) == 1
    said = [message for type_, reason, message in world.events.emitted if (type_, reason) == ("Warning", "Retrying")]
    assert len(said) == 1
    assert "gitlab.token_env" in said[0]


async def test_a_run_that_cannot_even_be_accepted_says_so_in_its_status(world: World) -> None:
    """An empty status would look like a run that no operator serves."""
    world.fault("status", "GET", status=502, times=8)
    world.order()
    world.start()
    await world.until(lambda: world.condition("Accepted") == ("Unknown", "Retrying"))
    assert "GitLab is not available" in (world.run().status.message or "")
    assert world.outcome == ("Unknown", "Queued")
    run = await world.finished()
    assert world.outcome == ("True", "Completed")
    assert run.status.attempts == 1


async def test_what_holds_a_run_up_is_said_anew_when_it_is_something_else(world: World) -> None:
    world.fault("status", "GET", status=502, times=6)
    world.fault("status", "GET", status=401, times=6)
    world.order()
    world.start()
    await world.until(lambda: "502" in (world.run().status.message or ""))
    await world.until(lambda: "refused the bot's token (401)" in (world.run().status.message or ""))
    run = await world.finished()
    assert world.outcome == ("True", "Completed")
    assert run.status.attempts == 1
