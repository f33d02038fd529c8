"""How S3's errors are told; what S3Store does is tested against a server in `tests/e2e/test_store_s3.py`."""

from __future__ import annotations

import io
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ConnectTimeoutError
from botocore.response import StreamingBody
from botocore.stub import Stubber
from hypothesis import given
from hypothesis import strategies as st

from hummingbird_operator.errors import Conflict, Invalid, Unavailable
from hummingbird_operator.stores.s3 import S3Store, _Reader, new_client


@pytest.fixture
def client() -> Any:
    return boto3.client(
        "s3",
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(request_checksum_calculation="when_required"),
    )


@pytest.mark.parametrize("code", ["AccessDenied", "ExpiredToken", "SlowDown", "InternalError", "InvalidAccessKeyId"])
def test_an_error_of_the_service_is_unavailable_and_says_what_to_do(client: Any, code: str) -> None:
    with Stubber(client) as stub:
        stub.add_client_error("get_object", code, "no luck")
        with pytest.raises(Unavailable, match=rf"s3://bucket/agent/a: {code}: .+"):
            S3Store("bucket", "agent", client).get("a")


def test_a_bucket_that_does_not_exist_is_no_fault_of_a_run_or_a_session_and_is_named(client: Any) -> None:
    """Invalid would end a run at once, and tell a reply that its session cannot be read."""
    with Stubber(client) as stub:
        stub.add_client_error("put_object", "NoSuchBucket")
        with pytest.raises(Unavailable, match=r"s3://bucket/agent/a: NoSuchBucket: .*create it"):
            S3Store("bucket", "agent", client).put("a", b"x")


def test_a_create_that_meets_another_writer_at_the_same_moment_is_tried_again_later(client: Any) -> None:
    with Stubber(client) as stub:
        stub.add_client_error("put_object", "ConditionalRequestConflict", http_status_code=409)
        with pytest.raises(Unavailable):
            S3Store("bucket", "agent", client).create("a", b"x")


def test_a_swap_over_a_deleted_blob_conflicts(client: Any) -> None:
    with Stubber(client) as stub:
        stub.add_client_error("put_object", "NoSuchKey", http_status_code=404)
        with pytest.raises(Conflict):
            S3Store("bucket", "agent", client).put("a", b"x", if_match='"1"')


def test_errors_of_head_and_of_the_list_are_told_too(client: Any) -> None:
    with Stubber(client) as stub:
        stub.add_client_error("head_object", "403", http_status_code=403)
        with pytest.raises(Unavailable, match="s3:GetObject"):
            S3Store("bucket", "", client).etag("a")
        stub.add_client_error("list_objects_v2", "NoSuchBucket")
        with pytest.raises(Unavailable, match="create it"):
            S3Store("bucket", "", client).list("runs/")


def test_a_body_that_breaks_off_is_unavailable(client: Any) -> None:
    with Stubber(client) as stub:
        for _ in range(2):
            stub.add_response("get_object", {"Body": StreamingBody(io.BytesIO(b"half"), 100)})
        store = S3Store("bucket", "", client)
        with pytest.raises(Unavailable):
            store.get("a")
        chunks = store.open("a")
        assert chunks is not None
        with pytest.raises(Unavailable):
            list(chunks)


def test_a_server_that_does_not_answer_is_unavailable() -> None:
    class Silent:
        def put_object(self, **_: object) -> None:
            raise ConnectTimeoutError(endpoint_url="http://store")

    with pytest.raises(Unavailable, match="http://store"):
        S3Store("bucket", "", Silent()).put("a", b"x")


def test_the_prefix_stands_before_every_key(client: Any) -> None:
    assert S3Store("bucket", "/a/b/", client).url("runs/u/answer.md") == "s3://bucket/a/b/runs/u/answer.md"
    assert S3Store("bucket", "", client).url("runs/u/answer.md") == "s3://bucket/runs/u/answer.md"


def test_an_endpoint_that_is_no_url_is_invalid() -> None:
    with pytest.raises(Invalid, match=r"sessions\.s3_endpoint"):
        new_client("not a url")


@given(st.lists(st.binary(max_size=20)), st.lists(st.integers(min_value=1, max_value=30), min_size=1))
def test_a_reader_gives_the_chunks_in_pieces_of_just_the_size_asked_for(chunks: list[bytes], sizes: list[int]) -> None:
    whole = b"".join(chunks)
    reader, read = _Reader(chunks), b""
    for size in sizes:
        piece = reader.read(size)
        assert piece == whole[len(read) : len(read) + size]
        read += piece
    assert read + reader.read() == whole
    assert reader.bytes == len(whole)
