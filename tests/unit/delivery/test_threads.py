"""Threads as the bot sees them: whose they are, which markers count, and resolving its own."""

from __future__ import annotations

from typing import Any

import pytest

from hummingbird_operator.delivery.markers import Marker
from hummingbird_operator.delivery.notes import Forbidden, Notes, ThreadNote
from hummingbird_operator.errors import Invalid, NotFound, Unavailable
from tests.standins.gitlab import GitLabStandIn
from tests.unit.delivery.pens import BODY, MARKER, WHERE, answers, pen, stored

BOT_ID, ALICE = 1, 7


def raw_note(number: int, author: int, body: str = "x", **more: Any) -> dict[str, Any]:
    return {"id": number, "type": None, "body": body, "author": {"id": author}, "system": False, **more}


def a_thread(notes: Notes, gitlab: GitLabStandIn, *, internal: bool = False, reply: str = "and now?") -> str:
    """The bot's note with alice's reply: a thread."""
    note = notes.create(*WHERE, BODY, internal=internal)
    (discussion,) = [one.discussion_id for one in stored(gitlab) if one.id == note.id]
    with pen(gitlab, "alice-token") as alice:
        alice.create(*WHERE, reply, internal=False, discussion=discussion)
    return str(discussion)


def test_a_thread_tells_who_wrote_what_and_which_marker_is_the_bots(gitlab: GitLabStandIn, notes: Notes) -> None:
    discussion = a_thread(notes, gitlab, reply=f"quoted\n\n{BODY}")
    thread = notes.thread(*WHERE, discussion)
    first, second = thread.notes
    assert (thread.discussion, thread.internal, thread.resolvable, thread.resolved) == (discussion, False, True, False)
    assert first == ThreadNote(first.id, BOT_ID, True, MARKER, False, False)
    assert second == ThreadNote(second.id, ALICE, False, None, False, False)


def test_an_internal_thread_is_internal(gitlab: GitLabStandIn, notes: Notes) -> None:
    thread = notes.thread(*WHERE, a_thread(notes, gitlab, internal=True))
    assert thread.internal
    assert [note.internal for note in thread.notes] == [True, True]


def test_a_thread_that_is_gone_is_not_found(notes: Notes) -> None:
    with pytest.raises(NotFound):
        notes.thread(*WHERE, "0" * 40)


def test_notes_come_in_the_order_of_their_ids_and_gitlabs_own_carry_no_marker(
    gitlab: GitLabStandIn, notes: Notes
) -> None:
    """A system note embeds what people wrote, such as a title."""
    rows = [raw_note(3, BOT_ID, BODY, system=True), raw_note(2, BOT_ID, BODY), {"id": 1, "body": None, "author": None}]
    answers(gitlab, "/discussions/abc", {"id": "abc", "notes": rows})
    thread = notes.thread(*WHERE, "abc")
    assert [(note.id, note.author_id, note.by_bot, note.marker, note.system) for note in thread.notes] == [
        (1, 0, False, None, False),
        (2, BOT_ID, True, MARKER, False),
        (3, BOT_ID, True, None, True),
    ]


def test_a_thread_is_resolved_when_all_of_it_that_can_be_is(gitlab: GitLabStandIn, notes: Notes) -> None:
    for resolved in ([True, True], [True, False]):
        rows = [raw_note(n, BOT_ID, resolvable=True, resolved=one) for n, one in enumerate(resolved)]
        answers(gitlab, "/discussions/abc", {"id": "abc", "notes": [*rows, raw_note(9, BOT_ID)]})
        assert notes.thread(*WHERE, "abc").resolved is all(resolved)


def test_the_bots_threads_are_those_that_it_began(gitlab: GitLabStandIn, notes: Notes) -> None:
    first = a_thread(notes, gitlab)
    with pen(gitlab, "alice-token") as alice:
        hers = alice.create(*WHERE, "hers", internal=False)
    (discussion,) = [one.discussion_id for one in stored(gitlab) if one.id == hers.id]
    notes.create(*WHERE, BODY, internal=False, discussion=discussion)
    second = a_thread(notes, gitlab)
    assert [thread.discussion for thread in notes.bot_threads(*WHERE)] == [first, second]


