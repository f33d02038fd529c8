"""What every process of ours does beside its work: wait for a service, end in order, notice what failed."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from hummingbird_operator import lifecycle
from hummingbird_operator.errors import Invalid, NotFound, Unavailable


async def test_a_service_that_is_away_is_asked_again_until_it_answers() -> None:
    answers: list[str | Exception] = [Unavailable("it", "away"), Unavailable("it", "away"), "there"]

    async def look() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert await lifecycle.until_available(look, asyncio.Event(), seconds=0) == "there"


async def test_waiting_for_a_service_ends_with_the_process() -> None:
    stop = asyncio.Event()

    async def look() -> str:
        stop.set()
        raise Unavailable("it", "away")

    assert await asyncio.wait_for(lifecycle.until_available(look, stop), 1) is None


async def test_a_kind_that_is_not_there_is_no_outage() -> None:
    async def look() -> None:
        raise NotFound("the server could not find the requested resource")

    with pytest.raises(Invalid, match="agentruns: its CRD is not installed"):
        await lifecycle.until_served("agentruns", look, asyncio.Event())


async def test_both_signals_are_an_order_to_stop() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        stop = asyncio.Event()
        lifecycle.on_signals(stop)
        os.kill(os.getpid(), number)
        await asyncio.wait_for(stop.wait(), 5)


async def test_a_background_task_lives_as_long_as_its_block() -> None:
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with lifecycle.background(work()):
        await asyncio.sleep(0)
        assert not ended.is_set()
    assert ended.is_set()


async def test_the_beat_tells_that_the_loop_turns_and_how_late_it_is() -> None:
    late: list[float] = []
    beaten = asyncio.Event()
    async with lifecycle.background(lifecycle.measure_lag(late.append, beaten.set)):
        await asyncio.wait_for(beaten.wait(), 5)
    assert late[0] >= 0
