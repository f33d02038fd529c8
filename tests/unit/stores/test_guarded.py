"""Only the leader writes to the store; it looks before each write, and again before a long one becomes visible."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from hummingbird_operator.errors import LeadershipLost
from hummingbird_operator.sessions.store import BlobStore
from hummingbird_operator.sessions.testing import MemoryStore
from hummingbird_operator.stores.folder import FolderStore
from hummingbird_operator.stores.guarded import GuardedStore


class Lead:
    def __init__(self) -> None:
        self.lost = False

    def __call__(self) -> None:
        if self.lost:
            raise LeadershipLost("another leads")


WRITES: dict[str, Callable[[BlobStore], object]] = {
    "create": lambda store: store.create("k", b"new"),
    "put": lambda store: store.put("k", b"new"),
    "put_stream": lambda store: store.put_stream("k", [b"new"]),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_whoever_does_not_lead_writes_nothing_and_may_read(write: Callable[[BlobStore], object]) -> None:
    lead, inner = Lead(), MemoryStore()
    store = GuardedStore(inner, lead)
    inner.put("old", b"old")
    write(store)
    assert store.get("k") == b"new"
    inner.blobs.pop("k")
    lead.lost = True
    with pytest.raises(LeadershipLost):
        write(store)
    assert (store.get("k"), store.get("old"), store.list("")) == (None, b"old", ["old"])


@pytest.mark.parametrize("kind", ["memory", "folder"])
def test_an_upload_that_outlives_the_lead_is_never_seen(kind: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    inner: BlobStore = MemoryStore() if kind == "memory" else FolderStore(tmp_path_factory.mktemp("store"))
    lead = Lead()
    store = GuardedStore(inner, lead)

    def chunks() -> Iterator[bytes]:
        yield b"first"
        lead.lost = True
        yield b"last"

    with pytest.raises(LeadershipLost):
        store.put_stream("k", chunks())
    assert inner.get("k") is None
