"""Reports of bots that answered twice, or an old commit, or nobody: from GitLab's events to the notes that stand there.

The numbers are those of docs/faults.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from hummingbird_operator.ingest.reasons import Reason
from tests.standins.gitlab import GitLabStandIn, sample_fixture
from tests.unit.ingest.chain import Chain, played

NEW = "ab12" * 10
Play = Callable[[Callable[[Chain], Awaitable[None]]], None]


@pytest.fixture(scope="module")
def gitlab() -> Iterator[GitLabStandIn]:
    with GitLabStandIn({**sample_fixture(), "notes_per_minute": 1_000_000}) as standin:
        yield standin


@pytest.fixture
def play(tmp_path: Path, gitlab: GitLabStandIn) -> Play:
    return lambda story: played(tmp_path, gitlab, story)


def test_a_pipeline_that_fails_is_told_twice_and_fails_again_is_answered_once_until_somebody_asks(play: Play) -> None:
    """C9: two deliveries, then failed → running → failed on one commit; a command speaks again."""

    async def story(it: Chain) -> None:
        people = it.gitlab.people
        number = people.pipeline(*it.where, "alice", "failed")
        await it.hear()
        await it.world.live()
        assert len(it.said) == 1
        people.pipeline(*it.where, "alice", "running", pipeline_id=number)
        people.pipeline(*it.where, "alice", "failed", pipeline_id=number)
        assert Reason.FIRED in await it.hear()
        await it.world.live()
        assert it.outcomes() == ["Completed", "AlreadyReviewed"]
        assert len(it.said) == 1
        people.comments(*it.where, "alice", "/hummingbird analyze-failures")
        await it.hear()
        await it.world.live()
        assert it.outcomes() == ["Completed", "AlreadyReviewed", "Completed"]
        assert len(it.said) == it.posted() == 2

    play(story)


def test_two_pipelines_and_a_command_about_one_commit_at_once_make_one_note(play: Play) -> None:
    """C10, S14, S16: each event at two ingestors at once; the AgentRun's name is the claim, the lane the order."""

    async def story(it: Chain) -> None:
        people = it.gitlab.people
        people.pipeline(*it.where, "alice", "failed")
        people.pipeline(*it.where, "alice", "failed")
        people.comments(*it.where, "alice", "/hummingbird analyze-failures")
        await it.hear()
        await it.world.live()
        assert sorted(it.outcomes()) == ["AlreadyReviewed", "AlreadyReviewed", "Completed"]
        assert len(it.said) == it.posted() == 1

    play(story)


def test_a_burst_of_updates_about_one_commit_is_reviewed_once(play: Play) -> None:
    """I1, I16: labels, a new title, draft and ready again are events of their own about a commit that is known."""

    async def story(it: Chain) -> None:
        people = it.gitlab.people
        people.labels(*it.where, "alice", ["one"])
        people.labels(*it.where, "alice", ["one", "two"])
        people.renames(*it.where, "alice", "Another title")
        people.marks_draft(*it.where, "alice")
        people.labels(*it.where, "alice", ["three"])
        people.marks_ready(*it.where, "alice")
        reasons = await it.hear()
        assert (reasons.count(Reason.FIRED), reasons.count(Reason.DRAFT)) == (4, 2)
        await it.world.live()
        assert sorted(it.outcomes()) == ["AlreadyReviewed", "AlreadyReviewed", "AlreadyReviewed", "Completed"]
        assert len(it.said) == it.posted() == 1

    play(story)


@pytest.mark.parametrize("backwards", [False, True])
def test_of_a_backlog_of_pushes_only_the_newest_is_answered_whatever_their_order(
    play: Play, *, backwards: bool
) -> None:
    """I55, I43."""

    async def story(it: Chain) -> None:
        commits = [f"{number}" * 40 for number in range(1, 6)]
        for sha in commits:
            it.gitlab.people.pushes(*it.where, "alice", sha)
        await it.hear(backwards=backwards)
        await it.world.live()
        assert sorted(it.outcomes()) == ["Completed", *["Superseded"] * 4]
        (note,) = it.said
        assert commits[-1] in note.body
        assert it.posted() == 1

    play(story)


def test_the_event_s_commit_is_believed_while_gitlab_still_shows_the_one_before(play: Play) -> None:
    """S11: right after a force push the merge request's head is an old one for some reads."""

    async def story(it: Chain) -> None:
        it.gitlab.people.pushes(*it.where, "alice", NEW)
        it.gitlab.lags(*it.where, times=3)
        await it.hear()
        await it.world.live()
        assert it.outcomes() == ["Completed"]
        assert NEW in it.said[0].body

    play(story)


def test_what_the_bot_says_comes_back_as_an_event_and_starts_nothing(play: Play) -> None:
    """I19, I22, I23: also where the model's own words are a command, or the note is about a failure."""

    async def story(it: Chain) -> None:
        it.world.says("/hummingbird analyze-failures\n\nSay /hummingbird help.")
        it.gitlab.people.pipeline(*it.where, "alice", "failed")
        await it.hear()
        await it.world.live()
        assert Reason.FIRED not in await it.hear()
        assert len(it.world.runs()) == len(it.said) == 1

    play(story)


def test_a_note_that_a_proxy_finds_too_long_is_replaced_by_a_short_one(play: Play) -> None:
    """S6, S7: a limit in bytes that nobody told us must not leave the placeholder standing."""

    async def story(it: Chain) -> None:
        for skip in (0, 1):  # the answer, then the answer with the words about a reply: each is tried whole, then short
            it.world.fault("status", "PUT", status=413, body="<html>413 Request Entity Too Large</html>", skip=skip)
        it.gitlab.people.pipeline(*it.where, "alice", "failed")
        await it.hear()
        await it.world.live()
        assert it.outcomes() == ["Completed"]
        (note,) = it.said
        assert "It fails because of **three**." in note.body
        assert "<details>" not in note.body
        assert it.world.condition("Delivered", it.world.runs()[0].metadata.name) == ("True", "NoteWritten")

    play(story)
