"""Replies that come while their session is busy: one turn answers several, in order, and none is lost in silence."""

from __future__ import annotations

from typing import Any

import pytest

from hummingbird_ai.errors import BadRequest
from hummingbird_operator.agentruns.following import MOST_WAITING, question_of, too_many
from hummingbird_operator.api.agentrun import AgentRun
from tests.unit.agentruns import builders
from tests.unit.agentruns.test_resuming import first
from tests.unit.agentruns.test_turns import view
from tests.unit.agentruns.world import TURNS, World

THREAD = "a" * 40


def reply(world: World, name: str, session: str, message: str, *, note: int = 1, **trigger: Any) -> AgentRun:
    world.skip(1)  # creation times have whole seconds
    return world.order(name, session=session, message=message, trigger=_event(name, **trigger))


def _event(name: str, **changes: Any) -> dict[str, Any]:
    return {"source": "gitlab", "event": "note", "key": name, "discussion": THREAD, "author": name, **changes}


async def busy(world: World) -> str:
    """A session whose first reply is at its model."""
    session = (await first(world)).metadata.uid
    world.says(*TURNS, "To the first.", "To the others.", "Last.")
    world.model_waits_at(3)
    reply(world, "one", session, "first words")
    return session


async def at_its_model(world: World) -> str:
    """The same, and the call was made."""
    session = await busy(world)
    world.start()
    await world.until_now(lambda: len(world.model.calls) == 4)
    return session


async def ended(world: World, name: str) -> None:
    await world.until(lambda: world.condition("Finished", name) is not None)


def outcome(world: World, name: str) -> tuple[str, str] | None:
    return world.condition("Succeeded", name)


async def test_replies_that_wait_are_answered_together_by_the_first_of_them(world: World) -> None:
    session = await at_its_model(world)
    for name in ("two", "three", "four"):
        reply(world, name, session, f"words of {name}")
    await world.until(lambda: world.condition("Succeeded", "four") is not None)
    world.model_goes_on()
    for name in ("one", "two", "three", "four"):
        await ended(world, name)
    assert outcome(world, "one") == outcome(world, "two") == ("True", "Completed")
    assert outcome(world, "three") == outcome(world, "four") == ("True", "Merged")
    assert world.run("two").status.merged == ("three", "four")
    assert len(world.model.calls) == 5
    words = [world.asked(4).index(f"from {name}:\nwords of {name}") for name in ("two", "three", "four")]
    assert words == sorted(words)
    assert [len(world.notes_of(world.run(name))) for name in ("one", "two", "three", "four")] == [1, 1, 0, 0]


async def test_a_reply_in_another_thread_of_the_session_waits_for_a_turn_of_its_own(world: World) -> None:
    session = await at_its_model(world)
    reply(world, "two", session, "here")
    reply(world, "there", session, "there", discussion="b" * 40)
    world.model_goes_on()
    for name in ("one", "two", "there"):
        await ended(world, name)
        assert world.run(name).status.merged == ()
        assert outcome(world, name) == ("True", "Completed")


async def test_one_that_is_cancelled_before_the_call_is_left_out(world: World) -> None:
    session = await at_its_model(world)
    for name in ("two", "three", "four"):
        reply(world, name, session, f"words of {name}")
    await world.cancel("three")
    await ended(world, "three")
    world.model_goes_on()
    for name in ("one", "two", "four"):
        await ended(world, name)
    assert outcome(world, "three") == ("False", "Cancelled")
    assert outcome(world, "four") == ("True", "Merged")
    assert "words of three" not in world.asked(4)


async def test_those_that_were_merged_fail_with_the_run_that_had_their_words(world: World) -> None:
    session = await at_its_model(world)
    world.says(*TURNS, "To the first.", BadRequest("made by a test"))
    for name in ("two", "three"):
        reply(world, name, session, f"words of {name}")
    world.model_goes_on()
    for name in ("one", "two", "three"):
        await ended(world, name)
    assert outcome(world, "two") == outcome(world, "three") == ("False", "ModelError")
    assert "run two" in (world.run("three").status.message or "")


async def test_those_whose_carrier_goes_without_a_word_are_answered_by_themselves(world: World) -> None:
    session = await at_its_model(world)
    for name in ("two", "three"):
        reply(world, name, session, f"words of {name}")
    world.says(*TURNS, "To the first.", "To the others.", "To the third.")
    world.model_goes_on()
    await ended(world, "one")
    world.fault("status", "PUT", status=502, times=1000)
    await world.until(lambda: world.condition("Answered", "two") is not None)
    await world.delete("two")
    await world.until(lambda: all(run.metadata.name != "two" for run in world.runs()))
    world.gitlab.faults.clear()
    await ended(world, "three")
    assert outcome(world, "three") == ("True", "Completed")
    assert len(world.notes_of(world.run("three"))) == 1


