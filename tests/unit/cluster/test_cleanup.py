from __future__ import annotations

from pathlib import Path

import pytest

from cluster import cleanup
from cluster.errors import ClusterError
from cluster.paths import State


def process(proc: Path, pid: int, words: list[str], mountinfo: str = "") -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    folder.joinpath("cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in words))
    folder.joinpath("mountinfo").write_text(mountinfo)
    folder.joinpath("stat").write_text(f"{pid} (x) S {' '.join('0' for _ in range(18))} {pid * 10} 0\n")


def test_only_shims_of_our_containerd_are_found(tmp_path: Path) -> None:
    state = State(tmp_path / "state")
    ours = ["/usr/bin/containerd-shim-runc-v2", "-namespace", "k8s.io", "-address", str(state.containerd_socket)]
    process(tmp_path / "proc", 1, ours)
    process(tmp_path / "proc", 2, [*ours[:-1], "/run/containerd/containerd.sock"])
    process(tmp_path / "proc", 3, ["grep", str(state.containerd_socket)])
    process(tmp_path / "proc", 4, [])
    (tmp_path / "proc" / "meminfo").touch()
    assert [(one.pid, one.start) for one in cleanup.shims(state, tmp_path / "proc")] == [(1, 10)]


def test_containers_without_a_shim_are_known_by_their_root(tmp_path: Path) -> None:
    state = State(tmp_path / "state")
    ours = f"1 2 0:1 / / rw - overlay overlay rw,upperdir={state.containerd}/root/x/fs\n"
    host_root = "1 2 0:1 / / rw - ext4 /dev/vda rw\n"  # the host sees the containers' roots too, but not as its own
    theirs = host_root + ours.replace(" / / rw", " / /run/rootfs rw")
    process(tmp_path / "proc", 1, ["sleep"], ours)
    process(tmp_path / "proc", 2, ["bash"], theirs)
    assert [one.pid for one in cleanup.orphans(state, tmp_path / "proc")] == [1]


def test_mounts_are_listed_innermost_first_and_spaces_are_read(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("a /s ext4\nb /s/x tmpfs\nc /s/x/y\\040z tmpfs\nd /other/s/x tmpfs\ne /s-2/x tmpfs\n")
    assert cleanup.mounts_below(Path("/s"), mounts) == ["/s/x/y z", "/s/x"]
    assert cleanup.mounts_below(Path("/s"), tmp_path / "absent") == []


def test_a_folder_that_we_did_not_make_is_not_deleted(tmp_path: Path) -> None:
    state = State(tmp_path / "home")
    state.root.mkdir()
    (state.root / "thesis.txt").touch()
    with pytest.raises(ClusterError, match="HUMMINGBIRD_CLUSTER_DIR"):
        cleanup.remove_folder(state)
    assert (state.root / "thesis.txt").exists()


def test_nothing_is_deleted_through_a_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = State(tmp_path / "state")
    state.logs.mkdir(parents=True)
    state.marker.touch()
    monkeypatch.setattr(cleanup, "mounts_below", lambda _: [str(state.root / "m")])
    with pytest.raises(ClusterError, match="still mounted"):
        cleanup.remove_folder(state)
    assert state.logs.exists()


def test_logs_can_be_kept_and_the_folder_still_counts_as_ours(tmp_path: Path) -> None:
    state = State(tmp_path / "state")
    for folder in (state.logs, state.pki):
        folder.mkdir(parents=True)
    state.marker.touch()
    (state.root / "link").symlink_to("/etc")
    cleanup.remove_folder(state, keep_logs=True)
    assert sorted(path.name for path in state.root.iterdir()) == [".hummingbird-cluster", "log"]
    cleanup.remove_folder(state)
    assert not state.root.exists()
    cleanup.remove_folder(state)


def test_a_link_put_in_the_folders_place_is_refused(tmp_path: Path) -> None:
    state = State(tmp_path / "state")
    cleanup.check_owner(state)
    state.root.symlink_to(tmp_path)
    with pytest.raises(ClusterError, match="not a folder of this user"):
        cleanup.check_owner(state)
