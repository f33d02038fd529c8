"""What GitLab never sent to a hook that it had disabled is found in its lists: each once, nothing that was handled."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from datetime import timedelta

import pytest

from hummingbird_operator.api.labels import CONTENT_KEY
from hummingbird_operator.delivery.markers import Marker
from hummingbird_operator.ingest.event import Event
from hummingbird_operator.ingest.missed.catchup import Bounds
from hummingbird_operator.ingest.missed.mending import MOST_SUCCESSES
from hummingbird_operator.kube.client import AGENT_RUNS
from tests.unit.ingest.desk import NAMESPACE
from tests.unit.ingest.missed.scenes import APP, IID, MR, World, living
from tests.unit.ingest.samples import BASE, NEWER, SESSION, SHA

RUNS = (AGENT_RUNS, NAMESPACE)

ONE_OF_EACH = {"note": 1, "pipeline": 1, "merge_request": 1}


async def one_of_each(world: World) -> None:
    """A push, a comment that moves when the merge request changed last, and a pipeline that fails."""
    await world.does("pushes", *MR, "alice", NEWER)
    world.skip(seconds=1)
    await world.says("/hummingbird rewrite it")
    await world.does("pipeline", *MR, "alice", "failed")


async def test_a_comment_a_pipeline_and_a_push_that_were_never_sent_give_one_run_each() -> None:
    async with living() as world:
        await world.loses_its_hook()
        await one_of_each(world)
        assert not world.runs
        replay = await world.recovers()
        assert world.kinds() == ONE_OF_EACH
        assert world.status() == "executable"
        assert [world.counted(kind, "started") for kind in ONE_OF_EACH] == [1, 1, 1]
        await replay.until_done()
        await world.replay().until_done()
        assert world.kinds() == ONE_OF_EACH
        (review,) = (run for run in world.runs if run["spec"]["workflow"] == "review")
        assert review["spec"]["target"]["gitlab"]["sha"] == NEWER
        await world.says("/hummingbird rewrite again")
        assert world.kinds()["note"] == 2, "and the hook tells of what comes then"


async def test_what_was_handled_before_starts_nothing_again() -> None:
    """The window begins before the outage did: a push that was looked at, with a comment after it, among others."""
    async with living() as world:
        await world.hooked()
        await one_of_each(world)
        await world.does("opens", APP, 50, "alice", SHA)
        project = world.gitlab.state.project(APP)
        assert project is not None
        version = project.merge_requests[IID].versions[0]
        version["created_at"] = version["created_at"].replace("00:00.000Z", "00:01.500Z")  # not as its event tells it
        before = world.runs
        assert world.kinds() == {**ONE_OF_EACH, "merge_request": 2}
        await world.disabled()
        world.gate.is_away = False
        world.skip(minutes=2)
        await world.replay().until_done()
        assert world.runs == before
        assert world.counted("note", "nothing") == 1


async def test_an_event_that_was_sent_and_refused_and_is_in_the_lists_as_well_gives_one_run() -> None:
    async with living() as world:
        await world.hooked()
        world.gate.is_away = True
        await one_of_each(world)
        await world.disabled()
        await world.says("/hummingbird rewrite me too")
        await world.recovers()
        assert world.kinds() == {**ONE_OF_EACH, "note": 2}


async def test_edits_the_bots_own_notes_strangers_twice_and_old_notes_start_nothing() -> None:
    async with living() as world:
        await world.says("/hummingbird rewrite this is old")
        world.skip(hours=1)
        early = await world.says("nothing yet")
        await world.loses_its_hook()
        late = await world.says("nothing yet")
        world.skip(seconds=1)
        for note in (early, late):
            await world.does("edits", *MR, "alice", note, "/hummingbird rewrite by an edit")
        await world.says("/hummingbird rewrite by the bot", user="hummingbird-bot")
        await world.says("/hummingbird rewrite", user="reader")
        await world.says("/hummingbird rewrite again", user="reader")
        await world.recovers()
        assert [run["spec"].get("notice") for run in world.runs] == ["Denied"]
        assert world.counted("note", "left_out") == 2


async def test_a_reply_in_the_bots_thread_goes_on_with_its_session_and_an_internal_command_stays_internal() -> None:
    async with living() as world:
        marker = Marker(SESSION, "rewrite").render()
        first = await world.does("starts", *MR, "hummingbird-bot", f"The answer.\n\n{marker}")
        await world.loses_its_hook()
        await world.does("replies", *MR, "alice", first.discussion_id, "Why so?")
        await world.does("comments", *MR, "alice", "/hummingbird rewrite quietly", internal=True)
        await world.recovers()
        found = {run["spec"]["message"]: run["spec"] for run in world.runs}
        assert set(found) == {"Why so?", "quietly"}
        assert (found["Why so?"]["session"], found["Why so?"]["trigger"]["internal"]) == (SESSION, False)
        assert found["Why so?"]["trigger"]["discussion"] == first.discussion_id
        assert found["quietly"]["trigger"]["internal"] is True


async def test_of_several_pushes_and_pipelines_the_last_one_counts_and_a_draft_waits() -> None:
    async with living() as world:
        await world.does("opens", APP, 60, "alice", SHA, draft=True)
        await world.does("opens", APP, 61, "alice", SHA, draft=True)
        world.skip(hours=1)
        await world.loses_its_hook()
        for number in range(3):
            world.skip(seconds=1)
            await world.does("pushes", *MR, "alice", f"{number}abc" * 10)
            await world.does("pipeline", *MR, "alice", "failed")
        await world.does("marks_ready", APP, 60, "alice")
        await world.does("pushes", APP, 61, "alice", NEWER)
        await world.does("pipeline", APP, 60, "alice", "failed")
        await world.does("pipeline", APP, 60, "alice", "running")
        await world.recovers()
        assert world.kinds() == {"merge_request": 2, "pipeline": 1}
        targets = {(one["mergeRequest"], one["sha"]) for one in (run["spec"]["target"]["gitlab"] for run in world.runs)}
        assert targets == {(IID, "2abc" * 10), (60, SHA)}


async def test_a_success_resolves_the_bots_threads_and_closed_merge_requests_hear_commands_only() -> None:
    async with living() as world:
        marker = Marker(SESSION, "analyze-failures").render()
        thread = await world.does("starts", *MR, "hummingbird-bot", f"It failed.\n\n{marker}")
        await world.does("opens", APP, 60, "alice", SHA)
        world.skip(hours=1)
        await world.loses_its_hook()
        await world.does("pipeline", *MR, "alice", "success")
        await world.does("pushes", APP, 60, "alice", NEWER)
        await world.does("closes", APP, 60, "alice")
        await world.says("/hummingbird rewrite", iid=60)
        await world.recovers()
        assert thread.resolved
        assert world.kinds() == {"note": 1}


async def test_a_pipeline_that_ended_again_is_a_new_one_and_the_form_of_its_time_does_not_matter() -> None:
    async with living() as world:
        await world.hooked()
        number = await world.does("pipeline", *MR, "alice", "failed")
        (run,) = world.runs
        key = run["metadata"]["annotations"][CONTENT_KEY]
        assert key.endswith(":failed:2030-01-10 12:00:00 UTC:analyze-failures")
        other = key.replace("2030-01-10 12:00:00 UTC", "2030-01-10T12:00:00.000Z")
        run["metadata"]["annotations"][CONTENT_KEY] = other
        run["metadata"]["name"] = "another-form"
        await world.kube.delete(*RUNS, world.runs[0]["metadata"]["name"])
        world.kube.put(*RUNS, run)
        await world.disabled()
        await world.recovers()
        assert len(world.runs) == 1
        await world.disabled()
        world.skip(seconds=10)
        for status in ("running", "failed"):
            await world.does("pipeline", *MR, "alice", status, pipeline_id=number)
        await world.recovers()
        assert len(world.runs) == 2


async def test_a_hook_that_gitlab_uses_again_by_itself_had_missed_something_all_the_same() -> None:
    """Nobody sees it disabled: four failures in its list tell."""
    async with living() as world:
        await world.loses_its_hook()
        await world.says("/hummingbird rewrite never sent")
        world.skip(minutes=2)
        world.gate.is_away = False
        await world.says("this one arrives")
        assert world.status() == "executable"
        await world.replay().until_done()
        assert world.kinds() == {"note": 1}


@pytest.mark.parametrize(("times", "found"), [(3, 0), (4, 4)])
async def test_a_secret_that_was_wrong_loses_nothing_once_it_made_gitlab_disable_the_hook(
    times: int, found: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A delivery that got a 401 is replayed by nobody, since its sender was not believed: GitLab itself is."""
    async with living() as world:
        await world.hooked(token="wrong")
        for number in range(times):
            await world.says(f"/hummingbird rewrite {number}")
        await world.replay().until_done()
        assert world.kinds()["note"] == found
    assert "was refused (4xx): no replay handles it" in caplog.text


