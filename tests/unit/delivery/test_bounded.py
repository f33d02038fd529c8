"""An answer of GitLab is read up to a bound, whatever people wrote."""

from __future__ import annotations

import threading

import pytest

from hummingbird_operator.delivery.bounded import Turns
from hummingbird_operator.delivery.refusals import TooLarge
from tests.standins.gitlab import GitLabStandIn, sample_fixture
from tests.unit.delivery.pens import WHERE, pen


@pytest.mark.parametrize("look", ["thread", "bot_threads", "marked"])
def test_a_thread_that_is_longer_than_is_read_is_refused_and_no_outage(look: str) -> None:
    with GitLabStandIn({**sample_fixture(), "notes_per_minute": 1_000}) as gitlab, pen(gitlab, most=100_000) as notes:
        first = gitlab.people.starts(*WHERE, "alice", "hello")
        gitlab.people.replies(*WHERE, "alice", first.discussion_id, "x" * 60_000)
        assert len(notes.thread(*WHERE, first.discussion_id).notes) == 2
        gitlab.people.replies(*WHERE, "alice", first.discussion_id, "x" * 60_000)
        with pytest.raises(TooLarge):
            notes.thread(*WHERE, first.discussion_id) if look == "thread" else getattr(notes, look)(*WHERE)
        assert notes.head(*WHERE).state == "opened"


def test_many_threads_come_in_small_pages(lasting_gitlab: GitLabStandIn) -> None:
    for number in range(25):
        lasting_gitlab.people.starts(*WHERE, "alice", f"thread {number}")
    with pen(lasting_gitlab) as notes:
        assert len(list(notes.discussions(*WHERE))) >= 25
    pages = [call for call in lasting_gitlab.calls if call.path.endswith("/discussions") and call.method == "GET"]
    assert len(pages) >= 2


def test_of_large_answers_one_is_read_at_a_time_and_small_ones_wait_for_none() -> None:
    turns, entered, free = Turns(), threading.Event(), threading.Event()

    def large() -> None:
        with turns.scope():
            turns.large()
            turns.large()
            entered.set()
            free.wait(30)

    def second() -> None:
        with turns.scope():
            turns.large()
            order.append("second")

    order: list[str] = []
    threads = [threading.Thread(target=large), threading.Thread(target=second)]
    threads[0].start()
    assert entered.wait(30)
    threads[1].start()
    with turns.scope():
        order.append("small")
    turns.large()
    order.append("outside")
    assert order == ["small", "outside"]
    free.set()
    for thread in threads:
        thread.join(30)
    assert order[-1] == "second"
