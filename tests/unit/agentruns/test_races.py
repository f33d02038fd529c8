"""What happens when two things happen at once on one merge request: every time one note for each event, and no more.

The races of events that meet before a run exists are in tests/unit/ingest.
"""

from __future__ import annotations

import dataclasses

import pytest

from hummingbird_operator.delivery import markers
from hummingbird_operator.kube.client import AGENT_RUNS
from tests.unit.agentruns.process import NAMESPACE
from tests.unit.agentruns.test_death import at
from tests.unit.agentruns.test_resuming import first
from tests.unit.agentruns.world import TURNS, World

NEW = "ab12" * 10


def outcome(world: World, name: str) -> tuple[str, str] | None:
    return world.condition("Succeeded", name)


def states(world: World) -> list[str | None]:
    found = (markers.parse(note.body) for note in world.notes)
    return [marker.state for marker in found if marker is not None]


async def ended(world: World, name: str) -> None:
    await world.until(lambda: world.condition("Finished", name) is not None)


async def working(world: World, calls: int = 1) -> None:
    await world.until_now(lambda: len(world.model.calls) == calls)


async def old_at_work(world: World) -> None:
    """A run of the first commit whose model does not answer its second turn yet."""
    world.model_waits_at(1)
    world.event("old")
    world.start()
    await working(world, 2)


async def test_a_pipeline_that_failed_twice_on_one_commit_is_answered_once(world: World) -> None:
    world.event("one")
    world.skip(1)
    world.event("two", trigger={"key": "the retry"})
    await world.live()
    assert outcome(world, "one") == ("True", "Completed")
    assert outcome(world, "two") == ("True", "AlreadyReviewed")
    assert len(world.notes) == 1


async def test_a_command_and_an_automatic_run_at_once_give_the_person_s_answer_only(world: World) -> None:
    asked = world.person_writes("/hummingbird analyze-failures")
    world.event("automatic")
    world.command("asked", note=asked)
    await world.live()
    assert outcome(world, "asked") == ("True", "Completed")
    assert outcome(world, "automatic") == ("True", "AlreadyReviewed")
    assert len(world.notes_of(world.run("asked"))) == 1
    assert world.notes_of(world.run("automatic")) == []


async def test_a_command_with_words_does_not_speak_for_its_commit(world: World) -> None:
    world.command("asked", message="only look at arm64")
    world.event("automatic")
    await world.live()
    assert outcome(world, "asked") == outcome(world, "automatic") == ("True", "Completed")
    assert len(world.notes) == 2


async def test_two_workflows_on_one_merge_request_do_not_count_against_each_other(world: World) -> None:
    world.limits = {"max_runs_per_mr": 1}
    world.event("one")
    world.event("two", workflow="other")
    await world.live()
    assert outcome(world, "one") == outcome(world, "two") == ("True", "Completed")
    assert len(world.notes) == 2


async def test_the_limit_of_conversations_holds_for_automatic_runs_and_not_for_people(world: World) -> None:
    world.limits = {"max_runs_per_mr": 1}
    world.event("one")
    await world.live()
    world.push(NEW)
    world.event("two", sha=NEW)
    world.command("asked", message="only look at arm64")
    await world.live()
    assert outcome(world, "two") == ("True", "RunLimitReached")
    assert "max_runs_per_mr is 1" in (world.run("two").status.message or "")
    assert outcome(world, "asked") == ("True", "Completed")


@pytest.mark.parametrize(
    ("state", "again"), [("failed", True), ("superseded", True), ("cancelled", False), ("done", False)]
)
async def test_a_commit_is_looked_at_again_after_a_failed_or_superseded_run_only(
    world: World, state: str, *, again: bool
) -> None:
    world.event("one")
    await world.live()
    (note,) = world.notes
    mark = markers.parse(note.body)
    assert mark is not None
    note.body = f"What was said.\n\n{dataclasses.replace(mark, state=state).render()}"
    world.event("two", trigger={"key": "the retry"})
    await world.live()
    assert outcome(world, "two") == ("True", "Completed" if again else "AlreadyReviewed")
    assert len(world.notes) == 1 + again


async def test_a_push_during_a_run_ends_it_when_the_new_commit_s_run_comes(world: World) -> None:
    await old_at_work(world)
    world.skip(61)
    world.push(NEW)
    world.event("new", sha=NEW)
    await ended(world, "old")
    world.model_goes_on()
    await ended(world, "new")
    assert outcome(world, "old") == ("True", "Superseded")
    assert outcome(world, "new") == ("True", "Completed")
    assert states(world) == ["superseded", "done"]
    assert NEW[:12] in world.notes[0].body