async def test_what_comes_while_it_is_looked_for_is_found_by_a_second_look() -> None:
    async with living(hook_backoff_seconds=3600) as world:
        await world.loses_its_hook()
        world.skip(minutes=30)
        await world.says("/hummingbird rewrite first")
        late: list[int] = []

        def meanwhile(event: Event) -> None:
            if not late and event.type == "note":
                late.append(int(world.gitlab.people.comments(*MR, "alice", "/hummingbird rewrite second").id))

        world.gate.before, world.gate.is_away = meanwhile, False
        replay = world.replay()
        await replay.until_done()
        assert (world.kinds(), world.status()) == ({"note": 1}, "executable")
        world.skip(minutes=1)
        await replay.until_done()
        assert world.kinds() == {"note": 2}


async def test_a_push_of_this_moment_is_left_to_its_webhook_and_looked_at_a_minute_later() -> None:
    async with living() as world:
        await world.loses_its_hook()
        await world.does("pushes", *MR, "alice", NEWER)
        replay = await world.recovers(young=30)
        assert not world.runs
        await world.does("opens", APP, 50, "alice", SHA)
        assert world.kinds() == {"merge_request": 1}
        world.skip(minutes=1)
        await replay.until_done()
        assert world.kinds() == {"merge_request": 2}, "the push; the one that came by the hook is known"


