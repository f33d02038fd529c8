"""A process dies with long output that nobody recorded: the next one tells the model of files that are there."""

from __future__ import annotations

import json
import re

import pytest

from hummingbird_operator.sessions.spill import files_named
from tests.unit.agentruns.test_death import POINTS
from tests.unit.agentruns.world import World, shell

LONG = "echo one >> /tmp/data/log; seq 2000"
BOTH = "echo two >> /tmp/data/log; seq 3000; seq 4000 >&2"
LATER = "echo three >> /tmp/data/log; seq 5000"
TURNS = ([shell(LONG, 1), shell(BOTH, 2)], shell(LATER, 3), "It fails because of **three**.")
LENGTHS = [2000, 3000, 4000, 5000]

RUNS = [number for number, name in enumerate(POINTS) if name == "after sandbox.run"]
FIRST_TURN = range(RUNS[0], RUNS[1] + 3)
"""From the end of the first command until its results are in the journal; the calls of both scripts are the same."""


def number_of(path: str) -> int:
    return int(re.findall(r"/(\d+)\.txt", path)[0])


def test_the_points_reach_from_the_first_command_to_the_record_of_both() -> None:
    assert POINTS[FIRST_TURN[-1]] == "after store.create"
    assert POINTS[FIRST_TURN[-1] - 2] == "after sandbox.run"


@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("point", FIRST_TURN, ids=[POINTS[point] for point in FIRST_TURN])
async def test_the_file_that_the_model_is_told_of_is_there_and_whole(world: World, point: int, again: bool) -> None:
    world.says(*TURNS)
    world.order()
    assert (await world.live(lambda number, _: number == point)).dead
    if again:
        before = "before store.create"
        assert (await world.live(lambda _, name: name == before)).dead
    await world.live()
    assert world.outcome == ("True", "Completed")
    (place,) = world.pool.places
    assert len(place.sandbox.executed) == 3
    keys = sorted(key for key in world.store.blobs if key.endswith(".results"))
    records = [json.loads(world.store.blobs[key]) for key in keys]
    told = files_named(result for record in records for result in record["results"])
    lengths = {number_of(path): len(place.sandbox.path(path).read_text().splitlines()) for path in told}
    assert [lengths[number] for number in sorted(lengths)] == LENGTHS
    assert len(lengths) == len(told), "no number is used twice"
    asked = json.dumps(world.model.calls[-1].contents)
    assert all(path in asked for path in told)
