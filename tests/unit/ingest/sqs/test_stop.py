"""SIGTERM: what was not begun goes back at once, what was begun is finished, and the end comes in time."""

from __future__ import annotations

import asyncio

from hummingbird_operator.errors import Unavailable
from hummingbird_operator.ingest.sqs.consumer import LONGEST_END_SECONDS
from tests.unit.ingest.scripted import Scene, body, scene

AWAY = Unavailable("the API server", "connection refused")


@scene()
async def test_a_message_that_comes_after_sigterm_goes_back_unhandled(it: Scene) -> None:
    it.start()
    await asyncio.sleep(1)
    it.stop.set()
    await asyncio.sleep(1)
    it.queue.put(body("a"))
    assert await it.end() <= 10
    assert it.queue.ids("release") == ["m1"]
    assert it.queue.hidden("m1") == 0
    assert it.script.tries == []


@scene()
async def test_several_that_come_after_sigterm_go_back_last_one_first(it: Scene) -> None:
    it.start()
    await asyncio.sleep(1)
    it.stop.set()
    await asyncio.sleep(1)
    for name in "abc":
        it.queue.put(body(name))
    await it.end()
    assert it.queue.ids("release") == ["m3", "m2", "m1"]


@scene(fifo=True)
async def test_what_waits_in_an_outage_goes_back_last_one_first(it: Scene) -> None:
    it.queue.slow["receive"] = 0.1
    for name in "abc":
        it.script.steps[name] = [0.5, AWAY]
        it.queue.put(body(name))
    it.start()
    await asyncio.sleep(1.2)
    assert await it.end() < 20
    assert it.queue.ids("release") == ["m3", "m2", "m1"]
    assert [entry.visible <= it.now + it.began for entry in it.queue.entries] == [True] * 3


@scene()
async def test_what_was_begun_is_finished_and_deleted(it: Scene) -> None:
    it.script.steps["a"] = [15.0]
    it.queue.put(body("a"))
    it.start()
    await asyncio.sleep(1)
    assert await it.end() <= 15
    assert it.script.done == ["a"]
    assert it.queue.left == []


@scene()
async def test_what_meets_the_outage_after_sigterm_goes_back(it: Scene) -> None:
    it.script.steps["a"] = [5.0, AWAY]
    it.queue.put(body("a"))
    it.start(concurrency=1)
    await asyncio.sleep(1)
    assert await it.end() <= 5
    assert it.queue.ids("release") == ["m1"]


@scene()
async def test_what_takes_too_long_goes_back_in_time(it: Scene) -> None:
    for name in "ab":
        it.script.steps[name] = [500.0]
        it.queue.put(body(name))
    it.start(concurrency=2)
    await asyncio.sleep(1)
    assert 20 <= await it.end() <= LONGEST_END_SECONDS
    assert it.queue.ids("release") == ["m2", "m1"]
    assert [it.queue.hidden(one) for one in it.queue.left] == [0, 0]


@scene()
async def test_a_queue_that_hangs_does_not_keep_the_process(it: Scene) -> None:
    for name in "ab":
        it.script.steps[name] = [AWAY] * 10
        it.queue.put(body(name))
    it.start(concurrency=2)
    await asyncio.sleep(1)
    it.queue.slow["release"] = 1000.0
    assert await it.end() <= LONGEST_END_SECONDS


@scene()
async def test_what_could_not_be_given_back_is_extended_no_more(it: Scene) -> None:
    for name in "ab":
        it.script.steps[name] = [1000.0]
        it.queue.put(body(name))
    it.start(concurrency=2)
    await asyncio.sleep(1)
    it.queue.slow["release"] = 1000.0
    await it.end()
    extended = it.queue.ids("extend")
    await asyncio.sleep(300)
    assert it.queue.ids("extend") == extended


@scene()
async def test_an_extension_on_its_way_hides_nothing_that_was_given_back(it: Scene) -> None:
    it.script.outage = AWAY
    it.queue.put(body("a"))
    it.start(concurrency=1, visibility=30)
    await asyncio.sleep(9)
    it.queue.underway["extend"] = 3.0
    await asyncio.sleep(2)
    await it.end()
    assert it.queue.log[-2:] == [("extend", "m1"), ("release", "m1")]
    assert it.queue.hidden("m1") == 0


@scene()
async def test_a_queue_that_is_away_from_the_beginning_does_not_keep_the_process(it: Scene) -> None:
    it.queue.faults["traits"] = [Unavailable("SQS", "503") for _ in range(1000)]
    it.start()
    await asyncio.sleep(10)
    assert await it.end() < 1