@pytest.mark.parametrize("dies_at", range(4))
async def test_a_process_that_dies_while_it_catches_up_leaves_the_rest_to_the_next_one(dies_at: int) -> None:
    async with living() as world:
        await world.loses_its_hook()
        await one_of_each(world)
        await world.says("/hummingbird rewrite more", iid=IID)
        seen: list[str] = []

        def meanwhile(event: Event) -> None:
            seen.append(event.type)
            if [kind for kind in seen if kind in ONE_OF_EACH][dies_at:]:
                raise asyncio.CancelledError

        world.gate.before, world.gate.is_away = meanwhile, False
        with pytest.raises(asyncio.CancelledError):
            await world.replay().until_done()
        assert len(world.runs) == dies_at
        assert world.status() == "temporarily_disabled"
        world.gate.before = lambda event: None
        await world.replay().until_done()
        assert world.kinds() == {**ONE_OF_EACH, "note": 2}


async def test_one_merge_request_that_gitlab_cannot_show_holds_nobody_back_and_is_looked_at_again() -> None:
    async with living() as world:
        await world.does("opens", APP, 50, "alice", SHA, draft=True)
        world.skip(hours=1)
        await world.loses_its_hook()
        await world.says("/hummingbird rewrite the bad one", iid=50)
        await world.says("/hummingbird rewrite the good one")
        fault = world.gitlab.fault("status", status=503, path="merge_requests/50/notes", method="GET", times=100)
        replay = await world.recovers()
        assert [run["spec"]["message"] for run in world.runs] == ["the good one"]
        assert world.status() == "executable"
        world.skip(minutes=10)
        fault.times = 0
        await replay.until_done()
        assert world.kinds() == {"note": 2}


