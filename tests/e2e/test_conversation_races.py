"""Two things at once on a merge request: what people read there afterwards (`pytest -s` prints the threads)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import requests

from cluster import Cluster
from demo.stage import wait_for
from tests.e2e.talk import APP, INSIDE, Talk, outcome, talking

SEEN, DONE, REFUSED = "eyes", "white_check_mark", "x"
COMMAND = "/hummingbird analyze-speed why is it slow?"
MAINTAINER = {"PRIVATE-TOKEN": "maintainer-token"}


@pytest.fixture(scope="module")
def talk(shared_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Talk]:
    pool = {"replicas": 3, "maxSandboxes": 24, "linger": {"seconds": 300, "max": 12}}
    with talking(shared_cluster, tmp_path_factory.mktemp("races"), "races", pool=pool) as found:
        yield found


def delivering(talk: Talk, iid: int) -> None:
    """Wait until the answer is on its way, in a call that GitLab takes some seconds for."""
    (fault,) = [each for each in talk.world.gitlab.faults if each.path == f"/{iid}/"]
    wait_for(lambda: fault.times == 0, 60, lambda: f"no delivery: {talk.world.log()}")


def slow(talk: Talk, iid: int) -> None:
    """Have GitLab take three seconds for the next change of a note there."""
    talk.world.gitlab.fault("stall", method="PUT", path=f"/{iid}/", seconds=3)


def words(talk: Talk, iid: int, project: str = APP) -> list[str]:
    """The first line of each note."""
    return [said.words.splitlines()[0] for said in talk.thread(iid, project)]


def test_a_reply_while_the_answer_is_being_delivered_goes_on_with_it(talk: Talk) -> None:
    talk.answers[100] = ["Because of arm64.", "Since Monday."]
    slow(talk, 100)
    talk.people.comments(APP, 100, "alice", COMMAND)
    delivering(talk, 100)
    talk.people.replies(APP, 100, "bob", talk.thread(100)[0].discussion, "Since when?")
    assert list(talk.settled(100).values()) == ["Completed", "Completed"]
    talk.show("A reply during the delivery", 100)
    assert words(talk, 100) == [COMMAND, "Because of arm64.", "Since when?", "Since Monday."]


def test_a_comment_that_gitlab_sends_again_after_its_run_was_deleted_is_not_answered_again(talk: Talk) -> None:
    talk.people.comments(APP, 101, "alice", COMMAND)
    (name,) = talk.settled(101)
    before, calls = talk.thread(101), talk.calls(101)
    talk.world.stage.kubectl("delete", "agentrun", name, "-n", talk.world.stage.names.runs)
    resend(talk, before[0].id)
    assert talk.settled(101) == {name: "Duplicate"}
    assert (talk.thread(101), talk.calls(101)) == (before, calls)


def resend(talk: Talk, note: int) -> None:
    """A Maintainer presses GitLab's "Resend" on the event of that note, again where the ingestor was too busy (503)."""
    hooks = f"{talk.world.gitlab.url}/api/v4/projects/10/hooks"
    (hook,) = requests.get(hooks, headers=MAINTAINER, timeout=10).json()
    events: list[dict[str, Any]] = []
    for page in range(1, 20):
        events += requests.get(f"{hooks}/{hook['id']}/events?page={page}", headers=MAINTAINER, timeout=10).json()
    (event,) = [
        each
        for each in events
        if each["request_data"]["object_attributes"]["id"] == note
        and each["request_data"]["object_attributes"].get("action") == "create"
    ]
    said: list[dict[str, Any]] = []

    def taken() -> bool:
        answer = requests.post(f"{hooks}/{hook['id']}/events/{event['id']}/resend", headers=MAINTAINER, timeout=30)
        said.append(answer.json())
        return said[-1] == {"response_status": 200}

    wait_for(taken, 60, lambda: f"{said}\n{talk.world.log()}", pause=15)


