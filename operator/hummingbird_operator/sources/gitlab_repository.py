"""A project's repository for the model: one file at a commit, or all of them as an archive."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from hummingbird_operator.errors import Invalid
from hummingbird_operator.sessions.tools import SourceResult, StreamingResponse
from hummingbird_operator.sources.connection import CHUNK, Reader, opened
from hummingbird_operator.sources.gitlab_scope import Scope, at

MAXIMUM_FILE = 5 * 1024 * 1024
"""Bytes of one file that are read; the rest is cut off and said."""
MAXIMUM_ARCHIVE = 256 * 1024 * 1024
"""Bytes of an archive that are read: a sandbox's disk must hold it packed and unpacked."""


class Repository:
    """The tools about files."""

    def __init__(self, reader: Reader, scope: Scope, *, maximum_archive: int = MAXIMUM_ARCHIVE) -> None:
        self._reader = reader
        self._scope = scope
        self._maximum_archive = maximum_archive

    def file_at_ref(self, file_path: str, ref: str, project: str | None = None) -> SourceResult:
        """Text, or bytes where it is not UTF-8; at most 5 MiB of it."""
        _check_path("file_path", file_path)
        path = f"{at(self._scope.readable(project))}/repository/files/{quote(file_path, safe='')}/raw"
        data, more = bytearray(), False
        with self._reader.stream(path, f"{file_path} at {ref}", ref=ref) as response:
            for chunk in response.iter_content(CHUNK):
                data += chunk
                if len(data) > MAXIMUM_FILE:
                    more = True
                    break
        if more:
            missing = f"{file_path} is longer than {MAXIMUM_FILE} bytes: only its beginning is here"
            content = bytes(data[:MAXIMUM_FILE])
            return StreamingResponse([content], ".txt", binary=_is_binary(content), metadata={"incomplete": [missing]})
        content = bytes(data)
        return content if _is_binary(content) else content.decode(errors="replace")

    def repo_archive(self, ref: str, path: str | None = None, project: str | None = None) -> SourceResult:
        """The files at `ref` as a .tar.gz that is never held whole; `path` leaves all but one folder out."""
        where = at(self._scope.readable(project))
        # LFS objects would not fit, and are no text to review
        query: dict[str, Any] = {"sha": ref, "include_lfs_blobs": "false"}
        if path is not None:
            _check_path("path", path)
            query["path"] = path
        metadata: dict[str, Any] = {"ref": ref, "incomplete": []}
        stream = opened(self._archive(f"{where}/repository/archive.tar.gz", f"the archive at {ref}", query, metadata))
        return StreamingResponse(stream, ".tar.gz", binary=True, metadata=metadata)

    def _archive(self, path: str, what: str, query: dict[str, Any], metadata: dict[str, Any]) -> Iterator[bytes]:
        left = self._maximum_archive
        # a connection that breaks is told by whoever saves the stream, with the bytes that came until then
        with self._reader.stream(path, what, **query) as response:
            for chunk in response.iter_content(CHUNK):
                yield chunk[:left]
                left -= len(chunk)
                if left < 0:
                    text = f"{what} is longer than {self._maximum_archive} bytes: its end is missing; name a path"
                    metadata["incomplete"].append(text)
                    return


def _check_path(where: str, path: str) -> None:
    if path.startswith("/") or ".." in path.split("/"):
        raise Invalid(where, f"{path!r} must be a path from the repository's root")


def _is_binary(data: bytes) -> bool:
    if b"\x00" in data[:8192]:
        return True
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start < len(data) - 3  # a character that the bound cut is no reason
    return False