async def test_a_project_whose_lists_fail_has_its_hook_again_and_is_looked_at_later() -> None:
    async with living() as world:
        await world.loses_its_hook()
        await world.says("/hummingbird rewrite")
        fault = world.gitlab.fault("html", path="/projects/group/app/merge_requests", method="GET", times=100)
        replay = await world.recovers()
        assert (world.runs, world.status()) == ([], "executable")
        fault.times = 0
        world.skip(hours=1)
        await replay.until_done()
        assert world.kinds() == {"note": 1}


@dataclass
class Broken:
    """A fault of ours, until it is mended."""

    broken: bool = True

    def actions(self, project: str) -> frozenset[str]:
        if self.broken:
            raise RuntimeError("words-of-a-person")
        return frozenset()

    async def keys(self, project: str, iid: int) -> tuple[str, ...]:
        return ()

    def bot_id(self) -> int:
        return 999


async def test_a_fault_of_ours_keeps_no_hook_disabled_and_tells_nobodys_words(caplog: pytest.LogCaptureFixture) -> None:
    async with living() as world:
        await world.loses_its_hook()
        await world.says("/hummingbird rewrite")
        world.gate.is_away = False
        known = Broken()
        replay = world.replay(known=known)
        await replay.until_done()
        assert (world.runs, world.status()) == ([], "executable")
        known.broken = False
        world.skip(minutes=10)
        await replay.until_done()
        assert world.kinds() == {"note": 1}
    assert "what group/app missed cannot be looked for: RuntimeError" in caplog.text
    assert "words-of-a-person" not in caplog.text


async def test_a_rate_limit_is_waited_out() -> None:
    async with living() as world:
        await world.loses_its_hook()
        await world.says("/hummingbird rewrite")
        limited = world.gitlab.fault(
            "status", status=429, path="merge_requests", method="GET", headers={"Retry-After": "0.01"}
        )
        await world.recovers()
        assert limited.times == 0
        assert world.kinds() == {"note": 1}


async def test_what_is_too_much_is_left_out_and_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with living() as world:
        await world.does("opens", APP, 50, "alice", SHA, draft=True)
        world.skip(hours=1)
        await world.hooked()
        await world.disabled(iid=50)
        for number in range(4):
            await world.says(f"/hummingbird rewrite {number}", iid=50)
            world.skip(seconds=1)
        for iid in (50, 42):
            await world.does("pipeline", APP, iid, "alice", "failed")
        await world.says("/hummingbird rewrite the newest")
        await world.recovers(bounds=Bounds(changes=1, notes=2, pipelines=1))
        assert {run["spec"].get("message") for run in world.runs} == {"the newest", None}
        assert world.counted("merge_request", "left_out") == world.counted("pipeline", "left_out") == 1
        assert "more than 1 of group/app changed" in caplog.text
        world.skip(seconds=5)
        await world.says("no command", iid=50)
        await world.replay(bounds=Bounds(changes=1, notes=3)).until_done()
        assert world.counted("note", "left_out") == 1
        assert {run["spec"].get("message") for run in world.runs} == {"the newest", "2", "3", None}


async def test_a_reply_whose_thread_is_not_found_is_left_out_and_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with living() as world:
        await world.says("an old thread of one note")
        await world.hooked()
        thread = await world.does("starts", *MR, "alice", "a thread")
        await world.disabled()
        await world.does("replies", *MR, "alice", thread.discussion_id, "a reply")
        await world.recovers(bounds=Bounds(threaded=1))
        assert world.counted("note", "left_out") == 2
        assert "its thread is not among the first 1 notes" in caplog.text


async def test_a_gap_older_than_a_day_is_looked_for_as_far_as_a_day() -> None:
    async with living() as world:
        await world.loses_its_hook()
        await world.says("/hummingbird rewrite of yesterday")
        world.skip(hours=25)
        world.gate.is_away = False
        await world.says("/hummingbird rewrite of today")
        await world.replay().until_done()
        assert [run["spec"]["message"] for run in world.runs] == ["of today"]


