from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from hummingbird_ai.messages import ToolDef
from hummingbird_operator.errors import Conflict, Invalid, LeadershipLost, Unavailable
from hummingbird_operator.sessions.archive import ArchiveFailed
from hummingbird_operator.sessions.session import Archive, Conversation, SavedSession, SessionStore, check_place
from hummingbird_operator.sessions.testing import KillAt, Killed, MemoryStore

TOOLS = (ToolDef("look", "Look.", {"type": "object", "properties": {"b": {}, "a": {}}}, notes="not kept"),)
FIRST = Conversation(
    contents=[{"version": 1, "role": "user", "parts": [{"type": "text", "text": "hé\ud800"}]}],
    system_prompt="Work.\n",
    tools=TOOLS,
    workflow="analyze-failures",
    workflow_hash="abc",
    run="u1",
    context_tokens=1234,
    origin="default/group/app!42",
)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def sessions(store: MemoryStore) -> SessionStore:
    return SessionStore(store)


def saved(sessions: SessionStore, conversation: Conversation = FIRST, **options: Any) -> SavedSession:
    return sessions.save("s1", conversation, **{"transcript": "# Run", "archive": [b"tar", b"gz"], **options})


def test_a_session_that_was_never_saved_is_none(sessions: SessionStore) -> None:
    assert sessions.load("s1") is None
    assert sessions.open_archive("s1") is None


def test_a_session_comes_back_as_it_was_saved(sessions: SessionStore, store: MemoryStore) -> None:
    written = saved(sessions)
    loaded = sessions.load("s1")
    assert loaded == written
    assert loaded is not None
    assert (loaded.contents, loaded.system_prompt, loaded.context_tokens) == (FIRST.contents, "Work.\n", 1234)
    assert json.dumps(loaded.tools[0].parameters) == json.dumps(TOOLS[0].parameters)
    assert loaded.archive is not None
    assert loaded.archive.bytes == 5
    archive = sessions.open_archive("s1")
    assert archive is not None
    assert b"".join(archive) == b"targz"
    assert json.loads(store.blobs["sessions/s1/context.json"])["format_version"] == 1
    assert store.blobs["sessions/s1/transcript.md"] == b"# Run"
    assert sessions.url("s1") == "memory:///sessions/s1/context.json"


def test_context_json_is_written_last(sessions: SessionStore, store: MemoryStore) -> None:
    order: list[str] = []
    store.on_call = lambda _: order.extend(key for key in store.blobs if key not in order)
    saved(sessions)
    assert [key.rsplit("/", 1)[1] for key in order] == ["sandbox.tar.gz", "transcript.md", "context.json"]


def test_a_save_that_is_repeated_changes_nothing(sessions: SessionStore, store: MemoryStore) -> None:
    written = saved(sessions)
    before = dict(store.blobs)
    assert saved(sessions, archive=[b"other"], transcript="other") == written
    assert store.blobs == before


@pytest.mark.parametrize("point", range(10))
def test_a_save_that_died_anywhere_is_finished_by_repeating_it(point: int) -> None:
    store = MemoryStore(on_call=KillAt(point))
    with pytest.raises(Killed):
        saved(SessionStore(store))
    assert saved(SessionStore(store)) == SessionStore(store).load("s1")
    assert store.blobs["sessions/s1/sandbox.tar.gz"] == b"targz"


def test_a_resumed_session_is_written_over_the_one_that_was_read(sessions: SessionStore) -> None:
    first = saved(sessions)
    second = saved(sessions, replace(FIRST, run="u2"), archive=[b"new"], if_match=first.etag)
    assert sessions.load("s1") == second
    assert second.archive != first.archive


def test_a_run_that_is_not_the_next_one_conflicts_before_it_writes(sessions: SessionStore, store: MemoryStore) -> None:
    first = saved(sessions)
    saved(sessions, replace(FIRST, run="u2"), if_match=first.etag)
    before = dict(store.blobs)
    for etag in (first.etag, None):
        with pytest.raises(Conflict, match="another run, u2"):
            saved(sessions, replace(FIRST, run="u3"), if_match=etag)
    assert store.blobs == before


def test_a_run_that_loses_the_race_for_a_new_session_conflicts(sessions: SessionStore, store: MemoryStore) -> None:
    def other(name: str) -> None:
        if name == "before store.create":
            store.on_call = lambda _: None
            saved(SessionStore(store), replace(FIRST, run="u2"))

    store.on_call = other
    with pytest.raises(Conflict):
        saved(sessions)
    loaded = sessions.load("s1")
    assert loaded is not None
    assert loaded.run == "u2"


def test_a_session_that_was_deleted_meanwhile_conflicts(sessions: SessionStore) -> None:
    with pytest.raises(Conflict, match="deleted"):
        saved(sessions, if_match="x")


