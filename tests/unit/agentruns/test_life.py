"""The whole life of a run that goes well, as people see it: its status, its note, its session, its sandbox."""

from __future__ import annotations

import json

import pytest

from hummingbird_operator.api import conditions as c
from hummingbird_operator.delivery import markers
from tests.unit.agentruns.builders import SHA
from tests.unit.agentruns.process import SECRET
from tests.unit.agentruns.world import TURNS, World


async def test_a_run_is_answered_in_one_note_saved_and_its_sandbox_lingers(world: World) -> None:
    world.order()
    world.start()
    run = await world.finished()
    assert world.outcome == ("True", "Completed")
    assert run.status.message == "answered in 3 turns for $0.0048"
    (note,) = world.notes
    assert note.body.startswith("It fails because of **three**.\n")
    assert "Model scripted-model · 3 turns · " in note.body
    assert "commit 9f2c9f2c9f2c" in note.body
    assert "conversation and its files are kept" in note.body
    assert "Agent transcript" in note.body
    marker = markers.parse(note.body)
    assert marker == markers.Marker(run.metadata.uid, "analyze-failures", SHA, run.metadata.uid, "why", "done")
    assert (run.status.note and run.status.note.id) == note.id
    assert run.status.answer is not None
    assert run.status.answer.text == "It fails because of **three**."
    assert run.status.answer.uri == f"memory:///runs/{run.metadata.uid}/answer.md"
    assert run.status.usage is not None
    assert run.status.usage.iterations == 3
    assert run.status.completion_time is not None
    saved = json.loads(world.store.blobs[f"sessions/{run.metadata.uid}/context.json"])
    assert (saved["run"], saved["workflow"], len(saved["contents"])) == (run.metadata.uid, "analyze-failures", 6)
    assert saved["archive"]["bytes"] > 0
    assert b"It fails because of **three**." in world.store.blobs[f"sessions/{run.metadata.uid}/transcript.md"]
    (place,) = world.pool.places
    assert (place.run, place.session) == (None, run.metadata.uid)
    assert world.events.emitted[-1] == ("Normal", "Completed", "answered in 3 turns for $0.0048")


async def test_an_undisturbed_run_costs_few_writes(world: World) -> None:
    world.order()
    await world.live()
    assert world.kube.calls["patch", "agentruns"] == 8
    assert world.posts() == 1


async def test_a_run_without_a_target_answers_in_its_status_and_writes_no_note(world: World) -> None:
    world.order(target=None, message="what is 3?")
    world.start()
    run = await world.finished()
    assert world.outcome == ("True", "Completed")
    assert world.condition("Delivered") == ("True", "NothingToDeliver")
    assert world.notes == []
    assert run.status.answer is not None
    assert json.loads(world.asked()) == {"message": "what is 3?"}


async def test_a_run_with_delivery_none_writes_no_note(world: World) -> None:
    world.order(delivery="None")
    world.start()
    await world.finished()
    assert world.outcome == ("True", "Completed")
    assert (world.notes, world.posts()) == ([], 0)


async def test_the_note_of_a_project_with_internal_notes_is_internal_from_the_beginning(world: World) -> None:
    world.internal = True
    world.order()
    world.start()
    await world.finished()
    (note,) = world.notes
    assert note.internal
    assert world.outcome == ("True", "Completed")


async def test_a_note_that_must_be_internal_and_comes_out_public_is_harmless_and_taken_back(world: World) -> None:
    world.internal = True
    world.gitlab.state.projects[world.number].internal_min_level = 40
    world.order(message="the secret of our company")
    world.start()
    await world.finished()
    assert world.outcome == ("False", "InternalNoteRefused")
    assert world.condition("Delivered") == ("True", "NothingToDeliver")
    assert world.notes == []
    assert world.model.calls == []
    assert world.pool.made == []
    posted = [call.body for call in world.gitlab.calls if call.method == "POST" and world.project in call.path]
    assert len(posted) == 1
    assert "secret of our company" not in posted[0]


async def test_the_answer_to_a_question_in_a_thread_stands_in_that_thread(world: World) -> None:
    thread = world.person_writes("/hummingbird analyze")
    world.order(trigger={"source": "gitlab", "event": "note", "discussion": thread.discussion_id})
    world.start()
    run = await world.finished()
    assert world.outcome == ("True", "Completed")
    (note,) = world.notes_of(run)
    assert note.discussion_id == thread.discussion_id


