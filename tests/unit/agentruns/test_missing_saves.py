"""A save that nobody made, made by whoever comes next: by two at once, after a death, in any order."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hummingbird_operator.agentruns.resuming import SessionNotSaved, resumed
from hummingbird_operator.errors import Invalid, Unavailable
from hummingbird_operator.sessions.journal import RunJournal
from hummingbird_operator.sessions.session import SavedSession, SessionStore
from hummingbird_operator.sessions.testing import KillAt, Killed, MemoryStore
from tests.unit.agentruns.process import SECRET
from tests.unit.agentruns.unsaved import FIRST, answers, go_on, missing, response, spoke, task, uid


@pytest.mark.parametrize("kept", [0, 1, 2, 3])
def test_all_that_is_missing_is_saved_in_order_and_asking_again_changes_nothing(kept: int) -> None:
    store = missing(3, kept=kept)
    found = go_on(store)
    assert answers(found) == ["answer 1", "answer 2", "answer 3"]
    assert (found.run, found.system_prompt, found.workflow_hash) == (uid(3), "Look.", "h")
    after = dict(store.blobs)
    assert go_on(store) == found
    assert store.blobs == after
    assert b"answer 3" in store.blobs[f"sessions/{FIRST}/transcript.md"]


def operations(runs: int, kept: int) -> list[str]:
    seen = KillAt(-1)
    store = missing(runs, kept=kept)
    store.on_call = seen
    go_on(store)
    return seen.seen


@pytest.mark.parametrize("kept", [0, 1])
def test_of_two_at_once_each_gets_the_same_session_wherever_they_meet(kept: int) -> None:
    alone = go_on(missing(2, kept=kept))
    for meeting in range(len(operations(2, kept))):
        store, left, faster = missing(2, kept=kept), [meeting], list[SavedSession]()

        def on_call(_: str, left: list[int] = left, store: MemoryStore = store, faster: Any = faster) -> None:
            left[0] -= 1
            if left[0] == -1:
                faster.append(go_on(store, task(run=uid(8))))

        store.on_call = on_call
        slower = go_on(store)
        # a slower one that read while the faster one wrote holds an older etag: it could only lose with it
        assert [replace(each, etag="") for each in (slower, *faster)] == [replace(alone, etag="")] * 2


@pytest.mark.parametrize("kept", [0, 1])
def test_who_is_overtaken_by_one_that_went_on_already_goes_on_behind_that_one(kept: int) -> None:
    for meeting in range(len(operations(kept + 1, kept)) - 1):  # behind its last look it sees nobody
        store, left = missing(kept + 1, kept=kept), [meeting]

        def on_call(_: str, left: list[int] = left, store: MemoryStore = store) -> None:
            left[0] -= 1
            if left[0] == -1:
                go_on(store, task(run=uid(8)))
                spoke(store, kept + 2, base=kept + 1)
                go_on(store, task(run=uid(8)))

        store.on_call = on_call
        assert answers(go_on(store)) == [f"answer {number}" for number in range(1, kept + 3)]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 3), st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=4))
def test_however_often_it_dies_or_its_store_is_away_the_session_comes_out_the_same(
    kept: int, ends: list[tuple[int, bool]]
) -> None:
    alone = go_on(missing(3))
    store = missing(3, kept=kept)
    for point, dies in ends:
        left = [point]

        def on_call(_: str, left: list[int] = left, dies: bool = dies) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise Killed if dies else Unavailable("the session store", "made by a test")

        store.on_call = on_call
        try:
            go_on(store)
        except (Killed, Unavailable):
            continue
    store.on_call = lambda _: None
    found = go_on(store)
    assert replace(found, etag="") == replace(alone, etag="")


def test_a_run_that_was_never_answered_is_no_part_of_the_session() -> None:
    store = missing(1, kept=1)
    spoke(store, 2, base=1, answered=False)
    before = dict(store.blobs)
    assert answers(go_on(store)) == ["answer 1"]
    assert store.blobs == before
    spoke(store, 3, base=1)
    assert answers(go_on(store)) == ["answer 1", "answer 3"]


@pytest.mark.parametrize("silent", [1, 2])
def test_a_run_without_an_answer_with_which_others_went_on_is_there_again_with_them(silent: int) -> None:
    store = MemoryStore()
    for number in (1, 2, 3):
        spoke(store, number, base=number - 1, answered=number != silent)
    found = go_on(store)
    assert answers(found) == [f"answer {number}" for number in (1, 2, 3) if number != silent]
    asked = [part["text"] for each in found.contents for part in each["parts"] if part.get("type") == "text"]
    assert [text for text in asked if text.startswith("question")] == ["question 1", "question 2", "question 3"]


def test_a_run_that_was_told_of_another_base_in_its_last_life_is_missing_behind_that_one_only() -> None:
    store = missing(1)
    RunJournal(store, uid(2)).follow(uid(1))
    spoke(store, 3, base=1)
    spoke(store, 2, base=3)
    assert answers(go_on(store)) == ["answer 1", "answer 3", "answer 2"]


def test_a_run_does_not_save_itself_while_it_is_at_work() -> None:
    store = missing(2, kept=1)
    assert answers(go_on(store, task(run=uid(2)))) == ["answer 1"]


def test_a_run_of_an_older_version_that_left_only_its_name_is_said() -> None:
    store = missing(1, kept=1)
    journal = RunJournal(store, uid(2))
    journal.follow(uid(1))
    journal.record_response(
        1, response("paid"), attempt=journal.intent(1, worst_case_usd=Decimal(1), model="m"), final=False
    )
    with pytest.raises(SessionNotSaved, match=uid(2)):
        go_on(store)


def test_a_reply_is_no_session_of_its_own() -> None:
    store = missing(2)
    with pytest.raises(SessionNotSaved):
        go_on(store, task(session=uid(2)))


def test_secrets_are_taken_out_of_the_transcript() -> None:
    store = MemoryStore()
    spoke(store, 1, said=f"with {SECRET}")
    go_on(store)
    assert SECRET.encode() not in store.blobs[f"sessions/{FIRST}/transcript.md"]
    assert b"[gone]" in store.blobs[f"sessions/{FIRST}/transcript.md"]


def test_somebody_elses_session_is_not_saved_for_who_may_not_have_it() -> None:
    store = missing(1)
    before = dict(store.blobs)
    with pytest.raises(Invalid, match="another namespace or target"):
        go_on(store, task(origin="elsewhere/group/app!42"))
    assert store.blobs == before


def test_who_only_tells_again_what_was_said_saves_nothing() -> None:
    store = missing(2, kept=1)
    before = dict(store.blobs)
    found = resumed(task(run=FIRST), SessionStore(store), store)
    assert found is not None
    assert answers(found) == ["answer 1"]
    assert store.blobs == before
