"""Laws of the order: one run a session, one a lane, people first, nobody passes a started run."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from hummingbird_operator.agentruns.turns import RunView, grant
from hummingbird_operator.api.conditions import Working


def view(uid: str, **changes: object) -> RunView:
    values: dict[str, object] = {
        "uid": uid,
        "name": f"run-{uid}",
        "created": "2026-11-30T10:00:00Z",
        "session": f"session-{uid}",
        "lane": "",
        "reply": False,
        "automatic": False,
        "started": False,
        "needs_slot": True,
    }
    return RunView(**{**values, **changes})  # type: ignore[arg-type]


views = st.lists(
    st.builds(
        RunView,
        uid=st.uuids().map(str),
        name=st.just("run"),
        created=st.sampled_from(["2026-11-30T10:00:00Z", "2026-11-30T10:00:01Z", "2026-11-30T10:00:02Z"]),
        session=st.sampled_from(["s1", "s2", "s3"]),
        lane=st.sampled_from(["", "l1", "l2"]),
        reply=st.booleans(),
        automatic=st.booleans(),
        started=st.booleans(),
        needs_slot=st.booleans(),
    ),
    max_size=12,
    unique_by=lambda each: each.uid,
)


@given(views, st.integers(1, 4))
def test_never_two_granted_in_one_session_or_lane_and_never_more_than_slots(runs: list[RunView], slots: int) -> None:
    turns = grant(runs, slots=slots)
    granted = [run for run in runs if turns[run.uid].granted]
    assert all(count == 1 for count in Counter(run.session for run in granted).values())
    assert all(count == 1 for lane, count in Counter(r.lane for r in granted if not r.reply).items() if lane)
    assert sum(run.needs_slot for run in granted) <= slots


@given(views, st.integers(1, 4))
def test_somebody_goes_whenever_somebody_waits_and_a_slot_is_free(runs: list[RunView], slots: int) -> None:
    turns = grant(runs, slots=slots)
    assert not runs or any(turn.granted for turn in turns.values())


@given(views, st.randoms())
def test_the_order_does_not_depend_on_the_order_of_the_list(runs: list[RunView], random: object) -> None:
    shuffled = list(runs)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert grant(runs, slots=2) == grant(shuffled, slots=2)


def test_a_started_run_goes_on_before_an_older_one_begins() -> None:
    turns = grant(
        [view("old", created="2026-11-30T09:00:00Z"), view("begun", created="2026-11-30T10:00:00Z", started=True)],
        slots=1,
    )
    assert turns["begun"].granted
    assert turns["old"].reason == Working.QUEUED


def test_people_go_before_automatic_runs_of_the_same_lane() -> None:
    turns = grant(
        [view("auto", lane="l", automatic=True, created="2026-11-30T09:00:00Z"), view("person", lane="l")], slots=5
    )
    assert turns["person"].granted
    assert turns["auto"].reason == Working.WAITING_FOR_SESSION
    assert "run-person" in turns["auto"].message


def test_a_reply_waits_for_its_session_but_not_for_the_lane() -> None:
    turns = grant(
        [view("first", lane="l", started=True), view("reply", lane="l", reply=True, session="another")], slots=5
    )
    assert turns["reply"].granted


def test_a_run_that_only_retries_its_delivery_takes_no_slot() -> None:
    turns = grant([view("delivering", started=True, needs_slot=False), view("new")], slots=1)
    assert turns["delivering"].granted
    assert turns["new"].granted
