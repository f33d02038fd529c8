"""What of a comment's event is believed, and how often a person is told no."""

from __future__ import annotations

from typing import Any

import pytest

from hummingbird_operator.api import labels
from hummingbird_operator.delivery.markers import Marker
from hummingbird_operator.delivery.refusals import TooLarge
from hummingbird_operator.ingest.reasons import Reason
from tests.unit.ingest.desk import Desk, said, thread, written
from tests.unit.ingest.samples import ALICE, GUEST, SESSION, THREAD, merge_request, note, pipeline, project, reply, user

OURS = Marker(SESSION, wf="review")


def knowing(**changes: Any) -> Desk:
    """A GitLab that has note 1244 with some things otherwise."""
    desk = Desk()
    desk.forge.notes[1244] = written(1244, **changes)
    return desk


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"author_id": GUEST}, Reason.BAD_PAYLOAD),
        ({"author_id": None}, Reason.BAD_PAYLOAD),
        ({"system": True}, Reason.SYSTEM_NOTE),
        ({"project_id": 11}, Reason.BAD_PAYLOAD),
        ({"body": "never mind"}, Reason.NOT_FOR_US),
        ({"project_id": 10}, Reason.FIRED),
    ],
)
async def test_gitlab_decides_who_wrote_a_note_and_where(changes: dict[str, Any], reason: Reason) -> None:
    desk = knowing(**changes)
    assert (await desk.see(note())).reason is reason
    assert bool(desk.runs) is (reason is Reason.FIRED)


@pytest.mark.parametrize(("edited", "message"), [(False, "as it stands"), (True, "as it was sent")])
async def test_words_of_an_event_stand_only_where_the_note_was_edited_since(edited: bool, message: str) -> None:
    desk = knowing(body="/hummingbird review as it stands", edited=edited)
    outcome = await desk.see(note("/hummingbird review as it was sent"))
    assert desk.run["spec"]["message"] == message
    assert outcome.detail == ("edited since" if edited else "")


async def test_lines_that_end_otherwise_are_the_same_words() -> None:
    desk = knowing(body="/hummingbird review\r\nplease")
    assert (await desk.see(note("/hummingbird review\nplease"))).detail == ""


async def test_what_gitlab_has_as_internal_is_internal_whatever_the_event_says() -> None:
    desk = knowing(internal=True)
    await desk.see(note(internal=False))
    assert desk.run["spec"]["trigger"]["internal"] is True


async def test_a_note_that_a_replica_does_not_have_yet_is_asked_for_again() -> None:
    desk = Desk()
    desk.forge.gone.add(1244)
    assert (await desk.see(note())).reason is Reason.NO_TARGET
    assert desk.forge.calls["said"] == 2


async def test_whoever_acts_is_the_author_of_a_new_note() -> None:
    payload = note(author_id=ALICE) | {"user": user(id=GUEST, username="guest")}
    assert (await Desk().see(payload)).reason is Reason.BAD_PAYLOAD


# --- other GitLabs, other projects ---


@pytest.mark.parametrize("event", [note(), reply(), pipeline(), merge_request()])
@pytest.mark.parametrize(
    ("address", "itself", "ours"),
    [
        ("https://evil.example.org/group/app", "git.example.com", False),
        ("https://gitlab.example.com/group/app", "", True),
        ("https://git.example.com/group/app", "git.example.com", True),
        ("https://git.example.com/group/app", "", True),
        ("no address", "git.example.com", True),
    ],
)
async def test_an_event_of_another_gitlab_is_none_of_ours(
    event: dict[str, Any], address: str, itself: str, ours: bool
) -> None:
    """By the host that we call it by, or by the one that it gives itself: they differ behind a service's address."""
    desk = Desk()
    desk.forge.calls_itself = itself
    outcome = await desk.see(event | {"project": project(web_url=address)})
    assert (outcome.reason is not Reason.OTHER_GITLAB) is ours
    assert ours or not desk.runs


