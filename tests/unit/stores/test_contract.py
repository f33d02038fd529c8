"""The battery over the stores that need no server; `tests/e2e/test_store_s3.py` runs it over S3."""

from __future__ import annotations

from pathlib import Path

import pytest

from hummingbird_operator.sessions.store import BlobStore
from hummingbird_operator.sessions.testing import MemoryStore
from hummingbird_operator.stores import FolderStore
from tests.unit.stores.battery import StoreContract


class TestFolderStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> BlobStore:
        return FolderStore(tmp_path / "store")


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> BlobStore:
        return MemoryStore()
