"""Whether everything is away, or one event fails alone."""

from __future__ import annotations

import asyncio

import pytest

from hummingbird_operator.errors import HummingbirdError, Invalid, NotFound, Unavailable
from hummingbird_operator.kube.client import QuotaExceeded
from hummingbird_operator.kube.testing import FakeKube
from tests.unit.ingest.desk import Desk, FakeForge
from tests.unit.ingest.samples import note


async def test_one_look_up_that_fails_is_no_outage() -> None:
    forge = FakeForge()
    forge.fail = lambda method: Unavailable("GitLab", "it answered 500") if method == "access_level" else None
    desk = Desk(forge=forge)
    with pytest.raises(Unavailable):
        await desk.see(note())
    assert await desk.handler.away() is None


@pytest.mark.parametrize("error", [Unavailable("GitLab", "503"), Invalid("the bot's account", "the terms (403)")])
async def test_a_gitlab_that_refuses_the_bot_its_own_account_is_away(error: HummingbirdError) -> None:
    forge = FakeForge()
    forge.fail = lambda method: error
    away = await Desk(forge=forge).handler.away()
    assert away is not None
    assert away.service == "GitLab"


@pytest.mark.parametrize("error", [Unavailable("x", "503"), Invalid("list agentruns", "forbidden"), NotFound("no CRD")])
async def test_an_api_server_that_lists_no_runs_is_away(error: HummingbirdError) -> None:
    kube = FakeKube()
    kube.fail = lambda verb, resource, name: error
    assert await Desk(kube=kube).handler.away() is not None


async def test_a_full_namespace_or_a_missing_right_to_create_keeps_all_out_though_both_answer() -> None:
    kube = FakeKube()
    kube.fail = lambda verb, resource, name: QuotaExceeded("the API server", "full") if verb == "create" else None
    desk = Desk(kube=kube)
    with pytest.raises(Unavailable):
        await desk.see(note())
    away = await desk.handler.away()
    assert away is not None
    assert "full" in str(away)
    desk.time += 4
    assert await desk.handler.away() is None, "only what an event met just now"


async def test_many_that_ask_at_once_cost_one_request_and_the_answer_is_remembered_for_seconds() -> None:
    desk = Desk()
    await asyncio.gather(*(desk.handler.away() for _ in range(50)))
    assert desk.forge.calls["probe"] == 1
    desk.time += 4
    desk.forge.fail = lambda method: Unavailable("GitLab", "503")
    assert await desk.handler.away() is not None
    assert desk.forge.calls["probe"] == 2
