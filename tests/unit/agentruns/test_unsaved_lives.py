"""A run that is never saved and has more than one life: what changes between them, and who waits for what it left."""

from __future__ import annotations

import json
import threading

import pytest

from tests.unit.agentruns.test_death import at
from tests.unit.agentruns.test_resuming import context
from tests.unit.agentruns.test_unsaved import exchanges, order, saved, store_away_from, texts, unsaved
from tests.unit.agentruns.world import TURNS, World, shell

LATER = (*TURNS, [shell("echo four >> /tmp/data/log", 4)], "Only on arm64.", "Since Monday.", "As I said.")


async def died(world: World, point: str = "after sandbox.run") -> tuple[str, str]:
    """A saved session, and a reply in it whose process died there; their uids."""
    session = (await saved(world, "first", message="why?")).metadata.uid
    world.says(*LATER)
    order(world, "second", session=session, message="only where?")
    assert (await world.live(at(point))).dead
    return session, world.run("second").metadata.uid


async def not_saved(world: World) -> None:
    """It is taken over, and its save fails for good."""
    store_away_from(world, "before store.put_stream")
    await world.live()
    assert world.condition("Succeeded", "second") == ("True", "Completed")
    assert world.condition("SessionSaved", "second") == ("False", "StoreUnavailable")
    world.store.on_call, world.store.down = lambda _: None, False


@pytest.mark.parametrize("point", ["after sandbox.run", "before store.put_stream"])
@pytest.mark.parametrize("then", [True, False], ids=["becomes internal", "is internal no more"])
async def test_a_run_that_was_internal_in_any_of_its_lives_leaves_an_internal_session(
    world: World, point: str, then: bool
) -> None:
    world.internal = False
    session = (await saved(world, "first", message="why?")).metadata.uid
    world.says(*LATER)
    world.internal = not then
    order(world, "second", session=session, message="only where?")
    assert (await world.live(at(point))).dead
    world.internal = then
    await not_saved(world)
    world.internal = False
    order(world, "third", session=session, message="since when?")
    await world.live()
    assert world.condition("Succeeded", "third") == ("False", "SessionInternal")
    assert context(world, session)["internal"] is True


async def test_what_was_said_while_a_run_was_internal_is_saved_as_internal(world: World) -> None:
    session = (await saved(world, "first", message="why?")).metadata.uid
    world.says(*LATER)
    world.internal = True
    order(world, "second", session=session, message="only where?")
    assert (await world.live(at("after sandbox.run"))).dead
    world.internal = False
    await world.live()
    assert world.condition("SessionSaved", "second") == ("True", "Saved")
    assert context(world, session)["internal"] is True


async def test_a_run_that_an_older_version_began_is_not_forgotten_when_this_one_ends_it(world: World) -> None:
    session, second = await died(world)
    del world.store.blobs[f"runs/{session}/next/{second}"]
    key = f"runs/{second}/turns/0001.intent"
    intent = json.loads(world.store.blobs[key])
    del intent["opening"]
    world.store.blobs[key] = json.dumps(intent).encode()
    await not_saved(world)
    order(world, "third", session=session, message="since when?")
    await world.live()
    assert world.condition("Succeeded", "third") == ("False", "SessionNotSaved")


async def test_a_reply_that_is_cancelled_does_not_wait_for_what_is_rebuilt_for_it(world: World) -> None:
    session = (await saved(world, "first", message="why?")).metadata.uid
    second = (await unsaved(world, "second", session=session, message="only where?")).metadata.uid
    inside, hold, real = threading.Event(), threading.Event(), world.store.get

    def slow(key: str) -> bytes | None:
        if key == f"runs/{second}/turns/0001.response":
            inside.set()
            hold.wait()
        return real(key)

    world.store.get = slow  # type: ignore[method-assign]
    order(world, "third", session=session, message="since when?")
    process = world.start()
    try:
        await world.until_now(inside.is_set)
        await world.cancel("third")
        await world.finished("third")
        assert world.condition("Succeeded", "third") == ("False", "Cancelled")
    finally:
        hold.set()
    await process.end()


async def test_a_late_note_shows_what_its_run_said_where_another_one_said_the_same(world: World) -> None:
    session = (await saved(world, "first", message="why?")).metadata.uid
    world.fault("status", "PUT", status=502, times=10_000)
    world.says(*TURNS, "I cannot.", "On both.", "I cannot.", [shell("echo four >> /tmp/data/log", 4)], "Since Monday.")
    world.model_waits_at(7)
    process = world.start()
    for name, question in (("second", "try again"), ("third", "sure?"), ("fourth", "try again")):
        order(world, name, session=session, message=question)
        await world.until(lambda name=name: world.condition("SessionSaved", name) == ("True", "Saved"))  # type: ignore[misc]
    await process.sigterm()
    world.gitlab.faults.clear()
    world.start()
    await world.until(lambda: world.condition("Delivered", "second") == ("True", "NoteWritten"))
    (note,) = world.notes_of(world.run("second"))
    assert (note.body.count("try again"), "sure?" in note.body) == (1, False)
    await world.finished("fourth")


async def test_a_reply_that_could_afford_no_call_is_no_part_of_the_session(world: World) -> None:
    session = (await saved(world, "first", message="why?")).metadata.uid
    order(world, "second", session=session, message="only where?", limits={"maxCostUSD": "0.000001"})
    await world.live()
    assert world.condition("Succeeded", "second") == ("False", "BudgetExhausted")
    assert world.condition("SessionSaved", "second") == ("False", "NothingToSave")
    await saved(world, "third", session=session, message="since when?")
    assert exchanges(world, session)[2:] == ["since when?", "Only on arm64."]
    for key in [key for key in world.store.blobs if key.startswith(f"sessions/{session}/")]:
        del world.store.blobs[key]
    await saved(world, "fourth", session=session, message="sure?")
    assert len(texts(context(world, session)["contents"])) == 6
