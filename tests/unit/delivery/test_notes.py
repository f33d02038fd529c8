"""Notes over HTTP: never twice, never public by accident, and every refusal says what to do."""

from __future__ import annotations

from typing import Any

import pytest

from hummingbird_operator.delivery.markers import Marker
from hummingbird_operator.delivery.notes import Forbidden, InternalNoteRefused, Notes, Refused, TooLong
from hummingbird_operator.errors import Invalid, LeadershipLost, NotFound, Unavailable
from tests.standins.gitlab import GitLabStandIn, sample_fixture
from tests.unit.delivery.pens import BODY, WHERE, answers, pen, posts, stored


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "status", "status": 502},
        {"kind": "status", "status": 500},
        {"kind": "status", "status": 429},
        {"kind": "drop"},
        {"kind": "html"},
        {"kind": "cut", "bytes_sent": 20},
    ],
    ids=lambda fault: f"{fault['kind']}-{fault.get('status', '')}",
)
def test_a_create_without_a_clear_answer_is_posted_once_and_found_by_its_marker(
    gitlab: GitLabStandIn, notes: Notes, fault: dict[str, Any]
) -> None:
    """sources.md §9 rows 1 and 11: the write took effect, the answer was lost; exactly one note afterwards."""
    gitlab.fault(method="POST", after_write=True, **fault)
    with pytest.raises(Unavailable):
        notes.create(*WHERE, BODY, internal=False)
    assert posts(gitlab) == 1
    found = notes.find(*WHERE, run="uid-1")
    assert [note.id for note in found] == [note.id for note in stored(gitlab)]


def test_a_read_timeout_is_unavailable_and_not_posted_again(gitlab: GitLabStandIn) -> None:
    """sources.md §6 row 3."""
    with pen(gitlab, timeout=(1.0, 0.2)) as notes:
        gitlab.fault("stall", method="POST", seconds=1.0)
        with pytest.raises(Unavailable, match="no answer"):
            notes.create(*WHERE, BODY, internal=False)
        assert len(notes.find(*WHERE, key="note-1")) == 1
    assert posts(gitlab) == 1


def test_reads_are_tried_again(gitlab: GitLabStandIn, notes: Notes) -> None:
    gitlab.fault("status", method="GET", status=502, times=2)
    assert notes.head(*WHERE).sha == "9f2c" * 10


def test_a_note_is_found_with_its_discussion_lowest_id_first(gitlab: GitLabStandIn, notes: Notes) -> None:
    first = notes.create(*WHERE, BODY, internal=False)
    second = notes.create(*WHERE, BODY, internal=False)
    found = notes.find(*WHERE, run="uid-1", key="note-1")
    assert [note.id for note in found] == [first.id, second.id]
    assert all(note.discussion for note in found)
    assert found[0].url.endswith(f"/group/app/-/merge_requests/42#note_{first.id}")
    assert notes.find(*WHERE, run="another") == []


def test_a_marker_in_somebody_elses_note_is_not_believed(gitlab: GitLabStandIn, notes: Notes) -> None:
    with pen(gitlab, "alice-token") as alice:
        alice.create(*WHERE, BODY, internal=False)
    assert notes.find(*WHERE, run="uid-1") == []


def test_notes_are_found_over_many_pages(gitlab: GitLabStandIn, notes: Notes) -> None:
    """sources.md §1.3: stop at the absence of a next link, not at a short page."""
    for number in range(230):
        notes.create(*WHERE, f"{number}\n\n{Marker('id', run=str(number)).render()}", internal=number % 2 == 0)
    assert len(notes.marked(*WHERE)) == 230
    assert len(notes.find(*WHERE, run="229")) == 1


def test_an_internal_note_is_internal(gitlab: GitLabStandIn, notes: Notes) -> None:
    assert notes.create(*WHERE, BODY, internal=True).internal
    assert stored(gitlab)[0].internal


