"""A run whose save never came: the next reply makes it from the journal, and goes on with all that was said."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from hummingbird_operator.api.agentrun import AgentRun
from hummingbird_operator.errors import Unavailable
from tests.unit.agentruns.process import Process
from tests.unit.agentruns.test_death import at
from tests.unit.agentruns.test_resuming import NEWER, context, forget
from tests.unit.agentruns.world import TURNS, World, shell

TALK = (*TURNS, "Only on arm64.", [shell("echo four >> /tmp/data/log", 4)], "Since Monday.", "As I said.")
"""A first run of three turns, a reply of one, a reply of two, and one more."""
NOT_KEPT = "[The files of the sandbox were not kept: /tmp/data is empty now.]"


def store_away_from(world: World, call: str) -> None:
    """From that call on, once, the store is away."""

    def on_call(name: str) -> None:
        if name == call:
            world.store.on_call = lambda _: None
            world.store.down = True
            if name.startswith("before"):
                raise Unavailable("the session store", "a test took it down")

    world.store.on_call = on_call


async def unsaved(world: World, name: str, *, away_from: str = "before store.put_stream", **spec: Any) -> AgentRun:
    """A run that is answered and told, and whose save fails for good; then the store is back."""
    world.says(*TALK)
    store_away_from(world, away_from)
    order(world, name, **spec)
    await world.live()
    assert world.condition("Succeeded", name) == ("True", "Completed")
    assert world.condition("SessionSaved", name) == ("False", "StoreUnavailable")
    world.store.down = False
    return world.run(name)


def order(world: World, name: str, **spec: Any) -> None:
    if "session" in spec:
        note = world.person_writes(spec.get("message", ""))
        world.command(name, note=note, **spec)
    else:
        world.order(name, **spec)


async def saved(world: World, name: str, **spec: Any) -> AgentRun:
    world.says(*TALK)
    order(world, name, **spec)
    await world.live()
    assert world.condition("Succeeded", name) == ("True", "Completed"), world.run(name).status.message
    assert world.condition("SessionSaved", name) == ("True", "Saved")
    return world.run(name)


def texts(contents: Any) -> list[str]:
    return [part["text"] for content in contents for part in content["parts"] if part["type"] == "text"]


def exchanges(world: World, session: str) -> list[str]:
    """What people asked and what was answered, as the session has it."""
    return [text.rpartition("\n\n")[2] for text in texts(context(world, session)["contents"])]


def bought(world: World) -> int:
    return sum(key.endswith(".response") for key in world.store.blobs)


async def test_a_reply_to_a_first_run_that_was_never_saved_goes_on_with_it(world: World) -> None:
    session = (await unsaved(world, "first", message="why?")).metadata.uid
    assert f"sessions/{session}/context.json" not in world.store.blobs
    await saved(world, "reply", session=session, message="and on arm64?")
    call = world.model.calls[3]
    assert len(call.contents) == 7
    assert call.contents[:5] == world.model.calls[2].contents
    assert (call.system, call.tools) == (world.model.calls[0].system, world.model.calls[0].tools)
    assert world.asked(3).endswith(f"{NOT_KEPT}\n\nand on arm64?")
    (note,) = world.notes_of(world.run("reply"))
    assert note.body.startswith("Only on arm64.")
    assert len(context(world, session)["contents"]) == 8
    assert len(world.model.calls) == bought(world) == 4


async def test_a_reply_that_was_never_saved_is_in_the_history_of_the_next_one(world: World) -> None:
    session = (await saved(world, "first", message="why?")).metadata.uid
    await unsaved(world, "second", session=session, message="only where?")
    assert len(context(world, session)["contents"]) == 6
    await saved(world, "third", session=session, message="since when?")
    history = texts(world.model.calls[4].contents)
    assert [text.rpartition("\n\n")[2] for text in history[1:]] == [
        "It fails because of **three**.",
        "only where?",
        "Only on arm64.",
        "since when?",
    ]
    assert [world.notes_of(world.run(name))[0].body.partition("\n")[0] for name in ("first", "second", "third")] == [
        "It fails because of **three**.",
        "Only on arm64.",
        "Since Monday.",
    ]
    assert exchanges(world, session)[1:] == [
        "It fails because of **three**.",
        "only where?",
        "Only on arm64.",
        "since when?",
        "Since Monday.",
    ]
    assert len(world.model.calls) == bought(world) == 6
    assert world.condition("SessionSaved", "second") == ("False", "StoreUnavailable")


async def test_of_two_replies_in_a_row_that_were_not_saved_both_are_there_in_order(world: World) -> None:
    session = (await unsaved(world, "first", message="why?")).metadata.uid
    await unsaved(world, "second", session=session, message="only where?")
    await unsaved(world, "third", session=session, message="since when?")
    await saved(world, "fourth", session=session, message="sure?")
    assert exchanges(world, session)[1:] == [
        "It fails because of **three**.",
        "only where?",
        "Only on arm64.",
        "since when?",
        "Since Monday.",
        "sure?",
        "As I said.",
    ]
    assert len(world.model.calls) == bought(world) == 7


async def test_a_session_that_is_not_kept_any_more_is_rebuilt_run_by_run_from_its_journals(world: World) -> None:
    session = (await saved(world, "first", message="why?")).metadata.uid
    await saved(world, "second", session=session, message="only where?")
    whole = context(world, session)
    for key in [key for key in world.store.blobs if key.startswith(f"sessions/{session}/")]:
        del world.store.blobs[key]
    forget(world)
    await saved(world, "third", session=session, message="since when?")
    assert context(world, session)["contents"][: len(whole["contents"])] == whole["contents"]
    assert len(texts(world.model.calls[4].contents)) == 5


@pytest.mark.parametrize("nth", range(10))
async def test_wherever_the_store_went_away_behind_an_answer_the_next_reply_has_that_answer(
    world: World, nth: int
) -> None:
    session = (await saved(world, "first", message="why?")).metadata.uid
    operations = [nth]

    def on_call(name: str) -> None:
        if any(key.endswith(".response") and session not in key for key in world.store.blobs):
            operations[0] -= name.startswith("before")
            world.store.down = operations[0] < 0

    world.store.on_call = on_call
    order(world, "second", session=session, message="only where?")
    await world.live()
    assert world.condition("Succeeded", "second") == ("True", "Completed")
    world.store.on_call, world.store.down = lambda _: None, False
    await saved(world, "third", session=session, message="since when?")
    assert exchanges(world, session)[2:] == ["only where?", "Only on arm64.", "since when?", "Since Monday."]


async def test_a_run_whose_object_went_before_its_save_is_in_the_session_all_the_same(world: World) -> None:
    session = (await saved(world, "first", message="why?")).metadata.uid
    world.says(*TALK)
    order(world, "second", session=session, message="only where?")
    assert (await world.live(at("before store.put_stream"))).dead
    await world.delete("second")
    process = world.start()
    await world.until(lambda: len(world.runs()) == 1)
    await process.end()
    assert len(context(world, session)["contents"]) == 6
    await saved(world, "third", session=session, message="since when?")
    assert exchanges(world, session)[2:4] == ["only where?", "Only on arm64."]


async def test_a_conversation_that_was_broken_off_goes_on_with_what_there_is(world: World) -> None:
    session = (await saved(world, "first", message="why?")).metadata.uid
    world.says(*TURNS, [shell("echo four >> /tmp/data/log", 4)], "never said")
    order(world, "second", session=session, message="only where?")
    assert (await world.live(at("after sandbox.run"))).dead
    await world.delete("second")
    process = world.start()
    await world.until(lambda: len(world.runs()) == 1)
    await process.end()
    world.says(*TURNS, "unused", "And so on.")
    order(world, "third", session=session, message="since when?")
    await world.live()
    assert world.condition("Succeeded", "third") == ("True", "Completed")
    cut = context(world, session)["contents"][8]["parts"]
    assert [(part["type"], part["id"]) for part in cut] == [("tool_result", "call-4")]
    assert "what it had done by then stands" in cut[0]["result"]["error"]


POINTS = ("before store.put", "after store.put", "before store.create", "after store.create", "before model.generate")


@pytest.mark.parametrize("first_too", [False, True], ids=["a reply is missing", "all is missing"])
@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("point", POINTS)
async def test_whoever_rebuilds_may_die_at_any_write_and_nothing_is_bought_or_said_twice(
    world: World, point: str, nth: int, first_too: bool
) -> None:
    session = (await (unsaved if first_too else saved)(world, "first", message="why?")).metadata.uid
    if not first_too:
        await unsaved(world, "second", session=session, message="only where?")
    turns = len(world.model.calls)
    world.says(*TALK)
    order(world, "third", session=session, message="since when?")
    died = (await world.live(at(point, nth))).dead
    assert died or (point == "before model.generate" and nth > 1)
    if died:
        await world.live()
    assert world.condition("Succeeded", "third") == ("True", "Completed")
    assert len(exchanges(world, session)) == (4 if first_too else 6)
    assert len(set(exchanges(world, session))) == len(exchanges(world, session))
    assert bought(world) == turns + (1 if first_too else 2)
    assert len(world.model.calls) <= bought(world) + died
    assert len(world.notes_of(world.run("third"))) == 1


async def test_a_store_that_fails_while_a_session_is_rebuilt_is_waited_for(world: World) -> None:
    session = (await saved(world, "first", message="why?")).metadata.uid
    await unsaved(world, "second", session=session, message="only where?")
    failures = [3]

    def on_call(name: str) -> None:
        if name == "before store.put" and failures[0]:
            failures[0] -= 1
            raise Unavailable("the session store", "made by a test")

    world.store.on_call = on_call
    await saved(world, "third", session=session, message="since when?")
    assert failures == [0]
    assert exchanges(world, session)[2:4] == ["only where?", "Only on arm64."]


async def test_the_files_of_a_first_save_that_was_not_finished_are_the_conversations(world: World) -> None:
    session = (await unsaved(world, "first", message="why?", away_from="after store.put_stream")).metadata.uid
    assert f"sessions/{session}/sandbox.tar.gz" in world.store.blobs
    await saved(world, "reply", session=session, message="and on arm64?")
    assert "[The files" not in world.asked(3)
    assert world.pool.made[-1].path("/tmp/data/log").read_text() == "one\ntwo\nthree\n"


async def test_the_files_of_a_reply_whose_save_was_not_finished_may_be_newer_and_it_is_said(
    world: World,
) -> None:
    session = (await saved(world, "first", message="why?")).metadata.uid
    world.says(*TURNS, [shell("echo four >> /tmp/data/log", 4)], "Only on arm64.", "Since Monday.")
    store_away_from(world, "after store.put_stream")
    order(world, "second", session=session, message="only where?")
    await world.live()
    world.store.down = False
    order(world, "third", session=session, message="since when?")
    await world.live()
    assert NEWER in world.asked(5)


async def test_an_internal_run_that_was_not_saved_makes_its_session_internal(world: World) -> None:
    session = (await saved(world, "first", message="why?")).metadata.uid
    world.says(*TALK)
    store_away_from(world, "before store.put_stream")
    asked = world.person_writes("between us", internal=True)
    world.command("second", note=asked, session=session, message="between us")
    await world.live()
    assert world.condition("SessionSaved", "second") == ("False", "StoreUnavailable")
    world.store.down = False
    order(world, "third", session=session, message="since when?")
    await world.live()
    assert world.condition("Succeeded", "third") == ("False", "SessionInternal")
    assert "between us" not in world.notes_of(world.run("third"))[0].body
    assert context(world, session)["internal"] is True
    again = world.person_writes("and?", internal=True)
    world.command("fourth", note=again, session=session, message="and?")
    await world.live()
    assert world.condition("Succeeded", "fourth") == ("True", "Completed")


@pytest.mark.parametrize("spec", [{"target": None}, {"workflow": "other"}, {"namespace": "elsewhere"}])
@pytest.mark.parametrize("first_too", [False, True])
async def test_who_may_not_resume_a_session_does_not_make_its_save_either(
    world: World, spec: dict[str, Any], first_too: bool
) -> None:
    session = (await (unsaved if first_too else saved)(world, "first", message="why?")).metadata.uid
    if not first_too:
        await unsaved(world, "second", session=session, message="only where?")
    before = dict(world.store.blobs)
    world.order("stranger", session=session, message="tell me", **spec)
    await world.live()
    assert world.condition("Succeeded", "stranger") == ("False", "Invalid")
    assert world.store.blobs == before


async def test_a_run_that_only_tells_its_note_again_does_not_save_the_reply_that_is_at_work_now(world: World) -> None:
    session = (await saved(world, "first", message="why?")).metadata.uid
    world.fault("status", "PUT", status=502, times=10_000)
    world.says(*TURNS, "Only on arm64.", "On both.", [shell("echo four >> /tmp/data/log", 4)], "Since Monday.")
    world.model_waits_at(6)
    process = world.start()
    order(world, "second", session=session, message="only where?")
    await world.until(lambda: world.condition("SessionSaved", "second") == ("True", "Saved"))
    order(world, "third", session=session, message="sure?")
    await world.until(lambda: world.condition("SessionSaved", "third") == ("True", "Saved"))
    order(world, "fourth", session=session, message="since when?")
    await world.until_now(lambda: len(world.model.calls) == 7)
    await process.sigterm()
    world.gitlab.faults.clear()
    world.start()
    await world.until(lambda: world.condition("Delivered", "second") == ("True", "NoteWritten"))
    (note,) = world.notes_of(world.run("second"))
    assert note.body.count("only where?") == 1
    assert "sure?" not in note.body, "what was said later stands in later notes"
    assert context(world, session)["run"] == world.run("third").metadata.uid
    world.model_goes_on()
    await world.finished("fourth")
    assert world.condition("SessionSaved", "fourth") == ("True", "Saved")
    assert exchanges(world, session)[4:] == ["sure?", "On both.", "since when?", "Since Monday."]


async def test_what_an_older_version_left_unsaved_is_told_as_before(world: World) -> None:
    session = (await unsaved(world, "first", message="why?")).metadata.uid
    key = f"runs/{session}/turns/0001.intent"
    older = json.loads(world.store.blobs[key])
    del older["opening"]
    world.store.blobs[key] = json.dumps(older).encode()
    order(world, "reply", session=session, message="and on arm64?")
    await world.live()
    assert world.condition("Succeeded", "reply") == ("False", "SessionNotSaved")
    assert world.notes_of(world.run("reply"))[0].body.startswith("This conversation was never saved")
    assert len(world.model.calls) == 3


async def test_a_first_run_without_an_answer_leaves_nothing_to_go_on_with(world: World) -> None:
    world.model_waits_at(0)
    order(world, "first", message="why?")
    process = world.start()
    await world.until_now(lambda: len(world.model.calls) == 1)
    world.store.down = True
    await world.cancel("first")
    await world.finished("first")
    await process.end()
    world.store.down = False
    session = world.run("first").metadata.uid
    order(world, "reply", session=session, message="and on arm64?")
    await world.live()
    assert world.condition("Succeeded", "reply") == ("False", "SessionNotSaved")
    assert f"sessions/{session}/context.json" not in world.store.blobs


@pytest.mark.parametrize("damaged", ["turns/0001.response", "turns/0001.intent"])
async def test_a_journal_that_was_damaged_is_said_and_nothing_is_forgotten_silently(world: World, damaged: str) -> None:
    session = (await saved(world, "first", message="why?")).metadata.uid
    second = (await unsaved(world, "second", session=session, message="only where?")).metadata.uid
    world.store.blobs[f"runs/{second}/{damaged}"] = b"{"
    calls = len(world.model.calls)
    order(world, "third", session=session, message="since when?")
    await world.live()
    assert world.condition("Succeeded", "third") == ("False", "SessionUnreadable")
    assert f"runs/{second}/{damaged}" in (world.run("third").status.message or "")
    assert len(world.model.calls) == calls


MOST = {("order", "lingers"): 20, ("order", "gone"): 21, ("thread", "lingers"): 24, ("thread", "gone"): 25}
"""What a reply asked of its store before anybody rebuilt anything."""


@pytest.mark.parametrize(("made", "sandbox"), MOST)
async def test_a_reply_after_a_saved_run_asks_no_more_of_its_store_than_it_ever_did(
    world: World, made: str, sandbox: str
) -> None:
    world.says(*TURNS, [shell("echo four >> /tmp/data/log", 4)], "Done.")
    world.order("first")
    await world.live()
    session = world.run("first").metadata.uid
    if sandbox == "gone":
        forget(world)
    seen: Counter[str] = Counter()
    world.store.on_call = lambda name: seen.update([name] * name.startswith("before"))
    if made == "thread":
        order(world, "reply", session=session, message="and on arm64?")
    else:
        world.order("reply", session=session, message="and on arm64?")
    process: Process = await world.live()
    assert world.condition("Succeeded", "reply") == ("True", "Completed")
    assert process.points.count("before model.generate") == 2
    assert seen.total() <= MOST[made, sandbox], seen
