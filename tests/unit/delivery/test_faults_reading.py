"""Reports of clients that took half a list for the whole, or waited for ever. Numbers as in docs/faults.md."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hummingbird_operator.delivery.markers import Marker
from hummingbird_operator.delivery.notes import Notes
from hummingbird_operator.errors import Unavailable
from tests.standins.gitlab import GitLabStandIn
from tests.unit.delivery.pens import BODY, WHERE, pen, posts

READS: list[Callable[[Notes], object]] = [
    lambda notes: notes.marked(*WHERE),
    lambda notes: notes.find(*WHERE, run="149"),
    lambda notes: notes.bot_threads(*WHERE),
]


def write_many(notes: Notes) -> None:
    for number in range(150):
        notes.create(*WHERE, f"{number}\n\n{Marker('id', run=str(number)).render()}", internal=False)


@pytest.mark.parametrize("number", range(len(READS)))
def test_half_a_list_of_the_bots_notes_is_an_error_and_no_shorter_list(
    gitlab: GitLabStandIn, notes: Notes, number: int
) -> None:
    """S2: whoever believed that the rest is not there would post a second placeholder or pass the limit."""
    write_many(notes)
    read = READS[number]
    whole = read(notes)
    gitlab.fault("status", path="/discussions", status=502, skip=1)
    assert read(notes) == whole
    gitlab.fault("status", path="/discussions", status=502, skip=1, times=100)
    with pytest.raises(Unavailable, match="502"):
        read(notes)


def test_a_read_that_gets_no_answer_is_given_up_and_asked_again(gitlab: GitLabStandIn) -> None:
    """S3: four tries at most, each within its time limit."""
    with pen(gitlab, timeout=(1.0, 0.2)) as notes:
        gitlab.fault("stall", method="GET", seconds=0.6)
        assert notes.head(*WHERE).sha == "9f2c" * 10
        gitlab.fault("stall", method="GET", seconds=0.6, times=10)
        before = len(gitlab.calls)
        with pytest.raises(Unavailable, match="no answer"):
            notes.head(*WHERE)
        assert len(gitlab.calls) - before <= 4


def test_no_write_is_asked_again_whatever_kind_it_is_and_however_it_fails(gitlab: GitLabStandIn, notes: Notes) -> None:
    """S3, C1: python-gitlab with retry_transient_errors repeats POST, PUT and DELETE alike."""
    note = notes.create(*WHERE, BODY, internal=False)
    writes: list[Callable[[], object]] = [
        lambda: notes.create(*WHERE, BODY, internal=False),
        lambda: notes.update(*WHERE, note.id, "x"),
        lambda: notes.react(*WHERE, "eyes"),
        lambda: notes.delete(*WHERE, note.id),
    ]
    for write in writes:
        for fault in ({"kind": "status", "status": 502}, {"kind": "status", "status": 409}, {"kind": "drop"}):
            gitlab.fault(**fault, times=5)
            before = len(gitlab.calls)
            with pytest.raises(Unavailable):
                write()
            gitlab.faults.clear()
            assert len(gitlab.calls) == before + 1
    assert posts(gitlab) == 1 + 3 + 3
