"""Whatever the order of events, faults, stops and starts: nothing is deleted before it is handled, nothing is lost."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from hummingbird_operator.errors import Unavailable
from hummingbird_operator.ingest.sqs.consumer import LONGEST_END_SECONDS
from hummingbird_operator.ingest.sqs.settle import ATTEMPTS, LONGEST_RETURN_SECONDS
from tests.unit.ingest.scripted import Scene, Step, body, play

VISIBILITY = 30


@dataclass(frozen=True)
class Arrival:
    """A message: when it comes, in which group, and what its handling meets (a text: its bug)."""

    pause: float
    group: int
    steps: tuple[float | str, ...]


@dataclass(frozen=True)
class Process:
    """How long an ingestor runs, and how many messages it handles at once."""

    seconds: float
    concurrency: int


SECONDS = st.sampled_from([0.0, 0.1, 1.0, 7.0, 29.0, 45.0])
STEPS = st.one_of(SECONDS, st.just("away"))
ARRIVALS = st.lists(
    st.builds(Arrival, SECONDS, st.integers(0, 2), st.lists(STEPS, max_size=4).map(tuple)), min_size=1, max_size=8
)
FLEETS = st.lists(st.lists(st.builds(Process, SECONDS, st.integers(1, 4)), min_size=1, max_size=3), max_size=4)
CALLS = ("receive", "delete", "extend", "release", "traits")
FAULTS = st.lists(st.tuples(st.sampled_from(CALLS), st.sampled_from(["away", "lost"])), max_size=8)
SLOW = st.dictionaries(st.sampled_from(CALLS[:4]), st.sampled_from([0.3, 4.0, 12.0]), max_size=2)


def steps(given: tuple[float | str, ...]) -> list[Step]:
    errors = {"away": Unavailable("GitLab", "503"), "bug": LookupError("a bug")}
    return [errors[step] if isinstance(step, str) else step for step in given]


async def arrive(it: Scene, arrivals: list[Arrival]) -> None:
    for number, arrival in enumerate(arrivals, 1):
        await asyncio.sleep(arrival.pause)
        it.script.steps[f"m{number}"] = steps(arrival.steps)
        it.queue.put(body(f"m{number}"), group=f"g{arrival.group}")


async def come_and_go(it: Scene, fleets: list[list[Process]]) -> None:
    """Each fleet's processes run side by side, and each gets SIGTERM when its time is over."""
    for fleet in fleets:
        await asyncio.gather(*(live(it, process) for process in fleet))


async def live(it: Scene, process: Process) -> None:
    stop = asyncio.Event()
    task = it.start(concurrency=process.concurrency, visibility=VISIBILITY, stop=stop)
    await asyncio.sleep(process.seconds)
    stop.set()
    began = it.now
    await task
    assert it.now - began <= LONGEST_END_SECONDS


async def all_through(it: Scene, seconds: float = (ATTEMPTS + 1) * LONGEST_RETURN_SECONDS) -> None:
    """One process more, with nothing in its way, until nothing is left; that long at most."""
    stop = asyncio.Event()
    task = it.start(concurrency=2, visibility=VISIBILITY, stop=stop)
    for _ in range(int(seconds / 30)):
        if it.queue.left:
            await asyncio.sleep(30)
    stop.set()
    await task
    assert it.queue.left == []


def check_order_of_ends(it: Scene) -> None:
    """Each message that left the queue was handled before."""
    handled = set()
    for what, which in it.queue.log:
        if what == "handled":
            handled.add(which)
        assert what != "delete" or which in handled, f"{which} was deleted and never handled"


@given(ARRIVALS, FLEETS, st.booleans())
def test_without_faults_each_event_is_handled_and_what_is_given_back_is_free_at_once(
    arrivals: list[Arrival], fleets: list[list[Process]], fifo: bool
) -> None:
    async def story(it: Scene) -> None:
        arriving = asyncio.create_task(arrive(it, arrivals))
        await come_and_go(it, fleets)
        assert [it.queue.hidden(left) for left in it.queue.left] == [0.0] * len(it.queue.left)
        await arriving
        await all_through(it)
        assert set(it.script.done) == {f"m{number}" for number in range(1, len(arrivals) + 1)}
        check_order_of_ends(it)
        if fifo:
            check_groups(it, arrivals)

    play(story, fifo=fifo)


def check_groups(it: Scene, arrivals: list[Arrival]) -> None:
    """Within a group, each was handled after those that came before it."""
    by_group: dict[int, list[str]] = defaultdict(list)
    for number, arrival in enumerate(arrivals, 1):
        by_group[arrival.group].append(f"m{number}")
    for members in by_group.values():
        assert [one for one in dict.fromkeys(it.script.done) if one in members] == members


@given(ARRIVALS, FLEETS, FAULTS, SLOW, st.booleans())
def test_with_any_faults_of_the_queue_nothing_is_lost(
    arrivals: list[Arrival],
    fleets: list[list[Process]],
    faults: list[tuple[str, str]],
    slow: dict[str, float],
    fifo: bool,
) -> None:
    async def story(it: Scene) -> None:
        for call, kind in faults:
            leased = call in ("delete", "extend", "release")
            lost = "the receipt handle has expired" if leased and kind == "lost" else Unavailable("SQS", "throttled")
            it.queue.faults[call].append(lost)
        it.queue.slow = slow
        arriving = asyncio.create_task(arrive(it, arrivals))
        await come_and_go(it, fleets)
        await arriving
        it.queue.faults.clear()
        it.queue.slow = {}
        await all_through(it)
        assert set(it.script.done) == {f"m{number}" for number in range(1, len(arrivals) + 1)}
        check_order_of_ends(it)

    play(story, fifo=fifo)


@given(ARRIVALS, st.lists(st.sampled_from(["bug", "poison"]), min_size=8, max_size=8), st.booleans())
def test_what_can_never_be_handled_blocks_nothing_for_ever(
    arrivals: list[Arrival], kinds: list[str], dead_letters: bool
) -> None:
    async def story(it: Scene) -> None:
        for number, arrival in enumerate(arrivals):
            name, poison = f"bad{number}", kinds[number] == "poison"
            it.script.steps[name] = steps(("bug",) * 50)
            it.queue.put("no JSON" if poison else body(name), group=f"g{arrival.group}")
        bad = set(it.queue.left)
        for number, arrival in enumerate(arrivals):
            it.queue.put(body(f"good{number}"), group=f"g{arrival.group}")
        await all_through(it, 8 * (ATTEMPTS + 1) * LONGEST_RETURN_SECONDS)
        assert {name for name in it.script.done if name.startswith("good")} == {
            f"good{number}" for number in range(len(arrivals))
        }
        assert set(it.queue.dead) == (bad if dead_letters else set())

    play(story, fifo=True, most_receives=3 if dead_letters else None)
