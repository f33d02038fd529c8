"""A store in a bucket of S3 or of anything that speaks it: conditional writes do what locks would.

`If-None-Match: *` makes a write create-only, `If-Match` makes it a compare-and-swap; both are S3's own since 2024.
The client's retries are few and its timeouts short: the journal waits for a store that is away, and says so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import boto3
from boto3.exceptions import Boto3Error
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from hummingbird_operator.errors import Conflict, Invalid, Unavailable
from hummingbird_operator.sessions.store import CHUNK_BYTES, SERVICE, checked_key

PART_BYTES = 8 * 1024 * 1024
"""Size of one part of a multipart upload: with one thread, about what an upload holds in memory."""

_MISSING = {"NoSuchKey", "404", "NotFound"}
_EXISTS = {"PreconditionFailed", "412"}
_ADVICE = {
    "AccessDenied": "allow s3:GetObject, s3:PutObject, s3:ListBucket and s3:AbortMultipartUpload on it",
    "403": "allow s3:GetObject, s3:PutObject, s3:ListBucket and s3:AbortMultipartUpload on it",
    "NoSuchBucket": "the bucket does not exist; create it, or mend sessions.store",
    "InvalidAccessKeyId": "check the access key",
    "SignatureDoesNotMatch": "check the secret key and the machine's clock",
    "ExpiredToken": "renew the credentials",
    "SlowDown": "it is tried again by itself",
}


def new_client(endpoint: str | None) -> Any:
    """A boto3 client (untyped, as boto3 is) that gives up within half a minute. boto3 finds credentials itself."""
    config = Config(
        connect_timeout=5,
        read_timeout=20,
        max_pool_connections=50,  # all runs of a process share one client
        retries={"max_attempts": 3, "mode": "standard"},
        # a bucket that is not Amazon's may not know the newer checksums
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "path"} if endpoint else None,
    )
    try:
        return boto3.client("s3", endpoint_url=endpoint, config=config)
    except (BotoCoreError, ValueError) as error:
        raise Invalid("sessions.s3_endpoint", str(error)) from error


class S3Store:
    """Blobs as objects under `prefix` in `bucket`; `client` is a boto3 S3 client."""

    def __init__(self, bucket: str, prefix: str, client: Any) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._client = client

    def get(self, key: str) -> bytes | None:
        """The whole blob, or None."""
        body = self._body(key)
        if body is None:
            return None
        with self._described(key), body:
            data: bytes = body.read()
            return data

    def open(self, key: str) -> Iterator[bytes] | None:
        """The blob in chunks of 256 KiB, or None."""
        body = self._body(key)
        return None if body is None else self._chunks(key, body)

    def create(self, key: str, data: bytes) -> bool:
        """Write only if nothing is there."""
        name = self._name(key)
        with self._described(key):
            try:
                self._client.put_object(Bucket=self._bucket, Key=name, Body=data, IfNoneMatch="*")
            except ClientError as error:
                if _code(error) in _EXISTS:
                    return False
                raise
        return True

    def put(self, key: str, data: bytes, *, if_match: str | None = None) -> str:
        """Write; with `if_match` only over the blob that has this etag."""
        name = self._name(key)
        condition = {} if if_match is None else {"IfMatch": if_match}
        with self._described(key):
            try:
                written = self._client.put_object(Bucket=self._bucket, Key=name, Body=data, **condition)
            except ClientError as error:
                if if_match is not None and _code(error) in _EXISTS | _MISSING:
                    raise Conflict(f"{key} was changed meanwhile") from error
                raise
            return str(written["ETag"])

    def etag(self, key: str) -> str | None:
        """S3's etag of what is there, quotes included."""
        name = self._name(key)
        with self._described(key):
            try:
                return str(self._client.head_object(Bucket=self._bucket, Key=name)["ETag"])
            except ClientError as error:
                if _code(error) in _MISSING:
                    return None
                raise

    def put_stream(self, key: str, chunks: Iterable[bytes]) -> tuple[int, str]:
        """Upload the chunks as they come, part by part; a failure leaves nothing behind. Returns bytes and sha256."""
        name = self._name(key)
        source = _Reader(chunks)
        config = TransferConfig(multipart_threshold=PART_BYTES, multipart_chunksize=PART_BYTES, use_threads=False)
        with self._described(key):
            self._client.upload_fileobj(source, self._bucket, name, Config=config)
        return source.bytes, source.digest.hexdigest()

    def url(self, key: str) -> str:
        """`s3://bucket/…`."""
        return f"s3://{self._bucket}/{self._name(key)}"

    def list(self, prefix: str) -> list[str]:
        """All keys that begin with the prefix."""
        with self._described(prefix):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._prefix + prefix
            )
            names = [str(entry["Key"]) for page in pages for entry in page.get("Contents", [])]
        return sorted(name.removeprefix(self._prefix) for name in names)

    def _name(self, key: str) -> str:
        return self._prefix + checked_key(key)

    def _body(self, key: str) -> Any:
        name = self._name(key)
        with self._described(key):
            try:
                return self._client.get_object(Bucket=self._bucket, Key=name)["Body"]
            except ClientError as error:
                if _code(error) in _MISSING:
                    return None
                raise

    def _chunks(self, key: str, body: Any) -> Iterator[bytes]:
        with self._described(key), body:
            yield from body.iter_chunks(CHUNK_BYTES)

    @contextmanager
    def _described(self, key: str) -> Iterator[None]:
        """botocore's errors as the store's, with what to do about them."""
        try:
            yield
        except ClientError as error:
            code = _code(error)
            advice = _ADVICE.get(code, str(error.response.get("Error", {}).get("Message", ""))[:200])
            raise Unavailable(SERVICE, f"s3://{self._bucket}/{self._prefix}{key}: {code}: {advice}") from error
        except (BotoCoreError, Boto3Error, OSError) as error:
            raise Unavailable(SERVICE, f"s3://{self._bucket}/{self._prefix}{key}: {error}"[:400]) from error


class _Reader:
    """Chunks as a file that boto3 can read from, counted and digested on the way."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._rest = b""
        self.bytes = 0
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes, all that is left for a negative size; fewer only at the end."""
        parts, have = [self._rest], len(self._rest)
        while size < 0 or have < size:
            chunk = next(self._chunks, None)
            if chunk is None:
                break
            parts.append(chunk)
            have += len(chunk)
        data = b"".join(parts)
        cut = len(data) if size < 0 else size
        taken, self._rest = data[:cut], data[cut:]
        self.bytes += len(taken)
        self.digest.update(taken)
        return taken


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
