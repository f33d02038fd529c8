"""Ends that nobody wished for: each is visible in the status and in the note, and leaves no sandbox behind."""

from __future__ import annotations

from datetime import timedelta

import pytest

from hummingbird_ai.errors import ContextOverflow, QuotaExhausted
from hummingbird_ai.messages import Finish, ModelResponse
from hummingbird_operator.errors import Invalid, NotFound, Unavailable
from tests.unit.agentruns.builders import NOW
from tests.unit.agentruns.world import TURNS, World, shell


def nothing_is_left(world: World) -> None:
    assert world.pool.active == []


# --- cancel, time, deletion ---


async def test_a_run_that_is_cancelled_while_it_waits_ends_without_a_note(world: World) -> None:
    world.limits = {"max_concurrent_runs": 1}
    world.model_waits_at(0)
    world.order("first", target=None)
    world.start()
    await world.until_now(lambda: len(world.model.calls) == 1)
    world.order("why")
    await world.until(lambda: world.outcome == ("Unknown", "Queued") and world.run().status.attempts > 0)
    await world.cancel()
    await world.until(lambda: world.condition("Finished") is not None)
    assert world.outcome == ("False", "Cancelled")
    assert world.condition("Delivered") == ("True", "NothingToDeliver")
    assert world.condition("SessionSaved") == ("False", "NothingToSave")
    assert world.notes == []


async def test_a_cancel_ends_the_model_call_in_flight_and_the_note_says_so(world: World) -> None:
    world.model_waits_at(1)
    world.order()
    world.start()
    await world.until_now(lambda: len(world.model.calls) == 2)
    await world.cancel()
    await world.finished()
    assert world.outcome == ("False", "Cancelled")
    assert len(world.model.calls) == 2
    (note,) = world.notes
    assert note.body.startswith("Hummingbird analysis cancelled.")
    assert '"state": "cancelled"' in note.body
    nothing_is_left(world)
    assert world.pool.places == []


async def test_a_cancel_ends_the_command_in_flight(world: World) -> None:
    world.says(shell("touch /tmp/data/begun; sleep 300"), "never")
    world.order()
    world.start()
    await world.until_now(lambda: bool(world.pool.made) and (world.pool.made[0].root / "data/begun").exists())
    await world.cancel()
    await world.finished()
    assert world.outcome == ("False", "Cancelled")
    assert len(world.model.calls) == 1
    nothing_is_left(world)


async def test_an_answer_is_delivered_although_the_run_was_cancelled_behind_it(world: World) -> None:
    world.fault("status", "PUT", status=502, times=1)
    world.order()
    world.start()
    await world.until(lambda: world.condition("Delivered") == ("Unknown", "Retrying"))
    await world.cancel()
    await world.finished()
    assert world.outcome == ("True", "Completed")
    assert world.notes[0].body.startswith("It fails because of **three**.")
    nothing_is_left(world)


async def test_a_run_past_its_time_is_ended_in_its_model_call_and_says_so(world: World) -> None:
    world.model_waits_at(2)
    world.order(limits={"timeoutSeconds": 60})
    world.start()
    await world.until_now(lambda: len(world.model.calls) == 3)
    world.skip(61)
    await world.finished()
    assert world.outcome == ("False", "TimedOut")
    assert "stopped: it had" in world.notes[0].body
    nothing_is_left(world)


async def test_the_time_of_a_run_counts_while_it_waits_for_a_sandbox(world: World) -> None:
    world.pool.capacity = 0
    world.order(limits={"timeoutSeconds": 90})
    world.start()
    run = await world.finished()
    assert world.outcome == ("False", "TimedOut")
    assert run.status.completion_time is not None
    assert timedelta(seconds=90) <= run.status.completion_time - NOW < timedelta(seconds=100)
    assert run.status.message == "not answered within limits.timeoutSeconds (90)"
    assert "it had 90 seconds and used them up" in world.notes[0].body


async def test_a_deleted_run_stops_its_work_says_so_and_goes(world: World) -> None:
    world.model_waits_at(0)
    world.order()
    world.start()
    await world.until_now(lambda: len(world.model.calls) == 1)
    await world.delete()
    await world.until(lambda: world.runs() == [])
    (note,) = world.notes
    assert note.body.startswith("Hummingbird analysis cancelled.")
    nothing_is_left(world)
    assert world.pool.places == []


async def test_a_run_that_is_deleted_while_no_operator_is_there_is_tidied_up_by_the_next(world: World) -> None:
    world.order()
    first = await world.live(lambda _, name: name == "before model.generate")
    assert first.dead
    await world.delete()
    world.start()
    await world.until(lambda: world.runs() == [])
    assert world.notes[0].body.startswith("Hummingbird analysis cancelled.")
    nothing_is_left(world)


async def test_a_deleted_run_does_not_wait_for_a_gitlab_that_is_away(world: World) -> None:
    world.model_waits_at(0)
    world.order()
    world.start()
    await world.until_now(lambda: len(world.model.calls) == 1)
    world.fault("status", times=1000, status=502)
    began = world.clock()
    await world.delete()
    await world.until(lambda: world.runs() == [])
    assert world.clock() - began < timedelta(seconds=25)
    nothing_is_left(world)