def test_a_dropped_internal_flag_is_refused_and_the_public_note_is_gone(gitlab: GitLabStandIn, notes: Notes) -> None:
    """sources.md §1.3 (silent public fallback)."""
    gitlab.state.projects[10].internal_min_level = 40
    with pytest.raises(InternalNoteRefused, match="Reporter"):
        notes.create(*WHERE, BODY, internal=True)
    assert stored(gitlab) == []


def test_an_internal_reply_in_a_public_thread_is_refused(gitlab: GitLabStandIn, notes: Notes) -> None:
    notes.create(*WHERE, BODY, internal=False)
    thread = notes.find(*WHERE, run="uid-1")[0].discussion
    with pytest.raises(InternalNoteRefused):
        notes.create(*WHERE, "secret", internal=True, discussion=thread)
    assert [note.body for note in stored(gitlab)] == [BODY]


def test_a_reply_in_an_internal_thread_is_internal_by_inheritance(gitlab: GitLabStandIn, notes: Notes) -> None:
    notes.create(*WHERE, BODY, internal=True)
    thread = notes.find(*WHERE, run="uid-1")[0].discussion
    assert notes.create(*WHERE, "reply", internal=True, discussion=thread).internal


def test_a_note_is_updated_in_place_by_either_door(gitlab: GitLabStandIn, notes: Notes) -> None:
    note = notes.create(*WHERE, BODY, internal=False)
    assert notes.update(*WHERE, note.id, "one").body == "one"
    thread = next(iter(stored(gitlab))).discussion_id
    assert notes.update(*WHERE, note.id, "two", thread).discussion == thread
    assert [stored_note.body for stored_note in stored(gitlab)] == ["two"]


def test_a_note_that_is_gone_is_not_found(notes: Notes) -> None:
    note = notes.create(*WHERE, BODY, internal=False)
    notes.delete(*WHERE, note.id)
    with pytest.raises(NotFound):
        notes.update(*WHERE, note.id, "x")
    notes.delete(*WHERE, note.id)


def test_a_text_of_commands_only_makes_no_note_and_says_so(gitlab: GitLabStandIn, notes: Notes) -> None:
    """sources.md §1.3: 202 without an id on create, a destroyed note on update."""
    with pytest.raises(Invalid, match="quick actions"):
        notes.create(*WHERE, "/merge", internal=False)
    note = notes.create(*WHERE, BODY, internal=False)
    with pytest.raises(NotFound, match="destroyed"):
        notes.update(*WHERE, note.id, "/merge")
    assert gitlab.state.destroyed == [note.id]


def test_a_reply_of_commands_only_makes_no_note_either(gitlab: GitLabStandIn, notes: Notes) -> None:
    """The answer is 202 with `commands_changes` and `summary`, and no id."""
    notes.create(*WHERE, BODY, internal=False)
    with pytest.raises(Invalid, match="quick actions"):
        notes.create(*WHERE, "/merge\n/close", internal=False, discussion=stored(gitlab)[0].discussion_id)
    assert [one.body for one in stored(gitlab)] == [BODY]


@pytest.mark.parametrize("body", [{}, [], "null", {"id": None}, {"summary": []}])
def test_an_answer_to_a_write_that_holds_no_note_leaves_the_marker_to_be_looked_for(
    gitlab: GitLabStandIn, notes: Notes, body: object
) -> None:
    answers(gitlab, "/notes", body, 201)
    with pytest.raises(Unavailable):
        notes.create(*WHERE, BODY, internal=False)


def test_a_text_that_is_too_long_or_empty_is_refused_before_it_is_sent(gitlab: GitLabStandIn, notes: Notes) -> None:
    """sources.md §6 rows 6 and 7."""
    for body, kind, words in (("x" * 1_000_001, TooLong, "1000001 characters"), (" \n", Invalid, "empty")):
        with pytest.raises(kind, match=words):
            notes.create(*WHERE, body, internal=False)
    assert gitlab.calls == []


