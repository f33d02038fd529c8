"""Carries `/tmp/data` out of one sandbox and into another as bytes that nobody here looks into.

The sandbox packs and unpacks; the operator never opens an archive (seed 000 §11.3): it was made where the model's
commands ran, so it may hold anything.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from hummingbird_operator.errors import Unavailable
from hummingbird_operator.sessions.sandbox import Sandbox

ARCHIVE_PATH = "/tmp/_archive.tar.gz"  # noqa: S108 - a path inside the sandbox, from seed 000 §11.3
_PACK = f"tar czf {ARCHIVE_PATH} -C /tmp data"
_UNPACK = "tar xzf - -C /tmp data"
_CHANGED_WHILE_READ = 1
"""GNU tar's exit code for files that changed under it: the archive is whole."""


def archive_sandbox(sb: Sandbox) -> Iterator[bytes]:
    """`/tmp/data` as a tar.gz, in the sandbox's own chunks. Raises Unavailable if the sandbox cannot pack it."""
    packed = sb.exec(_PACK)
    if packed.exit_code not in (0, _CHANGED_WHILE_READ):
        raise Unavailable("the sandbox", f"packing /tmp/data failed ({packed.exit_code}): {packed.stderr[:300]}")
    try:
        yield from sb.read_file_iter(ARCHIVE_PATH)
    finally:
        sb.exec(f"rm -f {ARCHIVE_PATH}")


def restore_sandbox(sb: Sandbox, chunks: Iterable[bytes]) -> tuple[int, str]:
    """Unpack into the sandbox; returns bytes and sha256 (hex) of the archive, to be compared with what was saved.

    Only the member `data` is unpacked. Raises Unavailable if the sandbox cannot unpack it.
    """
    digest, size = hashlib.sha256(), 0

    def counted() -> Iterator[bytes]:
        nonlocal size
        for chunk in chunks:
            digest.update(chunk)
            size += len(chunk)
            yield chunk

    unpacked = sb.stream_exec(_UNPACK, counted())
    if unpacked.exit_code != 0:
        raise Unavailable("the sandbox", f"unpacking failed ({unpacked.exit_code}): {unpacked.stderr[:300]}")
    return size, digest.hexdigest()