def test_gitlabs_notes_in_the_bots_name_begin_no_thread_of_its(gitlab: GitLabStandIn, notes: Notes) -> None:
    answers(
        gitlab, "/discussions", [{"id": "a", "notes": [raw_note(1, BOT_ID, system=True)]}, {"id": "b", "notes": []}]
    )
    assert notes.bot_threads(*WHERE) == []
    answers(gitlab, "/discussions", [{"id": "a", "notes": [raw_note(1, BOT_ID, BODY, system=True)]}])
    assert notes.marked(*WHERE) == []


def test_threads_are_found_over_pages_that_are_short_or_empty(gitlab: GitLabStandIn, notes: Notes) -> None:
    """sources.md §1.3: stop at the absence of a next link; there are no totals."""
    gitlab.state.count_limit = 0
    for number in range(205):
        notes.create(*WHERE, f"{number}\n\n{Marker(run=str(number), key='k').render()}", internal=number % 2 == 0)
    assert len(notes.bot_threads(*WHERE)) == 205
    following = f"{gitlab.url}/api/v4/projects/group%2Fapp/merge_requests/42/discussions?page=2&per_page=20"
    gitlab.fault("status", path="/discussions", status=200, body="[]", headers={"Link": f'<{following}>; rel="next"'})
    assert len(notes.bot_threads(*WHERE)) == 185


def test_a_thread_is_resolved_and_resolving_again_changes_nothing(gitlab: GitLabStandIn, notes: Notes) -> None:
    discussion = a_thread(notes, gitlab)
    for _ in range(2):
        notes.resolve(*WHERE, discussion)
        assert notes.thread(*WHERE, discussion).resolved


def test_a_plain_note_is_not_resolved_and_that_is_no_error(gitlab: GitLabStandIn, notes: Notes) -> None:
    note = notes.create(*WHERE, BODY, internal=False)
    (discussion,) = [one.discussion_id for one in stored(gitlab) if one.id == note.id]
    notes.resolve(*WHERE, discussion)
    answers(gitlab, f"/discussions/{discussion}", {"message": "403 Forbidden"}, status=403)
    notes.resolve(*WHERE, discussion)
    assert not notes.thread(*WHERE, discussion).resolved


def test_resolving_without_the_role_is_forbidden_unless_somebody_else_did_it(
    gitlab: GitLabStandIn, notes: Notes
) -> None:
    discussion = a_thread(notes, gitlab)
    gitlab.state.projects[10].members[BOT_ID] = 20
    with pytest.raises(Forbidden, match="Developer role"):
        notes.resolve(*WHERE, discussion)
    with pen(gitlab, "alice-token") as alice:
        alice.resolve(*WHERE, discussion)
    notes.resolve(*WHERE, discussion)


def test_resolving_tells_apart_gone_away_and_broken(gitlab: GitLabStandIn, notes: Notes) -> None:
    with pytest.raises(NotFound):
        notes.resolve(*WHERE, "0" * 40)
    gitlab.fault("drop", method="PUT")
    with pytest.raises(Unavailable):
        notes.resolve(*WHERE, "0" * 40)
    answers(gitlab, "/discussions/", {"message": "404 Project Not Found"}, status=404)
    with pytest.raises(Invalid, match="no such project"):
        notes.thread(*WHERE, "0" * 40)


def test_a_listing_with_something_else_in_it_is_no_listing(gitlab: GitLabStandIn, notes: Notes) -> None:
    answers(gitlab, "/discussions", [{"notes": [{"id": "x"}]}])
    with pytest.raises(Unavailable, match="cannot be read"):
        notes.bot_threads(*WHERE)
