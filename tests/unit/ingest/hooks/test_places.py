"""Where hooks of ours may be: names that may be groups, projects that a glob admits; and how a rate limit is obeyed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from hummingbird_operator.errors import Unavailable
from hummingbird_operator.ingest.event import Event
from hummingbird_operator.ingest.hooks.places import LISTED, MOST, Globs, below, exact, groups_above
from hummingbird_operator.ingest.missed.patience import ASIDE_SECONDS, Patience
from hummingbird_operator.ingest.reasons import Outcome, Reason
from tests.standins.virtual_time import VirtualLoop

NOW = datetime(2030, 1, 10, tzinfo=UTC)


def test_globs_name_no_project_that_could_be_listed() -> None:
    named = {"group/app": 1, "group/*": 1, "team-?/x": 1, "[ab]/c": 1, "group/lib": 1}
    assert exact(named) == (["group/app", "group/lib"], ["group/*", "team-?/x", "[ab]/c"])


def test_groups_are_what_stands_before_a_projects_name_and_before_a_globs_first_sign() -> None:
    assert groups_above(["a/b/c", "a/d", "x/y"]) == ["a", "a/b", "x"]
    assert groups_above([], ["team/*", "one/two/th*", "t?am/x", "*", "[ab]/c", "team/**/lib"]) == [
        "one",
        "one/two",
        "team",
    ]
    assert below("a", ["a/b", "a/b/c", "ab/c", "a"]) == ("a/b", "a/b/c")


class Listed:
    """GitLab's list; `since` is what it was asked for."""

    def __init__(self, count: int) -> None:
        self.count, self.read, self.since = count, 0, NOW

    def projects(self, since: datetime) -> Iterator[str]:
        self.since = since
        for number in range(self.count):
            self.read += 1
            yield f"{'team' if number % 2 else 'other'}/{number}"


def test_what_a_glob_admits_is_found_among_the_busy_ones_as_far_as_the_bound_allows() -> None:
    listed = Listed(6)
    found, more = Globs(listed, lambda path: path.startswith("team/")).found(NOW)
    assert (found, more) == (["team/1", "team/3", "team/5"], False)
    assert listed.since == NOW - timedelta(hours=1), "GitLab writes an activity down an hour late"
    many = Listed(10 * MOST)
    found, more = Globs(many, lambda path: path.startswith("team/")).found(NOW)
    assert (len(found), more, many.read) == (MOST, True, 2 * MOST + 1)
    others = Listed(10 * MOST)
    found, more = Globs(others, lambda path: path == "team/999").found(NOW)
    assert (found, more, others.read) == ([], True, LISTED + 1), "cut off, and said"


class Limited:
    """A handler behind a GitLab that says when to come back."""

    def __init__(self, hints: list[float | None], *, away: bool = False) -> None:
        self.hints, self.is_away = hints, away
        self.at: list[float] = []

    async def handle(self, event: Event) -> Outcome:
        self.at.append(asyncio.get_running_loop().time() - 1000)
        if self.hints:
            raise Unavailable("GitLab", "too many requests (429)", retry_after=self.hints.pop(0))
        return Outcome(Reason.FIRED)

    async def away(self) -> Unavailable | None:
        return Unavailable("GitLab", "away") if self.is_away else None


@pytest.mark.parametrize(
    ("hints", "away", "at"),
    [
        ([45.0], False, [0, 45]),
        ([None], False, [0, 2]),
        ([1.0], False, [0, 2]),
        ([ASIDE_SECONDS], False, [0, ASIDE_SECONDS]),
        ([45.0, None, None], True, [0, 45, 49, 57]),
    ],
)
def test_as_long_as_gitlab_says_nothing_is_asked(hints: list[float | None], away: bool, at: list[float]) -> None:
    handler = Limited(hints, away=away)

    async def look() -> None:
        await Patience(handler).until_done(lambda: handler.handle(Event("gitlab", "", {})))

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(look())
    assert handler.at == pytest.approx(at)


def test_what_fails_again_though_nothing_is_away_is_given_back() -> None:
    handler = Limited([None, None])

    async def look() -> None:
        await Patience(handler).until_done(lambda: handler.handle(Event("gitlab", "", {})))

    with asyncio.Runner(loop_factory=VirtualLoop) as runner, pytest.raises(Unavailable):
        runner.run(look())