API = "/api/v4/projects/10/merge_requests/42/notes"
TOO_LONG = "is too long (maximum is 1000000 characters)"


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, {"message": {"note": [TOO_LONG]}}),
        (400, {"message": f'400 Bad request - Note {{:note=>["{TOO_LONG}"]}}'}),
        (422, {"message": {"note": [TOO_LONG]}}),
        (413, "<html>413 Request Entity Too Large</html>"),
    ],
)
def test_a_text_that_is_too_long_after_all_is_told_apart_so_that_a_short_one_can_be_sent(
    gitlab: GitLabStandIn, notes: Notes, status: int, body: object
) -> None:
    """sources.md §1.2 (error_message may be a dict) and §6 row 6; the last is a proxy's limit in bytes."""
    note = notes.create(*WHERE, BODY, internal=False)
    answers(gitlab, "/notes", body, status)
    with pytest.raises(TooLong, match=r"too long \(maximum is 1000000|Too Large"):
        notes.update(*WHERE, note.id, "x")
    answers(gitlab, "/notes", body, status)
    with pytest.raises(TooLong):
        notes.create(*WHERE, "x", internal=False)
    assert notes.update(*WHERE, note.id, "short").body == "short"


def test_another_refused_text_is_invalid_and_not_too_long(gitlab: GitLabStandIn, notes: Notes) -> None:
    answers(gitlab, "/notes", {"message": {"note": ["is not good"], "base": [["twice"]]}}, 400)
    with pytest.raises(Invalid, match="note is not good; base twice") as caught:
        notes.create(*WHERE, BODY, internal=False)
    assert type(caught.value) is Invalid


@pytest.mark.parametrize(
    ("token", "project", "words"),
    [
        ("read-token", "group/app", "scope api"),
        ("bot-token", "group/none", "no such project"),
        ("mallory-token", "group/app", "member"),
    ],
)
def test_a_refusal_names_the_setting_scope_or_role_to_mend(
    gitlab: GitLabStandIn, token: str, project: str, words: str
) -> None:
    with pen(gitlab, token) as notes, pytest.raises(Invalid, match=words):
        notes.create(project, 42, BODY, internal=False)


def test_a_refused_token_is_waited_out_for_nothing_is_wrong_with_the_run(gitlab: GitLabStandIn) -> None:
    refused = r"refused the bot's token \(401\).* Renew gitlab\.token_env"
    with pen(gitlab, "wrong") as notes, pytest.raises(Unavailable, match=refused):
        notes.create(*WHERE, BODY, internal=False)


def test_editing_somebody_elses_note_names_the_role(gitlab: GitLabStandIn, notes: Notes) -> None:
    with pen(gitlab, "alice-token") as alice:
        note = alice.create(*WHERE, "hers", internal=False)
    with pytest.raises(Forbidden, match="Developer role"):
        notes.update(*WHERE, note.id, "mine")


def test_a_token_whose_scope_was_narrowed_is_forbidden_and_named(gitlab: GitLabStandIn) -> None:
    with pen(gitlab, "read-token") as notes, pytest.raises(Forbidden, match=r"gitlab\.token_env: .* scope api"):
        notes.create(*WHERE, BODY, internal=False)


LOST = [
    {"kind": "status", "status": 502},
    {"kind": "drop"},
    {"kind": "html"},
]


