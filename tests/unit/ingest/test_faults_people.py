"""Reports about what people do that no handler expected, with the events of the GitLab stand-in.

The numbers are those of docs/faults.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import gitlab as python_gitlab
import pytest
from prometheus_client import CollectorRegistry

from hummingbird_operator.config import HOOK_PATH
from hummingbird_operator.delivery.notes import Notes
from hummingbird_operator.ingest.event import Event
from hummingbird_operator.ingest.hooks.hooks import WANTED, Hooks
from hummingbird_operator.ingest.reasons import Reason
from hummingbird_operator.ingest.webhook.listener import listening
from hummingbird_operator.ingest.webhook.receiver import Webhook
from tests.standins.gitlab import GitLabStandIn, sample_fixture
from tests.unit.ingest.desk import Desk
from tests.unit.ingest.samples import pipeline
from tests.unit.ingest.test_gitlab import WHERE, Place

SECRET = "a-plain-token"


@pytest.fixture
def scene() -> Iterator[Place]:
    with GitLabStandIn(sample_fixture()) as standin:
        notes = Notes(standin.url, "bot-token")
        yield Place(standin, notes)
        notes.close()


@pytest.mark.parametrize("backwards", [False, True])
async def test_a_comment_that_closes_the_merge_request_is_two_events_in_any_order(
    scene: Place, *, backwards: bool
) -> None:
    """I17: the person's question is answered although the merge request is closed when its event is looked at."""
    scene.gitlab.people.comments(*WHERE, "alice", "/hummingbird review why?\n\n/close")
    events = [Event("gitlab", one.kind, one.payload) for one in scene.gitlab.events]
    for one in reversed(events) if backwards else events:
        await scene.handler.handle(one)
    assert {str(one.payload["object_kind"]) for one in events} == {"note", "merge_request"}
    (spec,) = scene.specs
    assert (spec["workflow"], spec["message"]) == ("review", "why?")


async def test_a_note_that_is_deleted_before_its_event_is_looked_at_starts_nothing(scene: Place) -> None:
    """I11, I15: GitLab tells nobody of the deletion, and of a note that nobody finds nobody knows who wrote it."""
    written = scene.gitlab.people.comments(*WHERE, "alice", "/hummingbird review")
    scene.gitlab.people.deletes(*WHERE, "alice", written.id)
    assert await scene.reasons() == [Reason.NO_TARGET]


async def test_an_edit_back_and_forth_never_repeats_a_command(scene: Place) -> None:
    """I12, I13, I14."""
    written = scene.gitlab.people.comments(*WHERE, "alice", "/hummingbird review")
    for words in ("never mind", "/hummingbird review", "/hummingbird review again"):
        scene.gitlab.people.edits(*WHERE, "alice", written.id, words)
    assert await scene.reasons() == [Reason.FIRED, Reason.EDITED, Reason.EDITED, Reason.EDITED]
    assert len(scene.specs) == 1


async def test_whoever_looks_like_a_bot_or_like_the_bot_is_judged_by_number_and_role(scene: Place) -> None:
    """I36: a login that ends in [bot], or is almost ours, gives nothing."""
    with scene.gitlab.state.lock:
        scene.gitlab.state.users[8].username = "hummingbird-bot[bot]"
    scene.gitlab.state.project("group/app").visibility = "public"  # type: ignore[union-attr]
    scene.gitlab.people.comments(*WHERE, "hummingbird-bot[bot]", "/hummingbird review")
    assert await scene.reasons() == [Reason.NOTICE]
    assert scene.specs[0]["notice"] == "Denied"


@pytest.mark.parametrize(
    "source",
    ["external", "external_pull_request_event", "parent_pipeline", "schedule", "web", "api", "trigger", "push"],
)
async def test_only_a_pipeline_of_the_merge_request_itself_speaks_for_it(source: str) -> None:
    """S12, I4: a branch's, a child's or an external pipeline of the same commit has another status."""
    desk = Desk()
    for status in ("failed", "success"):
        assert (await desk.see(pipeline(status, source=source))).reason is Reason.NOT_A_MERGE_REQUEST_PIPELINE
    assert not desk.forge.calls


async def test_the_test_buttons_of_a_hook_are_answered_with_200_and_start_nothing_twice(scene: Place) -> None:
    """S18, I47: a test has no action and no oldrev, or is the latest comment once more."""
    webhook = Webhook(scene.handler, lambda: (SECRET,), registry=CollectorRegistry())
    hooks = Hooks(scene.gitlab.url, "maintainer-token")
    async with listening(webhook.app(), 0, host="127.0.0.1") as port:
        url = f"http://127.0.0.1:{port}{HOOK_PATH}"
        made = await asyncio.to_thread(hooks.create, "group/app", url, {**WANTED, "token": SECRET})
        await asyncio.to_thread(scene.gitlab.people.comments, *WHERE, "alice", "/hummingbird review")
        await asyncio.to_thread(scene.gitlab.people.pipeline, *WHERE, "alice", "failed")
        assert await asyncio.to_thread(scene.gitlab.hooks_wait, 10)
        before = scene.specs
        assert len(before) == 2
        maintainer = python_gitlab.Gitlab(scene.gitlab.url, private_token="maintainer-token")
        for trigger in ("merge_requests_events", "note_events", "pipeline_events"):
            path = f"/projects/10/hooks/{made.id}/test/{trigger}"
            answer: Any = await asyncio.to_thread(maintainer.http_post, path)
            assert "201" in str(answer)
        assert scene.specs == before
    hooks.close()
    statuses = {sample.labels["status"] for family in webhook.registry.collect() for sample in family.samples}
    assert statuses == {"200"}
