"""The stores' battery over a real S3 server; the fixture `s3_endpoint` (its URL) comes from this folder's conftest."""

from __future__ import annotations

import resource
import uuid
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config

from hummingbird_operator.errors import Unavailable
from hummingbird_operator.sessions.store import BlobStore
from hummingbird_operator.stores.s3 import S3Store
from tests.unit.stores.battery import StoreContract

BUCKET = "hummingbird-test"


def client_for(endpoint: str) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(
            connect_timeout=2,
            read_timeout=10,
            retries={"max_attempts": 1},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            s3={"addressing_style": "path"},
        ),
    )


@pytest.fixture
def client(s3_endpoint: str) -> Any:
    client = client_for(s3_endpoint)
    if BUCKET not in [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]:
        client.create_bucket(Bucket=BUCKET)
    return client


@pytest.fixture
def store(client: Any) -> BlobStore:
    return S3Store(BUCKET, uuid.uuid4().hex, client)


class TestS3Store(StoreContract):
    pass


def test_more_keys_than_one_page_are_all_listed(store: BlobStore) -> None:
    for number in range(1005):
        store.put(f"runs/u/turns/{number:04d}.intent", b"")
    assert len(store.list("runs/u/turns/")) == 1005


def test_a_large_upload_holds_little_in_memory(store: BlobStore) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(1600):
            yield b"x" * 65_536

    store.put_stream("warm", [b"x" * 20_000_000])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    size, _ = store.put_stream("sessions/a/sandbox.tar.gz", chunks())
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert size == 1600 * 65_536
    assert grown < 20 * 1024


def test_an_upload_that_breaks_leaves_no_parts(store: BlobStore, client: Any) -> None:
    def broken() -> Iterator[bytes]:
        yield b"x" * 20_000_000
        raise LookupError("the sandbox died")

    with pytest.raises(LookupError):
        store.put_stream("sessions/a/sandbox.tar.gz", broken())
    assert client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", []) == []


def test_a_bucket_that_does_not_exist_is_waited_for_and_named(client: Any) -> None:
    store = S3Store("no-such-bucket", "agent", client)
    with pytest.raises(Unavailable, match=r"no-such-bucket.*create it"):
        store.create("a", b"x")
    with pytest.raises(Unavailable, match=r"no-such-bucket.*create it"):
        store.put_stream("a", [b"x"])


def test_a_server_that_is_away_is_unavailable_within_seconds() -> None:
    store = S3Store(BUCKET, "agent", client_for("http://127.0.0.1:9"))
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:9"):
        store.create("a", b"x")
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:9"):
        store.put_stream("a", [b"x" * 9_000_000])
