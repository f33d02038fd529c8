"""Whatever happens in whatever order around outages: in the end there is one run for each thing that asked for one."""

from __future__ import annotations

import asyncio
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.ingest.missed.scenes import APP, World, living

MERGE_REQUESTS = (42, 50)
Act = tuple[str, int]
ACT = st.tuples(st.sampled_from(["command", "talk", "push", "failed", "success"]), st.sampled_from(MERGE_REQUESTS))
ACTS = st.lists(ACT, max_size=4)
END = st.lists(st.sampled_from(["recover", "restart", "a minute later", "away", "back"]), max_size=4)
CHAPTER = st.tuples(ACTS, st.sampled_from(["away", "disabled", "disabled", "disabled"]), ACTS, END, ACTS)
"""What comes before an outage, whether GitLab disables the hook in it, what comes then, how it ends, what follows."""


class Story:
    """What people did, and what it must lead to."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.replay = world.replay()
        self.commands: list[int] = []
        self.heads: dict[int, str] = {}
        self.last: dict[int, tuple[int, str]] = {}
        self.pushes = 0

    async def happens(self, step: str | Act) -> None:
        self.world.skip(seconds=1)
        if isinstance(step, tuple):
            await self.somebody(*step)
        elif step == "disabled":
            await self.world.disabled()
        elif step in ("away", "back"):
            self.world.gate.is_away = step == "away"
        elif step == "a minute later":
            self.world.skip(seconds=61)
        elif not self.world.gate.is_away:
            self.replay = self.world.replay() if step == "restart" else self.replay
            await self.replay.until_done()

    async def somebody(self, does: str, iid: int) -> None:
        if does in ("failed", "success"):
            self.last[iid] = await self.world.does("pipeline", APP, iid, "alice", does), does
        elif does == "push":
            self.pushes += 1
            self.heads[iid] = f"{self.pushes:04x}" * 10
            await self.world.does("pushes", APP, iid, "alice", self.heads[iid])
        else:
            words = "/hummingbird rewrite it" if does == "command" else "well"
            number = await self.world.says(words, iid=iid)
            self.commands += [number] if does == "command" else []

    def check(self) -> None:
        triggers = [run["spec"]["trigger"] for run in self.world.runs]
        assert sorted(trigger["noteId"] for trigger in triggers if trigger["event"] == "note") == self.commands
        keys = [trigger["key"].split(":") for trigger in triggers]
        commits = Counter((int(key[4]), key[5]) for key in keys if key[3] == "merge_request")
        pipelines = Counter(int(key[4]) for key in keys if key[3] == "pipeline")
        assert {*commits.values(), *pipelines.values()} <= {1}
        assert set(self.heads.items()) <= set(commits)
        assert {number for number, status in self.last.values() if status == "failed"} <= set(pipelines)


async def lived(steps: list[str | Act]) -> None:
    async with living() as world:
        for iid in MERGE_REQUESTS[1:]:
            await world.does("opens", APP, iid, "alice", "1" * 40, draft=True)
            await world.does("marks_ready", APP, iid, "alice")
        world.skip(hours=1)
        await world.hooked()
        story = Story(world)
        for step in steps:
            await story.happens(step)
        for step in ("back", "recover", "a minute later", "recover", "restart"):
            await story.happens(step)
        story.check()


@settings(max_examples=8)
@given(st.lists(CHAPTER, min_size=1, max_size=2))
def test_everything_that_asked_for_a_run_has_one_in_the_end(
    chapters: list[tuple[list[str | Act], str, list[str | Act], list[str | Act], list[str | Act]]],
) -> None:
    steps: list[str | Act] = [
        step
        for before, outage, during, end, after in chapters
        for step in (*before, outage, *during, "back", *end, *after)
    ]
    asyncio.run(lived(steps))
