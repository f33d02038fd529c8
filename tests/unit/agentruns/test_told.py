"""Whoever asked in a comment is told what became of it, and no note says for ever that a run works."""

from __future__ import annotations

import dataclasses
import uuid
from typing import Any

import pytest

from hummingbird_operator.agentruns.decide import Step
from hummingbird_operator.agentruns.following import question_of
from hummingbird_operator.api.agentrun import MESSAGE_BYTES
from hummingbird_operator.delivery import markers
from hummingbird_operator.kube.client import AGENT_RUNS
from hummingbird_operator.settings import Settings
from tests.standins.gitlab.state import Note
from tests.unit.agentruns.builders import NOW, conditions, run
from tests.unit.agentruns.process import NAMESPACE
from tests.unit.agentruns.test_death import at
from tests.unit.agentruns.test_following import busy, ended, outcome, reply
from tests.unit.agentruns.world import World

COMMAND = "/hummingbird analyze-failures why"
FORBIDDEN = {"status": 403, "body": '{"message": "403 Forbidden"}'}
NO_PROJECT = {"status": 404, "body": '{"message": "404 Project Not Found"}'}


def configure(world: World, **changed: dict[str, Any] | None) -> None:
    """From the next process on, workflows have other settings, or are gone."""
    real = world.settings

    def settings() -> Settings:
        made = real()
        workflows = {name: entry for name, entry in made.config.workflows.items() if changed.get(name, {}) is not None}
        for name, entry in workflows.items():
            workflows[name] = entry.model_copy(update=changed.get(name) or {})
        return dataclasses.replace(made, config=made.config.model_copy(update={"workflows": workflows}))

    world.settings = settings  # type: ignore[method-assign]


def told(world: World, name: str) -> Note:
    (note,) = world.notes_of(world.run(name))
    return note


def reactions(note: Note) -> list[str]:
    return [award["name"] for award in note.emoji]


async def test_a_command_whose_workflow_went_while_it_waited_is_told_so(world: World) -> None:
    world.limits = {"max_concurrent_runs": 1}
    world.model_waits_at(1)
    world.order("hog", target=None)
    process = world.start()
    await world.until_now(lambda: len(world.model.calls) == 2)
    asked = world.person_writes(COMMAND)
    world.command("asked", note=asked, message="why")
    await world.until(lambda: outcome(world, "asked") == ("Unknown", "Queued"))
    await process.end()
    configure(world, **{"analyze-failures": None})
    world.start()
    await ended(world, "asked")
    assert outcome(world, "asked") == ("False", "Invalid")
    note = told(world, "asked")
    assert note.discussion_id == asked.discussion_id
    assert "There is no such workflow here (any more)." in note.body
    assert reactions(asked) == ["x"]


async def test_a_command_that_cannot_get_its_note_by_any_try_is_told_so_at_the_end(world: World) -> None:
    asked = world.person_writes(COMMAND)
    world.command("asked", note=asked)
    world.start().fails_at(Step.PLACEHOLDER)
    await ended(world, "asked")
    assert outcome(world, "asked") == ("False", "AttemptsExhausted")
    assert "AttemptsExhausted" in told(world, "asked").body


async def test_one_that_was_cancelled_in_the_queue_is_not_told_what_somebody_wanted(world: World) -> None:
    world.limits = {"max_concurrent_runs": 1}
    world.model_waits_at(1)
    world.order("hog", target=None)
    world.start()
    await world.until_now(lambda: len(world.model.calls) == 2)
    world.command("asked", note=world.person_writes(COMMAND))
    await world.until(lambda: outcome(world, "asked") == ("Unknown", "Queued"))
    await world.cancel("asked")
    await ended(world, "asked")
    assert world.notes_of(world.run("asked")) == []
    world.model_goes_on()
    await ended(world, "hog")


