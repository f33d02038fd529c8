"""What is internal stays so: conversations that go on, notes that came out public, notes that others left."""

from __future__ import annotations

import json

import pytest

from hummingbird_operator.api.agentrun import AgentRun
from hummingbird_operator.kube.client import AGENT_RUNS
from tests.unit.agentruns.process import NAMESPACE
from tests.unit.agentruns.test_death import at
from tests.unit.agentruns.world import TURNS, World

WORDS = "between-us-only"


async def internal_conversation(world: World) -> AgentRun:
    asked = world.person_writes(f"/hummingbird analyze-failures {WORDS}", internal=True)
    world.command("asked", note=asked, message=WORDS)
    await world.live()
    assert world.condition("Succeeded", "asked") == ("True", "Completed")
    world.says(*TURNS, "It goes on.", "And on.")
    return world.run("asked")


def stored(world: World, session: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(world.store.blobs[f"sessions/{session}/context.json"])
    return found


async def test_an_internal_conversation_never_goes_on_in_a_public_note(world: World) -> None:
    session = (await internal_conversation(world)).metadata.uid
    assert stored(world, session)["internal"] is True
    world.order("byhand", session=session, message="and?")
    await world.live()
    assert world.condition("Succeeded", "byhand") == ("False", "SessionInternal")
    (note,) = world.notes_of(world.run("byhand"))
    assert not note.internal
    assert note.body.startswith("This conversation is internal")
    assert WORDS not in note.body
    assert len(world.model.calls) == 3


async def test_it_goes_on_in_its_own_thread_and_where_no_note_is_written(world: World) -> None:
    first = await internal_conversation(world)
    (note,) = world.notes_of(first)
    world.command("reply", note=note, session=first.metadata.uid, message="and?")
    await world.live()
    assert world.condition("Succeeded", "reply") == ("True", "Completed")
    assert [each.internal for each in world.notes_of(world.run("reply"))] == [True]
    world.order("byhand", session=first.metadata.uid, message="and?", delivery="None")
    await world.live()
    assert world.condition("Succeeded", "byhand") == ("True", "Completed")
    assert world.notes_of(world.run("byhand")) == []
    assert stored(world, first.metadata.uid)["internal"] is True


async def test_a_public_conversation_that_went_on_internally_is_internal_from_then_on(world: World) -> None:
    world.event("first")
    await world.live()
    session = world.run("first").metadata.uid
    assert stored(world, session)["internal"] is False
    (public,) = world.notes_of(world.run("first"))
    world.internal = True
    world.says(*TURNS, "An internal answer.", "A public answer.")
    world.command("inside", note=public, session=session, message=WORDS)
    await world.live()
    assert [note.internal for note in world.notes_of(world.run("inside"))] == [True]
    world.internal = False
    world.command("outside", note=public, session=session, message="and?")
    await world.live()
    assert world.condition("Succeeded", "outside") == ("False", "SessionInternal")
    (told,) = world.notes_of(world.run("outside"))
    assert told.discussion_id == public.discussion_id
    assert WORDS not in told.body
    assert "An internal answer" not in told.body


@pytest.mark.parametrize("internal", [False, True])
async def test_a_conversation_of_an_older_operator_goes_on_where_its_next_run_may(world: World, internal: bool) -> None:
    world.event("first")
    await world.live()
    session = world.run("first").metadata.uid
    older = stored(world, session)
    del older["internal"]
    world.store.blobs[f"sessions/{session}/context.json"] = json.dumps(older).encode()
    world.internal = internal
    world.says(*TURNS, "It goes on.")
    world.order("reply", session=session, message="and?")
    await world.live()
    assert world.condition("Succeeded", "reply") == ("True", "Completed")
    assert stored(world, session)["internal"] is internal


@pytest.mark.parametrize("moment", ["placeholder", "delivery"])
async def test_an_internal_note_that_came_out_public_is_deleted_also_when_that_fails_at_first(
    world: World, moment: str
) -> None:
    world.internal = True
    if moment == "placeholder":
        forbid_internal(world)
        world.fault("status", "DELETE", status=502, times=2)
        world.event("one")
        await world.live()
        assert world.condition("Succeeded", "one") == ("False", "InternalNoteRefused")
    else:
        world.model_waits_at(2)
        world.event("one")
        world.start()
        await world.until_now(lambda: len(world.model.calls) == 3)
        world.remove_note(world.notes[0])
        forbid_internal(world)
        world.fault("status", "DELETE", status=502, times=2)
        world.model_goes_on()
        await world.until(lambda: world.condition("Finished", "one") is not None)
        assert world.condition("Succeeded", "one") == ("False", "DeliveryFailed")
    assert world.notes == []


def forbid_internal(world: World) -> None:
    """GitLab drops the flag of whoever is below Maintainer."""
    with world.gitlab.state.lock:
        project = world.gitlab.state.project(world.project)
        assert project is not None
        project.internal_min_level = 40


async def test_a_refusal_that_is_not_about_visibility_keeps_its_own_reason(world: World) -> None:
    world.internal = True
    world.fault("status", "POST", status=400, body='{"message": "400 Bad request"}')
    world.event("one")
    await world.live()
    assert world.condition("Succeeded", "one") == ("False", "DeliveryFailed")


@pytest.mark.parametrize("internal", [False, True])
async def test_of_the_notes_that_a_deleted_run_left_one_that_fits_is_taken_over_and_the_others_go(
    world: World, internal: bool
) -> None:
    world.event("one")
    process = world.start(at("after gitlab.create"))
    await world.until(lambda: process.dead)
    await process.end()
    process._notes.create(world.project, 42, world.notes[0].body, internal=False)
    await world.kube.patch(AGENT_RUNS, NAMESPACE, "one", [{"op": "remove", "path": "/metadata/finalizers"}])
    await world.delete("one")
    first = world.notes[0].id
    world.internal = internal
    world.event("one", life=2)
    await world.live()
    (note,) = world.notes
    assert note.internal is internal
    assert (note.id == first) is not internal
    assert note.body.startswith("It fails because of")
