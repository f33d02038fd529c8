"""Replies: a run that names a session goes on where that one stopped, and only where it may."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hummingbird_operator.api.agentrun import AgentRun
from tests.unit.agentruns.test_death import at
from tests.unit.agentruns.world import TURNS, World, shell

REPLY = (shell("cat /tmp/data/log; ls /tmp/data/_out; echo four >> /tmp/data/log", 4), "It was three, as I said.")


async def first(world: World) -> AgentRun:
    world.order("first")
    await world.live()
    assert world.condition("Succeeded", "first") == ("True", "Completed")
    world.says(*TURNS, *REPLY)
    return world.run("first")


def context(world: World, session: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(world.store.blobs[f"sessions/{session}/context.json"])
    return found


async def test_a_reply_sees_the_conversation_and_finds_its_files_in_the_lingering_sandbox(world: World) -> None:
    session = (await first(world)).metadata.uid
    world.order("why", session=session, message="and on arm64?")
    await world.live()
    assert world.outcome == ("True", "Completed")
    assert world.condition("SandboxReady") == ("True", "Reclaimed")
    call = world.model.calls[3]
    assert len(call.contents) == 7
    assert call.contents[:6] == context(world, session)["contents"][:6]
    assert world.asked(3).endswith("\n\nand on arm64?")
    assert call.system == world.model.calls[0].system
    assert call.tools == world.model.calls[0].tools
    results = str(world.model.calls[4].contents[-1])
    assert "three" in results
    assert "0.txt" in results
    assert len(world.pool.made) == 1
    saved = context(world, session)
    assert saved["run"] == world.run().metadata.uid
    assert len(saved["contents"]) == 6 + 4
    (note,) = world.notes_of(world.run())
    assert note.body.startswith("It was three, as I said.")
    assert "conversation and its files are kept" not in note.body
    assert [place.session for place in world.pool.places] == [session]


async def test_without_its_sandbox_a_reply_gets_the_files_back_from_the_archive(world: World) -> None:
    session = (await first(world)).metadata.uid
    world.pool.delete(world.pool.places[0])
    world.order("why", session=session, message="and on arm64?")
    await world.live()
    assert world.outcome == ("True", "Completed")
    assert world.condition("SandboxReady") == ("True", "Claimed")
    assert len(world.pool.made) == 2
    assert "three" in str(world.model.calls[4].contents[-1])
    assert world.pool.made[1].path("/tmp/data/log").read_text() == "one\ntwo\nthree\nfour\n"


async def test_a_session_that_is_not_there_ends_the_run_with_its_own_reason_and_asks_no_model(world: World) -> None:
    world.order(session="3f0c4b8e-51f2-4c7d-9a43-0b6c1f0e7d55")
    world.start()
    await world.finished()
    assert world.outcome == ("False", "SessionNotFound")
    assert world.model.calls == []
    assert "This conversation is not kept any more" in world.notes[0].body
    assert world.pool.made == []


@pytest.mark.parametrize("spec", [{"target": None}, {"workflow": "other"}, {"namespace": "elsewhere"}])
async def test_a_session_is_resumed_only_where_it_was_made(world: World, spec: dict[str, Any]) -> None:
    session = (await first(world)).metadata.uid
    before = dict(world.store.blobs)
    world.order("why", session=session, message="tell me", **spec)
    await world.live()
    assert world.outcome == ("False", "Invalid")
    assert len(world.model.calls) == 3
    assert world.store.blobs == before


async def test_two_replies_to_one_session_go_one_after_the_other_and_the_later_sees_both(world: World) -> None:
    session = (await first(world)).metadata.uid
    world.says(*TURNS, "First reply.", "Second reply.")
    world.order("why", session=session, message="one")
    world.order("what", session=session, message="two")
    await world.live()
    assert world.condition("Succeeded", "why") == world.condition("Succeeded", "what") == ("True", "Completed")
    assert [len(call.contents) for call in world.model.calls[3:]] == [7, 9]
    assert len(context(world, session)["contents"]) == 10


async def test_a_session_that_was_damaged_is_refused_and_named(world: World) -> None:
    session = (await first(world)).metadata.uid
    world.store.blobs[f"sessions/{session}/context.json"] = b"{"
    world.order("why", session=session, message="tell me")
    await world.live()
    assert world.outcome == ("False", "SessionUnreadable")
    assert f"sessions/{session}/context.json" in (world.run().status.message or "")


@pytest.mark.parametrize(("damage", "place"), [("version", "messages[0].version"), ("role", "messages[0].role")])
async def test_a_conversation_that_was_damaged_is_refused_and_names_the_place(
    world: World, damage: str, place: str
) -> None:
    session = (await first(world)).metadata.uid
    key = f"sessions/{session}/context.json"
    stored = json.loads(world.store.blobs[key])
    stored["contents"][0][damage] = 2
    world.store.blobs[key] = json.dumps(stored).encode()
    world.order("why", session=session, message="tell me")
    await world.live()
    assert world.outcome == ("False", "SessionUnreadable")
    assert f"the session's conversation cannot be read: {place}" in (world.run().status.message or "")


NEWER = "[The files in /tmp/data may be newer than this conversation, or missing.]"


@pytest.mark.parametrize("point", [None, "before model.generate", "after sandbox.run", "before store.put_stream"])
async def test_a_reply_goes_on_with_the_files_of_a_save_that_was_never_finished_and_the_model_is_told(
    world: World, point: str | None
) -> None:
    session = (await first(world)).metadata.uid
    world.store.blobs[f"sessions/{session}/sandbox.tar.gz"] = await other_archive(world)
    world.says(*TURNS, *REPLY)
    forget(world)
    world.model.calls.clear()
    world.order("why", session=session, message="tell me")
    if point is not None:
        assert (await world.live(at(point))).dead
    await world.live()
    assert world.outcome == ("True", "Completed")
    first_asked = world.asked()
    assert first_asked.count(NEWER) == 1
    assert first_asked.endswith("\n\ntell me")
    assert str(context(world, session)["contents"]).count(NEWER) == 1
    (note,) = world.notes_of(world.run())
    assert note.body.startswith("It was three, as I said.")


@pytest.mark.parametrize("broken", [b"no archive", None])
async def test_a_reply_without_a_usable_archive_goes_on_and_the_model_is_told(
    world: World, broken: bytes | None
) -> None:
    session = (await first(world)).metadata.uid
    world.store.blobs.pop(f"sessions/{session}/sandbox.tar.gz")
    if broken is not None:
        world.store.blobs[f"sessions/{session}/sandbox.tar.gz"] = broken
    forget(world)
    world.order("why", session=session, message="tell me")
    await world.live()
    assert world.outcome == ("True", "Completed")
    assert ("could not be restored" if broken else "/tmp/data is empty now") in world.asked(3)


async def test_a_sandbox_that_cannot_be_packed_costs_the_files_and_not_the_conversation(world: World) -> None:
    world.says(shell("rm -r /tmp/data"), "Done.", *REPLY)
    world.order("first")
    await world.live()
    session = world.run("first").metadata.uid
    assert world.condition("SessionSaved", "first") == ("True", "SavedWithoutFiles")
    assert [place.session for place in world.pool.places] == [session], "what files there are linger"
    saved = context(world, session)
    assert (saved["archive"], saved["archive_problem"]) == (None, "packing them failed with exit code 2")
    transcript = world.store.blobs[f"sessions/{session}/transcript.md"].decode()
    assert transcript.endswith("The files of the sandbox were not kept: packing them failed with exit code 2.\n")
    forget(world)
    world.order("why", session=session, message="tell me")
    await world.live()
    assert world.outcome == ("True", "Completed")
    assert "[The files of the sandbox were not kept: /tmp/data is empty now.]\n\ntell me" in world.asked(2)


def forget(world: World) -> None:
    """Every lingering sandbox is deleted: the reply gets a new one."""
    for place in list(world.pool.places):
        world.pool.delete(place)


async def other_archive(world: World) -> bytes:
    world.says(shell("echo evil > /tmp/data/log"), "Done.")
    world.model.calls.clear()
    world.order("other", target=None)
    await world.live()
    return world.store.blobs[f"sessions/{world.run('other').metadata.uid}/sandbox.tar.gz"]


POINTS_OF_A_REPLY = (
    "after pool.claim",
    "before sandbox.start",
    "after sandbox.stream_exec",
    "before store.create",
    "after store.create",
    "after model.generate",
    "after sandbox.run",
    "before gitlab.update",
    "after gitlab.update",
    "before store.put_stream",
    "after store.put_stream",
    "before store.put",
    "after store.put",
    "after pool.let_go",
)


@pytest.mark.parametrize("lingers", [True, False])
@pytest.mark.parametrize("point", POINTS_OF_A_REPLY)
async def test_a_reply_survives_a_death_too(world: World, point: str, lingers: bool) -> None:
    session = (await first(world)).metadata.uid
    if not lingers:
        world.pool.delete(world.pool.places[0])
    world.order("why", session=session, message="and on arm64?")
    died = (await world.live(at(point))).dead
    assert died or (lingers and point.endswith("stream_exec"))
    if died:
        await world.live()
    assert world.outcome == ("True", "Completed")
    assert len(context(world, session)["contents"]) == 10
    (note,) = world.notes_of(world.run())
    assert note.body.startswith("It was three, as I said.")
    assert note.body.count("and on arm64?") == 1
    assert len(world.pool.executed) == len(set(world.pool.executed)) == 4
    assert world.pool.made[-1].path("/tmp/data/log").read_text() == "one\ntwo\nthree\nfour\n"
    assert len(world.model.calls) <= 5 + 1
    assert world.pool.active == []


async def test_a_reply_whose_note_is_late_shows_its_conversation_once_although_it_was_saved_before(
    world: World,
) -> None:
    session = (await first(world)).metadata.uid
    world.fault("status", "PUT", status=502, times=2)
    world.order("why", session=session, message="and on arm64?")
    process = world.start()
    await world.until(lambda: world.condition("SessionSaved") == ("True", "Saved"))
    await process.sigterm()
    await world.live()
    assert world.outcome == ("True", "Completed")
    (note,) = world.notes_of(world.run())
    assert note.body.count("and on arm64?") == 1
