"""Whenever the operator dies, the next one ends the run: one note, nothing bought or run twice, no sandbox left.

A process may die right before and right after each of its effects: every write to the API server, to GitLab and to
the store, every model call, every claim, every call into the sandbox. The points are those of an undisturbed run.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from hummingbird_ai.errors import QuotaExhausted
from hummingbird_operator.errors import Unavailable
from tests.standins.gitlab import GitLabStandIn, sample_fixture
from tests.unit.agentruns.effects import Fatal
from tests.unit.agentruns.virtual import JumpingLoop
from tests.unit.agentruns.world import TURNS, World


def undisturbed() -> list[str]:
    """The points in the life of a run that nothing disturbs."""

    async def dry(root: Path, gitlab: GitLabStandIn) -> list[str]:
        world = World(root, gitlab)
        world.order()
        return (await world.live()).points

    with (
        TemporaryDirectory() as folder,
        GitLabStandIn(sample_fixture()) as gitlab,
        asyncio.Runner(loop_factory=JumpingLoop) as runner,
    ):
        return runner.run(dry(Path(folder), gitlab))


POINTS = undisturbed()


def whole(world: World, deaths: list[str]) -> None:
    """What holds in the end, however often the operator died."""
    run = world.run()
    assert world.outcome == ("True", "Completed"), run.status.message
    (note,) = world.notes
    assert note.body.startswith("It fails because of **three**.")
    assert '"state": "done"' in note.body
    assert "conversation and its files are kept" in note.body
    assert run.status.note is not None
    assert run.status.note.id == note.id
    in_flight = sum(death == "before model.generate" or death == "after model.generate" for death in deaths)
    lost = sum(death == "before store.create" for death in deaths)
    assert len(world.model.calls) <= len(TURNS) + in_flight + lost
    assert len(world.pool.executed) == len(set(world.pool.executed)) == 3
    assert world.pool.active == []
    assert [place.session for place in world.pool.places] == [run.metadata.uid]
    assert f"sessions/{run.metadata.uid}/context.json" in world.store.blobs


@pytest.mark.parametrize("point", range(len(POINTS)), ids=[f"{n}-{name}" for n, name in enumerate(POINTS)])
async def test_after_a_death_at_any_point_the_next_process_ends_the_run_well(world: World, point: int) -> None:
    world.order()
    first = await world.live(lambda number, _: number == point)
    assert first.dead
    assert first.points[-1] == POINTS[point]
    asked = len(world.model.calls)
    bought = sum(key.endswith(".response") for key in world.store.blobs)
    last = await world.live()
    assert len(world.model.calls) - asked == len(TURNS) - bought
    whole(world, [POINTS[point]])
    assert world.run().status.attempts <= 2
    assert world.run().status.runner in (first.me, last.me)


@pytest.mark.parametrize("seed", range(12))
async def test_an_operator_that_dies_again_and_again_still_ends_the_run_well(world: World, seed: int) -> None:
    choice = random.Random(seed)  # noqa: S311 - reproducible, not secret
    world.order()
    deaths: list[str] = []
    for _ in range(choice.randint(2, 8)):
        number = choice.randint(0, 30)
        process = await world.live(lambda point, _, fatal=number: point == fatal)  # type: ignore[misc]
        if process.dead and process.points:
            deaths.append(process.points[-1])
    await world.live()
    whole(world, deaths)


def at(wanted: str, nth: int = 1) -> Fatal:
    """Die at the nth point of that name."""
    left = [nth]

    def fatal(_: int, name: str) -> bool:
        left[0] -= name == wanted
        return name == wanted and left[0] == 0

    return fatal


def nth_of(name: str, *, before: int) -> int:
    """How many points of that name an undisturbed run has before that number: the last is the nth."""
    return POINTS[:before].count(name)


ANSWER_KEPT = nth_of("after store.create", before=POINTS.index("after store.put_stream"))


async def test_an_end_that_was_kept_before_a_death_stands_although_the_model_would_answer_now(world: World) -> None:
    world.says(TURNS[0], QuotaExhausted("used up"))
    world.order()
    # intent and response of turn 1, its results, intent of turn 2, and the end
    assert (await world.live(at("after store.create", 5))).dead
    world.says(*TURNS)
    await world.live()
    assert world.outcome == ("False", "ModelError")
    assert "used up" in world.notes[0].body
    assert "**Outcome:** ModelError used up" in world.notes[0].body
    assert len(world.model.calls) == 2


async def test_a_kept_answer_is_delivered_although_the_sandbox_is_gone_with_the_process(world: World) -> None:
    world.order()
    assert (await world.live(at("after store.create", ANSWER_KEPT))).dead
    assert any(key.endswith("/answer.json") for key in world.store.blobs)
    assert world.condition("Answered") is None
    world.pool.delete(world.pool.places[0])
    await world.live()
    assert world.outcome == ("True", "Completed")
    assert len(world.model.calls) == 3


async def test_a_write_that_fails_behind_the_kept_answer_is_made_again_without_the_model(world: World) -> None:
    world.says(QuotaExhausted("used up"))
    world.order()
    refused = [0]

    def fail(verb: str, *_: object) -> Exception | None:
        if verb != "patch" or not any(key.endswith("/answer.json") for key in world.store.blobs):
            return None
        refused[0] += 1
        return Unavailable("the API server", "made by a test") if refused[0] <= 2 else None

    world.kube.fail = fail
    world.start()
    await world.finished()
    assert world.outcome == ("False", "ModelError")
    assert len(world.model.calls) == 1


@pytest.mark.parametrize("point", ["after pool.claim", "before kube.patch"])
async def test_a_sandbox_claimed_right_before_a_death_is_let_go_by_whoever_ends_the_run(
    world: World, point: str
) -> None:
    world.order()
    nth = 1 if point.endswith("claim") else nth_of(point, before=POINTS.index("after pool.claim")) + 1
    assert (await world.live(at(point, nth))).dead
    assert world.condition("SandboxReady") is None
    assert len(world.pool.active) == 1
    await world.cancel()
    await world.live()
    assert world.outcome == ("False", "Cancelled")
    assert world.pool.places == []