# --- the model ---


async def test_a_model_error_ends_the_run_and_the_note_has_what_was_found_until_then(world: World) -> None:
    words = "So far I know one."
    world.says(
        *TURNS[:1],
        ModelResponse(text=words, tool_calls=(shell("true", 9),), finish=Finish.TOOL_CALLS),
        QuotaExhausted("the quota of this project is used up"),
    )
    world.order()
    world.start()
    run = await world.finished()
    assert world.outcome == ("False", "ModelError")
    (note,) = world.notes
    assert note.body.startswith("Hummingbird analysis failed. Workflow: analyze-failures.")
    assert "ModelError: the quota of this project is used up" in note.body
    assert words in note.body
    assert '"state": "failed"' in note.body
    assert (run.status.answer and run.status.answer.text) == words
    assert world.condition("SessionSaved") == ("True", "Saved")
    nothing_is_left(world)


async def test_a_conversation_that_outgrows_the_model_ends_with_its_own_reason(world: World) -> None:
    world.says(ContextOverflow("too long"))
    world.order()
    world.start()
    await world.finished()
    assert world.outcome == ("False", "ContextOverflow")


async def test_a_run_without_money_for_its_first_call_says_so(world: World) -> None:
    world.order(limits={"maxCostUSD": "0.0001"})
    world.start()
    await world.finished()
    assert world.outcome == ("False", "BudgetExhausted")
    assert world.model.calls == []
    assert "is left, the next model call may cost" in world.notes[0].body


# --- the sandbox ---


@pytest.mark.parametrize(
    ("problem", "says"),
    [
        (NotFound("none of that name"), "spec.sandbox.pool: there is no SandboxPool default"),
        (Invalid("pool x", "its template is refused"), "pool x: its template is refused"),
    ],
)
async def test_a_pool_that_cannot_give_a_sandbox_ends_the_run_with_its_reason(
    world: World, problem: Exception, says: str
) -> None:
    world.pool.problem = problem
    world.order()
    world.start()
    await world.finished()
    assert world.outcome == ("False", "Invalid")
    assert says in world.notes[0].body


async def test_a_sandbox_in_which_nothing_can_be_ended_does_not_linger(world: World) -> None:
    """A reply must not find a command of the run before it still at work in there."""
    world.model_waits_at(2)
    world.order()
    world.start()
    await world.until_now(lambda: len(world.model.calls) == 3)

    def sweep(*, seconds: float | None = None) -> None:
        raise Unavailable("the sandbox", "its processes could not be ended")

    world.pool.made[0].sweep = sweep  # type: ignore[method-assign]
    world.pool.made[0].cleanup = lambda: None  # type: ignore[method-assign]
    world.model_goes_on()
    await world.finished()
    assert world.outcome == ("True", "Completed")
    assert world.condition("SessionSaved") == ("True", "SavedWithoutFiles")
    assert world.pool.places == []


async def test_a_cancel_ends_what_runs_in_the_sandbox_before_the_note_is_written(world: World) -> None:
    world.says(shell("touch /tmp/data/begun; sleep 300"), "never")
    world.fault("status", "PUT", status=502, times=3)
    world.order()
    world.start()
    await world.until_now(lambda: bool(world.pool.made) and (world.pool.made[0].root / "data/begun").exists())
    swept = world.pool.made[0].sweep
    answered: list[object] = []

    def sweep(*, seconds: float | None = None) -> None:
        answered.append(world.condition("Answered"))
        swept()

    world.pool.made[0].sweep = sweep  # type: ignore[method-assign]
    await world.cancel()
    await world.finished()
    assert world.outcome == ("False", "Cancelled")
    assert answered[0] is None, "swept before anything else"
    nothing_is_left(world)


async def test_a_command_that_a_dead_process_left_at_work_is_ended_before_the_note_of_a_cancelled_run(
    world: World,
) -> None:
    world.says(shell("touch /tmp/data/begun; sleep 300"), "never")
    world.order()
    process = world.start()
    await world.until_now(lambda: bool(world.pool.made) and (world.pool.made[0].root / "data/begun").exists())
    process.dead = True
    await process.end()
    swept: list[object] = []

    def sweep(*, seconds: float | None = None) -> None:
        swept.append(world.condition("Answered"))

    world.pool.made[0].sweep = sweep  # type: ignore[method-assign]
    await world.cancel()
    await world.live()
    assert world.outcome == ("False", "Cancelled")
    assert swept[0] is None


async def test_the_status_says_what_a_call_that_was_lost_with_its_process_may_have_cost(world: World) -> None:
    world.model_waits_at(1)
    world.order()
    process = world.start()
    await world.until_now(lambda: len(world.model.calls) == 2)
    await world.until(lambda: world.run().status.usage is not None)
    told = world.run().status.usage
    process.dead = True
    await process.end()
    await world.cancel()
    world.model_goes_on()
    await world.live()
    usage = world.run().status.usage
    assert told is not None
    assert usage is not None
    assert usage.iterations == told.iterations == 1
    assert (usage.cost_usd or 0) > (told.cost_usd or 0)
    assert f"${usage.cost_usd:.4f}" in world.notes[0].body
