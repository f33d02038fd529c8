"""Reports of queue consumers: a head that blocks everybody, a heartbeat that died, what is left at the end.

The numbers are those of docs/faults.md.
"""

from __future__ import annotations

import asyncio

from hummingbird_operator.errors import Unavailable
from tests.unit.ingest.scripted import Scene, body, scene


@scene(fifo=True)
async def test_a_head_that_fails_holds_up_its_own_group_only_and_nothing_overtakes_it(it: Scene) -> None:
    """S25."""
    it.script.steps["head"] = [LookupError("a bug")]
    it.queue.put(body("head"), group="one")
    it.queue.put(body("behind"), group="one")
    it.queue.put(body("elsewhere"), group="two")
    it.start()
    await asyncio.sleep(20)
    assert it.script.done == ["elsewhere"]
    await asyncio.sleep(60)
    assert it.script.done == ["elsewhere", "head", "behind"]
    await it.end()


@scene(fifo=True)
async def test_siblings_of_what_is_at_work_are_not_received_so_their_receipts_do_not_grow(it: Scene) -> None:
    """S26: ten at once of one group, of which nine waited, wandered into the dead-letter queue."""
    for number in range(6):
        it.script.steps[f"e{number}"] = [100.0]
        it.queue.put(body(f"e{number}"), group="one")
    it.start(visibility=30)
    await asyncio.sleep(610)
    assert [entry.receives for entry in it.queue.entries] == [1] * 6
    assert it.script.done == [f"e{number}" for number in range(6)]
    await it.end()


@scene()
async def test_a_fault_in_the_heartbeat_is_no_end_of_it(it: Scene) -> None:
    """C14, I62: it goes on with its next beat, in time before the lease ends."""
    it.script.steps["a"] = [300.0]
    it.queue.put(body("a"))
    it.queue.faults["extend"] = [ZeroDivisionError("a fault of ours")] * 3
    it.start(visibility=60)
    await asyncio.sleep(301)
    assert it.queue.ids("receive") == ["m1"]
    await it.end()
    assert it.count("done") == 1


@scene()
async def test_whoever_has_no_heartbeat_any_more_knows_that_the_lease_ran_out_and_lets_go(it: Scene) -> None:
    """C14: two that wait with one message would shut the gate for everybody, and neither would know of the other."""
    it.script.outage = Unavailable("GitLab", "503")
    it.queue.put(body("a"))
    it.queue.faults["extend"] = [ZeroDivisionError("a fault of ours")] * 100
    it.start(visibility=30)
    await asyncio.sleep(34)
    assert it.queue.ids("receive") == ["m1", "m1"]
    assert it.gauge("held") == 1
    it.queue.faults["extend"].clear()
    it.script.outage = None
    await asyncio.sleep(60)
    assert it.script.done == ["a"]
    assert it.queue.left == []
    await it.end()
    assert (it.count("lost"), it.count("done")) == (1, 1)