async def test_a_late_event_of_an_older_commit_ends_nothing_and_says_nothing(world: World) -> None:
    world.push(NEW)
    world.model_waits_at(1)
    world.event("new", sha=NEW)
    world.start()
    await working(world, 2)
    world.skip(2)
    world.event("late")
    await world.until(lambda: world.condition("Succeeded", "late") is not None)
    world.model_goes_on()
    await ended(world, "new")
    await ended(world, "late")
    assert outcome(world, "new") == ("True", "Completed")
    assert outcome(world, "late") == ("True", "Superseded")
    assert states(world) == ["done"]


MID = "cd34" * 10


async def test_with_disorder_and_a_lagging_head_the_newest_commit_is_reviewed(world: World) -> None:
    world.event("of-new", sha=NEW)
    world.skip(1.5)
    world.event("of-mid", sha=MID)
    world.loop.call_later(3, lambda: world.push(NEW))
    world.start()
    await ended(world, "of-new")
    await ended(world, "of-mid")
    assert outcome(world, "of-new") == ("True", "Completed")
    assert outcome(world, "of-mid") == ("True", "Superseded")
    assert states(world) == ["done"]


@pytest.mark.parametrize("first", ["of-mid", "of-new"])
async def test_of_two_commits_of_one_second_the_later_one_is_reviewed_though_the_head_lags(
    world: World, first: str
) -> None:
    for name in sorted(("of-mid", "of-new"), key=lambda name: name != first):
        world.event(name, sha=MID if name == "of-mid" else NEW)
    world.push(MID)
    world.loop.call_later(3, lambda: world.push(NEW))
    world.start()
    await ended(world, "of-new")
    await ended(world, "of-mid")
    assert outcome(world, "of-new") == ("True", "Completed")
    assert outcome(world, "of-mid") == ("True", "Superseded")


async def test_a_head_that_lags_when_the_new_run_comes_still_ends_the_old_one(world: World) -> None:
    await old_at_work(world)
    world.skip(2)
    world.event("new", sha=NEW)
    await world.until(lambda: world.condition("Succeeded", "new") is not None)
    world.skip(5)
    world.push(NEW)
    world.skip(15)
    await ended(world, "old")
    world.model_goes_on()
    await ended(world, "new")
    assert outcome(world, "old") == ("True", "Superseded")
    assert outcome(world, "new") == ("True", "Completed")


async def test_a_run_that_was_found_harmless_does_not_hide_a_later_one(world: World) -> None:
    await old_at_work(world)
    world.skip(2)
    world.event("late", sha=MID)
    world.skip(30)
    await world.until(lambda: world.condition("Succeeded", "late") is not None)
    world.skip(30)
    world.push(NEW)
    world.event("new", sha=NEW)
    await ended(world, "old")
    world.model_goes_on()
    await ended(world, "new")
    assert outcome(world, "old") == ("True", "Superseded")
    assert outcome(world, "new") == ("True", "Completed")


async def test_an_event_of_a_merge_request_that_was_merged_since_starts_nothing(world: World) -> None:
    with world.gitlab.state.lock:
        world._merge_request().fields["state"] = "merged"
    world.event()
    await world.live()
    assert outcome(world, "why") == ("True", "Superseded")
    assert "is merged by now" in (world.run().status.message or "")
    assert world.notes == []


@pytest.mark.parametrize(("event", "skipped"), [("merge_request", True), ("pipeline", False)])
async def test_a_draft_is_not_reviewed_but_its_pipeline_is_explained(
    world: World, event: str, *, skipped: bool
) -> None:
    with world.gitlab.state.lock:
        world._merge_request().fields["draft"] = True
    world.event(event=event)
    await world.live()
    assert outcome(world, "why") == ("True", "Superseded" if skipped else "Completed")


async def test_a_superseded_run_whose_note_waits_for_gitlab_does_not_use_up_the_limit(world: World) -> None:
    world.limits = {"max_runs_per_mr": 1}
    await old_at_work(world)
    world.fault("status", "PUT", status=502, times=4)
    world.skip(61)
    world.push(NEW)
    world.event("new", sha=NEW)
    await world.until(lambda: world.condition("Answered", "old") is not None)
    world.model_goes_on()
    await ended(world, "new")
    await ended(world, "old")
    assert outcome(world, "old") == ("True", "Superseded")
    assert outcome(world, "new") == ("True", "Completed")


