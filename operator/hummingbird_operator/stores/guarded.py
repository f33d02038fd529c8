"""A store that only the leader writes to: it looks before each write, and while a long one goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from hummingbird_operator.sessions.store import BlobStore


class GuardedStore:
    """Implements sessions.store.BlobStore. `check` raises LeadershipLost, or Unavailable while nobody can tell."""

    def __init__(self, store: BlobStore, check: Callable[[], None]) -> None:
        self._store = store
        self._check = check
        self.get = store.get
        self.open = store.open
        self.etag = store.etag
        self.url = store.url
        self.list = store.list

    def create(self, key: str, data: bytes) -> bool:
        """See BlobStore."""
        self._check()
        return self._store.create(key, data)

    def put(self, key: str, data: bytes, *, if_match: str | None = None) -> str:
        """See BlobStore."""
        self._check()
        return self._store.put(key, data, if_match=if_match)

    def put_stream(self, key: str, chunks: Iterable[bytes]) -> tuple[int, str]:
        """See BlobStore. An upload that outlives the lead ends before anything of it is seen."""
        return self._store.put_stream(key, self._checked(chunks))

    def _checked(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        self._check()
        for chunk in chunks:
            yield chunk
            self._check()
