"""The ingest core against a GitLab: people act, its events come in, AgentRuns come out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hummingbird_operator.delivery.markers import Marker
from hummingbird_operator.delivery.notes import Notes
from hummingbird_operator.errors import Unavailable
from hummingbird_operator.ingest.event import Event
from hummingbird_operator.ingest.handle import Handler, Outcome
from hummingbird_operator.ingest.metrics import IngestMetrics
from hummingbird_operator.ingest.reasons import Reason
from hummingbird_operator.kube.client import AGENT_RUNS
from hummingbird_operator.kube.testing import FakeKube
from tests.standins.gitlab import GitLabStandIn, sample_fixture
from tests.unit.ingest.desk import NAMESPACE
from tests.unit.ingest.samples import NEWER, SESSION, SHA, configured

WHERE = ("group/app", 42)
FAILURES, REVIEW = Marker(SESSION, wf="analyze-failures"), Marker(SESSION, wf="review")


class Place:
    """A GitLab, an API server and an ingestor with the bot's token."""

    def __init__(self, gitlab: GitLabStandIn, notes: Notes) -> None:
        self.gitlab = gitlab
        self.notes = notes
        self.kube = FakeKube()
        self._read = len(gitlab.events)
        config, workflows = configured(gitlab={"url": gitlab.url, "token_env": "BOT"})
        self.handler = Handler(config, workflows, notes, self.kube, NAMESPACE, IngestMetrics.on(), lag_seconds=0)

    async def hear(self) -> list[Outcome]:
        """Hand in what happened since, as GitLab tells it."""
        new, self._read = self.gitlab.events[self._read :], len(self.gitlab.events)
        return [await self.handler.handle(Event("gitlab", one.kind, one.payload)) for one in new]

    async def reasons(self) -> list[Reason]:
        return [outcome.reason for outcome in await self.hear()]

    @property
    def specs(self) -> list[dict[str, Any]]:
        return [dict(run["spec"]) for run in self.kube.all(AGENT_RUNS)]

    def bot_says(self, marker: Marker, *, internal: bool = False) -> str:
        """A plain note of the bot; gives its discussion."""
        made = self.notes.create(*WHERE, f"Done.\n\n{marker.render()}", internal=internal)
        return str(self.gitlab.state.projects[10].merge_requests[42].notes[made.id].discussion_id)

    def reactions(self, number: int) -> list[str]:
        calls = [call for call in self.gitlab.calls if call.path.endswith(f"/notes/{number}/award_emoji")]
        return [str(call.body) for call in calls]


@pytest.fixture
def place() -> Iterator[Place]:
    fixture = sample_fixture()
    fixture["projects"][0]["visibility"] = "public"
    minutes = itertools.count()
    with GitLabStandIn(fixture) as gitlab:
        gitlab.state.clock = lambda: datetime(2026, 11, 30, 10, 0, tzinfo=UTC) + timedelta(minutes=next(minutes))
        notes = Notes(gitlab.url, "bot-token")
        yield Place(gitlab, notes)
        notes.close()


async def test_a_command_of_a_developer_is_seen_and_done(place: Place) -> None:
    written = place.gitlab.people.comments(*WHERE, "alice", "/hummingbird review only arm64")
    assert await place.reasons() == [Reason.FIRED]
    (spec,) = place.specs
    assert (spec["workflow"], spec["message"]) == ("review", "only arm64")
    assert spec["trigger"]["noteId"] == written.id
    assert spec["trigger"]["discussion"] == written.discussion_id
    assert len(place.reactions(written.id)) == 1


async def test_a_stranger_is_denied_and_small_talk_is_not_looked_at(place: Place) -> None:
    place.gitlab.people.comments(*WHERE, "mallory", "/hummingbird review")
    place.gitlab.people.comments(*WHERE, "mallory", "nice")
    assert await place.reasons() == [Reason.NOTICE, Reason.NOT_FOR_US]
    (spec,) = place.specs
    assert spec["notice"] == "Denied"
    assert sum("/members/all/" in call.path for call in place.gitlab.calls) == 1


async def test_an_edit_of_a_command_and_the_bots_own_notes_start_nothing(place: Place) -> None:
    written = place.gitlab.people.comments(*WHERE, "alice", "please")
    place.gitlab.people.edits(*WHERE, "alice", written.id, "/hummingbird review")
    place.gitlab.people.comments(*WHERE, "hummingbird-bot", "/hummingbird review")
    assert await place.reasons() == [Reason.NOT_FOR_US, Reason.EDITED, Reason.SELF_EVENT]


