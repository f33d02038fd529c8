from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from hummingbird_operator.errors import Unavailable
from hummingbird_operator.sessions.archive import ArchiveFailed, archive_sandbox, restore_sandbox
from hummingbird_operator.sessions.sandbox import ExecResult
from hummingbird_operator.sessions.testing import FakeSandbox


def sandbox(root: Path) -> FakeSandbox:
    made = FakeSandbox(root)
    made.start()
    return made


def left_of(sb: FakeSandbox) -> list[str]:
    return sorted(path.name for path in sb.root.iterdir() if path.name != "data")


def test_the_data_folder_goes_from_one_sandbox_into_another(tmp_path: Path) -> None:
    old, new = sandbox(tmp_path / "old"), sandbox(tmp_path / "new")
    old.write_file("/tmp/data/_out/0.txt", b"spilled")
    old.write_file("/tmp/data/sub/a.json", b"{}")
    chunks = list(archive_sandbox(old))
    assert left_of(old) == []
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
    with pytest.raises(ArchiveFailed, match="packing them failed with exit code 2") as caught:
        list(archive_sandbox(broken))
    assert "data" in caught.value.detail
    assert left_of(broken) == []
    with pytest.raises(ArchiveFailed, match="unpacking failed"):
        restore_sandbox(sandbox(tmp_path / "new"), [b"no archive"])


@pytest.mark.parametrize("name", ["_archive.tar.gz", "_archive.aaaaaaaaaa"])
def test_no_link_that_the_model_made_is_followed(tmp_path: Path, name: str) -> None:
    """It pointed to `/dev/zero`: an archive without end; or to a file that was written over."""
    old = sandbox(tmp_path / "old")
    target = tmp_path / "target"
    target.write_bytes(b"as it was")
    old.exec(f"ln -s {target} /tmp/{name}")
    whole = b"".join(archive_sandbox(old))
    assert whole.startswith(b"\x1f\x8b")
    assert target.read_bytes() == b"as it was"


def test_what_a_process_that_died_left_behind_is_removed(tmp_path: Path) -> None:
    old = sandbox(tmp_path / "old")
    old.write_file("/tmp/_archive.abcdefghij/sandbox.tar.gz", b"x")
    list(archive_sandbox(old))
    assert left_of(old) == []


def test_too_large_an_archive_is_not_even_made_in_the_sandbox(tmp_path: Path) -> None:
    old = sandbox(tmp_path / "old")
    old.exec("head -c 200000 /dev/urandom > /tmp/data/noise")
    with pytest.raises(ArchiveFailed, match="larger than 100,000 bytes"):
        list(archive_sandbox(old, max_bytes=100_000))
    assert left_of(old) == []


def test_an_archive_that_has_no_end_is_cut_off_here_too(tmp_path: Path) -> None:
    class Endless(FakeSandbox):
        def read_file_iter(self, path: str) -> Iterator[bytes]:
            while True:
                yield b"0" * 65_536

    endless = Endless(tmp_path / "endless")
    endless.start()
    got: list[bytes] = []
    with pytest.raises(ArchiveFailed, match="larger than 1,000,000 bytes"):
        got.extend(archive_sandbox(endless, max_bytes=1_000_000))
    assert sum(map(len, got)) <= 1_000_000


def test_a_place_that_the_sandbox_made_up_is_not_read(tmp_path: Path) -> None:
    class Liar(FakeSandbox):
        def exec(self, command: str, *, stdin_data: bytes | None = None) -> ExecResult:
            return super().exec("echo /dev" if "mktemp" in command else command, stdin_data=stdin_data)

    liar = Liar(tmp_path / "liar")
    liar.start()
    with pytest.raises(ArchiveFailed, match="packing them failed"):
        list(archive_sandbox(liar))


class Cut(FakeSandbox):
    """Its connection breaks off so many times, each time after three bytes."""

    times = 0

    def read_file_iter(self, path: str) -> Iterator[bytes]:
        data = b"".join(super().read_file_iter(path))
        if self.times:
            self.times -= 1
            yield data[:3]
            raise Unavailable("the sandbox", "cut")
        yield data[:2]
        yield data[2:]


def test_a_connection_that_breaks_off_costs_nothing(tmp_path: Path) -> None:
    old, new = Cut(tmp_path / "old"), sandbox(tmp_path / "new")
    old.start()
    old.write_file("/tmp/data/a", b"kept")
    old.times = 2
    restore_sandbox(new, list(archive_sandbox(old)))
    assert new.path("/tmp/data/a").read_bytes() == b"kept"


def test_a_sandbox_that_is_away_is_asked_again_later_and_one_that_is_lost_means_no_archive(tmp_path: Path) -> None:
    old = Cut(tmp_path / "old")
    old.start()
    old.times = 3
    with pytest.raises(Unavailable):
        list(archive_sandbox(old))
    old.lose("OOMKilled")
    with pytest.raises(ArchiveFailed) as caught:
        list(archive_sandbox(old))
    assert "OOMKilled" in caught.value.detail
