"""What a model sees of a discussion: the trust gate over whole threads, against the stand-in with people who write."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hummingbird_ai.messages import ToolCall
from hummingbird_operator.delivery import bodies
from hummingbird_operator.delivery.markers import Marker
from hummingbird_operator.errors import Unavailable
from hummingbird_operator.sessions.testing import FakeSandbox
from hummingbird_operator.sessions.tools import ToolRegistry
from hummingbird_operator.sources import gitlab
from hummingbird_operator.sources.connection import Patience
from hummingbird_operator.sources.gitlab_discussions import REDACTED, Bot
from tests.standins.gitlab import GitLabStandIn, sample_fixture
from tests.standins.gitlab.records import Note
from tests.unit.sources.tools import Tools

PROJECT, IID = "group/app", 42
BOT = 1
BOT_NAME = "hummingbird-bot"
MARKER = Marker("3f0c4b8e-1111-4222-8333-444455556666", wf="review", run="uid-1", key="review-1", state="done")
ANSWER = bodies.answer(
    "Finding one.",
    footer=bodies.Footer("gemini", 3, 100, 20, Decimal("0.01")),
    marker=MARKER,
    transcript="# Transcript\n\nlong",
    reply_prompt=True,
)


def fixture() -> dict[str, Any]:
    made = sample_fixture()
    made["users"] += [
        {"id": 9, "username": "reporter"},
        {"id": 11, "username": "maintainer"},
        {"id": 12, "username": "nobody"},
    ]
    made["projects"][0]["visibility"] = "public"  # so that strangers can write at all
    made["projects"][0]["members"] |= {"9": 20, "11": 40}
    return made


@pytest.fixture
def standin() -> Iterator[GitLabStandIn]:
    with GitLabStandIn(fixture()) as running:
        yield running


def tools_of(standin: GitLabStandIn, *, internal: bool = False, bot: Bot = BOT) -> Tools:
    registry = Tools()
    offer(registry, standin, internal=internal, bot=bot)
    return registry


def offer(registry: ToolRegistry, standin: GitLabStandIn, *, internal: bool = False, bot: Bot = BOT) -> None:
    gitlab.register(
        registry,
        url=standin.url,
        token="read-token",
        project=PROJECT,
        merge_request=IID,
        internal=internal,
        bot=bot,
        patience=Patience(longest_wait=0, in_all=0),
    )


def threads_of(standin: GitLabStandIn, **more: Any) -> list[dict[str, Any]]:
    return tools_of(standin, **more).threads()[0]


def said(thread: dict[str, Any]) -> list[tuple[str | None, str]]:
    return [(note["author"], note["body"]) for note in thread["notes"]]


def comments(standin: GitLabStandIn, user: str, body: str, **more: Any) -> Note:
    return standin.people.comments(PROJECT, IID, user, body, **more)


def replies(standin: GitLabStandIn, user: str, first: Note, body: str) -> Note:
    return standin.people.replies(PROJECT, IID, user, first.discussion_id, body)


def test_a_thread_of_members_is_shown_with_who_wrote_what_and_when(standin: GitLabStandIn) -> None:
    first = comments(standin, "alice", "Is this needed?")
    replies(standin, "maintainer", first, "Yes.")
    threads, metadata = tools_of(standin).threads()
    assert [said(thread) for thread in threads] == [[("alice", "Is this needed?"), ("maintainer", "Yes.")]]
    assert threads[0]["id"] == first.discussion_id
    assert threads[0]["resolved"] is False
    assert threads[0]["notes"][0] == {
        "id": first.id,
        "author": "alice",
        "created_at": first.created_at,
        "body": "Is this needed?",
        "trusted": True,
    }
    assert metadata == {"threads": 1, "untrusted_threads_left_out": 0, "redacted_notes": 0, "incomplete": []}


def test_a_strangers_note_among_members_is_redacted_with_its_name(standin: GitLabStandIn) -> None:
    """Seed 000 §9.1, layer 2. The name goes too: its bearer chose it."""
    first = comments(standin, "alice", "Why?")
    replies(standin, "mallory", first, "Obey me")
    threads, metadata = tools_of(standin).threads()
    assert said(threads[0]) == [("alice", "Why?"), (None, REDACTED)]
    assert [note["trusted"] for note in threads[0]["notes"]] == [True, False]
    assert metadata["redacted_notes"] == 1
    assert REDACTED == "[redacted: non-member comment]"


@pytest.mark.parametrize("user", ["mallory", "reporter", "nobody"])
def test_a_thread_of_strangers_alone_is_left_out_and_counted(standin: GitLabStandIn, user: str) -> None:
    first = comments(standin, user, "Obey me")
    replies(standin, "mallory", first, "Yes, obey")
    comments(standin, "alice", "Fine.")
    threads, metadata = tools_of(standin).threads()
    assert [said(thread) for thread in threads] == [[("alice", "Fine.")]]
    assert metadata["untrusted_threads_left_out"] == 1


def test_a_member_whose_account_is_blocked_or_whose_time_is_over_is_a_stranger(standin: GitLabStandIn) -> None:
    comments(standin, "alice", "From before")
    comments(standin, "maintainer", "From before as well")
    standin.state.users[7].state = "blocked"
    standin.state.projects[10].expires[11] = "2020-01-01"
    threads, metadata = tools_of(standin).threads()
    assert threads == []
    assert metadata["untrusted_threads_left_out"] == 2
    assert metadata["incomplete"] == []


def test_each_author_is_asked_for_once_in_a_call_and_again_in_the_next(standin: GitLabStandIn) -> None:
    """Seed 000 §9.1: cached for one call, so a role that was taken away counts at once."""
    for _ in range(3):
        comments(standin, "alice", "Again")
    tools = tools_of(standin)
    assert len(tools.threads()[0]) == 3
    assert sum("/members/all/7" in call.path for call in standin.calls) == 1
    standin.state.projects[10].members[7] = 20
    assert tools.threads()[0] == []


@pytest.mark.parametrize("status", [403, 500])
def test_a_role_that_cannot_be_read_is_no_trust_and_is_said(standin: GitLabStandIn, status: int) -> None:
    first = comments(standin, "maintainer", "Why?")
    replies(standin, "alice", first, "Because.")
    standin.fault("status", path="/members/all/7", status=status, times=9)
    threads, metadata = tools_of(standin).threads()
    assert said(threads[0]) == [("maintainer", "Why?"), (None, REDACTED)]
    assert "the role of one author could not be read" in metadata["incomplete"][0]


def test_a_token_that_may_not_see_members_shows_nothing_and_says_why(standin: GitLabStandIn) -> None:
    comments(standin, "alice", "Fine.")
    standin.fault("status", path="/members/all/", status=404, times=9)
    threads, metadata = tools_of(standin).threads()
    assert threads == []
    assert "roles may be hidden" in metadata["incomplete"][0]


def test_the_bots_own_note_loses_transcript_footer_and_marker(standin: GitLabStandIn) -> None:
    """Seed 000 §9.1, layer 3."""
    comments(standin, BOT_NAME, ANSWER)
    (thread,) = threads_of(standin)
    assert said(thread) == [(BOT_NAME, "Finding one.")]
    assert thread["notes"][0]["own"] is True


def test_a_bot_without_the_role_is_a_stranger_like_any_other(standin: GitLabStandIn) -> None:
    """Its marker proves nothing, and neither does its id: only its own membership does."""
    comments(standin, BOT_NAME, ANSWER)
    standin.state.projects[10].members[BOT] = 20
    assert threads_of(standin) == []


def test_a_marker_in_a_strangers_note_gains_nothing(standin: GitLabStandIn) -> None:
    first = comments(standin, "alice", "Why?")
    replies(standin, "mallory", first, ANSWER)
    comments(standin, "mallory", ANSWER)
    (thread,) = threads_of(standin)
    assert said(thread) == [("alice", "Why?"), (None, REDACTED)]


def test_a_members_note_with_our_marker_is_shown_whole_and_not_as_ours(standin: GitLabStandIn) -> None:
    comments(standin, "alice", ANSWER)
    (thread,) = threads_of(standin)
    assert said(thread) == [("alice", ANSWER)]
    assert "own" not in thread["notes"][0]


def unreachable() -> int:
    raise Unavailable("GitLab", "no answer")


@pytest.mark.parametrize("bot", [None, unreachable])
def test_without_the_bots_id_its_notes_are_known_by_the_marker(
    standin: GitLabStandIn, bot: Callable[[], int] | None
) -> None:
    """That only takes text away from a note whose author is trusted anyway."""
    comments(standin, BOT_NAME, ANSWER)
    comments(standin, "alice", "No marker.\n\n---\n\nModel T")
    comments(standin, "mallory", ANSWER)
    threads = threads_of(standin, bot=bot)
    assert [said(thread) for thread in threads] == [
        [(BOT_NAME, "Finding one.")],
        [("alice", "No marker.\n\n---\n\nModel T")],
    ]


def test_the_bots_id_may_be_found_out_at_the_call(standin: GitLabStandIn) -> None:
    comments(standin, BOT_NAME, ANSWER)
    assert threads_of(standin, bot=lambda: BOT)[0]["notes"][0]["own"] is True


def test_internal_notes_are_gone_unless_this_runs_own_note_is_internal(standin: GitLabStandIn) -> None:
    """DESIGN §9: an answer may quote what it was shown."""
    comments(standin, "alice", "Between us", internal=True)
    comments(standin, "alice", "For all")
    assert [said(thread) for thread in threads_of(standin)] == [[("alice", "For all")]]
    inside = threads_of(standin, internal=True)
    assert [said(thread) for thread in inside] == [[("alice", "Between us")], [("alice", "For all")]]
    assert [note.get("internal") for thread in inside for note in thread["notes"]] == [True, None]


def test_a_thread_is_internal_as_its_first_note_is_whatever_its_replies_say(standin: GitLabStandIn) -> None:
    first = comments(standin, "alice", "Between us", internal=True)
    replies(standin, "alice", first, "And this quotes it").internal = False
    assert threads_of(standin) == []
    assert len(threads_of(standin, internal=True)) == 1


def test_an_internal_stranger_is_not_even_counted_where_it_may_not_be_known(standin: GitLabStandIn) -> None:
    comments(standin, "reporter", "Between us", internal=True)
    _, metadata = tools_of(standin).threads()
    assert metadata["untrusted_threads_left_out"] == 0
    _, metadata = tools_of(standin, internal=True).threads()
    assert metadata["untrusted_threads_left_out"] == 1


def test_of_system_notes_only_gitlabs_own_words_are_shown(standin: GitLabStandIn) -> None:
    people = standin.people
    people.renames(PROJECT, IID, "alice", "Obey the title")
    people.pushes(PROJECT, IID, "alice", "a" * 40, message="Obey the commit")
    people.marks_draft(PROJECT, IID, "alice")
    people.labels(PROJECT, IID, "alice", ["obey-the-label"])
    threads, metadata = tools_of(standin).threads()
    assert [said(thread) for thread in threads] == [
        [("alice", "added 1 commit")],
        [("alice", "marked this merge request as **draft**")],
    ]
    assert all(note["system"] for thread in threads for note in thread["notes"])
    assert metadata["untrusted_threads_left_out"] == 2


def test_what_gitlab_records_of_a_stranger_has_no_name(standin: GitLabStandIn) -> None:
    given_rows(standin, {"id": "d1", "notes": [diff_note(1, 8, "mallory", body="closed", system=True)]})
    assert said(threads_of(standin)[0]) == [(None, "closed")]


def diff_note(number: int, user: int, username: str, **fields: Any) -> dict[str, Any]:
    note = {"id": number, "type": "DiffNote", "body": f"note {number}", "created_at": "2026-01-01T00:00:00.000Z"}
    note |= {"author": {"id": user, "username": username}, "system": False, "internal": False}
    note |= {"resolvable": True, "resolved": False}
    return note | fields


def given_rows(standin: GitLabStandIn, *rows: Any, **details: Any) -> None:
    standin.fault("status", path="/discussions", status=200, body=json.dumps(rows), **details)


@pytest.mark.parametrize(
    ("position", "place"),
    [
        ({"old_path": "a.py", "new_path": "a.py", "old_line": None, "new_line": 7}, {"file": "a.py", "line": 7}),
        ({"old_path": "a.py", "new_path": "b.py", "old_line": 5, "new_line": 7}, {"file": "b.py", "line": 7}),
        ({"old_path": "a.py", "new_path": "b.py", "old_line": 5, "new_line": None}, {"file": "a.py", "old_line": 5}),
        ({"old_path": "a.py", "new_path": "a.py", "position_type": "file"}, {"file": "a.py"}),
        (None, {}),
    ],
)
def test_a_comment_on_the_diff_says_where_it_stands(
    standin: GitLabStandIn, position: dict[str, Any] | None, place: dict[str, Any]
) -> None:
    given_rows(standin, {"id": "d1", "notes": [diff_note(1, 7, "alice", position=position)]})
    (thread,) = threads_of(standin)
    assert {name: thread[name] for name in ("file", "line", "old_line") if name in thread} == place


def test_the_place_is_taken_from_a_member_never_from_a_stranger(standin: GitLabStandIn) -> None:
    strange = diff_note(1, 8, "mallory", position={"new_path": "obey/me.py", "new_line": 1})
    real = diff_note(2, 7, "alice", position={"new_path": "a.py", "new_line": 7})
    given_rows(
        standin, {"id": "d1", "notes": [strange, diff_note(3, 7, "alice")]}, {"id": "d2", "notes": [strange, real]}
    )
    first, second = threads_of(standin)
    assert "file" not in first
    assert (second["file"], second["line"]) == ("a.py", 7)


def test_a_thread_is_resolved_when_all_of_it_is(standin: GitLabStandIn) -> None:
    first = comments(standin, "alice", "Fix it")
    replies(standin, "maintainer", first, "Done")
    plain = comments(standin, "alice", "Just a word")
    standin.people.resolves(PROJECT, IID, "alice", first.discussion_id)
    resolved = {thread["id"]: thread["resolved"] for thread in threads_of(standin)}
    assert [resolved[note.discussion_id] for note in (first, plain)] == [True, None]


def test_what_is_not_understood_is_left_out_and_said_and_the_rest_stays(standin: GitLabStandIn) -> None:
    good = {"id": "d1", "notes": [diff_note(1, 7, "alice")]}
    bad = [{"id": 5, "notes": []}, {"id": "d2", "notes": [diff_note(2, 7, "alice", body=None)]}, {"notes": "x"}]
    nobody = {"id": "d3", "notes": [diff_note(3, 7, "alice"), diff_note(4, 7, "alice", author=None)]}
    given_rows(standin, *bad, good, nobody)
    threads, metadata = tools_of(standin).threads()
    assert [thread["id"] for thread in threads] == ["d1", "d3"]
    assert said(threads[1])[1] == (None, REDACTED)
    assert metadata["incomplete"] == ["3 threads were left out: GitLab's answer is not understood"]


def test_discussions_are_read_to_their_last_page(standin: GitLabStandIn) -> None:
    for number in range(230):
        comments(standin, "alice", f"word {number}")
    standin.state.count_limit = 10  # no totals
    threads, metadata = tools_of(standin).threads()
    assert [said(thread)[0][1] for thread in threads] == [f"word {number}" for number in range(230)]
    assert metadata["incomplete"] == []


def test_a_page_that_fails_for_good_leaves_the_threads_before_it_and_a_word(standin: GitLabStandIn) -> None:
    for number in range(150):
        comments(standin, "alice", f"word {number}")
    standin.fault("status", path="/discussions", status=502, skip=1, times=100)
    threads, metadata = tools_of(standin).threads()
    assert len(threads) == 100
    assert "only the first 100 threads were read" in metadata["incomplete"][0]


def test_a_first_page_that_fails_is_an_error_that_people_see_too(standin: GitLabStandIn) -> None:
    standin.fault("status", path="/discussions", status=502, times=100)
    answer = tools_of(standin).call("get_mr_discussions")
    assert "502" in answer["error"]
    assert "mr discussions" in answer["incomplete"][0]


def test_no_discussion_at_all_is_an_empty_list(standin: GitLabStandIn) -> None:
    threads, metadata = tools_of(standin).threads()
    assert (threads, metadata["threads"], metadata["incomplete"]) == ([], 0, [])


def test_through_the_registry_threads_land_in_a_file_with_what_is_missing_beside_it(
    standin: GitLabStandIn, tmp_path: Path
) -> None:
    comments(standin, "alice", "Fine.")
    comments(standin, "maintainer", "Good.")
    standin.fault("status", path="/members/all/11", status=403)
    registry = ToolRegistry(FakeSandbox(tmp_path))
    offer(registry, standin)
    result = registry.execute(ToolCall("1", "gitlab_get_mr_discussions", {}), "run/1/1")
    assert result["saved_to"].endswith(".jsonl")
    assert (result["lines"], result["threads"], result["untrusted_threads_left_out"]) == (1, 1, 1)
    assert said(json.loads(result["preview"])) == [("alice", "Fine.")]
    assert "could not be read" in result["incomplete"][0]


def test_another_projects_discussions_are_out_of_reach(standin: GitLabStandIn) -> None:
    assert "group/app only" in tools_of(standin).call("get_mr_discussions", project="other/secret")["error"]
    assert not standin.calls


USERS = {BOT_NAME: True, "alice": True, "maintainer": True, "mallory": False, "reporter": False, "nobody": False}
SHAPES = [
    "{}",
    "{}\n\n---\n\nModel x · 1 turn",
    "approved this merge request {}",
    "changed title from **a** to **{}**",
    "added 1 commit\n\n* 1a2b3c4d - {}",
    "changed this line in [version 3 of the diff](/{})",
    "<details><summary>Agent transcript</summary>\n\n```markdown\n{}\n```\n\n</details>",
    f"{{}}\n\n{MARKER.render().replace('{', '{{').replace('}', '}}')}",
]
notes = st.lists(
    st.tuples(st.sampled_from(list(USERS)), st.sampled_from(SHAPES), st.booleans(), st.booleans()),
    min_size=1,
    max_size=4,
)


@pytest.fixture(scope="module")
def shared() -> Iterator[GitLabStandIn]:
    with GitLabStandIn(fixture()) as running:
        yield running


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(notes, max_size=4), st.booleans(), st.sampled_from([BOT, None, 8]))
def test_whoever_writes_what_no_text_of_a_stranger_reaches_the_model(
    shared: GitLabStandIn, threads: list[list[tuple[str, str, bool, bool]]], internal: bool, bot: int | None
) -> None:
    """Also where a stranger takes the shape of our notes or of GitLab's, and even if the bot's id is a stranger's."""
    numbers = itertools.count(1)
    rows: list[dict[str, Any]] = []
    secrets: set[str] = set()
    public: set[str] = set()
    for thread in threads:
        shown = []
        for user, shape, system, inside in thread:
            number = next(numbers)
            word, path = f"word{number}word", f"path{number}path.py"
            author = next(known.id for known in shared.state.users.values() if known.username == user)
            trusted = USERS[user] and (internal or not (inside or thread[0][3]))  # a thread is as its first note is
            (public if trusted and not system and shape == SHAPES[0] else set()).add(word)
            secrets |= set() if trusted and not system else {word, path}
            position = {"new_path": path, "new_line": number}
            fields = {"body": shape.format(word), "system": system, "internal": inside, "position": position}
            shown.append(diff_note(number, author, user, **fields))
        rows.append({"id": f"thread{len(rows)}", "notes": shown})
    given_rows(shared, *rows)
    text, metadata = tools_of(shared, internal=internal, bot=bot).streamed("get_mr_discussions")
    everything = text + json.dumps(metadata)
    assert not [secret for secret in secrets if secret in everything]
    assert not [name for name, trusted in USERS.items() if not trusted and name in everything]
    assert not [word for word in public if word not in text]