async def test_a_reply_to_the_bots_plain_note_goes_on_with_its_session(place: Place) -> None:
    discussion = place.bot_says(REVIEW)
    place.gitlab.people.replies(*WHERE, "alice", discussion, "Why does only arm64 fail?")
    assert await place.reasons() == [Reason.SELF_EVENT, Reason.FIRED]
    (spec,) = place.specs
    assert (spec["session"], spec["workflow"], spec["message"]) == (SESSION, "review", "Why does only arm64 fail?")


async def test_a_reply_in_an_internal_thread_is_internal(place: Place) -> None:
    discussion = place.bot_says(REVIEW, internal=True)
    place.gitlab.people.replies(*WHERE, "alice", discussion, "why?")
    await place.hear()
    assert [spec["trigger"]["internal"] for spec in place.specs] == [True]


async def test_a_reply_in_a_thread_of_people_who_quote_a_marker_is_dropped(place: Place) -> None:
    started = place.gitlab.people.starts(*WHERE, "mallory", f"Look:\n\n{REVIEW.render()}")
    place.gitlab.people.replies(*WHERE, "alice", started.discussion_id, "why?")
    assert await place.reasons() == [Reason.NO_SESSION, Reason.NO_SESSION]


async def test_a_pipeline_fails_and_later_succeeds(place: Place) -> None:
    number = place.gitlab.people.pipeline(*WHERE, "alice", "failed")
    assert await place.reasons() == [Reason.FIRED]
    discussion = place.bot_says(FAILURES)
    place.gitlab.people.replies(*WHERE, "maya", discussion, "thanks")
    place.gitlab.people.pipeline(*WHERE, "alice", "running", pipeline_id=number)
    place.gitlab.people.pipeline(*WHERE, "alice", "success", pipeline_id=number)
    assert (await place.reasons())[-2:] == [Reason.STATUS_FILTERED, Reason.RESOLVED]
    assert place.notes.thread(*WHERE, discussion).resolved
    assert [spec["target"]["gitlab"]["sha"] for spec in place.specs if spec["trigger"]["automatic"]] == [SHA]


async def test_a_merged_results_pipeline_is_about_the_head(place: Place) -> None:
    place.gitlab.people.pipeline(*WHERE, "alice", "failed", ref="merge")
    assert await place.reasons() == [Reason.FIRED]
    assert place.specs[0]["target"]["gitlab"]["sha"] == SHA


async def test_of_two_merged_results_pipelines_the_older_one_is_stale(place: Place) -> None:
    place.gitlab.people.pipeline(*WHERE, "alice", "failed", ref="merge")
    place.gitlab.people.pipeline(*WHERE, "alice", "failed", ref="merge")
    assert await place.reasons() == [Reason.STALE_EVENT, Reason.FIRED]


async def test_a_branchs_pipeline_and_a_forks_own_start_nothing(place: Place) -> None:
    place.gitlab.people.pipeline(*WHERE, "alice", "failed", source="push")
    place.gitlab.people.opens("group/app", 43, "mallory", NEWER, fork_of=77)
    place.gitlab.people.pipeline("group/app", 43, "mallory", "failed")
    place.gitlab.people.pipeline("group/app", 43, "alice", "failed")
    found: dict[str, list[Reason]] = {one.kind: [] for one in place.gitlab.events}
    for one, reason in zip(place.gitlab.events, await place.reasons(), strict=True):
        found[one.kind].append(reason)
    assert found["pipeline"] == [Reason.NOT_A_MERGE_REQUEST_PIPELINE, Reason.NO_TARGET, Reason.FIRED]
    assert found["merge_request"] == [Reason.FIRED]


async def test_the_life_of_a_merge_request(place: Place) -> None:
    people = place.gitlab.people
    people.opens("group/app", 44, "alice", SHA, draft=True)
    people.marks_ready("group/app", 44, "alice")
    people.pushes("group/app", 44, "alice", NEWER)
    people.closes("group/app", 44, "alice")
    people.labels("group/app", 44, "alice", ["later"])
    people.reopens("group/app", 44, "alice")
    people.merges("group/app", 44, "alice")
    people.labels("group/app", 44, "alice", ["late"])
    kinds = [one.kind for one in place.gitlab.events]
    found = [reason for kind, reason in zip(kinds, await place.reasons(), strict=True) if kind == "merge_request"]
    assert found == [
        Reason.DRAFT,
        Reason.FIRED,
        Reason.FIRED,
        Reason.ACTION_FILTERED,
        Reason.CLOSED,
        Reason.FIRED,
        Reason.ACTION_FILTERED,
        Reason.CLOSED,
    ]