async def test_a_reply_to_a_placeholder_waits_for_the_run_that_began_the_session(world: World) -> None:
    world.event("first")
    process = world.start(at("after gitlab.create"))
    await world.until(lambda: process.dead)
    await process.end()
    world.says(*TURNS, "As I said.")
    world.command("reply", session=world.run("first").metadata.uid, message="and?")
    await world.live()
    assert outcome(world, "first") == outcome(world, "reply") == ("True", "Completed")


async def test_a_session_is_free_once_it_is_saved_though_the_note_waits_for_gitlab(world: World) -> None:
    world.fault("status", "PUT", status=502, times=8)
    world.event("first")
    world.start()
    await world.until(lambda: world.condition("SessionSaved", "first") is not None)
    world.says(*TURNS, "As I said.")
    world.command("reply", session=world.run("first").metadata.uid, message="and?")
    await world.until(lambda: world.condition("Answered", "reply") is not None)
    assert world.condition("Finished", "first") is None
    await ended(world, "first")
    await ended(world, "reply")


async def test_a_run_that_went_unseen_holds_nobody_up(world: World) -> None:
    world.model_waits_at(1)
    world.event("ghost")
    process = world.start()
    await working(world, 2)
    world.event("next", trigger={"key": "another"}, sha=NEW)
    world.push(NEW)
    world.kube.listeners.remove(process._event)
    world.kube._objects.pop(("agentruns", NAMESPACE, "ghost"))
    world.model_goes_on()
    world.kube.listeners.append(process._event)
    await ended(world, "next")
    assert outcome(world, "next") == ("True", "Completed")


async def test_a_push_without_a_new_event_lets_the_run_end_and_the_note_say_so(world: World) -> None:
    world.model_waits_at(2)
    world.event()
    world.start()
    await working(world, 3)
    world.push(NEW)
    world.model_goes_on()
    await ended(world, "why")
    (note,) = world.notes
    assert "Not read: commits after 9f2c9f2c9f2c." in note.body


async def test_gitlab_that_shows_the_older_head_for_seconds_supersedes_nobody(world: World) -> None:
    world.event(sha=NEW)
    process = world.start()
    looks: list[int] = []

    def head_arrives() -> None:
        looks.append(1)
        world.push(NEW)

    world.loop.call_later(5, head_arrives)
    await ended(world, "why")
    assert looks
    assert outcome(world, "why") == ("True", "Completed")
    assert not process.dead


async def test_an_answer_that_is_there_is_delivered_before_a_newer_commit_counts(world: World) -> None:
    world.fault("status", "PUT", status=502, times=3)
    world.event("old")
    world.start()
    await world.until(lambda: world.condition("Answered", "old") is not None)
    world.push(NEW)
    world.event("new", sha=NEW)
    await ended(world, "old")
    await ended(world, "new")
    assert outcome(world, "old") == outcome(world, "new") == ("True", "Completed")
    assert states(world) == ["done", "done"]


async def test_a_reply_during_delivery_waits_for_the_save_and_sees_the_whole_answer(world: World) -> None:
    world.fault("status", "PUT", status=502, times=2)
    world.order("first")
    world.start()
    await world.until(lambda: world.condition("Answered", "first") is not None)
    session = world.run("first").metadata.uid
    world.says(*TURNS, "As I said.")
    world.command("reply", session=session, message="why?")
    await ended(world, "first")
    await ended(world, "reply")
    assert outcome(world, "first") == outcome(world, "reply") == ("True", "Completed")
    assert "It fails because of **three**." in str(world.model.calls[-1].contents)


async def test_an_event_that_comes_again_after_its_run_was_deleted_is_answered_once(world: World) -> None:
    world.event("one")
    world.start()
    await world.finished("one")
    await world.delete("one")
    await world.until(lambda: world.runs() == [])
    world.event("one", life=2)
    await ended(world, "one")
    assert outcome(world, "one") == ("True", "Duplicate")
    assert len(world.notes) == 1


