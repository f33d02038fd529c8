"""Where sessions and journals lie: one module for each kind of store, and the door that reads its address."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from hummingbird_operator.errors import Invalid
from hummingbird_operator.sessions.store import BlobStore
from hummingbird_operator.stores.folder import FolderStore
from hummingbird_operator.stores.s3 import S3Store, new_client

__all__ = ["FolderStore", "S3Store", "open_store"]


def open_store(url: str, *, s3_endpoint: str | None = None) -> BlobStore:
    """The store behind `s3://bucket/prefix` or `file:///path`; `s3_endpoint` is for S3 that is not Amazon's.

    Raises Invalid for any other address. Nothing is connected yet.
    """
    parts = urlsplit(url)
    if parts.query or parts.fragment or ":" in parts.netloc or "@" in parts.netloc:
        raise Invalid("sessions.store", f"{url!r} holds more than a bucket or a path")
    if parts.scheme == "file":
        if parts.netloc or not parts.path.startswith("/") or parts.path == "/":
            raise Invalid("sessions.store", f"{url!r} must look like file:///var/lib/hummingbird")
        return FolderStore(Path(unquote(parts.path)))
    if parts.scheme == "s3":
        if not parts.netloc:
            raise Invalid("sessions.store", f"{url!r} names no bucket; it must look like s3://bucket/prefix")
        return S3Store(parts.netloc, parts.path.strip("/"), new_client(s3_endpoint))
    raise Invalid("sessions.store", f"{url!r} is neither s3://bucket/prefix nor file:///path")
