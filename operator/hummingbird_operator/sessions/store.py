"""What sessions and journals need of a store: named blobs with create-only writes and compare-and-swap.

Keys are relative and made of plain segments: `sessions/<id>/{context.json,transcript.md,sandbox.tar.gz}`,
`runs/<uid>/turns/0001.{intent,response,results}`, `runs/<uid>/{next/<uid>,internal,notice.md,answer.json,answer.md}`.
`hummingbird_operator.stores` implements this; `sessions.testing.MemoryStore` is the one for tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Protocol

from hummingbird_operator.errors import Invalid

CHUNK_BYTES = 256 * 1024
"""How much of a blob is held at once while it is read."""

SERVICE = "the session store"
"""How errors name it, whichever kind it is."""

_SEGMENT = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,254}")


class BlobStore(Protocol):
    """Blobs by key. Every method raises Unavailable, and Invalid for a key or bucket that cannot be right."""

    def get(self, key: str) -> bytes | None:
        """The whole blob, or None if there is none."""

    def open(self, key: str) -> Iterator[bytes] | None:
        """The blob in chunks of at most 1 MiB, or None if there is none."""

    def create(self, key: str, data: bytes) -> bool:
        """Write only if nothing is there; False, and nothing written, if something is."""

    def put(self, key: str, data: bytes, *, if_match: str | None = None) -> str:
        """Write and return the new etag; Conflict if `if_match` is not the etag of what is there now."""

    def etag(self, key: str) -> str | None:
        """The etag of what is there now, or None."""

    def put_stream(self, key: str, chunks: Iterable[bytes]) -> tuple[int, str]:
        """Write the chunks as they come; return bytes and sha256 (hex). Nothing is seen before the last chunk."""

    def url(self, key: str) -> str:
        """Where people find the blob: `s3://…` or `file://…`."""

    def list(self, prefix: str) -> list[str]:
        """All keys that begin with the prefix, in order."""


def checked_key(key: str) -> str:
    """The key itself; Invalid if a segment is empty, begins with a dot or holds anything but `A-Z a-z 0-9 . _ -`."""
    segments = key.split("/")
    if len(key) > 900 or not all(_SEGMENT.fullmatch(segment) for segment in segments):
        raise Invalid("store key", f"{key!r} is not a path of plain names")
    return key