def test_of_replies_that_wait_together_one_may_be_cancelled(talk: Talk) -> None:
    talk.answers[102] = ["Because of arm64.", "Since Monday, and only there."]
    talk.pondering.add(102)
    talk.people.comments(APP, 102, "alice", COMMAND)
    talk.waits_for_model(102, 1)
    for user, text in (("alice", "Since when?"), ("bob", "Never mind me."), ("maya", "Only there?")):
        talk.people.replies(APP, 102, user, talk.thread(102)[0].discussion, text)
    talk.delivered()
    (unwanted,) = [run for run in talk.runs(102) if run["spec"].get("message") == "Never mind me."]
    cancel(talk, unwanted["metadata"]["name"])
    talk.world.gemini.release()
    assert sorted(talk.settled(102).values()) == ["Cancelled", "Completed", "Completed", "Merged"]
    talk.show("Replies that waited together, one cancelled", 102)
    assert [said.reactions for said in talk.thread(102) if said.author == "bob"] == [(SEEN, REFUSED)]
    assert "Never mind me." not in talk.words_to_model(102)
    assert words(talk, 102)[-1] == "Since Monday, and only there."


def cancel(talk: Talk, name: str) -> None:
    """Cancel a run that waits, and wait for its end."""
    patch = ("--type=merge", "-p", '{"spec":{"cancel":true}}')
    talk.world.stage.kubectl("patch", "agentrun", name, "-n", talk.world.stage.names.runs, *patch)
    wait_for(lambda: bool(outcome(talk.world.stage.get("agentrun", name))), 30, talk.world.log)


def test_two_workflows_on_one_merge_request_do_not_wait_for_each_other(talk: Talk) -> None:
    talk.pondering.add(200)
    talk.people.opens(APP, 200, "alice", "c1" * 20, title="Round once")
    talk.waits_for_model(200, 1)
    talk.people.comments(APP, 200, "bob", COMMAND)
    wait_for(lambda: "Completed" in talk.reasons(200).values(), 60, talk.world.log)
    assert sorted(talk.reasons(200).values()) == ["", "Completed"]
    talk.world.gemini.release()
    assert list(talk.settled(200).values()) == ["Completed", "Completed"]
    talk.show("Two workflows at once", 200)


def test_a_command_and_an_automatic_run_of_one_workflow_take_turns_and_do_nothing_twice(talk: Talk) -> None:
    talk.pondering.add(201)
    talk.people.opens(APP, 201, "alice", "c2" * 20, title="Round twice", draft=True)
    talk.people.comments(APP, 201, "bob", "/hummingbird review")
    talk.waits_for_model(201, 1)
    talk.people.marks_ready(APP, 201, "alice")
    talk.delivered()
    assert sorted(talk.reasons(201).values()) == ["", ""]
    talk.world.gemini.release()
    assert sorted(talk.settled(201).values()) == ["AlreadyReviewed", "Completed"]
    talk.show("A command, and a draft that becomes ready meanwhile", 201)
    assert words(talk, 201) == ["/hummingbird review", "I looked at it."]


def test_a_push_while_the_review_is_being_delivered_lets_it_stand_and_is_reviewed_too(talk: Talk) -> None:
    slow(talk, 202)
    talk.people.opens(APP, 202, "alice", "d1" * 20, title="Round never")
    delivering(talk, 202)
    talk.people.pushes(APP, 202, "alice", "d2" * 20)
    assert list(talk.settled(202).values()) == ["Completed", "Completed"]
    talk.show("A push during the delivery", 202)
    old, new = talk.thread(202)
    assert "commit d1d1d1d1d1d1" in old.words
    assert "commit d2d2d2d2d2d2" in new.words


@pytest.mark.parametrize(("iid", "level"), [(110, 10), (111, 0)])
def test_an_answer_waits_until_the_bot_has_its_role_again(talk: Talk, iid: int, level: int) -> None:
    project = talk.world.gitlab.state.project(INSIDE)
    assert project is not None
    project.visibility = "private"
    talk.pondering.add(iid)
    talk.people.comments(INSIDE, iid, "alice", COMMAND)
    talk.waits_for_model(iid, 1)
    if level:
        project.members[1] = level
    else:
        del project.members[1]
    (name,) = talk.reasons(iid, INSIDE)

    def delivery_waits() -> bool:
        talk.world.gemini.release()  # again and again: a call that was counted may not wait yet
        return talk.world.conditions(name).get("Delivered", {}).get("status") == "Unknown"

    try:
        wait_for(delivery_waits, 60, lambda: f"{name}: {talk.world.status(name)}", pause=0.5)
    finally:
        project.members[1] = 30
    assert talk.settled(iid, INSIDE) == {name: "Completed"}
    talk.show(f"The bot had no role ({level}) for a while", iid, INSIDE)