async def test_an_event_whose_run_was_deleted_at_work_is_answered_in_the_note_that_it_left(world: World) -> None:
    world.event("one")
    process = world.start(at("after gitlab.create"))
    await world.until(lambda: process.dead)
    await process.end()
    # somebody takes the finalizer away: the object goes without its operator
    await world.kube.patch(AGENT_RUNS, NAMESPACE, "one", [{"op": "remove", "path": "/metadata/finalizers"}])
    await world.delete("one")
    world.event("one", life=2)
    await world.live()
    assert outcome(world, "one") == ("True", "Completed")
    assert len(world.notes) == 1
    assert world.posts() == 1


@pytest.mark.parametrize("point", ["before gitlab.create", "after gitlab.create"])
async def test_a_death_around_the_post_leaves_one_note_and_the_gate_does_not_meet_its_own(
    world: World, point: str
) -> None:
    world.limits = {"max_runs_per_mr": 1}
    world.event("one")
    await world.live(at(point))
    await world.live()
    assert outcome(world, "one") == ("True", "Completed")
    assert len(world.notes) == 1


@pytest.mark.parametrize(
    ("status", "words"), [(403, "403 Forbidden"), (404, "404 Project Not Found")], ids=["role", "membership"]
)
async def test_a_bot_that_lost_its_role_during_a_run_delivers_once_it_has_it_again(
    world: World, status: int, words: str
) -> None:
    world.model_waits_at(2)
    world.event()
    world.start()
    await working(world, 3)
    world.fault("status", "PUT", status=status, times=6, body=f'{{"message": "{words}"}}')
    world.model_goes_on()
    await world.until(lambda: world.condition("Delivered") == ("Unknown", "Retrying"))
    await ended(world, "why")
    assert outcome(world, "why") == ("True", "Completed")
    assert states(world) == ["done"]


async def test_a_bot_that_never_gets_its_role_back_fails_the_delivery_after_a_day_and_keeps_the_answer(
    world: World,
) -> None:
    world.model_waits_at(2)
    world.event()
    world.start()
    await working(world, 3)
    world.fault("status", "PUT", status=403, times=10_000, body='{"message": "403 Forbidden"}')
    world.model_goes_on()
    await ended(world, "why")
    assert outcome(world, "why") == ("False", "DeliveryFailed")
    assert "Developer role" in (world.run().status.message or "")
    assert world.run().status.answer is not None


async def test_in_an_internal_project_a_question_in_public_is_answered_in_an_internal_note(world: World) -> None:
    world.internal = True
    asked = world.person_writes("/hummingbird analyze-failures")
    world.command("asked", note=asked)
    await world.live()
    (note,) = world.notes_of(world.run("asked"))
    assert note.internal
    assert note.discussion_id != asked.discussion_id
    assert [award["name"] for award in asked.emoji] == ["white_check_mark"]


async def test_a_question_in_an_internal_thread_is_answered_there(world: World) -> None:
    asked = world.person_writes("/hummingbird analyze-failures", internal=True)
    world.command("asked", note=asked)
    await world.live()
    (note,) = world.notes_of(world.run("asked"))
    assert note.internal
    assert note.discussion_id == asked.discussion_id


async def test_where_gitlab_makes_the_note_public_no_model_is_asked_and_only_a_reaction_is_left(world: World) -> None:
    world.internal = True
    asked = world.person_writes("/hummingbird analyze-failures")
    with world.gitlab.state.lock:
        project = world.gitlab.state.project(world.project)
        assert project is not None
        project.internal_min_level = 40
    world.command("asked", note=asked)
    await world.live()
    assert outcome(world, "asked") == ("False", "InternalNoteRefused")
    assert world.notes_of(world.run("asked")) == []
    assert [award["name"] for award in asked.emoji] == ["x"]
    assert world.model.calls == []


async def test_of_two_processes_that_save_one_session_the_one_that_lost_the_lead_writes_nothing(world: World) -> None:
    session = (await first(world)).metadata.uid
    world.model_waits_at(3)
    world.command("reply", session=session, message="and?")
    old = world.start()
    await working(world, 4)
    old.leads = False
    world.says(*TURNS, "The new leader's words.")
    world.model_goes_on()
    new = world.start()
    await ended(world, "reply")
    assert outcome(world, "reply") == ("True", "Completed")
    assert len(world.notes_of(world.run("reply"))) == 1
    assert new is world.processes[-1]


