"""Who may ask: members from Developer up; other bots are not even answered, and nothing talks to itself for ever."""

from __future__ import annotations

import pytest

from hummingbird_operator.ingest.reasons import Reason
from hummingbird_operator.kube.client import AGENT_RUNS
from tests.unit.ingest.desk import NAMESPACE, Desk, said
from tests.unit.ingest.samples import ALICE, note, reply, user
from tests.unit.ingest.test_handle_notes import OURS, in_thread


@pytest.mark.parametrize("text", ["/hummingbird analyze-failures", "/hummingbird help"])
async def test_another_bot_s_command_is_ignored_without_a_word_or_a_reaction(text: str) -> None:
    desk = Desk()
    desk.forge.bots = {ALICE}
    assert (await desk.see(note(text))).reason is Reason.BOT_SENDER
    assert (desk.runs, desk.forge.reactions) == ({}, [])


@pytest.mark.parametrize("name", ["project_77_bot", "project_77_bot1", "group_5_bot_0a1b2c"])
async def test_the_account_of_an_access_token_is_known_by_its_name(name: str) -> None:
    desk = Desk()
    assert (await desk.see({**note("/hummingbird help"), "user": user(username=name)})).reason is Reason.BOT_SENDER
    assert desk.forge.calls["is_bot"] == 0


async def test_another_bot_s_reply_is_ignored_though_it_is_a_member() -> None:
    desk = in_thread(said(10, OURS))
    desk.forge.bots = {ALICE}
    assert (await desk.see(reply("and?"))).reason is Reason.BOT_SENDER


async def test_a_bot_that_the_configuration_names_may_ask_like_a_member() -> None:
    gitlab = {"url": "https://gitlab.example.com", "token_env": "BOT", "allowed_bots": ["alice"]}
    desk = Desk(gitlab=gitlab)
    desk.forge.bots = {ALICE}
    assert (await desk.see(note("/hummingbird analyze-failures"))).reason is Reason.FIRED


async def test_an_allowed_bot_still_needs_the_role() -> None:
    gitlab = {"url": "https://gitlab.example.com", "token_env": "BOT", "allowed_bots": ["alice"]}
    desk = Desk(gitlab=gitlab)
    desk.forge.levels = {}
    assert (await desk.see(note("/hummingbird analyze-failures"))).reason is Reason.NOTICE


async def test_what_talks_to_itself_ends_at_the_hour_s_budget_and_the_same_event_stays_a_duplicate() -> None:
    desk = Desk(limits={"max_requests_per_hour": 3})
    seen = [(await desk.see(note("/hummingbird analyze-failures", id=number))).reason for number in range(500, 506)]
    assert seen == [Reason.FIRED] * 3 + [Reason.LOOP_BUDGET] * 3
    assert len(desk.runs) == 3
    assert desk.forge.reactions[-1] == ("x", 505)
    assert (await desk.see(note("/hummingbird analyze-failures", id=500))).reason is Reason.DUPLICATE


async def test_fixed_answers_have_a_budget_of_their_own() -> None:
    desk = Desk(limits={"max_requests_per_hour": 2})
    for number in (500, 501, 502):
        await desk.see(note("/hummingbird help", id=number))
    assert len(desk.runs) == 2
    assert (await desk.see(note("/hummingbird analyze-failures", id=503))).reason is Reason.FIRED


async def test_a_comment_whose_run_is_old_is_no_request_more_when_its_event_comes_again() -> None:
    """It had its answer: an x would say that it was refused."""
    desk = Desk(limits={"max_requests_per_hour": 1})
    await desk.see(note("/hummingbird analyze-failures", id=500))
    (old,) = desk.runs
    await desk.kube.merge(AGENT_RUNS, NAMESPACE, old, {"metadata": {"creationTimestamp": "2026-11-01T00:00:00Z"}})
    await desk.see(note("/hummingbird analyze-failures", id=501))
    assert (await desk.see(note("/hummingbird analyze-failures", id=500))).reason is Reason.DUPLICATE
    assert desk.forge.reactions == [("eyes", 500), ("eyes", 501), ("eyes", 500)]


async def test_every_comment_that_is_shown_as_seen_has_a_run_that_reacts_when_it_ends() -> None:
    """Help, words that name no workflow, a full hour, denials: none is left with eyes for ever."""
    desk = Desk(limits={"max_requests_per_hour": 6})
    words = ["help", "help", "nonsense", "nonsense", "analyze-failures", "help"]
    for number, word in enumerate(words, 500):
        await desk.see(note(f"/hummingbird {word}", id=number))
    for number in range(510, 516):
        await desk.see(note("/hummingbird help", id=number, author_id=99))
    seen = {number for emoji, number in desk.forge.reactions if emoji == "eyes"}
    refused = {number for emoji, number in desk.forge.reactions if emoji == "x"}
    assert seen == {run["spec"]["trigger"]["noteId"] for run in desk.runs.values()}
    assert refused == {*range(511, 516)}
