"""Since when a hook may have been sent nothing, by what failed before and by what this process knows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hummingbird_operator.ingest.hooks.moments import api_time, happened, hook_time, moment
from hummingbird_operator.ingest.missed.gaps import AGE, MARGIN, Gaps

NOW = datetime(2030, 1, 10, 12, tzinfo=UTC)
HOOK = ("group/app", 7)


def ago(*minutes: float) -> list[datetime]:
    return [NOW - timedelta(minutes=each) for each in minutes]


@pytest.mark.parametrize(
    ("disabled", "failed", "refused", "begins"),
    [
        (False, [], [], None),
        (False, [60, 50, 40], [], None),
        (False, [60, 50, 40, 30], [], 30),
        (True, [60, 50, 40, 30, 20], [], 30),
        (True, [60], [], 24 * 60 - 5),
        (True, [], [], 24 * 60 - 5),
        (False, [], [45, 90], 90),
        (False, [2000, 1990, 1980, 1970], [], 24 * 60 - 5),
        (False, [5000, 4990, 4980, 30], [], None),
    ],
)
def test_a_process_that_knows_nothing_goes_by_four_failures_one_refusal_or_a_hook_that_is_disabled(
    disabled: bool, failed: list[float], refused: list[float], begins: float | None
) -> None:
    since = Gaps().since(HOOK, NOW, disabled, ago(*failed), ago(*refused))
    assert since == (None if begins is None else NOW - timedelta(minutes=begins) - MARGIN)


def test_one_that_has_looked_goes_by_what_failed_since_and_by_what_it_owes() -> None:
    gaps = Gaps()
    gaps.looked(HOOK, NOW - timedelta(hours=1))
    old = ago(90, 89, 88, 87)
    assert gaps.since(HOOK, NOW, False, old, ago(80)) is None
    assert gaps.since(HOOK, NOW, False, [*old, *ago(20, 10)], []) == NOW - timedelta(minutes=20) - MARGIN
    assert gaps.since(HOOK, NOW, True, old, []) == NOW - timedelta(hours=1) - MARGIN
    gaps.looked(HOOK, NOW, NOW - timedelta(hours=3))
    assert gaps.owes(HOOK)
    assert gaps.since(HOOK, NOW, False, [], []) == NOW - timedelta(hours=3), "looked at again, it does not grow"
    gaps.looked(HOOK, NOW)
    assert not gaps.owes(HOOK)
    assert gaps.since(HOOK, NOW, False, [], []) is None
    assert gaps.since(("group/lib", 7), NOW, True, [], []) == NOW - AGE


@given(
    failed=st.lists(st.floats(0, 4000), max_size=8),
    refused=st.lists(st.floats(0, 4000), max_size=3),
    disabled=st.booleans(),
)
def test_a_window_is_never_longer_than_a_day_and_begins_before_the_fourth_failure(
    failed: list[float], refused: list[float], disabled: bool
) -> None:
    since = Gaps().since(HOOK, NOW, disabled, ago(*failed), ago(*refused))
    recent = sorted(each for each in ago(*failed) if NOW - each <= timedelta(days=3))
    assert since is None or NOW - AGE <= since < NOW
    if len(recent) >= 4:
        assert since is not None
        assert since < max(recent[3], NOW - AGE + timedelta(microseconds=1))


@given(st.integers(-(10**15), 2 * 10**15))
def test_moments_are_read_in_the_forms_in_which_they_are_written(microseconds: int) -> None:
    when = NOW + timedelta(microseconds=microseconds)
    assert moment(when.isoformat()) == when
    assert moment(hook_time(when)) == moment(api_time(when)) == when.replace(microsecond=0)
    assert happened({"object_attributes": {"updated_at": hook_time(when)}}) == when.replace(microsecond=0)


def test_more_digits_than_a_clock_has_are_no_reason_to_read_no_time() -> None:
    assert moment("2030-01-10T12:00:00.123456789Z") == NOW.replace(microsecond=123456)
    assert [moment(each) for each in ("", None, 7, "soon", "2030-13-10T12:00:00Z")] == [None] * 5