@pytest.mark.parametrize("notice", ["Help", "UnknownCommand", "Denied", "QueueFull"])
async def test_a_fixed_answer_costs_nothing_and_stands_in_the_thread_of_its_question(world: World, notice: str) -> None:
    asked = world.person_writes("/hummingbird an")
    world.command("asked", note=asked, workflow="help", notice=notice, message="an")
    await world.live()
    (note,) = world.notes_of(world.run("asked"))
    assert note.discussion_id == asked.discussion_id
    mark = markers.parse(note.body)
    assert mark is not None
    assert (mark.id, mark.notice) == (None, notice)
    reactions = {"Help": ["white_check_mark"], "QueueFull": []}.get(notice, ["x"])
    assert [award["name"] for award in asked.emoji] == reactions
    assert (world.model.calls, world.pool.made) == ([], [])
    assert outcome(world, "asked") == ("True", "Completed")


@pytest.mark.parametrize("nth", range(12))
async def test_a_fixed_answer_is_given_once_whenever_the_operator_dies(world: World, nth: int) -> None:
    asked = world.person_writes("/hummingbird help")
    world.command("asked", note=asked, workflow="help", notice="Help")
    await world.live(lambda number, _: number == nth)
    await world.live()
    assert outcome(world, "asked") == ("True", "Completed")
    assert len(world.notes_of(world.run("asked"))) == 1


async def test_a_fixed_answer_does_not_wait_for_a_run_at_work_nor_for_a_slot(world: World) -> None:
    world.limits = {"max_concurrent_runs": 1}
    world.model_waits_at(1)
    world.event("automatic")
    world.start()
    await working(world, 2)
    world.command("asked", workflow="help", notice="Help")
    await ended(world, "asked")
    world.model_goes_on()
    await ended(world, "automatic")
    assert outcome(world, "automatic") == outcome(world, "asked") == ("True", "Completed")


async def test_a_session_that_was_never_saved_is_told_from_one_that_is_gone(world: World) -> None:
    session = (await first(world)).metadata.uid
    del world.store.blobs[f"sessions/{session}/context.json"]
    for key in [key for key in world.store.blobs if key.endswith(".response")]:  # with them it would be rebuilt
        del world.store.blobs[key]
    asked = world.person_writes("and?")
    world.command("reply", note=asked, session=session, message="and?")
    await world.live()
    assert outcome(world, "reply") == ("False", "SessionNotSaved")
    (note,) = world.notes_of(world.run("reply"))
    assert note.body.startswith("This conversation was never saved")
    for key in [key for key in world.store.blobs if key.startswith(f"runs/{session}")]:
        del world.store.blobs[key]
    world.command("later", note=asked, session=session, message="and?")
    await world.live()
    assert outcome(world, "later") == ("False", "SessionNotFound")
    (note,) = world.notes_of(world.run("later"))
    assert note.body.startswith("This conversation is not kept any more")
    assert len(world.model.calls) == 3


async def test_who_asked_for_what_cannot_be_is_told_in_the_thread(world: World) -> None:
    asked = world.person_writes("and?")
    world.command("reply", note=asked, session="0f9b7c1e-8a51-4f5e-9d2e-1c5a3f0b7d11", workflow="gone", message="and?")
    await world.live()
    assert outcome(world, "reply") == ("False", "Invalid")
    (note,) = world.notes_of(world.run("reply"))
    assert note.discussion_id == asked.discussion_id
    assert "There is no such workflow here (any more)." in note.body
    assert "there is no workflow 'gone'" in (world.run("reply").status.message or "")
    assert [award["name"] for award in asked.emoji] == ["x"]


@pytest.mark.parametrize("nth", range(14))
async def test_a_refusal_is_told_once_whenever_the_operator_dies(world: World, nth: int) -> None:
    asked = world.person_writes("and?")
    world.command("asked", note=asked, workflow="gone")
    await world.live(lambda number, _: number == nth)
    await world.live()
    assert outcome(world, "asked") == ("False", "Invalid")
    assert len(world.notes_of(world.run("asked"))) == 1


async def test_a_refusal_in_an_internal_project_stays_internal(world: World) -> None:
    world.internal = True
    asked = world.person_writes("/hummingbird gone")
    world.command("asked", note=asked, workflow="gone")
    await world.live()
    (note,) = world.notes_of(world.run("asked"))
    assert note.internal


async def test_nothing_is_written_to_a_project_outside_of_the_allow_list(world: World) -> None:
    asked = world.person_writes("/hummingbird analyze-failures")
    target = {"gitlab": {"project": "elsewhere/app", "mergeRequest": 42}}
    world.command("asked", note=asked, target=target)
    await world.live()
    assert outcome(world, "asked") == ("False", "Invalid")
    assert world.posts() == 0
