"""Notes over HTTP: never twice, never public by accident, and every refusal says what to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hummingbird_operator.delivery.markers import Marker
from hummingbird_operator.delivery.notes import InternalNoteRefused, Notes
from hummingbird_operator.errors import Invalid, LeadershipLost, NotFound, Unavailable
from tests.standins.gitlab import GitLabStandIn

MARKER = Marker("3f0c4b8e-1111-4222-8333-444455556666", run="uid-1", key="note-1", state="running")
BODY = f"Running…\n\n{MARKER.render()}"
WHERE = ("group/app", 42)
BOT = "bot-token"


@pytest.fixture
def gitlab() -> Iterator[GitLabStandIn]:
    with GitLabStandIn() as standin:
        yield standin


@pytest.fixture
def notes(gitlab: GitLabStandIn) -> Iterator[Notes]:
    yield from pen(gitlab)


def pen(gitlab: GitLabStandIn, token: str = BOT, **options: Any) -> Iterator[Notes]:
    made = Notes(gitlab.url, token, **options)
    yield made
    made.close()


def posts(gitlab: GitLabStandIn) -> int:
    return sum(call.method == "POST" for call in gitlab.calls)


def stored(gitlab: GitLabStandIn) -> list[Any]:
    return list(gitlab.state.projects[10].merge_requests[42].notes.values())


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
    for notes in pen(gitlab, timeout=(1.0, 0.2)):
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
    for alice in pen(gitlab, "alice-token"):
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


def test_a_text_that_is_too_long_or_empty_is_refused_before_it_is_sent(gitlab: GitLabStandIn, notes: Notes) -> None:
    """sources.md §6 rows 6 and 7."""
    for body, words in (("x" * 1_000_001, "1000001 characters"), (" \n", "empty")):
        with pytest.raises(Invalid, match=words):
            notes.create(*WHERE, body, internal=False)
    assert gitlab.calls == []


def test_gitlabs_dict_of_errors_becomes_a_sentence(gitlab: GitLabStandIn, notes: Notes) -> None:
    """sources.md §1.2: error_message may be a dict."""
    gitlab.fault("status", status=400, body='{"message": {"note": ["is too long (maximum is 1000000 characters)"]}}')
    with pytest.raises(Invalid, match=r"note is too long \(maximum is 1000000 characters\)"):
        notes.create(*WHERE, BODY, internal=False)


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
    for notes in pen(gitlab, token):
        with pytest.raises(Invalid, match=words):
            notes.create(project, 42, BODY, internal=False)


def test_a_refused_token_is_waited_out_for_nothing_is_wrong_with_the_run(gitlab: GitLabStandIn) -> None:
    for notes in pen(gitlab, "wrong"):
        with pytest.raises(Unavailable, match=r"refused the bot's token \(401\).* Renew gitlab\.token_env"):
            notes.create(*WHERE, BODY, internal=False)


def test_editing_somebody_elses_note_names_the_role(gitlab: GitLabStandIn, notes: Notes) -> None:
    for alice in pen(gitlab, "alice-token"):
        note = alice.create(*WHERE, "hers", internal=False)
    with pytest.raises(Invalid, match="Developer role"):
        notes.update(*WHERE, note.id, "mine")


def test_a_merge_request_that_is_gone_is_not_found(notes: Notes) -> None:
    with pytest.raises(NotFound):
        notes.head("group/app", 7)


@pytest.mark.parametrize(
    ("headers", "hint"),
    [
        ({}, None),
        ({"Retry-After": "30"}, 30.0),
        ({"Retry-After": "1.5"}, 1.5),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"Retry-After": "Wed, 21 Oct 2099 07:28:00 GMT"}, 86_400.0),
        ({"Retry-After": "soon"}, None),
    ],
)
def test_a_rate_limit_carries_the_servers_hint_and_nothing_sleeps(
    gitlab: GitLabStandIn, notes: Notes, headers: dict[str, str], hint: float | None
) -> None:
    """sources.md §6 row 5 and §9 row 2."""
    gitlab.fault("status", status=429, headers=headers)
    with pytest.raises(Unavailable) as caught:
        notes.create(*WHERE, BODY, internal=False)
    assert caught.value.retry_after == hint
    assert posts(gitlab) == 1


def test_the_per_user_limit_on_notes_is_unavailable(gitlab: GitLabStandIn, notes: Notes) -> None:
    gitlab.state.notes_per_minute = 1
    notes.create(*WHERE, BODY, internal=False)
    with pytest.raises(Unavailable, match="429"):
        notes.create(*WHERE, BODY, internal=False)


def test_a_next_link_to_another_host_never_gets_the_token(gitlab: GitLabStandIn, notes: Notes) -> None:
    """sources.md §9 row 3."""
    with GitLabStandIn() as other:
        gitlab.fault("next_link", path="/discussions", target=f"{other.url}/steal")
        with pytest.raises(Unavailable, match="another host"):
            notes.marked(*WHERE)
        assert other.calls == []


@pytest.mark.parametrize(
    ("pipeline", "shown"),
    [
        (None, None),
        ({"status": "success", "sha": "9f2c" * 10, "ref": "topic"}, "success"),
        ({"status": "success", "sha": "0" * 40, "ref": "topic"}, None),
        ({"status": "failed", "sha": "0" * 40, "ref": "refs/merge-requests/42/merge"}, "failed"),
        ({"status": "failed", "sha": "0" * 40, "ref": "refs/merge-requests/42/train"}, "failed"),
    ],
)
def test_the_head_pipeline_counts_only_for_the_head(
    gitlab: GitLabStandIn, notes: Notes, pipeline: dict[str, Any] | None, shown: str | None
) -> None:
    """sources.md §6 rows 10, 12 and 13."""
    gitlab.state.projects[10].merge_requests[42].fields["head_pipeline"] = pipeline
    assert notes.head(*WHERE).pipeline_status == shown


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