@pytest.mark.parametrize(("method", "fault"), [("POST", FORBIDDEN), ("GET", FORBIDDEN), ("GET", NO_PROJECT)])
async def test_a_role_that_is_lost_for_a_moment_costs_no_run(world: World, method: str, fault: dict[str, Any]) -> None:
    asked = world.person_writes(COMMAND)
    world.fault("status", method, times=2, **fault)
    world.command("asked", note=asked, message="why")
    await world.live()
    assert outcome(world, "asked") == ("True", "Completed")
    assert told(world, "asked").body.startswith("It fails because of")
    assert (world.clock() - NOW).total_seconds() < 60


async def test_a_role_that_does_not_come_back_is_waited_for_and_then_the_run_ends(world: World) -> None:
    world.limits = {"delivery_retry_seconds": 7200}
    world.fault("status", "POST", times=100_000, **FORBIDDEN)
    world.event("one")
    await world.live()
    assert outcome(world, "one") == ("False", "DeliveryFailed")
    assert 7200 <= (world.clock() - NOW).total_seconds() < 6 * 3600
    assert world.posts() < 60


async def test_a_project_that_the_bot_never_sees_is_refused_when_the_patience_is_over(world: World) -> None:
    world.limits = {"delivery_retry_seconds": 3600}
    world.fault("status", "GET", times=100_000, **NO_PROJECT)
    world.event("one")
    await world.live()
    assert outcome(world, "one") == ("False", "Invalid")
    assert 3600 <= (world.clock() - NOW).total_seconds() < 3700


async def test_a_note_that_gitlab_refused_for_the_moment_is_posted_when_it_says_and_not_looked_for(
    world: World,
) -> None:
    world.fault("status", "POST", status=429, times=3, headers={"Retry-After": "7"})
    world.order()
    before = len(world.gitlab.calls)
    await world.live()
    assert world.outcome == ("True", "Completed")
    assert (len(world.notes), world.posts()) == (1, 4)
    assert 21 <= (world.clock() - NOW).total_seconds() < 60
    assert not [call for call in world.gitlab.calls[before:] if "discussions" in call.path and call.method == "GET"]


async def test_the_note_of_a_run_is_read_by_itself_at_delivery(world: World) -> None:
    world.order()
    before = len(world.gitlab.calls)
    await world.live()
    reads = [call.path for call in world.gitlab.calls[before:] if call.method == "GET" and world.project in call.path]
    assert not [path for path in reads if "discussions" in path]
    assert [path for path in reads if path.endswith(f"/notes/{world.notes[0].id}")]


async def test_what_a_refusal_names_of_other_projects_stands_in_the_status_only(world: World) -> None:
    configure(world, **{"analyze-failures": {"projects": ["group/other", "acquisitions/zeus/*"]}})
    asked = world.person_writes("and?")
    world.command("reply", note=asked, message="and?", session=str(uuid.uuid4()))
    await world.live()
    assert "acquisitions/zeus" in (world.run("reply").status.message or "")
    note = told(world, "reply")
    assert "This workflow is not set up for this project." in note.body
    assert "zeus" not in note.body
    assert "group/other" not in note.body


async def test_a_placeholder_of_a_dead_process_says_what_became_of_a_run_that_is_configured_no_more(
    world: World,
) -> None:
    world.event("one")
    process = world.start(at("after gitlab.create"))
    await world.until(lambda: process.dead)
    await process.end()
    configure(world, **{"analyze-failures": None})
    await world.live()
    assert outcome(world, "one") == ("False", "Invalid")
    assert (len(world.notes), world.posts()) == (1, 1)
    assert "There is no such workflow here" in world.notes[0].body


async def test_an_answer_whose_workflow_went_before_its_delivery_is_shown_as_an_answer(world: World) -> None:
    world.fault("status", "PUT", status=502, times=100)
    world.event("one")
    process = world.start()
    await world.until(lambda: world.condition("Delivered", "one") == ("Unknown", "Retrying"))
    await process.end()
    world.gitlab.faults.clear()
    configure(world, **{"analyze-failures": None})
    await world.live()
    assert outcome(world, "one") == ("True", "Completed")
    note = told(world, "one")
    assert note.body.startswith("It fails because of **three**.")
    marker = markers.parse(note.body)
    assert marker is not None
    assert marker.state == "done"