async def test_a_message_over_its_limit_is_cut_and_model_and_person_are_told(world: World) -> None:
    world.order(message="ä" * 20_000)
    world.start()
    await world.finished()
    asked = world.asked()
    assert asked.count("ä") == 16 * 1024
    assert "[The message was longer; its end was cut off.]" in asked
    assert "Your message was longer than 32 KiB" in world.notes[0].body


async def test_a_secret_of_the_process_stands_in_no_note_no_status_and_no_transcript(world: World) -> None:
    world.says(*TURNS[:2], f"The token is {SECRET}.")
    world.order()
    world.start()
    run = await world.finished()
    assert run.status.answer is not None
    transcript = world.store.blobs[f"sessions/{run.metadata.uid}/transcript.md"].decode()
    answer = world.store.blobs[f"runs/{run.metadata.uid}/answer.md"].decode()
    for text in (world.notes[0].body, run.status.answer.text, transcript, answer):
        assert "The token is" in text
        assert SECRET not in text


async def test_runs_of_one_merge_request_go_one_after_the_other(world: World) -> None:
    world.order("first")
    world.order("second")
    process = world.start()
    await world.finished("first")
    await world.finished("second")
    assert world.condition("Succeeded", "second") == ("True", "Completed")
    assert len(world.notes) == 2
    begun = [name for name in process.points if name == "before gitlab.create"]
    assert len(begun) == 2
    saved = c.find(world.run("first").status.conditions, "SessionSaved")  # from then on it holds nobody up
    second = world.run("second").status.start_time
    assert saved is not None
    assert second is not None
    assert saved.last_transition_time <= c.rfc3339(second)


async def test_a_run_waits_for_a_sandbox_and_goes_on_when_one_is_free(world: World) -> None:
    world.pool.capacity = 0
    world.order()
    world.start()
    await world.until(lambda: world.outcome == ("Unknown", "WaitingForSandbox"))
    assert world.run().status.start_time is not None
    world.pool.capacity = 1
    await world.finished()
    assert world.outcome == ("True", "Completed")


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        ("", "no sandbox is free and the pool may not make more (spec.maxSandboxes)"),
        ("exceeded quota: small, requested: pods=1, used: pods=2, limited: pods=2", "exceeded quota: small, requested"),
    ],
)
async def test_a_run_that_waits_for_a_sandbox_says_what_keeps_it(world: World, refusal: str, said: str) -> None:
    world.pool.capacity, world.pool.refusal = 0, refusal
    world.order()
    world.start()
    await world.until(lambda: world.outcome == ("Unknown", "WaitingForSandbox"))
    told = world.run().status.message or ""
    assert said in told
    assert ("spec.maxSandboxes" in told) == (not refusal)


async def test_at_sigterm_a_run_is_left_as_it_is_and_the_next_process_goes_on(world: World) -> None:
    world.model_waits_at(1)
    world.order()
    process = world.start()
    await world.until_now(lambda: len(world.model.calls) == 2)
    await process.sigterm()
    assert world.outcome == ("Unknown", "Running")
    assert world.condition("Answered") is None
    world.model_goes_on()
    await world.live()
    assert world.outcome == ("True", "Completed")
    assert len(world.model.calls) == 4
    assert len(world.pool.executed) == 3
    assert world.run().status.attempts == 2


@pytest.mark.parametrize("field", ["spec.workflow", "spec.target.gitlab"])
async def test_a_run_that_cannot_be_carried_out_is_refused_with_the_field_and_ends(world: World, field: str) -> None:
    absent = {"gitlab": {"project": world.project, "mergeRequest": 4711}}
    world.order(**({"workflow": "unknown"} if field == "spec.workflow" else {"target": absent}))
    process = world.start()
    run = await world.finished()
    assert world.outcome == ("False", "Invalid")
    assert world.condition("Accepted") == ("False", "Invalid")
    assert (run.status.message or "").startswith(field)
    assert world.notes == []
    # what people write into a spec must not become series without end
    labels = {"workflow": "unknown", "reason": "Invalid"}
    assert process.series.get_sample_value("hummingbird_agentruns_finished_total", labels) == 1
