"""An event that is made up from GitLab's lists decides as the one that its webhook brings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hummingbird_operator.ingest.missed import rebuilt
from hummingbird_operator.ingest.missed.lists import Lists, MergeRequest, Project
from hummingbird_operator.ingest.route import Ended, Proposed, Replied, Router
from hummingbird_operator.ingest.runs import NO_MOMENT
from tests.standins.gitlab import GitLabStandIn, sample_fixture
from tests.unit.ingest.samples import BOT, NEWER, configured

APP, FORK = "group/app", 77
MR = (APP, 42)
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


class Told:
    """A GitLab, its lists as a Maintainer reads them, and the gates."""

    def __init__(self, gitlab: GitLabStandIn, lists: Lists) -> None:
        self.gitlab, self.lists, self.people = gitlab, lists, gitlab.people
        self.router = Router(*configured())

    @property
    def home(self) -> Project:
        return self.lists.project(APP)

    def change(self, iid: int = 42) -> MergeRequest:
        return self.lists.merge_request(APP, iid)

    def told(self, kind: str) -> dict[str, Any]:
        """The last event of that kind as GitLab sends it."""
        return [event.payload for event in self.gitlab.events if event.kind == kind][-1]

    def news(self, iid: int, since: datetime = LONG_AGO) -> rebuilt.News | None:
        notes = [note for note in self.lists.notes(APP, iid) if note.created_at and note.created_at >= since]
        return rebuilt.news(self.change(iid), self.lists.versions(APP, iid), notes, since)

    def proposed(self, iid: int) -> Any:
        news = self.news(iid)
        assert news is not None
        return self.router.merge_request(rebuilt.merge_request(self.home, self.change(iid), news))


@pytest.fixture
def told() -> Iterator[Told]:
    with GitLabStandIn(sample_fixture()) as gitlab, closing(Lists(gitlab.url, "maintainer-token")) as lists:
        moments = iter(range(10_000))
        begin = datetime(2030, 1, 10, tzinfo=UTC)
        gitlab.state.clock = lambda: begin + timedelta(seconds=next(moments))
        yield Told(gitlab, lists)


@pytest.mark.parametrize("internal", [False, True])
@pytest.mark.parametrize("words", ["/hummingbird review it\r\nplease", "no command", "/hummingbird"])
def test_a_comment_is_the_same(told: Told, words: str, internal: bool) -> None:
    note = told.people.comments(*MR, "alice", words, internal=internal)
    (found,) = (one for one in told.lists.notes(APP, 42) if one.id == note.id)
    threads = dict(told.lists.threads(APP, 42))
    made = rebuilt.note(told.home, told.change(), found, threads[note.id])
    assert rebuilt.asks(found) is words.startswith("/")
    events = [told.router.note(made), told.router.note(told.told("note"))]
    decided = [told.router.addressed(event, BOT) for event in events]  # type: ignore[arg-type] # comments pass
    assert decided[0] == decided[1]


def test_a_reply_is_the_same(told: Told) -> None:
    first = told.people.starts(*MR, "hummingbird-bot", "An answer.")
    reply = told.people.replies(*MR, "alice", first.discussion_id, "Why?")
    (found,) = (one for one in told.lists.notes(APP, 42) if one.id == reply.id)
    made = rebuilt.note(told.home, told.change(), found, dict(told.lists.threads(APP, 42))[reply.id])
    assert rebuilt.asks(found)
    events = [told.router.note(made), told.router.note(told.told("note"))]
    decided = [told.router.addressed(event, BOT) for event in events]  # type: ignore[arg-type] # comments pass
    assert decided[0] == decided[1]
    assert isinstance(decided[0], Replied)


@pytest.mark.parametrize("status", ["failed", "success", "canceled", "skipped"])
@pytest.mark.parametrize("ref", ["head", "merge", "train"])
def test_a_pipelines_end_is_the_same(told: Told, status: str, ref: str) -> None:
    number = told.people.pipeline(*MR, "alice", status, ref=ref)
    (row,) = told.lists.pipelines(APP, LONG_AGO)
    assert (row.id, row.status, row.finished_at, row.user) == (number, status, None, None)
    made = rebuilt.pipeline(told.home, told.change(), told.lists.pipeline(APP, number))
    ended = told.router.pipeline(made)
    assert ended == told.router.pipeline(told.told("pipeline"))
    assert isinstance(ended, Ended) or status in {"canceled", "skipped"}


def test_a_merge_request_that_was_opened_is_the_same_also_after_somebody_wrote_in_it(told: Told) -> None:
    told.people.opens(APP, 50, "alice", NEWER)
    expected = told.router.merge_request(told.told("merge_request"))
    told.people.comments(APP, 50, "alice", "hello")
    assert isinstance(expected, Proposed)
    assert replace(told.proposed(50), updated_at=expected.updated_at) == expected
    assert told.proposed(50).updated_at == NO_MOMENT


def test_one_from_a_fork_is_a_forks_also_when_the_fork_is_gone(told: Told) -> None:
    told.people.opens(APP, 50, "alice", NEWER, fork_of=FORK)
    rules = [{"action": "deny", "fork": True}, {"action": "allow"}]
    workflows = {"review": {"prompt": "r.md", "action": "merge_request", "trigger_rules": rules}}
    told.router = Router(*configured(workflows=workflows))
    assert told.proposed(50).reason == "rules_denied"
    project = told.gitlab.state.project(APP)
    assert project is not None
    project.merge_requests[50].fields["source_project_id"] = None
    assert told.proposed(50).reason == "rules_denied"


def test_a_push_is_by_who_pushed_and_becoming_ready_by_who_said_so(told: Told) -> None:
    told.people.opens(APP, 50, "alice", "1" * 40, draft=True)
    told.people.pushes(APP, 50, "maya", NEWER)
    expected = told.told("merge_request")
    news = told.news(50)
    assert news is not None
    assert (news.action, news.by and news.by.username) == ("update", "maya")
    assert expected["user"]["username"] == "maya"
    assert told.proposed(50).reason == "draft"
    told.people.marks_ready(APP, 50, "alice")
    proposed = told.proposed(50)
    assert isinstance(proposed, Proposed)
    assert (proposed.origin.author, proposed.sha) == ("alice", NEWER)


def test_talk_labels_and_another_title_are_no_news(told: Told) -> None:
    told.people.opens(APP, 50, "alice", NEWER)
    since = told.gitlab.state.clock()
    told.people.comments(APP, 50, "alice", "marked this merge request as **ready**")
    told.people.labels(APP, 50, "alice", ["bug"])
    told.people.renames(APP, 50, "alice", "added 3 commits, marked as **ready**")
    assert told.news(50, since) is None