async def test_a_run_that_only_has_the_name_of_one_that_was_answered_is_asked(world: World) -> None:
    session = await at_its_model(world)
    for name in ("two", "three"):
        reply(world, name, session, f"words of {name}")
    world.says(*TURNS, "To the first.", "To the others.", "Once more.")
    world.model_goes_on()
    await ended(world, "three")
    assert outcome(world, "three") == ("True", "Merged")
    await world.delete("three")
    await world.until(lambda: all(run.metadata.name != "three" for run in world.runs()))
    world.skip(2)
    world.order("three", session=session, message="other words", life=2, trigger=_event("three"))
    await ended(world, "three")
    assert outcome(world, "three") == ("True", "Completed")
    assert "other words" in world.asked(len(world.model.calls) - 1)


@pytest.mark.parametrize("part", range(3))
async def test_a_death_anywhere_from_the_merge_to_the_end_asks_one_question_and_leaves_one_note(
    world: World, part: int
) -> None:
    for nth in range(3 * part, 54, 9):
        await _dies_at_the(world, nth)


async def _dies_at_the(world: World, nth: int) -> None:
    origin, one, two, three = (f"{word}-{nth}" for word in ("origin", "one", "two", "three"))
    world.says(*TURNS, "To the first.", "To the others.", "Once more.")
    world.order(origin)
    await world.live()
    session, before = world.run(origin).metadata.uid, len(world.model.calls)
    left = [-1]

    def fatal(_: int, name: str) -> bool:
        left[0] -= 1
        return left[0] == 0

    world.model_waits_at(3)
    reply(world, one, session, "first words")
    process = world.start(fatal)
    await world.until_now(lambda: len(world.model.calls) == before + 1)
    reply(world, two, session, "second words")
    reply(world, three, session, "third words")
    await world.until(lambda: outcome(world, three) is not None)
    left[0] = nth + 1
    world.model_goes_on()
    await world.until(lambda: process.dead or world.condition("Finished", three) is not None)
    await process.end()
    await world.live()
    assert outcome(world, two) == ("True", "Completed"), nth
    assert outcome(world, three) == ("True", "Merged"), nth
    asked = [str(call.contents[-1]) for call in world.model.calls[before:] if "second words" in str(call.contents[-1])]
    assert asked
    assert all("third words" in words for words in asked), nth
    assert [len(world.notes_of(world.run(name))) for name in (two, three)] == [1, 0], nth


async def test_of_more_than_twenty_that_wait_the_oldest_are_dropped_and_say_so(world: World) -> None:
    session = await at_its_model(world)
    for number in range(MOST_WAITING + 2):
        reply(world, f"late-{number:02}", session, f"words {number}")
    await ended(world, "late-00")
    await ended(world, "late-01")
    assert outcome(world, "late-00") == outcome(world, "late-01") == ("False", "Dropped")
    assert ("Warning", "Dropped") in [event[:2] for event in world.events.emitted]
    world.says(*TURNS, "To the first.", "Ten.", "Ten more.")
    world.model_goes_on()
    for number in range(2, MOST_WAITING + 2):
        await ended(world, f"late-{number:02}")
    completed = [name for run in world.runs() if (name := run.metadata.name).startswith("late") and run.status.merged]
    assert completed == ["late-02", "late-12"]
    assert [len(world.run(name).status.merged) for name in completed] == [9, 9]


async def test_replies_of_one_second_are_answered_in_the_order_of_their_comments(world: World) -> None:
    session = await at_its_model(world)
    for number, name in enumerate(("zoe", "mia", "ann"), 100):
        world.order(name, session=session, message=f"words of {name}", trigger=_event(name, noteId=number))
    world.model_goes_on()
    for name in ("zoe", "mia", "ann"):
        await ended(world, name)
    words = [world.asked(4).index(f"words of {name}") for name in ("zoe", "mia", "ann")]
    assert words == sorted(words)


def test_replies_that_another_run_answers_do_not_count_as_waiting() -> None:
    waiting = [view(f"r{n}", session="s", reply=True, created=f"{n:03}") for n in range(30)]
    assert too_many(waiting) == {f"r{n}" for n in range(9)}
    carried = [view(f"c{n}", session="s", reply=True, created=f"{n:03}", carried=True) for n in range(30)]
    assert too_many(carried) == set()


def test_the_words_of_many_share_the_room_and_say_that_they_were_cut() -> None:
    runs = [builders.run({"message": "x" * 60_000, "session": builders.UID}, name=f"r{n}") for n in range(10)]
    question = question_of(runs[0], runs[1:])
    assert question.cut
    assert 30_000 < len(question.text.encode()) < 34_000
    assert question.runs == tuple(f"r{n}" for n in range(1, 10))