@pytest.mark.parametrize("path", ["group/../app", "group/./app", "../app"])
async def test_a_path_that_a_server_may_resolve_is_no_projects(path: str) -> None:
    assert (await Desk().see(note() | {"project": project(path_with_namespace=path)})).reason is Reason.BAD_PAYLOAD


# --- threads that cost much ---


async def test_a_thread_that_is_too_long_to_read_has_a_reason_of_its_own() -> None:
    desk = Desk()
    desk.forge.fail = lambda method: TooLarge("GitLab's answer", "is long") if method == "thread" else None
    assert (await desk.see(reply())).reason is Reason.TOO_LARGE


async def test_a_costly_thread_that_is_none_of_ours_is_passed_over_for_a_minute() -> None:
    desk = Desk()
    desk.forge.threads[THREAD] = thread(said(1, by_bot=False))

    def slow(method: str) -> None:
        desk.time += 2 if method == "thread" else 0

    desk.forge.fail = slow
    for number in range(10):
        assert (await desk.see(reply(id=2000 + number))).reason is Reason.NO_SESSION
    assert desk.forge.calls["thread"] == 1
    desk.time += 60
    await desk.see(reply(id=3000))
    assert desk.forge.calls["thread"] == 2


async def test_it_is_looked_at_again_as_soon_as_the_bot_wrote_there() -> None:
    desk = Desk()
    desk.forge.threads[THREAD] = thread(said(1, by_bot=False))

    def slow(method: str) -> None:
        desk.time += 2 if method == "thread" else 0

    desk.forge.fail = slow
    await desk.see(reply(id=2000))
    desk.forge.threads[THREAD] = thread(said(1, by_bot=False), said(2001, OURS))
    assert (await desk.see(note("Running", id=2001, author_id=1))).reason is Reason.SELF_EVENT
    assert (await desk.see(reply(id=2002))).reason is Reason.FIRED


async def test_a_cheap_thread_is_looked_at_each_time_for_the_bot_may_have_written_meanwhile() -> None:
    desk = Desk()
    desk.forge.threads[THREAD] = thread(said(1, by_bot=False))
    await desk.see(reply(id=2000))
    desk.forge.threads[THREAD] = thread(said(1, by_bot=False), said(2001, OURS))
    assert (await desk.see(reply(id=2002))).reason is Reason.FIRED


# --- one denial a day ---


async def test_whoever_may_not_ask_is_told_so_once_a_day_on_a_merge_request() -> None:
    desk = Desk()
    first = await desk.see(note(id=1, author_id=GUEST))
    others = [await desk.see(note(id=number, author_id=GUEST)) for number in (2, 3, 1)]
    assert first.reason is Reason.NOTICE
    assert {one.reason for one in others} == {Reason.DUPLICATE}
    assert {one.runs for one in others} == {first.runs}
    assert desk.forge.reactions == [("eyes", 1), ("x", 2), ("x", 3), ("eyes", 1)], "only the first has a run of its own"
    key = desk.run["metadata"]["annotations"][labels.CONTENT_KEY]
    assert key == "gitlab:gitlab.example.com:10:note:denied:42:9:2026-11-30"
    desk.forge.notes[4] = written(4, author_id=GUEST, created_at="2026-12-01T00:00:00.000Z")
    assert (await desk.see(note(id=4, author_id=GUEST))).reason is Reason.NOTICE


async def test_a_comment_that_was_denied_is_not_done_at_a_later_delivery() -> None:
    desk = Desk()
    await desk.see(note(author_id=GUEST))
    desk.forge.levels[GUEST] = 30
    assert (await desk.see(note(author_id=GUEST))).reason is Reason.DUPLICATE
    assert (await desk.see(note(id=2, author_id=GUEST))).reason is Reason.FIRED


async def test_a_comment_that_was_done_is_not_denied_at_a_later_delivery() -> None:
    desk = Desk()
    desk.forge.levels[GUEST] = 30
    await desk.see(note(author_id=GUEST))
    desk.forge.levels[GUEST] = 0
    desk.time += 61
    assert (await desk.see(note(author_id=GUEST))).reason is Reason.DUPLICATE
    assert len(desk.runs) == 1