def test_without_an_archive_the_old_one_is_kept(sessions: SessionStore) -> None:
    first = saved(sessions)
    second = saved(sessions, replace(FIRST, run="u2"), archive=None, if_match=first.etag)
    assert second.archive == first.archive == Archive(hashlib.sha256(b"targz").hexdigest(), 5)


def breaking(error: Exception) -> Iterator[bytes]:
    yield b"half"
    raise error


def test_a_sandbox_that_cannot_be_packed_costs_only_the_archive_and_that_is_said(
    sessions: SessionStore, store: MemoryStore
) -> None:
    written = saved(sessions, archive=breaking(ArchiveFailed("they are larger than 5 bytes", "model's words")))
    assert (written.archive, written.archive_problem) == (None, "they are larger than 5 bytes")
    assert sessions.load("s1") == written
    assert "sessions/s1/sandbox.tar.gz" not in store.blobs
    said = store.blobs["sessions/s1/transcript.md"].decode()
    assert said == "# Run\n\nThe files of the sandbox were not kept: they are larger than 5 bytes.\n"


def test_a_later_save_that_cannot_pack_keeps_the_old_archive_and_the_next_one_mends_it(sessions: SessionStore) -> None:
    first = saved(sessions)
    failed = breaking(ArchiveFailed("no room"))
    second = saved(sessions, replace(FIRST, run="u2"), archive=failed, if_match=first.etag)
    assert (second.archive, second.archive_problem) == (first.archive, "no room")
    third = saved(sessions, replace(FIRST, run="u3"), archive=[b"new"], if_match=second.etag)
    assert (third.archive and third.archive.bytes, third.archive_problem) == (3, "")


def test_an_error_that_is_not_of_the_packing_ends_the_save(sessions: SessionStore) -> None:
    with pytest.raises(LeadershipLost):
        saved(sessions, archive=breaking(LeadershipLost("another leads")))
    assert sessions.load("s1") is None


def test_a_session_of_before_archives_could_fail_is_read(sessions: SessionStore, store: MemoryStore) -> None:
    saved(sessions)
    key = "sessions/s1/context.json"
    older = json.loads(store.blobs[key])
    del older["archive_problem"]
    store.blobs[key] = json.dumps(older).encode()
    loaded = sessions.load("s1")
    assert loaded is not None
    assert loaded.archive_problem == ""


def test_a_store_that_is_away_is_unavailable(sessions: SessionStore, store: MemoryStore) -> None:
    store.down = True
    with pytest.raises(Unavailable):
        sessions.load("s1")


def test_a_session_goes_on_only_in_its_own_workflow_and_at_its_own_target(sessions: SessionStore) -> None:
    session = saved(sessions)
    check_place(session, workflow="analyze-failures", origin="default/group/app!42")
    with pytest.raises(Invalid, match=r"spec\.workflow: this session belongs to the workflow analyze-failures"):
        check_place(session, workflow="review", origin="default/group/app!42")
    with pytest.raises(Invalid, match=r"spec\.session"):
        check_place(session, workflow="analyze-failures", origin="default/group/app!43")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[]", "no format_version"),
        ({"format_version": None}, "no format_version"),
        ({"format_version": 2}, "format_version 2; only 1 is read. Start a new session"),
        ({"format_version": True}, "format_version True"),
        ({"contents": "x"}, "contents: "),
        ({"tools": [{}]}, r"tools\.0\.name: "),
        ({"context_tokens": "12"}, "context_tokens: "),
        ({"archive": {"digest": "x"}}, r"archive\.bytes: "),
    ],
)
def test_a_session_that_cannot_be_read_is_invalid_and_says_why(
    sessions: SessionStore, store: MemoryStore, change: Any, words: str
) -> None:
    saved(sessions)
    key = "sessions/s1/context.json"
    data = change if isinstance(change, bytes) else json.dumps({**json.loads(store.blobs[key]), **change}).encode()
    store.blobs[key] = data
    with pytest.raises(Invalid, match=rf"sessions/s1/context\.json: this session .*{words}"):
        sessions.load("s1")


def test_for_the_model_that_counted_it_a_session_is_as_large_as_it_counted_and_for_another_by_its_bytes() -> None:
    answer = {"version": 1, "role": "assistant", "parts": [], "producer": {"model": "gemini-3.8-flash"}}
    small = SavedSession(**{**vars(FIRST), "contents": [*FIRST.contents, answer]})
    large = SavedSession(**{**vars(FIRST), "contents": [{"role": "user", "text": "x" * 9000}, answer]})

    assert large.tokens_for("gemini-3.8-flash") == 1234
    assert small.tokens_for("claude-opus-5-5") == 1234
    assert 3000 < large.tokens_for("claude-opus-5-5") < 3500
