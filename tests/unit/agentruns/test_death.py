"""Whenever the operator dies, the next one ends the run: one note, nothing bought or run twice, no sandbox left.

A process may die right before and right after each of its effects: every write to the API server, to GitLab and to
the store, every model call, every claim, every call into the sandbox. The points are those of an undisturbed run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.standins.gitlab import GitLabStandIn, sample_fixture
from tests.unit.agentruns.virtual import JumpingLoop
from tests.unit.agentruns.world import TURNS, Process, World


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


def lives(world: World) -> Iterator[Process]:
    yield from world.processes


def whole(world: World, deaths: list[str]) -> None:
    """What holds in the end, however often the operator died."""
    run = world.run()
    assert world.outcome == ("True", "Completed"), run.status.message
    (note,) = world.notes
    assert note.body.startswith("It fails because of **three**.")
    assert '"state": "done"' in note.body
    assert "Reply to this note" in note.body
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
    last = await world.live()
    whole(world, [POINTS[point]])
    assert world.run().status.attempts <= 2
    assert world.run().status.runner in (first.me, last.me)
