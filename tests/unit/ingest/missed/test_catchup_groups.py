"""Hooks of groups, and projects that only a glob admits, are replayed and caught up like those that are named."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from hummingbird_operator.ingest.hooks.hooks import WANTED, GroupHooks
from tests.standins.gitlab import sample_fixture
from tests.unit.ingest.missed.scenes import APP, World, living


def grouped(**more: Any) -> dict[str, Any]:
    """Maya owns the group and maintains its projects, those that only a glob admits among them."""
    fixture = sample_fixture()
    one = fixture["projects"][0]
    others = [{**one, "id": number, "path": path} for number, path in ((11, "group/sub/lib"), (12, "elsewhere/app"))]
    groups = [{"id": 3, "path": "group", "members": {"9": 50}}]
    return {"projects": [one, *others], "groups": groups, **more}


async def test_projects_behind_a_glob_are_replayed_and_caught_up_where_the_token_is_a_maintainers() -> None:
    async with living(settings={"projects": {"group/**": {}}}, **grouped()) as world:
        await world.hooked("group/sub/lib")
        await world.disabled("group/sub/lib")
        await world.says("/hummingbird rev never sent", project="group/sub/lib")
        await world.says("/hummingbird rev of a stranger", project="elsewhere/app")
        world.gate.is_away = False
        await world.replay().until_done()
        assert [run["spec"]["target"]["gitlab"]["project"] for run in world.runs] == ["group/sub/lib"]
        assert world.status("group/sub/lib") == "executable"


async def group_hook(world: World) -> int:
    """The group's hook, by its owner."""
    hooks = GroupHooks(world.gitlab.url, "maintainer-token")
    made = await asyncio.to_thread(hooks.create, "group", world.url, {**WANTED, "token": world.secret})
    hooks.close()
    return made.id


@pytest.mark.parametrize("projects", [{"group/*": {}}, {APP: {}, "group/sub/lib": {}}])
async def test_a_groups_hook_is_replayed_enabled_and_caught_up_for_all_its_projects(
    projects: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with living(settings={"projects": projects}, **grouped()) as world:
        number = await group_hook(world)
        world.gate.is_away = True
        await world.says("/hummingbird rev refused", project="group/sub/lib")
        await world.disabled()
        for project in (APP, "group/sub/lib", "elsewhere/app"):
            await world.says("/hummingbird rev never sent", project=project)
        world.gate.is_away = False
        await world.replay().until_done()
        targets = sorted((run["spec"]["target"]["gitlab"]["project"], run["spec"]["message"]) for run in world.runs)
        assert targets == [(APP, "never sent"), ("group/sub/lib", "never sent"), ("group/sub/lib", "refused")]
        assert world.gitlab.state.groups[3].hooks[number].status(world.now) == "executable"
        assert "has no webhook" not in caplog.text


async def test_a_group_that_shows_no_hooks_is_said_once_or_not_at_all(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    groups = [{"id": 3, "path": "group", "members": {"9": 40}}]
    async with living(**grouped(groups=groups)) as world:
        replay = world.replay()
        await replay.until_done()
        await replay.until_done()
        assert caplog.text.count("hooks of the group group are not looked at") == 1
        assert "the role Owner in the group" in caplog.text
        assert caplog.text.count("group/app has no webhook for") == 1
    caplog.clear()
    async with living(**grouped(premium=False)) as world:
        await world.replay().until_done()
        assert "are not looked at" not in caplog.text
