"""Carries `/tmp/data` out of one sandbox and into another as bytes that nobody here looks into.

The sandbox packs and unpacks; the operator never opens an archive (seed 000 §11.3): it was made where the model's
commands ran, so it may hold anything, and the packing itself may be made to fail, to last, or to grow without end.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress

from hummingbird_operator.errors import HummingbirdError, Invalid, NotFound, SandboxLost, Unavailable
from hummingbird_operator.sessions.sandbox import Sandbox

MAX_ARCHIVE_BYTES = 256 * 1024 * 1024
PACK_SECONDS = 100
"""Below `EXEC_TIMEOUT`, so that tar is ended by us and not by a connection that is cut."""

_READS = 3
_TOO_LARGE, _NO_ROOM = 75, 74
_TIMED_OUT = (124, 137)
_CHANGED_WHILE_READ = 1
"""GNU tar's exit code for files that changed under it: the archive is whole."""
# /tmp is the model's: only into a folder that is new and has a name nobody could know leads no link of its making
_PACK = """umask 077
rm -rf /tmp/_archive.*
folder=$(mktemp -d /tmp/_archive.XXXXXXXXXX) || exit 74
fail() { rm -rf "$folder"; exit "$1"; }
{ timeout -k 5 %(seconds)d tar czf - -C /tmp data; echo $? >"$folder/code"; } |
  head -c %(stop)d >"$folder/sandbox.tar.gz" || fail 74
[ "$(wc -c <"$folder/sandbox.tar.gz")" -lt %(stop)d ] || fail 75
code=$(cat "$folder/code")
[ "$code" -le 1 ] || fail "$code"
echo "$folder"
exit "$code"
"""
_FOLDER = re.compile(r"/tmp/_archive\.[A-Za-z0-9]{6,20}")  # noqa: S108 - inside the sandbox
_UNPACK = "tar xzf - -C /tmp data"


class ArchiveFailed(HummingbirdError):
    """The files cannot be packed or unpacked; trying again would not help, and a conversation goes on without them.

    Its text is ours alone. `detail`, for the log, may hold words of the sandbox, which are the model's.
    """

    def __init__(self, problem: str, detail: str = "") -> None:
        super().__init__(problem)
        self.detail = detail


def archive_sandbox(sb: Sandbox, *, max_bytes: int = MAX_ARCHIVE_BYTES) -> Generator[bytes]:
    """End what runs in the sandbox and bring out `/tmp/data` as a tar.gz of at most `max_bytes`, chunk by chunk.

    Raises ArchiveFailed where the sandbox or its files are at fault, Unavailable where it did not answer for now,
    Aborted. To be closed in the thread that reads it, for its end is a command in the sandbox.
    """
    try:
        sb.sweep()
        folder = _packed(sb, max_bytes)
        try:
            yield from _bounded(_read(sb, f"{folder}/sandbox.tar.gz"), max_bytes)
        finally:
            with suppress(HummingbirdError):  # the next packing removes it
                sb.exec(f"rm -rf {folder}")
    except (SandboxLost, NotFound, Invalid) as error:
        raise ArchiveFailed("the sandbox was lost while they were packed", str(error)) from error


def restore_sandbox(sb: Sandbox, chunks: Iterable[bytes]) -> tuple[int, str]:
    """Unpack into the sandbox; returns bytes and sha256 (hex) of the archive, to be compared with what was saved.

    Only the member `data` is unpacked. Raises ArchiveFailed if it is no archive or has no room.
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
        raise ArchiveFailed(f"unpacking failed with exit code {unpacked.exit_code}", unpacked.stderr[:300])
    return size, digest.hexdigest()


def _packed(sb: Sandbox, max_bytes: int) -> str:
    """The folder in the sandbox in which the archive lies."""
    packed = sb.exec(_PACK % {"seconds": PACK_SECONDS, "stop": max_bytes + 1})
    if packed.exit_code == _TOO_LARGE:
        raise _too_large(max_bytes)
    if packed.exit_code == _NO_ROOM:
        raise ArchiveFailed("the sandbox has no room for the archive", packed.stderr[:300])
    if packed.exit_code in _TIMED_OUT:
        raise ArchiveFailed(f"packing them took more than {PACK_SECONDS} seconds", packed.stderr[:300])
    folder = packed.stdout.strip()
    if packed.exit_code not in (0, _CHANGED_WHILE_READ) or not _FOLDER.fullmatch(folder):
        raise ArchiveFailed(f"packing them failed with exit code {packed.exit_code}", packed.stderr[:300])
    return folder


def _read(sb: Sandbox, path: str) -> Iterator[bytes]:
    """The file, over as many connections as it takes: it does not change, so what came already is skipped."""
    got = 0
    for left in reversed(range(_READS)):
        skip = got
        try:
            for chunk in sb.read_file_iter(path):
                fresh = chunk[skip:]
                skip -= len(chunk) - len(fresh)
                got += len(fresh)
                if fresh:
                    yield fresh
            return
        except Unavailable:
            if not left:
                raise


def _bounded(chunks: Iterable[bytes], max_bytes: int) -> Iterator[bytes]:
    """The sandbox counted already, but with tools that the model may have replaced."""
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > max_bytes:
            raise _too_large(max_bytes)
        yield chunk


def _too_large(max_bytes: int) -> ArchiveFailed:
    return ArchiveFailed(f"they are larger than {max_bytes:,} bytes, packed")