async def test_a_note_that_was_taken_over_is_found_again_by_whoever_comes_next(world: World) -> None:
    world.event("one")
    process = world.start(at("after gitlab.create"))
    await world.until(lambda: process.dead)
    await process.end()
    await world.kube.patch(AGENT_RUNS, NAMESPACE, "one", [{"op": "remove", "path": "/metadata/finalizers"}])
    await world.delete("one")
    world.event("one", life=2)
    second = world.start(at("after gitlab.update"))
    await world.until(lambda: second.dead)
    await second.end()
    await world.live()
    assert outcome(world, "one") == ("True", "Completed")
    assert (len(world.notes), world.posts()) == (1, 1)


async def test_the_placeholder_of_a_reply_that_another_run_answers_is_taken_away(world: World) -> None:
    """Two replies of one second: the one that goes second may have posted before a death."""
    world.event("reply")
    process = world.start(at("after gitlab.create"))
    await world.until(lambda: process.dead)
    await process.end()
    assert len(world.notes) == 1
    status = world.run("reply").status.as_dict()
    status["conditions"] = conditions(Accepted="True", Answered="False/Merged", Succeeded="Unknown/Delivering")
    world.kube.set_status(AGENT_RUNS, NAMESPACE, "reply", status)
    await world.live()
    assert outcome(world, "reply") == ("True", "Merged")
    assert world.notes == []
    assert world.run("reply").status.note is None


@pytest.mark.parametrize(
    ("words", "session", "speaks"), [(None, None, True), ("why?", None, False), (None, "s", False)]
)
async def test_only_a_run_without_words_and_session_speaks_for_its_commit(
    world: World, words: str | None, session: str | None, speaks: bool
) -> None:
    spec: dict[str, Any] = {"message": words} if words else {}
    if session is not None:
        world.order("first", message="first words")
        await world.live()
        spec["session"] = world.run("first").metadata.uid
    world.order("byhand", **spec)
    await world.live()
    marker = markers.parse(told(world, "byhand").body)
    assert marker is not None
    assert (marker.sha is not None) is speaks


async def test_a_reply_to_a_run_that_asked_no_model_reads_that_it_never_began(world: World) -> None:
    world.limits = {"run_timeout_seconds": 60}
    world.pool.capacity = 0
    world.event("first")
    world.start()
    await ended(world, "first")
    world.pool.capacity = 10
    world.command("reply", session=world.run("first").metadata.uid, message="and?")
    await ended(world, "reply")
    assert outcome(world, "reply") == ("False", "SessionNotSaved")
    assert "its run ended before it asked a model" in told(world, "reply").body


def words_of(*messages: str) -> list[Any]:
    trigger = {"source": "gitlab", "event": "note", "author": "alice"}
    return [run({"message": each, "trigger": trigger}, name=f"r{number}") for number, each in enumerate(messages)]


def test_of_several_replies_the_short_ones_are_whole_and_the_longest_says_that_it_was_cut() -> None:
    long = "x" * (MESSAGE_BYTES - 1000) + "THE-END"
    whole, *others = words_of("short", long)
    question = question_of(whole, others)
    assert "THE-END" in question.text
    assert not question.cut
    whole, *others = words_of("y" * 1000, "z" * 40_000, "w")
    question = question_of(whole, others)
    assert question.cut
    assert "y" * 1000 + "\n\n" in question.text
    assert question.text.count("its end was cut off") == 1
    assert "z" * (MESSAGE_BYTES - 1001) + "\n[This reply was longer" in question.text


async def test_whose_words_were_cut_reads_it_in_the_note(world: World) -> None:
    session = await busy(world)
    world.start()
    await world.until_now(lambda: len(world.model.calls) == 4)
    reply(world, "two", session, "short")
    reply(world, "three", session, "x" * 40_000 + "THE-END")
    await world.until(lambda: outcome(world, "three") is not None)
    world.model_goes_on()
    for name in ("one", "two", "three"):
        await ended(world, name)
    assert "its end was cut off" in world.asked(4)
    assert told(world, "two").body.startswith("*The messages were longer than 32 KiB together")
    assert "longer than 32 KiB" not in told(world, "one").body