async def test_a_hook_that_was_never_disabled_costs_no_look() -> None:
    async with living() as world:
        await world.hooked()
        await world.says("/hummingbird rewrite")
        before = len(world.gitlab.calls)
        await world.replay().until_done()
        asked = [call.path.rsplit("/", 1)[-1] for call in world.gitlab.calls[before:]]
        assert asked.count("events") == 1
        assert "merge_requests" not in asked


async def test_an_event_that_is_late_resolves_no_thread_that_was_opened_again_or_begun_since() -> None:
    async with living() as world:
        marker = Marker(SESSION, "analyze-failures").render()
        thread = await world.does("starts", *MR, "hummingbird-bot", f"It failed.\n\n{marker}")
        await world.hooked()
        await world.does("pipeline", *MR, "alice", "success")
        assert thread.resolved
        world.skip(minutes=1)
        await world.does("resolves", *MR, "alice", thread.discussion_id, resolved=False)
        later = await world.does("starts", *MR, "hummingbird-bot", f"Why it failed before.\n\n{marker}")
        await world.disabled()
        await world.recovers()
        assert (thread.resolved, later.resolved) == (False, False)


async def test_what_the_bot_has_marked_was_handled_though_its_run_is_gone_and_the_limits_are_others() -> None:
    async with living(settings={"limits": {"max_requests_per_hour": 2}}) as world:
        await world.hooked()
        for number in range(3):
            await world.says(f"/hummingbird rewrite {number}")
        await world.says("/hummingbird rewrite", user="reader")
        for run in world.runs:
            await world.kube.delete(*RUNS, run["metadata"]["name"])
        project = world.gitlab.state.project(APP)
        assert project is not None
        reader = next(user for user in world.gitlab.state.users.values() if user.username == "reader")
        project.members[reader.id] = 30
        world.skip(minutes=2)
        await world.disabled()
        await world.recovers()
        assert not world.runs
        assert (world.counted("note", "nothing"), world.counted("note", "left_out")) == (4, 0)


async def test_a_reaction_of_somebody_is_no_edit_of_a_command() -> None:
    async with living() as world:
        await world.loses_its_hook()
        number = await world.says("/hummingbird rewrite it")
        world.skip(seconds=5)
        await world.does("reacts", *MR, "alice", number, "thumbsup")
        await world.recovers()
        assert world.kinds() == {"note": 1}


async def test_failures_with_successes_between_open_no_window_whatever_was_configured_since() -> None:
    before = {name: one for name, one in BASE["workflows"].items() if name != "review"}
    async with living(settings={"workflows": before}) as world:
        world.skip(hours=30)
        await world.hooked()
        for number in range(4):
            world.gate.is_away = True
            await world.says(f"talk {number}")
            world.gate.is_away = False
            await world.says("ok")
        await world.does("pushes", *MR, "alice", NEWER)
        world.configure(workflows=BASE["workflows"])
        began = len(world.gitlab.calls)
        await world.replay().until_done()
        assert not world.runs
        assert not [call for call in world.gitlab.calls[began:] if call.path.endswith("/merge_requests")]


async def test_a_window_ends_with_the_first_success() -> None:
    before = {name: one for name, one in BASE["workflows"].items() if name != "review"}
    async with living(settings={"workflows": before}) as world:
        await world.loses_its_hook()
        world.skip(minutes=2)
        world.gate.is_away = False
        await world.says("arrives")
        world.skip(minutes=30)
        await world.does("pushes", *MR, "alice", NEWER)
        world.configure(workflows=BASE["workflows"])
        await world.replay().until_done()
        assert not world.runs, "its webhook came, and nothing was to be done then"


async def test_a_hook_that_was_disabled_long_ago_brings_no_flood_at_the_first_start() -> None:
    async with living() as world:
        await world.hooked()
        project = world.gitlab.state.project(APP)
        assert project is not None
        (hook,) = project.hooks.values()
        hook.recent_failures, hook.disabled_until = 40, None
        for iid in range(100, 103):
            await world.does("opens", APP, iid, "alice", SHA)
            await world.says("/hummingbird rewrite", iid=iid)
        world.skip(hours=23)
        await world.replay().until_done()
        assert (world.runs, world.status()) == ([], "executable")


