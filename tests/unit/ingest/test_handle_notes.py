"""What becomes of a comment: the order of the gates, what is asked of GitLab and when, what is made of it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from hummingbird_operator.api import labels
from hummingbird_operator.delivery.markers import Marker
from hummingbird_operator.delivery.refusals import Forbidden
from hummingbird_operator.errors import Invalid, NotFound, Unavailable
from hummingbird_operator.ingest.handle import NameTaken, Outcome
from hummingbird_operator.ingest.reasons import Reason
from hummingbird_operator.kube.client import AGENT_RUNS
from hummingbird_operator.kube.testing import FakeKube
from tests.unit.ingest.desk import NAMESPACE, Desk, said, thread
from tests.unit.ingest.samples import BOT, GUEST, OTHER_SESSION, SESSION, THREAD, note, project, reply, user

OURS = Marker(SESSION, wf="review")


def in_thread(*notes: Any, **changes: Any) -> Desk:
    desk = Desk()
    desk.forge.threads[THREAD] = thread(*notes, **changes)
    return desk


def spec(desk: Desk) -> dict[str, Any]:
    return dict(desk.run["spec"])


# --- gates ---


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (note(noteable_type="Issue"), Reason.NO_TARGET),
        (note(noteable_type="Commit"), Reason.NO_TARGET),
        ({"object_kind": "note", "object_attributes": {"noteable_type": "Snippet"}, "project": None}, Reason.NO_TARGET),
        (note(action="update"), Reason.EDITED),
        (note(action="delete"), Reason.EDITED),
        (note(without=("action",), updated_at="2026-11-30 10:09:00 UTC"), Reason.EDITED),
        (note(without=("action", "created_at")), Reason.EDITED),
        (note(system=True), Reason.SYSTEM_NOTE),
    ],
)
async def test_gates_that_need_nobody_come_first(payload: dict[str, Any], reason: Reason) -> None:
    desk = Desk()
    assert (await desk.see(payload)).reason is reason
    assert not desk.forge.calls
    assert not desk.runs


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (note(author_id=BOT), Reason.SELF_EVENT),
        (note() | {"project": project(path_with_namespace="other/app")}, Reason.NO_PROJECT),
        (note("looks good"), Reason.NOT_FOR_US),
        (note("> /hummingbird review"), Reason.NOT_FOR_US),
        (reply("hm", type=None), Reason.NOT_FOR_US),
        (reply("hm", type="Note"), Reason.NOT_FOR_US),
        (reply("hm", discussion_id=None), Reason.NOT_FOR_US),
        (reply("hm", discussion_id=""), Reason.NOT_FOR_US),
        (reply("hm", without=("discussion_id", "type")), Reason.NOT_FOR_US),
    ],
)
async def test_other_comments_are_dropped_without_an_access_check(payload: dict[str, Any], reason: Reason) -> None:
    desk = Desk()
    assert (await desk.see(payload)).reason is reason
    assert set(desk.forge.calls) <= {"bot_id"}
    assert not desk.runs


async def test_the_bot_is_known_by_its_number_and_not_by_what_a_text_says() -> None:
    quoting = note(f"/hummingbird review\n\n{OURS.render()}")
    assert (await Desk().see(quoting)).reason is Reason.FIRED


@pytest.mark.parametrize("payload", [note(without=("action", "internal", "type", "discussion_id")), note(system=None)])
async def test_an_old_servers_comment_is_new_when_it_was_never_changed(payload: dict[str, Any]) -> None:
    """ingest.md §5 row 18."""
    assert (await Desk().see(payload)).reason is Reason.FIRED


async def test_a_confidential_note_hook_is_a_note() -> None:
    """sources.md §6 row 17: told apart by object_kind alone, and the answer is internal too."""
    desk = Desk()
    outcome = await desk.see(note(internal=True) | {"event_type": "confidential_note"}, "Confidential Note Hook")
    assert outcome.reason is Reason.FIRED
    assert spec(desk)["trigger"]["internal"] is True


@pytest.mark.parametrize(
    ("payload", "internal"),
    [
        (note(), False),
        (note(without=("internal",)), False),
        (note(without=("internal",), confidential=True), True),
        (note(without=("internal",)) | {"event_type": "confidential_note"}, True),
        (note(internal=False) | {"event_type": "confidential_note"}, True),
    ],
)
async def test_what_an_old_server_says_of_confidence_is_believed(payload: dict[str, Any], internal: bool) -> None:
    desk = Desk()
    await desk.see(payload)
    assert spec(desk)["trigger"]["internal"] is internal


# --- commands ---


async def test_a_command_makes_a_run_and_shows_that_it_was_seen() -> None:
    desk = Desk()
    outcome = await desk.see(note("/hummingbird rev only arm64\nand tell why"))
    assert outcome == Outcome(Reason.FIRED, runs=(desk.run["metadata"]["name"],))
    assert spec(desk)["workflow"] == "review"
    assert spec(desk)["message"] == "only arm64\nand tell why"
    assert spec(desk)["trigger"]["discussion"] == THREAD
    assert desk.forge.reactions == [("eyes", 1244)]
    assert desk.counted("fired") == 1


async def test_the_same_comment_twice_is_one_run_and_the_reaction_is_given_again() -> None:
    desk = Desk()
    await desk.see(note())
    assert (await desk.see(note())).reason is Reason.DUPLICATE
    assert len(desk.runs) == 1
    assert desk.forge.calls["react"] == 2


async def test_the_same_comment_at_two_ingestors_is_one_run() -> None:
    """ingest.md §7 row 230; race 1 of the issue."""
    first = Desk()
    second = Desk(first.kube, first.forge)
    outcomes = await asyncio.gather(first.see(note()), second.see(note(), "note"))
    assert {outcome.reason for outcome in outcomes} == {Reason.FIRED, Reason.DUPLICATE}
    assert len(first.runs) == 1


@pytest.mark.parametrize("steps", range(1, 12))
async def test_an_event_that_is_cut_off_anywhere_is_done_once_at_its_next_delivery(steps: int) -> None:
    """A deadline of the transport, or its end: whatever was done by then stands, and is found again."""
    desk = in_thread(said(10, OURS))
    first = asyncio.ensure_future(desk.see(reply()))
    for _ in range(steps):
        await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert (await desk.see(reply())).reason in {Reason.FIRED, Reason.DUPLICATE}
    assert len(desk.runs) == 1


async def test_after_another_configuration_the_same_comment_is_still_one_run() -> None:
    first = Desk()
    await first.see(note("/hummingbird rev"))
    only = {"rev": {"prompt": "r.md"}}
    assert (
        await Desk(first.kube, first.forge, workflows=only).see(note("/hummingbird rev"))
    ).reason is Reason.DUPLICATE


@pytest.mark.parametrize(
    ("words", "notice", "message"),
    [
        ("/hummingbird", "Help", None),
        ("/hummingbird help", "Help", None),
        ("/hummingbird re", "UnknownCommand", "re"),
        ("/hummingbird nothing", "UnknownCommand", "nothing"),
        ("/hummingbird nul\x00 x", "UnknownCommand", "nul\ufffd"),
    ],
)
async def test_what_names_no_workflow_is_answered_by_a_notice(words: str, notice: str, message: str | None) -> None:
    desk = Desk()
    assert (await desk.see(note(words))).reason is Reason.NOTICE
    assert (spec(desk)["notice"], spec(desk).get("message"), spec(desk)["workflow"]) == (notice, message, "help")
    assert labels.SESSION not in desk.run["metadata"]["labels"]


async def test_a_workflow_that_does_not_admit_the_project_is_unknown_there() -> None:
    desk = Desk()
    await desk.see(note("/hummingbird rewrite") | {"project": project(path_with_namespace="group/other")})
    assert spec(desk)["notice"] == "UnknownCommand"


@pytest.mark.parametrize("state", ["closed", "merged", "locked", None])
async def test_people_may_ask_on_a_merge_request_that_is_closed(state: str | None) -> None:
    payload = note()
    payload["merge_request"]["state"] = state
    assert (await Desk().see(payload)).reason is Reason.FIRED


@pytest.mark.parametrize("error", [Unavailable("GitLab", "429"), NotFound("the note"), Invalid("a reaction", "403")])
async def test_a_failed_reaction_is_no_error(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()
    desk.forge.fail = lambda method: error if method == "react" else None
    assert (await desk.see(note())).reason is Reason.FIRED
    assert "no reaction on note 1244 of group/app!42" in caplog.text


async def test_a_reaction_that_takes_too_long_holds_nobody_up(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk(reaction_seconds=0.0)
    desk.forge.unhurried.clear()
    assert (await desk.see(note())).reason is Reason.FIRED
    assert "GitLab has not answered" in caplog.text
    desk.forge.unhurried.set()


# --- access ---


@pytest.mark.parametrize("level", [0, 5, 10, 15, 20, 25])
@pytest.mark.parametrize("words", ["/hummingbird review", "/hummingbird help", "/hummingbird nothing"])
async def test_whoever_is_below_developer_is_denied(level: int, words: str) -> None:
    desk = Desk()
    desk.forge.levels[GUEST] = level
    assert (await desk.see(note(words, author_id=GUEST, internal=True))).reason is Reason.NOTICE
    assert spec(desk)["notice"] == "Denied"
    assert spec(desk)["trigger"]["discussion"] == THREAD
    assert spec(desk)["trigger"]["internal"] is True


async def test_access_is_the_notes_authors_and_not_the_actors() -> None:
    desk = Desk()
    await desk.see(note(author_id=GUEST, without=("action",)) | {"user": user(id=7, username="alice")})
    assert spec(desk)["notice"] == "Denied"
    assert "author" not in spec(desk)["trigger"]


async def test_a_yes_is_remembered_for_a_minute_and_a_no_never() -> None:
    desk = Desk()
    for number in (1, 2):
        await desk.see(note(id=number))
    assert desk.forge.calls["access_level"] == 1
    desk.time += 60
    await desk.see(note(id=3))
    assert desk.forge.calls["access_level"] == 2
    for number in (4, 5):
        await desk.see(note(id=number, author_id=GUEST))
    assert desk.forge.calls["access_level"] == 4
    desk.forge.levels[GUEST] = 30
    assert (await desk.see(note(id=6, author_id=GUEST))).reason is Reason.FIRED


async def test_a_yes_in_one_project_is_none_in_another() -> None:
    desk = Desk()
    await desk.see(note(id=1))
    await desk.see(note(id=2) | {"project": project(path_with_namespace="group/other")})
    assert desk.forge.calls["access_level"] == 2


@pytest.mark.parametrize("method", ["bot_id", "access_level", "thread"])
async def test_a_gitlab_that_is_away_is_never_taken_for_a_no(method: str) -> None:
    """ingest.md §7 row 243."""
    desk = in_thread(said(1, OURS))
    desk.forge.fail = lambda asked: Unavailable("GitLab", "502") if asked == method else None
    with pytest.raises(Unavailable):
        await desk.see(reply())
    assert not desk.runs
    assert desk.metrics.unavailable.labels("GitLab")._value.get() == 1
    desk.forge.fail = lambda asked: None
    assert (await desk.see(reply())).reason is Reason.FIRED


@pytest.mark.parametrize("error", [Forbidden("group/app!42", "GitLab forbids it (403)"), Invalid("members", "a 400")])
async def test_a_failed_look_at_somebodys_access_is_asked_again_and_never_a_no(error: Exception) -> None:
    desk = Desk()
    desk.forge.fail = lambda method: error if method == "access_level" else None
    with pytest.raises(Unavailable):
        await desk.see(note())
    assert not desk.runs
    assert await desk.handler.away() is None, "it is this project's or this person's trouble alone"
    desk.forge.fail = lambda method: None
    assert (await desk.see(note())).reason is Reason.FIRED


async def test_a_fault_of_the_token_is_everybodys_and_waits() -> None:
    desk = Desk()
    desk.forge.fail = lambda method: Invalid("gitlab.token_file", "is empty")
    with pytest.raises(Unavailable, match="token_file"):
        await desk.see(note())


# --- replies ---


async def test_a_reply_goes_on_with_the_session_of_the_thread() -> None:
    desk = in_thread(said(10, Marker(SESSION, wf="analyze-failures")), said(20, by_bot=False))
    assert (await desk.see(reply("Why does only arm64 fail?"))).reason is Reason.FIRED
    found = spec(desk)
    assert (found["session"], found["workflow"]) == (SESSION, "analyze-failures")
    assert found["message"] == "Why does only arm64 fail?"
    assert desk.run["metadata"]["labels"][labels.SESSION] == SESSION
    assert "sha" not in found["target"]["gitlab"]


@pytest.mark.parametrize("kind", ["DiscussionNote", "DiffNote"])
async def test_replies_come_in_two_kinds(kind: str) -> None:
    assert (await in_thread(said(10, OURS)).see(reply(type=kind))).reason is Reason.FIRED


async def test_the_nearest_earlier_marker_wins_and_a_later_one_never_does() -> None:
    late, first = Marker(OTHER_SESSION, wf="rewrite"), Marker("00000000-0000-4000-8000-000000000000", wf="rewrite")
    desk = in_thread(said(10, first), said(1200, OURS), said(1300, late), said(1244, by_bot=False))
    await desk.see(reply())
    assert (spec(desk)["session"], spec(desk)["workflow"]) == (SESSION, "review")


@pytest.mark.parametrize(
    "notes",
    [
        (),
        (said(10, by_bot=False),),
        (said(10),),
        (said(10, Marker(None, run="uid", key="note-1", notice="Help")),),
        (said(10, Marker("no uuid", wf="review")),),
        (said(2000, OURS),),
        (said(1244, OURS),),
    ],
)
async def test_a_thread_without_an_earlier_session_is_none_of_ours(notes: tuple[Any, ...]) -> None:
    desk = in_thread(*notes)
    assert (await desk.see(reply(author_id=GUEST))).reason is Reason.NO_SESSION
    assert "access_level" not in desk.forge.calls
    assert not desk.forge.reactions


async def test_a_notice_between_does_not_end_a_conversation() -> None:
    desk = in_thread(said(10, OURS), said(20, Marker(None, run="uid", key="note-1", notice="Denied")))
    await desk.see(reply())
    assert spec(desk)["session"] == SESSION


async def test_a_thread_that_is_gone_has_no_session() -> None:
    assert (await Desk().see(reply())).reason is Reason.NO_SESSION


async def test_a_reply_by_a_guest_is_denied_in_the_thread() -> None:
    desk = in_thread(said(10, OURS), internal=True)
    assert (await desk.see(reply(author_id=GUEST, internal=None))).reason is Reason.NOTICE
    assert spec(desk)["notice"] == "Denied"
    assert spec(desk)["trigger"]["internal"] is True


async def test_an_internal_thread_makes_the_answer_internal() -> None:
    desk = in_thread(said(10, OURS), internal=True)
    await desk.see(reply(without=("internal",)))
    assert spec(desk)["trigger"]["internal"] is True


async def test_a_command_in_a_thread_is_a_command() -> None:
    desk = in_thread(said(10, OURS))
    await desk.see(reply("/hummingbird rewrite"))
    assert "session" not in spec(desk)
    assert spec(desk)["workflow"] == "rewrite"
    assert "thread" not in desk.forge.calls


async def test_a_reply_to_a_workflow_that_is_gone_is_the_operators_to_answer() -> None:
    desk = in_thread(said(10, Marker(SESSION, wf="retired")))
    assert (await desk.see(reply())).reason is Reason.FIRED
    assert spec(desk)["workflow"] == "retired"


async def test_an_old_marker_names_no_workflow_so_the_person_gets_the_list() -> None:
    desk = in_thread(said(10, Marker(SESSION.upper())))
    await desk.see(reply())
    assert spec(desk)["notice"] == "Help"


async def test_an_old_marker_means_the_only_workflow_that_there_is() -> None:
    desk = Desk(workflows={"review": {"prompt": "r.md"}})
    desk.forge.threads[THREAD] = thread(said(10, Marker(SESSION.upper(), wf="No Workflow")))
    await desk.see(reply())
    assert (spec(desk)["workflow"], spec(desk)["session"]) == ("review", SESSION)


# --- a full queue ---


async def test_with_one_at_work_and_twenty_that_wait_the_next_reply_is_told_that_one_is_dropped() -> None:
    desk = in_thread(said(10, OURS))
    for number in range(21):
        assert (await desk.see(reply(id=100 + number))).reason is Reason.FIRED
    assert len(desk.runs) == 21
    outcome = await desk.see(reply(id=121))
    assert outcome.reason is Reason.FIRED
    assert len(desk.runs) == 23
    (notice,) = (run for run in desk.runs.values() if run["spec"].get("notice"))
    assert notice["spec"]["notice"] == "QueueFull"
    assert notice["metadata"]["name"] not in outcome.runs
    assert (await desk.see(reply(id=121))).reason is Reason.DUPLICATE
    assert len(desk.runs) == 23


async def test_a_kill_before_the_notice_costs_it_for_a_later_delivery_does_not_know_the_queue_as_it_was() -> None:
    desk = in_thread(said(10, OURS))
    for number in range(21):
        await desk.see(reply(id=100 + number))
    lists = iter([None, Unavailable("the API server", "away")])  # the first is the hour's budget
    desk.kube.fail = lambda verb, resource, name: next(lists) if verb == "list" else None
    with pytest.raises(Unavailable):
        await desk.see(reply(id=121))
    desk.kube.fail = lambda verb, resource, name: None
    assert (await desk.see(reply(id=121))).reason is Reason.DUPLICATE
    assert len(desk.runs) == 22


async def test_the_same_replies_by_another_way_add_no_notice() -> None:
    desk = in_thread(said(10, OURS))
    for number in (*range(22), *range(22)):
        await desk.see(reply(id=100 + number))
    full = [run["spec"]["trigger"]["noteId"] for run in desk.runs.values() if run["spec"].get("notice")]
    assert full == [121]


async def test_a_late_duplicate_of_an_answered_reply_says_nothing_of_the_queue() -> None:
    desk = in_thread(said(10, OURS))
    for number in range(21):
        await desk.see(reply(id=100 + number))
    (first,) = (await desk.see(reply(id=100))).runs
    desk.kube.set_status(AGENT_RUNS, NAMESPACE, first, {"conditions": [{"type": "Finished", "status": "True"}]})
    for number in range(2):
        await desk.see(reply(id=200 + number))
    before = len(desk.runs)
    assert (await desk.see(reply(id=100))).reason is Reason.DUPLICATE
    assert len(desk.runs) == before


# --- what is told ---


@pytest.mark.parametrize("entry", ["Group/App", "Group/*"])
async def test_a_project_that_is_not_admitted_warns_once_and_names_one_that_differs_in_case(
    entry: str, caplog: pytest.LogCaptureFixture
) -> None:
    """ingest.md §5 row 52."""
    desk = Desk(projects={"other/*": {}, entry: {}})
    for number in range(3):
        assert (await desk.see(note(id=number + 1))).reason is Reason.NO_PROJECT
    (warning,) = (record.getMessage() for record in caplog.records if record.levelno == logging.WARNING)
    assert warning.startswith("events of group/app are dropped")
    assert warning.endswith(f"there is {entry}: case counts")
    assert desk.counted("no_project") == 3


async def test_a_taken_name_is_raised_and_counted() -> None:
    desk = Desk()
    (name,) = (await Desk().see(note())).runs
    desk.kube.put(AGENT_RUNS, NAMESPACE, {"metadata": {"name": name}, "spec": {}})
    with pytest.raises(NameTaken):
        await desk.see(note())
    assert desk.counted("name_taken") == 1


async def test_a_comment_of_four_megabytes_makes_a_run_of_bounded_size() -> None:
    """ingest.md §7 row 259."""
    desk = in_thread(said(10, OURS))
    await desk.see(reply("😀" * 1_000_000))
    assert len(str(desk.run).encode()) < 300_000


async def test_a_run_that_the_api_server_refuses_is_told_as_an_error_and_holds_nobody_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kube = FakeKube()
    kube.fail = lambda verb, resource, name: (
        Invalid("create agentruns", "denied the request") if verb == "create" else None
    )
    outcome = await Desk(kube=kube).see(note())
    assert outcome.reason is Reason.BAD_PAYLOAD
    assert "denied the request" in outcome.detail
    assert any(record.levelno == logging.ERROR for record in caplog.records)
