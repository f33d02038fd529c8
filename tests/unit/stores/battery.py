"""What every store must do, whatever kind it is: subclassed once per kind, with a `store` fixture."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator

import pytest

from hummingbird_operator.errors import Conflict, Invalid
from hummingbird_operator.sessions.store import BlobStore


class StoreContract:
    def test_what_was_never_written_is_none(self, store: BlobStore) -> None:
        assert store.get("sessions/a/context.json") is None
        assert store.open("sessions/a/context.json") is None
        assert store.etag("sessions/a/context.json") is None
        assert store.list("sessions/") == []

    def test_a_blob_comes_back_as_it_was_put(self, store: BlobStore) -> None:
        data = bytes(range(256))
        etag = store.put("sessions/a/context.json", data)
        assert store.get("sessions/a/context.json") == data
        assert store.etag("sessions/a/context.json") == etag

    def test_an_empty_blob_is_not_none(self, store: BlobStore) -> None:
        store.put("sessions/a/transcript.md", b"")
        assert store.get("sessions/a/transcript.md") == b""
        chunks = store.open("sessions/a/transcript.md")
        assert chunks is not None
        assert b"".join(chunks) == b""

    def test_create_writes_only_where_nothing_is(self, store: BlobStore) -> None:
        assert store.create("runs/u/turns/0001.response", b"first") is True
        assert store.create("runs/u/turns/0001.response", b"second") is False
        assert store.get("runs/u/turns/0001.response") == b"first"

    def test_of_many_creators_at_once_exactly_one_wins(self, store: BlobStore) -> None:
        won: list[int] = []

        def create(number: int) -> None:
            if store.create("runs/u/turns/0001.intent", b"%d" % number):
                won.append(number)

        threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert store.get("runs/u/turns/0001.intent") == b"%d" % won[0]

    def test_put_over_a_known_etag_swaps_and_over_another_conflicts(self, store: BlobStore) -> None:
        first = store.put("sessions/a/context.json", b"1")
        second = store.put("sessions/a/context.json", b"2", if_match=first)
        assert second != first
        with pytest.raises(Conflict):
            store.put("sessions/a/context.json", b"3", if_match=first)
        assert store.get("sessions/a/context.json") == b"2"

    def test_put_over_an_etag_conflicts_where_nothing_is(self, store: BlobStore) -> None:
        with pytest.raises(Conflict):
            store.put("sessions/a/context.json", b"3", if_match='"0123"')
        assert store.get("sessions/a/context.json") is None

    def test_a_stream_is_stored_with_its_size_and_digest(self, store: BlobStore) -> None:
        chunks = [bytes([number % 251]) * 65_536 for number in range(300)]  # 19 MB: more than two parts on S3
        whole = b"".join(chunks)
        assert store.put_stream("sessions/a/sandbox.tar.gz", iter(chunks)) == (
            len(whole),
            hashlib.sha256(whole).hexdigest(),
        )
        read = store.open("sessions/a/sandbox.tar.gz")
        assert read is not None
        parts = list(read)
        assert b"".join(parts) == whole
        assert max(map(len, parts)) <= 1024 * 1024

    def test_a_stream_that_breaks_leaves_what_was_there(self, store: BlobStore) -> None:
        def broken() -> Iterator[bytes]:
            yield b"x" * 9_000_000
            raise LookupError("the sandbox died")

        store.put_stream("sessions/a/sandbox.tar.gz", [b"old"])
        with pytest.raises(LookupError):
            store.put_stream("sessions/a/sandbox.tar.gz", broken())
        assert store.get("sessions/a/sandbox.tar.gz") == b"old"
        assert store.list("sessions/a/") == ["sessions/a/sandbox.tar.gz"]

    def test_an_empty_stream_is_an_empty_blob(self, store: BlobStore) -> None:
        assert store.put_stream("sessions/a/sandbox.tar.gz", []) == (0, hashlib.sha256(b"").hexdigest())
        assert store.get("sessions/a/sandbox.tar.gz") == b""

    def test_keys_are_listed_by_prefix_and_in_order(self, store: BlobStore) -> None:
        for key in ("runs/u/turns/0002.intent", "runs/u/turns/0001.response", "runs/u/answer.md", "runs/v/answer.md"):
            store.put(key, b"x")
        assert store.list("runs/u/turns/") == ["runs/u/turns/0001.response", "runs/u/turns/0002.intent"]
        assert store.list("runs/u") == ["runs/u/answer.md", "runs/u/turns/0001.response", "runs/u/turns/0002.intent"]
        assert store.list("runs/w/") == []

    @pytest.mark.parametrize("key", ["", "/etc/passwd", "a/../b", "../b", "a//b", "a/", ".lock", "a/.x", "a b", "a\n"])
    def test_a_key_that_could_lead_elsewhere_is_invalid(self, store: BlobStore, key: str) -> None:
        for attempt in (
            lambda: store.get(key),
            lambda: store.put(key, b"x"),
            lambda: store.create(key, b"x"),
            lambda: store.url(key),
            lambda: store.put_stream(key, [b"x"]),
        ):
            with pytest.raises(Invalid):
                attempt()

    def test_the_url_names_the_key(self, store: BlobStore) -> None:
        assert store.url("runs/u/answer.md").endswith("/runs/u/answer.md")
