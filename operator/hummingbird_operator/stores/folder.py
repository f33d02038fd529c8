"""A store in a folder of this machine: the default where there is no S3, and as strict as S3 is.

A blob is written beside its place, flushed to the disk, and then put there by one atomic step: a link for
create-only, a rename otherwise. A reader sees the old blob or the new one, whatever dies when.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hummingbird_operator.errors import Conflict, Unavailable
from hummingbird_operator.sessions.store import CHUNK_BYTES, SERVICE, checked_key

_HIDDEN = "."
"""Begins names that are no blobs: keys cannot begin with it."""


class FolderStore:
    """Blobs as files under `root`, which is made when something is first written. Etags are the content's sha256."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def get(self, key: str) -> bytes | None:
        """The whole blob, or None."""
        with self._described(key), self._opened(key) as file:
            return file.read() if file is not None else None

    def open(self, key: str) -> Iterator[bytes] | None:
        """The blob in chunks of 256 KiB, or None; it stays readable while a new one takes its place."""
        with self._described(key):
            try:
                file = self._path(key).open("rb")
            except FileNotFoundError:
                return None
        return self._chunks(key, file)

    def create(self, key: str, data: bytes) -> bool:
        """Write only if nothing is there."""
        with self._described(key), self._written(key, [data]) as (temporary, _, _):
            try:
                self._path(key).hardlink_to(temporary)
            except FileExistsError:
                return False
            self._sync_folder(key)
            return True

    def put(self, key: str, data: bytes, *, if_match: str | None = None) -> str:
        """Write; with `if_match` only over the blob that has this etag."""
        with self._described(key), self._written(key, [data]) as (temporary, _, digest), self._locked():
            if if_match is not None and self._etag(key) != if_match:
                raise Conflict(f"{key} was changed meanwhile")
            self._replace(temporary, key)
            return digest

    def etag(self, key: str) -> str | None:
        """The sha256 of what is there."""
        with self._described(key):
            return self._etag(key)

    def put_stream(self, key: str, chunks: Iterable[bytes]) -> tuple[int, str]:
        """Write the chunks as they come; returns bytes and sha256."""
        with self._described(key), self._written(key, chunks) as (temporary, size, digest):
            self._replace(temporary, key)
            return size, digest

    def url(self, key: str) -> str:
        """`file://` and the path."""
        return self._path(key).absolute().as_uri()

    def list(self, prefix: str) -> list[str]:
        """All keys that begin with the prefix."""
        base = self._root / Path(prefix + "x").parent
        with self._described(prefix):
            found = [
                str((Path(folder) / name).relative_to(self._root))
                for folder, _, names in os.walk(base, onerror=_unless_gone)
                for name in names
                if not name.startswith(_HIDDEN)
            ]
        return sorted(key for key in found if key.startswith(prefix))

    def _path(self, key: str) -> Path:
        return self._root / checked_key(key)

    def _etag(self, key: str) -> str | None:
        with self._opened(key) as file:
            return None if file is None else hashlib.file_digest(file, "sha256").hexdigest()

    @contextmanager
    def _opened(self, key: str) -> Iterator[io.BufferedReader | None]:
        try:
            file = self._path(key).open("rb")
        except FileNotFoundError:
            yield None
            return
        with file:
            yield file

    def _chunks(self, key: str, file: io.BufferedReader) -> Iterator[bytes]:
        with self._described(key), file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk

    @contextmanager
    def _written(self, key: str, chunks: Iterable[bytes]) -> Iterator[tuple[Path, int, str]]:
        """A flushed temporary file beside the blob's place, with its size and digest; gone after the block."""
        folder = self._path(key).parent
        folder.mkdir(parents=True, exist_ok=True)
        size, digest = 0, hashlib.sha256()
        handle, name = tempfile.mkstemp(prefix=_HIDDEN, dir=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                for chunk in chunks:
                    file.write(chunk)
                    digest.update(chunk)
                    size += len(chunk)
                file.flush()
                os.fsync(file.fileno())
            yield Path(name), size, digest.hexdigest()
        finally:
            Path(name).unlink(missing_ok=True)

    def _replace(self, temporary: Path, key: str) -> None:
        temporary.replace(self._path(key))
        self._sync_folder(key)

    def _sync_folder(self, key: str) -> None:
        """A rename lives in the folder: without this it may be gone after a power cut."""
        handle = os.open(self._path(key).parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One writer at a time over all processes of this machine: compare and swap are two steps in a folder."""
        with (self._root / ".lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @contextmanager
    def _described(self, key: str) -> Iterator[None]:
        """The disk's errors as the store's: full, read-only, not allowed, a file where a folder must be."""
        try:
            yield
        except OSError as error:
            raise Unavailable(SERVICE, f"{error.strerror or error} at {self._root}/{key}") from error


def _unless_gone(error: OSError) -> None:
    """A folder that cannot be listed is not an empty one."""
    if not isinstance(error, FileNotFoundError):
        raise error
