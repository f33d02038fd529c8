"""When GitLab had a hook disabled, by the deliveries that it noted before and after."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hummingbird_operator.ingest.hooks.hooks import Attempt
from hummingbird_operator.ingest.hooks.moments import api_time, happened, hook_time, moment
from hummingbird_operator.ingest.missed.gaps import AGE, MARGIN, Gaps, Window, windows

NOW = datetime(2030, 1, 10, 12, tzinfo=UTC)
HOOK = ("group/app", 7)


def ago(minutes: float) -> datetime:
    return NOW - timedelta(minutes=minutes)


def tried(signs: str, *, begin: float = 100, every: float = 1, first: int = 1) -> list[Attempt]:
    """A delivery a minute: `x` failed, `.` went well."""
    return [
        Attempt(first + place, ago(begin - place * every), went_well=sign == ".") for place, sign in enumerate(signs)
    ]


def known(attempts: list[Attempt]) -> Gaps:
    """As after both lists were read."""
    gaps = Gaps()
    gaps.learn(HOOK, [one for one in attempts if not one.went_well], NOW)
    gaps.read(HOOK, [one for one in attempts if one.went_well], 1, NOW, whole=True)
    return gaps


@pytest.mark.parametrize(
    ("signs", "found"),
    [
        ("", []),
        (".xxx.xxx.", []),
        ("xxxx", [(3, None)]),
        ("x.xxxx.xx", [(5, 6)]),
        ("xxxxxxx..xxxxx", [(3, 7), (12, None)]),
    ],
)
def test_a_window_begins_with_the_fourth_failure_in_a_row_and_ends_with_the_next_success(
    signs: str, found: list[tuple[int, int | None]]
) -> None:
    assert windows(reversed(tried(signs))) == [
        Window(ago(100 - begin), None if end is None else ago(100 - end)) for begin, end in found
    ]


def test_a_hook_that_was_never_disabled_is_looked_at_for_nothing() -> None:
    for signs in ("", "xxx", ".x.x.x.x.x.x"):
        assert known(tried(signs)).looks(HOOK, NOW, disabled=False) == []


def test_a_window_that_was_looked_at_is_not_looked_at_again_and_one_that_lasts_goes_on_where_the_lists_ended() -> None:
    gaps = known(tried("xxxxx"))
    (look,) = gaps.looks(HOOK, NOW, disabled=True)
    assert (look.since, look.window.until) == (ago(97) - MARGIN, None)
    gaps.looked(HOOK, look.window, ago(50))
    (look,) = gaps.looks(HOOK, NOW, disabled=True)
    assert look.since == ago(50) - MARGIN
    gaps.read(HOOK, tried(".", begin=1, first=6), 1, NOW, whole=True)
    (look,) = gaps.looks(HOOK, NOW, disabled=False)
    assert (look.since, look.window.until) == (ago(50) - MARGIN, ago(1))
    gaps.looked(HOOK, look.window, None)
    assert gaps.looks(HOOK, NOW, disabled=False) == []


def test_of_a_hook_that_no_list_explains_nothing_is_looked_for_that_was_before_it_was_seen() -> None:
    gaps = known([])
    (look,) = gaps.looks(HOOK, ago(10), disabled=True)
    assert look.window == Window(ago(10), None)
    (look,) = gaps.looks(HOOK, NOW, disabled=False)
    assert look.window == Window(ago(10), NOW)
    assert gaps.looks(HOOK, NOW, disabled=False) == [look], "until it was looked at"
    gaps.looked(HOOK, look.window, None)
    assert gaps.looks(HOOK, NOW, disabled=False) == []


def test_successes_are_read_only_where_failures_may_have_been_in_a_row_and_are_not_judged_yet() -> None:
    gaps = Gaps()
    gaps.learn(HOOK, tried("xxx"), NOW)
    assert gaps.unsure(HOOK) is None
    gaps.learn(HOOK, tried("x", first=7), NOW)
    assert gaps.unsure(HOOK) == 1
    assert gaps.looks(HOOK, NOW, disabled=False) == [], "as long as nobody knows what went well between"
    gaps.read(HOOK, tried(".", first=8), 1, NOW, whole=True)
    assert gaps.unsure(HOOK) is None
    assert len(gaps.looks(HOOK, NOW, disabled=False)) == 1
    gaps.learn(HOOK, tried("x", first=9), NOW)
    assert gaps.unsure(HOOK) == 9


def test_of_failures_before_the_last_success_that_was_read_nothing_is_made_and_nothing_is_asked_again() -> None:
    gaps = Gaps()
    for _ in range(2):
        gaps.learn(HOOK, tried("xxxxxx"), NOW)
        if gaps.unsure(HOOK):
            gaps.read(HOOK, tried("..", first=20), 1, NOW, whole=False)
        assert gaps.looks(HOOK, NOW, disabled=False) == []
        assert gaps.unsure(HOOK) is None


@given(st.text("x.", max_size=30), st.booleans(), st.floats(1, 200))
def test_a_look_is_never_longer_than_a_day_and_never_without_four_failures_in_a_row(
    signs: str, disabled: bool, every: float
) -> None:
    gaps = known(tried(signs, begin=every * len(signs), every=every))
    for look in gaps.looks(HOOK, NOW, disabled=disabled):
        assert NOW - AGE <= look.since <= NOW
        assert "xxxx" in signs or (disabled and look.window.since == NOW)


@given(st.integers(-(10**15), 2 * 10**15))
def test_moments_are_read_in_the_forms_in_which_they_are_written(microseconds: int) -> None:
    when = NOW + timedelta(microseconds=microseconds)
    assert moment(when.isoformat()) == when
    assert moment(hook_time(when)) == moment(api_time(when)) == when.replace(microsecond=0)
    assert happened({"object_attributes": {"updated_at": hook_time(when)}}) == when.replace(microsecond=0)


def test_more_digits_than_a_clock_has_are_no_reason_to_read_no_time() -> None:
    assert moment("2030-01-10T12:00:00.123456789Z") == NOW.replace(microsecond=123456)
    assert [moment(each) for each in ("", None, 7, "soon", "2030-13-10T12:00:00Z")] == [None] * 5
