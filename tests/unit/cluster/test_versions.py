from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from cluster import versions
from cluster.errors import BuildFailed
from cluster.paths import GO_MODULES, IMAGE_RECIPES, State, cache_root, state_root
from cluster.versions import BUILDS, ETCD, KUBE_ROUTER, KUBERNETES


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"HUMMINGBIRD_CACHE": "/own", "XDG_CACHE_HOME": "/xdg"}, Path("/own")),
        ({"XDG_CACHE_HOME": "/xdg"}, Path("/xdg/hummingbird")),
        ({"HUMMINGBIRD_CACHE": "", "XDG_CACHE_HOME": ""}, Path.home() / ".cache/hummingbird"),
        ({}, Path.home() / ".cache/hummingbird"),
    ],
)
def test_the_cache_is_where_the_user_or_the_standard_says(env: dict[str, str], expected: Path) -> None:
    assert cache_root(env) == expected


def test_state_lies_outside_of_the_checkout_and_its_lock_beside_it() -> None:
    assert not state_root({}).is_relative_to(GO_MODULES.parents[1])
    state = State(state_root({"HUMMINGBIRD_CLUSTER_DIR": "/somewhere/x"}))
    assert state.root == Path("/somewhere/x")
    assert state.lock == Path("/somewhere/x.lock")


def test_the_version_is_read_from_go_mod_and_not_from_a_replace_line() -> None:
    text = "module m\n\nreplace k8s.io/a => k8s.io/a v0.1.0\n\nrequire (\n\tk8s.io/a v1.2.3 // indirect\n)\n"
    assert versions.required_version(text, "k8s.io/a") == "v1.2.3"
    assert versions.required_version("require k8s.io/a v1.0.0\n", "k8s.io/a") == "v1.0.0"
    with pytest.raises(BuildFailed, match="does not require"):
        versions.required_version(text, "k8s.io/b")


def test_this_checkout_builds_the_versions_that_were_measured() -> None:
    assert [versions.version_of(build) for build in (ETCD, KUBERNETES, KUBE_ROUTER)] == ["v3.6.15", "v1.37.2", "v2.1.0"]


def test_kubernetes_is_told_its_version() -> None:
    flags = versions.ldflags(KUBERNETES, "v1.37.2")
    assert "-X k8s.io/component-base/version.gitVersion=v1.37.2" in flags
    assert "-X k8s.io/component-base/version.gitMajor=1" in flags
    assert "-X k8s.io/component-base/version.gitMinor=37" in flags
    assert versions.ldflags(ETCD, "v3.6.15") == "-s -w"


def test_a_folder_is_named_by_version_and_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "GO_MODULES", tmp_path)
    shutil.copytree(GO_MODULES / "etcd", tmp_path / "etcd")
    before = versions.build_key(ETCD)
    assert re.fullmatch(r"etcd-v3\.6\.15-\w+-[0-9a-f]{12}", before)
    assert versions.build_key(ETCD) == before
    with (tmp_path / "etcd" / "go.sum").open("a") as file:
        file.write("another v1 h1:x\n")
    assert versions.build_key(ETCD) != before


def test_other_binaries_are_another_folder() -> None:
    more = replace(ETCD, binaries=(*ETCD.binaries, ("etcdctl", "go.etcd.io/etcd/etcdctl/v3")))
    assert versions.build_key(more) != versions.build_key(ETCD)


def test_a_changed_or_renamed_recipe_is_another_image_folder(tmp_path: Path) -> None:
    recipes = tmp_path / "images"
    shutil.copytree(IMAGE_RECIPES, recipes)
    before = versions.image_key(recipes)
    assert before == versions.image_key(IMAGE_RECIPES)
    packages = recipes / "sandbox" / "packages.txt"
    packages.write_text(packages.read_text() + "tree\n")
    changed = versions.image_key(recipes)
    assert changed != before
    packages.rename(packages.with_name("more.txt"))
    assert versions.image_key(recipes) not in (before, changed)


def test_parts_of_a_digest_do_not_flow_into_each_other() -> None:
    assert versions.digest([b"ab", b"c"]) != versions.digest([b"a", b"bc"])


def test_go_modules_name_no_local_folder_and_no_toolchain_of_one_machine() -> None:
    for build in BUILDS:
        text = (build.folder / "go.mod").read_text()
        assert "=> ." not in text
        assert "=> /" not in text
        assert f"tool {build.binaries[0][1]}" in text or build.binaries[0][1] in text