@pytest.mark.parametrize("fault", LOST, ids=lambda fault: fault["kind"])
def test_every_other_write_whose_answer_was_lost_may_be_repeated(
    gitlab: GitLabStandIn, notes: Notes, fault: dict[str, Any]
) -> None:
    """sources.md §9 row 1 for edits, reactions, resolving and taking back: the second time finds the work done."""
    note = notes.create(*WHERE, BODY, internal=False)
    discussion = stored(gitlab)[0].discussion_id
    notes.create(*WHERE, "reply", internal=False, discussion=discussion)
    for write in (
        lambda: notes.update(*WHERE, note.id, "answer"),
        lambda: notes.react(*WHERE, "eyes", note_id=note.id),
        lambda: notes.react(*WHERE, "eyes"),
        lambda: notes.resolve(*WHERE, discussion),
    ):
        gitlab.fault(after_write=True, **fault)
        with pytest.raises(Unavailable):
            write()
        write()
    first = stored(gitlab)[0]
    assert (first.body, [award["name"] for award in first.emoji], first.resolved) == ("answer", ["eyes"], True)
    gitlab.fault(after_write=True, **fault)
    with pytest.raises(Unavailable):
        notes.delete(*WHERE, note.id)
    for _ in range(2):
        notes.delete(*WHERE, note.id)
    assert [one.body for one in stored(gitlab)] == ["reply"]


def test_a_merge_request_that_is_gone_is_not_found(notes: Notes) -> None:
    with pytest.raises(NotFound):
        notes.head("group/app", 7)


def test_the_per_user_limit_on_notes_is_unavailable(gitlab: GitLabStandIn, notes: Notes) -> None:
    gitlab.state.notes_per_minute = 1
    notes.create(*WHERE, BODY, internal=False)
    with pytest.raises(Unavailable, match="429"):
        notes.create(*WHERE, BODY, internal=False)


@pytest.mark.parametrize("status", [401, 429])
def test_a_refusal_that_wrote_nothing_says_so(gitlab: GitLabStandIn, notes: Notes, status: int) -> None:
    """Whoever posts need not look for a note that may still arrive."""
    gitlab.fault("status", method="POST", status=status, headers={"Retry-After": "7"}, body='{"message": "no"}')
    with pytest.raises(Refused) as caught:
        notes.create(*WHERE, BODY, internal=False)
    assert caught.value.retry_after == (7 if status == 429 else None)
    gitlab.fault("status", method="POST", status=503, headers={"Retry-After": "7"})
    with pytest.raises(Unavailable) as unclear:
        notes.create(*WHERE, BODY, internal=False)
    assert not isinstance(unclear.value, Refused)


def test_one_note_is_read_without_the_others(gitlab: GitLabStandIn, notes: Notes) -> None:
    mine = notes.create(*WHERE, BODY, internal=False)
    theirs = gitlab.people.comments(*WHERE, "alice", BODY)
    bare = notes.create(*WHERE, "without a marker", internal=False)
    before = len(gitlab.calls)
    found = notes.one(*WHERE, mine.id)
    assert found is not None
    assert (found.note.id, found.note.internal, found.marker.run) == (mine.id, False, "uid-1")
    assert [notes.one(*WHERE, each) for each in (theirs.id, bare.id, 999_999)] == [None] * 3
    assert not any("discussions" in call.path for call in gitlab.calls[before:])


def test_a_listing_keeps_no_texts(notes: Notes) -> None:
    notes.create(*WHERE, BODY, internal=False)
    assert [entry.note.body for entry in notes.marked(*WHERE)] == [""]


def test_a_next_link_to_another_host_never_gets_the_token(gitlab: GitLabStandIn, notes: Notes) -> None:
    """sources.md §9 row 3."""
    with GitLabStandIn() as other:
        gitlab.fault("next_link", path="/discussions", target=f"{other.url}/steal")
        with pytest.raises(Unavailable, match="another host"):
            notes.marked(*WHERE)
        assert other.calls == []


@pytest.mark.parametrize("status", [307, 308])
def test_a_notes_text_never_follows_a_redirection_to_another_host(
    gitlab: GitLabStandIn, notes: Notes, status: int
) -> None:
    """sources.md §9 row 3, for what is written: an internal note would be read elsewhere."""
    with GitLabStandIn() as other:
        gitlab.fault("status", method="POST", status=status, headers={"Location": f"{other.url}/steal"})
        with pytest.raises(Unavailable, match="another host"):
            notes.create(*WHERE, BODY, internal=True)
        assert other.calls == []
    gitlab.fault("status", method="POST", status=status, headers={"Location": f"{gitlab.url}{API}"})
    assert notes.create(*WHERE, BODY, internal=True).internal


