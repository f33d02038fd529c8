from __future__ import annotations

from pathlib import Path

import pytest

from hummingbird_operator.errors import Invalid
from hummingbird_operator.stores import FolderStore, S3Store, open_store


def test_a_file_url_opens_a_folder_and_makes_it_when_it_is_first_written(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/not%20yet")
    assert isinstance(store, FolderStore)
    assert not (tmp_path / "not yet").exists()
    store.put("a", b"x")
    assert (tmp_path / "not yet" / "a").read_bytes() == b"x"


def test_an_s3_url_opens_a_bucket_under_its_prefix() -> None:
    store = open_store("s3://hummingbird/agent/", s3_endpoint="http://127.0.0.1:1")
    assert isinstance(store, S3Store)
    assert store.url("runs/u/answer.md") == "s3://hummingbird/agent/runs/u/answer.md"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/var/lib",
        "file://",
        "file:///",
        "file://relative/path",
        "s3://",
        "s3:///prefix",
        "http://bucket/prefix",
        "s3://bucket/prefix?versionId=1",
        "s3://key:secret@bucket/prefix",
    ],
)
def test_an_address_that_is_neither_is_invalid_and_names_the_setting(url: str) -> None:
    with pytest.raises(Invalid, match=r"sessions\.store"):
        open_store(url)
