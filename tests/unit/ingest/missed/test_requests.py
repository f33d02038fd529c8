"""How much GitLab is asked: at rest next to nothing, and no more where something cannot be mended."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from hummingbird_operator.ingest.missed.replay import EVERY_SECONDS, Replay
from tests.unit.ingest.missed.scenes import APP, World, living
from tests.unit.ingest.samples import SHA

NOWHERE = "http://127.0.0.1:9/webhooks/gitlab"


async def rounds(world: World, replay: Replay, **period: float) -> list[int]:
    """Rounds as often as the process wants them, for that long: the requests of each."""
    end, counts = world.now + timedelta(**period), []
    while world.now < end:
        world.gitlab.state.resends.clear()
        before = len(world.gitlab.calls)
        wait = await replay.once()
        counts.append(len(world.gitlab.calls) - before)
        world.skip(seconds=max(wait, 1))
    return counts


@asynccontextmanager
async def broken(url: str | None, **hook: str) -> AsyncIterator[World]:
    """A hook that GitLab disabled, and that no test enables."""
    async with living(hook_backoff_seconds=86400) as world:
        world.url = url or world.url
        for iid in range(100, 110):
            await world.does("opens", APP, iid, "alice", SHA)
        await world.hooked(**hook)
        for number in range(4):
            await world.says(f"words {number}")
        yield world


async def test_an_hour_at_rest_costs_four_requests_at_most() -> None:
    async with living() as world:
        await world.hooked()
        replay = world.replay()
        await rounds(world, replay, hours=1)
        assert sum(await rounds(world, replay, hours=3)) <= 3 * 4


@pytest.mark.parametrize("case", ["unreachable", "wrong secret"])
async def test_a_hook_that_cannot_be_enabled_is_tried_ever_more_rarely_and_costs_no_more_each_time(case: str) -> None:
    hooks = {"unreachable": (NOWHERE, {}), "wrong secret": (None, {"token": "wrong"})}
    url, fields = hooks[case]
    async with broken(url, **fields) as world:
        replay = world.replay()
        counts = await rounds(world, replay, hours=1)
        assert len(counts) <= 7
        later = await rounds(world, replay, hours=24)
        assert len(later) <= 25
        assert max(later) <= max(counts)
        tests = [call for call in world.gitlab.calls if "/test/" in call.path]
        assert {call.path.rsplit("/", 1)[-1] for call in tests} == {"merge_requests_events"}


async def test_old_failures_cost_nothing_once_they_were_looked_at() -> None:
    async with living() as world:
        await world.hooked()
        await world.disabled()
        world.gate.is_away = False
        project = world.gitlab.state.project(APP)
        assert project is not None
        (hook,) = project.hooks.values()
        hook.log[:0] = [{**hook.log[-1], "id": -1000 + number} for number in range(900)]
        replay = world.replay()
        await rounds(world, replay, hours=2)
        assert max(await rounds(world, replay, hours=2)) <= 4
        world.skip(days=4)
        assert max(await rounds(world, world.replay(), hours=1)) <= 4


async def test_restarts_cost_no_looks_at_an_outage_that_is_over_for_a_day() -> None:
    async with living() as world:
        await world.hooked()
        await world.disabled()
        world.gate.is_away = False
        await world.replay().until_done()
        world.skip(hours=44)
        for iid in range(100, 110):
            await world.does("opens", APP, iid, "alice", SHA)
            await world.says("/hummingbird rewrite", iid=iid)
        before = len(world.gitlab.calls)
        for _ in range(3):
            await world.replay().until_done()
        asked = [call.path.rsplit("/", 1)[-1] for call in world.gitlab.calls[before:]]
        assert not {"merge_requests", "notes", "discussions", "pipelines"} & set(asked)
        assert len(asked) < 30


async def test_a_hint_of_hours_is_heeded_for_its_project_only() -> None:
    async with living() as world:
        await world.hooked()
        await world.disabled()
        await world.says("/hummingbird rewrite")
        world.gitlab.fault(
            "status", status=429, path="group/app/merge_requests", method="GET", headers={"Retry-After": "7200"}
        )
        world.gate.is_away = False
        replay = world.replay()
        assert await replay.once() <= EVERY_SECONDS
        world.skip(hours=1)
        before = len(world.gitlab.calls)
        await replay.until_done()
        assert not [call for call in world.gitlab.calls[before:] if call.path.startswith("/api/v4/projects/group")]
        assert not world.runs
        world.skip(hours=1)
        await replay.until_done()
        assert world.kinds() == {"note": 1}