def test_a_project_that_moved_is_no_note_that_was_made(gitlab: GitLabStandIn, notes: Notes) -> None:
    """requests turns a POST into a GET after 301 and 302, whose answer is a list."""
    for status in (301, 302):
        gitlab.fault("status", method="POST", status=status, headers={"Location": f"{gitlab.url}{API}"})
        with pytest.raises(Unavailable, match="redirection"):
            notes.create(*WHERE, BODY, internal=False)
    assert stored(gitlab) == []


def test_a_reaction_given_twice_is_there_once(gitlab: GitLabStandIn, notes: Notes) -> None:
    note = notes.create(*WHERE, BODY, internal=False)
    for _ in range(2):
        notes.react(*WHERE, "eyes", note_id=note.id)
        notes.react(*WHERE, "eyes")
    assert [award["name"] for award in stored(gitlab)[0].emoji] == ["eyes"]
    with pytest.raises(NotFound):
        notes.react(*WHERE, "eyes", note_id=1)


def test_the_bots_account_is_asked_once(gitlab: GitLabStandIn, notes: Notes) -> None:
    assert [notes.bot_id(), notes.bot_id()] == [1, 1]
    assert sum(call.path.endswith("/user") for call in gitlab.calls) == 1


def test_a_rotated_token_is_read_at_the_next_request_and_stands_in_no_repr(gitlab: GitLabStandIn) -> None:
    current = ["old"]
    notes = Notes(gitlab.url, lambda: current[0])
    with pytest.raises(Unavailable):
        notes.bot_id()
    current[0] = "bot-token"
    assert notes.bot_id() == 1
    assert "bot-token" not in repr(notes) + repr(vars(notes))
    notes.close()


def test_another_accounts_token_makes_it_another_bot_without_a_restart() -> None:
    fixture = sample_fixture()
    fixture["users"].append({"id": 11, "username": "project_10_bot_new", "tokens": {"new-bot-token": ["api"]}})
    current = ["bot-token"]

    def token() -> str:
        if not current:
            raise Invalid("gitlab.token_file", "cannot read it")
        return current[0]

    with GitLabStandIn(fixture) as gitlab:
        notes = Notes(gitlab.url, token)
        assert notes.bot_id() == 1
        current[0] = "new-bot-token"
        assert [notes.bot_id(), notes.bot_id()] == [11, 11]
        assert sum(call.path.endswith("/user") for call in gitlab.calls) == 2
        current.clear()
        assert notes.bot_id() == 11, "a file that is being replaced changes nobody"
        assert "new-bot-token" not in repr(vars(notes))
        notes.close()


def test_leadership_is_looked_at_right_before_each_write_and_never_for_a_read(gitlab: GitLabStandIn) -> None:
    """A process that was frozen anywhere before the request must not send it any more."""
    lost = [False]

    def check() -> None:
        if lost[0]:
            raise LeadershipLost("another leads")

    notes = Notes(gitlab.url, "bot-token", check=check)
    try:
        note = notes.create("group/app", 42, "one", internal=False)
        lost[0] = True
        calls = len(gitlab.calls)
        for write in (
            lambda: notes.create("group/app", 42, "two", internal=False),
            lambda: notes.update("group/app", 42, note.id, "changed"),
            lambda: notes.delete("group/app", 42, note.id),
            lambda: notes.react("group/app", 42, "eyes"),
        ):
            with pytest.raises(LeadershipLost):
                write()
        assert len(gitlab.calls) == calls
        assert notes.head("group/app", 42).sha
    finally:
        notes.close()
