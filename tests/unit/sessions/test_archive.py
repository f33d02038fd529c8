from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from hummingbird_operator.errors import Unavailable
from hummingbird_operator.sessions.archive import ARCHIVE_PATH, archive_sandbox, restore_sandbox
from hummingbird_operator.sessions.testing import FakeSandbox


def sandbox(root: Path) -> FakeSandbox:
    made = FakeSandbox(root)
    made.start()
    return made


def test_the_data_folder_goes_from_one_sandbox_into_another(tmp_path: Path) -> None:
    old, new = sandbox(tmp_path / "old"), sandbox(tmp_path / "new")
    old.write_file("/tmp/data/_out/0.txt", b"spilled")
    old.write_file("/tmp/data/sub/a.json", b"{}")
    chunks = list(archive_sandbox(old))
    assert not old.path(ARCHIVE_PATH).exists()
    whole = b"".join(chunks)
    assert restore_sandbox(new, chunks) == (len(whole), hashlib.sha256(whole).hexdigest())
    assert new.path("/tmp/data/_out/0.txt").read_bytes() == b"spilled"
    assert new.path("/tmp/data/sub/a.json").read_bytes() == b"{}"


def test_only_the_data_folder_is_unpacked(tmp_path: Path) -> None:
    old, new = sandbox(tmp_path / "old"), sandbox(tmp_path / "new")
    old.exec("echo x > /tmp/evil; tar czf /tmp/bad.tar.gz -C /tmp data evil")
    restore_sandbox(new, old.read_file_iter("/tmp/bad.tar.gz"))
    assert not new.path("/tmp/evil").exists()


def test_a_sandbox_that_cannot_pack_or_unpack_says_why(tmp_path: Path) -> None:
    broken = FakeSandbox(tmp_path / "none")
    broken.root.mkdir()
    with pytest.raises(Unavailable, match="packing /tmp/data failed"):
        list(archive_sandbox(broken))
    with pytest.raises(Unavailable, match="unpacking failed"):
        restore_sandbox(sandbox(tmp_path / "new"), [b"no archive"])