async def test_a_push_that_was_found_in_the_lists_is_one_run_with_its_late_webhook_too() -> None:
    async with living() as world:
        await world.loses_its_hook()
        world.skip(minutes=5)
        world.gate.is_away = False
        with world.gitlab.state.deliveries.late():
            await world.does("pushes", *MR, "alice", NEWER)
            world.skip(seconds=40)
            await world.replay(young=30).until_done()
            assert world.kinds() == {"merge_request": 1}
        assert await asyncio.to_thread(world.gitlab.hooks_wait, 20)
        assert world.kinds() == {"merge_request": 1}


async def test_many_long_comments_do_not_hide_a_command() -> None:
    async with living() as world:
        await world.loses_its_hook()
        await world.says("/hummingbird rewrite")
        for _ in range(34):
            await world.does("comments", *MR, "alice", "x" * 999_000)
        await world.recovers()
        assert world.kinds() == {"note": 1}


async def test_a_row_of_another_shape_is_counted_as_left_out() -> None:
    async with living() as world:
        await world.loses_its_hook()
        project = world.gitlab.state.project(APP)
        assert project is not None
        project.merge_requests[IID].fields["title"] = 7
        await world.recovers()
        assert world.counted("merge_request", "left_out") == 1


async def test_more_failures_than_are_held_at_once_do_not_hide_where_a_gap_began() -> None:
    async with living() as world:
        await world.loses_its_hook()
        await world.says("/hummingbird rewrite never sent")
        world.skip(minutes=30)
        for number in range(6):
            world.gate.is_away = False
            await world.says("fine")
            world.gate.is_away = True
            await world.says(f"later {number}")
            world.skip(minutes=1)
        world.gate.is_away = False
        await world.says("fine")
        replay = world.replay()
        replay.held = 10
        for _ in range(12):
            await replay.until_done()
            world.skip(minutes=1)
        assert world.kinds() == {"note": 1}


async def test_a_clock_of_ours_that_is_ahead_loses_nothing_of_a_gap_that_lasts() -> None:
    async with living() as world:
        await world.hooked()
        replay = world.replay()
        replay.now = lambda: world.now + timedelta(minutes=6)
        await replay.until_done()
        world.skip(seconds=10)
        await world.disabled()
        await world.says("/hummingbird rewrite")
        world.skip(seconds=10)
        world.gate.is_away = False
        await replay.until_done()
        assert world.kinds() == {"note": 1}


async def test_a_hook_of_which_too_much_went_well_since_is_said_and_nothing_is_looked_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with living() as world:
        await world.loses_its_hook()
        await world.says("/hummingbird rewrite never sent")
        world.skip(minutes=2)
        world.gate.is_away = False
        await world.says("fine")
        project = world.gitlab.state.project(APP)
        assert project is not None
        (hook,) = project.hooks.values()
        hook.log += [{**hook.log[-1], "id": 10_000 + number} for number in range(MOST_SUCCESSES)]
        before = len(world.gitlab.calls)
        await world.replay().until_done()
        assert not world.runs
        assert not [call for call in world.gitlab.calls[before:] if call.path.endswith("/merge_requests")]
    assert "whether it was disabled before is not known" in caplog.text


async def test_while_nobody_knows_what_went_well_between_failures_nothing_is_looked_for() -> None:
    async with living() as world:
        await world.hooked()
        for number in range(4):
            world.gate.is_away = True
            await world.says(f"talk {number}")
            world.gate.is_away = False
            await world.says("ok")
        refusal = {"status": 403, "body": '{"message": "403 Forbidden"}'}
        world.gitlab.fault("status", path="/events", method="GET", times=100, skip=1, **refusal)
        before = len(world.gitlab.calls)
        await world.replay().until_done()
        assert not [call for call in world.gitlab.calls[before:] if call.path.endswith("/merge_requests")]