async def test_a_gitlab_that_fails_is_asked_again_and_a_lost_reaction_is_no_error(place: Place) -> None:
    place.gitlab.people.comments(*WHERE, "alice", "/hummingbird review")
    heard = place.gitlab.events[-1]
    place.gitlab.fault("status", path="/members/", status=403, times=1, body="<html>blocked by a proxy</html>")
    with pytest.raises(Unavailable):
        await place.hear()
    place.gitlab.fault("status", method="POST", path="/award_emoji", status=502, times=9)
    outcome = await place.handler.handle(Event("gitlab", "note", heard.payload))
    assert outcome.reason is Reason.FIRED


async def test_a_command_where_the_bot_is_no_member_waits_until_somebody_mends_it(place: Place) -> None:
    place.gitlab.fault("status", path="/members/", status=404, body='{"message": "404 Project Not Found"}')
    place.gitlab.people.comments(*WHERE, "alice", "/hummingbird review")
    with pytest.raises(Unavailable, match="the bot is a member of it"):
        await place.hear()
    assert await place.handler.away() is None
    assert not place.specs


async def test_a_bot_that_must_accept_the_terms_loses_nothing(place: Place) -> None:
    place.notes.bot_id()
    place.gitlab.people.comments(*WHERE, "alice", "/hummingbird review")
    place.gitlab.people.pipeline(*WHERE, "alice", "failed")
    terms = '{"message": "403 Forbidden - bot must accept the Terms of Service"}'
    place.gitlab.fault("status", status=403, times=1_000, body=terms)
    for one in place.gitlab.events:
        with pytest.raises(Unavailable, match="Terms of Service"):
            await place.handler.handle(Event("gitlab", one.kind, one.payload))
    assert await place.handler.away() is not None
    place.gitlab.faults.clear()
    assert await place.reasons() == [Reason.FIRED, Reason.FIRED]


async def test_what_nobody_wrote_starts_nothing(place: Place) -> None:
    place.gitlab.people.comments(*WHERE, "alice", "/hummingbird review")
    (one,) = place.gitlab.events
    invented = {**one.payload, "object_attributes": {**one.payload["object_attributes"], "id": 999_999}}
    outcome = await place.handler.handle(Event("gitlab", "note", invented))
    assert outcome.reason is Reason.NO_TARGET
    assert not place.specs


async def test_a_reply_that_is_not_in_its_thread_starts_nothing(place: Place) -> None:
    discussion = place.bot_says(REVIEW)
    written = place.gitlab.people.starts(*WHERE, "alice", "elsewhere")
    one = place.gitlab.events[-1]
    moved = {**one.payload["object_attributes"], "discussion_id": discussion, "type": "DiscussionNote"}
    outcome = await place.handler.handle(Event("gitlab", "note", {**one.payload, "object_attributes": moved}))
    assert (outcome.reason, written.id) == (Reason.NO_TARGET, moved["id"])


async def test_a_command_that_was_edited_since_stands_as_it_was_given(place: Place) -> None:
    written = place.gitlab.people.comments(*WHERE, "alice", "/hummingbird review only arm64")
    place.gitlab.people.edits(*WHERE, "alice", written.id, "never mind")
    outcomes = await place.hear()
    assert [one.reason for one in outcomes] == [Reason.FIRED, Reason.EDITED]
    assert outcomes[0].detail == "edited since"
    assert place.specs[0]["message"] == "only arm64"


async def test_a_success_that_comes_late_resolves_nothing_about_a_newer_failure(place: Place) -> None:
    old = place.gitlab.people.pipeline(*WHERE, "alice", "success")
    late = place.gitlab.events[-1]
    place.gitlab.people.pushes(*WHERE, "alice", NEWER)
    place.gitlab.people.pipeline(*WHERE, "alice", "failed")
    discussion = place.bot_says(FAILURES)
    place.gitlab.people.replies(*WHERE, "alice", discussion, "hm")
    outcome = await place.handler.handle(Event("gitlab", "pipeline", late.payload))
    assert (outcome.reason, outcome.detail) == (Reason.STALE_EVENT, f"pipeline {old} is not the latest")
    assert not place.notes.thread(*WHERE, discussion).resolved
