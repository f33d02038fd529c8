from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import pytest

from cluster import imagebuild, packages, ports
from cluster.cache import made_once
from cluster.errors import BuildFailed
from cluster.paths import IMAGE_RECIPES


def test_a_folder_is_made_once_even_by_two_at_the_same_time(tmp_path: Path) -> None:
    made: list[int] = []

    def make(work: Path) -> None:
        made.append(1)
        time.sleep(0.1)
        (work / "binary").write_text("x")

    threads = [threading.Thread(target=made_once, args=(tmp_path / "k-v1", make)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [1]
    assert (tmp_path / "k-v1" / "binary").read_text() == "x"


def test_a_failed_build_leaves_no_folder_and_can_be_tried_again(tmp_path: Path) -> None:
    def fail(work: Path) -> None:
        (work / "half").touch()
        raise BuildFailed("no network")

    with pytest.raises(BuildFailed):
        made_once(tmp_path / "k-v1", fail)
    assert [path.name for path in tmp_path.iterdir()] == ["k-v1.lock"]
    made_once(tmp_path / "k-v1", lambda work: (work / "binary").touch())
    assert (tmp_path / "k-v1" / "binary").exists()


def test_leftovers_of_a_killed_build_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".k-v1.abc").mkdir()
    made_once(tmp_path / "k-v1", lambda work: (work / "binary").touch())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["k-v1", "k-v1.lock"]


def test_a_removed_debian_package_whose_settings_remain_is_not_installed() -> None:
    listing = "runc installed\npodman config-files\n\nodd line here\n"
    assert packages.parse_installed(listing) == {"runc"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('ID=debian\nVERSION_CODENAME=trixie\nNAME="Debian"\n', "trixie"),
        ("ID=ubuntu\nVERSION_CODENAME=noble\n", "bookworm"),
        ("", "bookworm"),
    ],
)
def test_the_image_is_of_this_machines_debian(text: str, expected: str) -> None:
    assert imagebuild.debian_release(text) == expected


def test_the_sandbox_has_the_tools_of_its_contract_and_no_root() -> None:
    assert {"bash", "coreutils", "jq", "python3", "ripgrep", "tar", "util-linux"} <= set(imagebuild.package_names())
    recipe = (IMAGE_RECIPES / "sandbox" / "Containerfile").read_text()
    assert "\nUSER 65532:65532\n" in recipe
    assert "\nWORKDIR /tmp\n" in recipe


def test_usual_ports_are_kept_where_free_and_none_is_given_twice() -> None:
    assert ports.choose(free=lambda _: True) == ports.Ports()
    numbers = iter([50000, 50000, 50001])
    chosen = ports.choose(free=lambda port: port not in (6443, 10250), another=lambda: next(numbers))
    assert chosen == ports.Ports(apiserver=50000, kubelet=50001)


def test_a_port_with_a_listener_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not ports.is_free(server.getsockname()[1])
    assert ports.is_free(ports.any_free())
